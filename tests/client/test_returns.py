"""What a client comes back from: nodes that greet and go no further, addresses with something else behind them, links that overlap."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dovetail
from dovetail.client import AccessDenied, session
from dovetail.client.link import Link
from dovetail.client.pushes import Pushes
from dovetail.client.session import Session
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import DovetailError, NoSuchQueue, StorageError, Unavailable, Unknown
from tests.client.house import Served, Wire, until


def session_of(node: dovetail.Client) -> Session:
    return node._session


@pytest.mark.parametrize("fault", [TimeoutError(), StorageError(), Unknown(), AccessDenied(), Unavailable()])
async def test_a_node_that_greets_and_cannot_go_on_is_tried_again(
    node: dovetail.Client, wire: Wire, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    queue = await node.queue("orders")
    faults, resume = [fault, fault], Pushes.resume

    async def failing(pushes: Pushes, link: Link, lost_at: float) -> None:
        if faults:
            raise faults.pop()
        await resume(pushes, link, lost_at)

    monkeypatch.setattr(Pushes, "resume", failing)
    wire.cut()
    assert (await queue.send(b"a")).sequence == 1
    assert wire.connections == 4


async def test_a_queue_that_is_closed_to_us_takes_no_other_with_it(
    node: dovetail.Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = await node.queue("orders"), await node.queue("other")
    asked = Session._asked

    def denying(session: Session, link: Link, request: requests.Request) -> asyncio.Future[Any]:
        if isinstance(request, requests.Open) and request.name == "orders":
            denied = session.loop.create_future()
            denied.set_exception(AccessDenied())
            return denied
        return asked(session, link, request)

    monkeypatch.setattr(Session, "_asked", denying)
    wire.cut()
    assert (await other.send(b"a")).sequence == 1
    for act in (queue.counts(), queue.send(b"b"), queue.receive()):
        with pytest.raises(NoSuchQueue):
            await act


async def test_a_balancer_without_a_node_is_asked_again(served: Served, wire: Wire) -> None:
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        met = 0

        async def balancer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal met
            met += 1
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        await wire.close()
        between = await asyncio.start_server(balancer, "127.0.0.1", wire.port)
        sending = asyncio.create_task(queue.send(b"a"))
        await until(lambda: met >= 2)
        between.close()
        await wire.open()
        assert (await sending).sequence == 1


async def test_what_is_no_node_is_said_at_once_by_the_first_connection() -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    there = await asyncio.start_server(stranger, "127.0.0.1", 0)
    with pytest.raises(dovetail.client.ProtocolError):
        await dovetail.connect(f"dovetail://127.0.0.1:{there.sockets[0].getsockname()[1]}", timeout_s=60)
    there.close()


async def test_an_address_that_is_silent_does_not_starve_the_next(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REACH_S", 1.0)
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with dovetail.connect(f"dovetail://127.0.0.1:{port},127.0.0.1:{served.port}", timeout_s=60) as node:
        await node.ping()
    with pytest.raises(Unavailable, match=f"{port}.*has not answered yet|{port}.*in time"):
        await dovetail.connect(f"dovetail://127.0.0.1:{port}", timeout_s=0.2)
    silent.close()


async def test_after_a_loss_the_next_address_is_the_first(served: Served, wire: Wire) -> None:
    async with dovetail.connect(f"{wire.url},127.0.0.1:{served.port}", timeout_s=60) as node:
        first = session_of(node).link
        wire.cut()
        await until(lambda: session_of(node).link is not first)
        await node.ping()
        assert wire.connections == 1


async def test_what_a_retired_link_did_not_answer_is_asked_on_the_next(node: dovetail.Client, wire: Wire) -> None:
    queue, other = await node.queue("orders"), await node.queue("other")
    consuming = asyncio.ensure_future(anext(aiter(other.consume())))
    await until(lambda: wire.asked["CONSUME"] == 1)
    session = session_of(node)
    first = session.link
    assert first is not None
    wire.flowing.clear()
    counting = asyncio.create_task(queue.counts())
    await until(lambda: wire.asked["COUNTS"] == 1)
    wire.flowing = asyncio.Event()  # What is held back stays; the next connection is let through.
    wire.flowing.set()
    first.last = first._number
    await until(lambda: node.ready and session.link is not first)
    session.retire(first)
    assert node.ready, "what an old link says ends no other"
    first.end(Unavailable())
    async with asyncio.timeout(60):
        assert (await counting).visible == 0
        await other.send(b"a")
        assert (await consuming).body == b"a"


async def test_unnumbered_sends_go_on_when_a_retired_link_ends(served: Served, wire: Wire) -> None:
    async with dovetail.connect(wire.url, numbered=False, timeout_s=60) as node:
        queue = await node.queue("orders")
        session = session_of(node)
        first = session.link
        assert first is not None
        wire.flowing.clear()
        sending = asyncio.create_task(queue.send(b"a"))
        await until(lambda: wire.asked["PUSH"] == 1)
        wire.flowing = asyncio.Event()
        wire.flowing.set()
        first.last = first._number - 1  # It says that it did not read the push.
        await until(lambda: node.ready and session.link is not first)
        first.end(Unavailable())
        async with asyncio.timeout(60):
            assert (await sending).sequence in (1, 2)


async def test_a_stop_dies_with_its_link(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    receiving = asyncio.create_task(queue.receive(wait_s=60))
    await until(lambda: wire.asked["PULL"] == 1)
    wire.flowing.clear()
    receiving.cancel()
    await until(lambda: wire.asked["STOP"] == 1)
    link = session_of(node).link
    assert link is not None
    link.last = link._number - 1  # The node says that it did not read the STOP.
    wire.cut()
    wire.flowing.set()
    assert (await queue.counts()).visible == 0
    assert wire.connections == 2 and wire.asked["STOP"] == 1


async def test_closing_waits_for_no_stop(node: dovetail.Client, wire: Wire) -> None:
    consumer = (await node.queue("orders")).consume()
    consuming = asyncio.ensure_future(anext(aiter(consumer)))
    await until(lambda: wire.asked["CONSUME"] == 1)
    wire.flowing.clear()
    closing = asyncio.create_task(consumer.close())
    await until(lambda: wire.asked["STOP"] == 1)
    await node.close()
    async with asyncio.timeout(60):
        await asyncio.gather(closing, consuming, return_exceptions=True)
    wire.flowing.set()


async def test_a_drop_that_was_refused_leaves_the_queue_where_it_was(
    node: dovetail.Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await node.queue("orders")
    ask = node.verbs._ask  # type: ignore[attr-defined]

    async def refusing(request: requests.Request, kind: Any, *, again: bool) -> Any:
        if isinstance(request, requests.About) and request.kind is Kind.DROP:
            raise Unavailable
        return await ask(request, kind, again=again)

    monkeypatch.setattr(node.verbs, "_ask", refusing)
    with pytest.raises(DovetailError):
        await node.drop("orders")
    wire.cut()
    assert (await queue.send(b"a")).sequence == 1, "it is opened on the next connection, too"
    monkeypatch.setattr(node.verbs, "_ask", ask)
    await node.drop("orders")
    assert await node.queues() == [] and session_of(node).places == {}
