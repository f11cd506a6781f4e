"""Several addresses: one that answers is found, those that the node tells are used, and a node that stops hands its clients on."""

from __future__ import annotations

import asyncio
import socket

import pytest

import dovetail
from dovetail.client import session
from dovetail.client.address import Target, target_of, targets_of
from dovetail.errors import BadRequest, Unavailable
from tests.client.house import Served, Wire, until


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_the_first_address_that_answers_is_used(served: Served) -> None:
    url = f"dovetail://127.0.0.1:{free_port()},127.0.0.1:{served.port}"
    async with dovetail.connect(url, timeout_s=60) as node:
        assert (await (await node.queue("orders")).send(b"a")).sequence == 1


async def test_where_no_address_answers_the_error_says_why() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
        async with dovetail.connect(f"dovetail://127.0.0.1:{port}", timeout_s=0.3):
            pass


async def test_a_node_that_stops_hands_its_clients_to_the_next_address(served: Served) -> None:
    # Two nodes that do not share a store; a queue has the same id on both because they were made in the same order.
    next_door = await Served().open()
    there, other = await next_door.node.queue("orders"), await next_door.node.queue("other")
    async with dovetail.connect(f"{served.url},127.0.0.1:{next_door.port}", timeout_s=60) as node:
        queue = await node.queue("orders")
        receiving = asyncio.create_task(queue.receive(wait_s=60))
        consuming = asyncio.create_task(anext(aiter((await node.queue("other")).consume())))
        await asyncio.sleep(0.05)
        await served.stop()
        await until(lambda: node.ready)
        await there.send(b"a")
        await other.send(b"b")
        assert ((await receiving)[0].body, (await consuming).body) == (b"a", b"b")
        assert (await queue.send(b"c")).sequence == 2
    await next_door.close()


async def test_a_client_goes_on_at_an_address_that_the_node_told_it(served: Served) -> None:
    next_door = await Served().open()
    first = Served()
    first.addresses = [f"127.0.0.1:{next_door.port}"]
    await first.open()
    async with dovetail.connect(first.url, timeout_s=60) as node:
        await node.queue("orders")
        await first.close()
        await until(lambda: node.ready)
        assert (await (await node.queue("orders")).send(b"a")).sequence == 1
        assert await next_door.node.queues() == ["orders"]
    await next_door.close()


async def test_a_node_that_comes_back_is_found_again(served: Served) -> None:
    async with dovetail.connect(served.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        await queue.send(b"a")
        await served.stop()
        sending = asyncio.create_task(queue.send(b"b"))
        await asyncio.sleep(0.3)
        assert not sending.done() and not node.ready
        await served.begin()
        assert (await sending).sequence == 2


async def test_a_vanished_node_is_found_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody closes the connection of a machine that lost its power."""
    monkeypatch.setattr(session, "HEARTBEAT_S", 0.2)
    wire = await Wire(served.port).open()
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        wire.flowing.clear()
        counting = asyncio.create_task(queue.counts())
        await asyncio.sleep(0.2)
        wire.flowing = asyncio.Event()  # The pumps that hold back go on doing so; new connections are let through.
        wire.flowing.set()
        assert (await counting).visible == 0
        assert wire.connections >= 2
    await wire.close()


@pytest.mark.parametrize(
    ("url", "targets", "tls"),
    [
        ("dovetail://a:1", [Target("a", 1)], False),
        ("dovetails://a:1,b:2,c", [Target("a", 1), Target("b", 2), Target("c", 9325)], True),
        ("dovetail://[::1]:7,[fe80::1]", [Target("::1", 7), Target("fe80::1", 9325)], False),
    ],
)
def test_addresses_are_read_as_they_are_written(url: str, targets: list[Target], tls: bool) -> None:
    assert targets_of(url) == (targets, tls)
    assert [target_of(str(one)) for one in targets] == targets


@pytest.mark.parametrize(
    "url", ["", "http://a", "dovetail:a", "dovetail://", "dovetail://a:b", "dovetail://a:0", "dovetail://u@a", "dovetail://a/b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        targets_of(url)
