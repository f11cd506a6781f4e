"""What the edge refuses, and how: the caller reads a clear status before the connection ends, and the others go on undisturbed."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.doors.http import Bounds, Response, Server

from .conftest import echo
from .wire import Caller, get, post, settled, until


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/" + "a" * 9000), 414),
        (get("/", "X: " + "a" * 40_000), 431),
        (get("/", *["X: 1"] * 101), 431),
        (post("/", bytes(2000)), 413),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"3e8\r\n"
            + bytes(1000)
            + b"\r\n"
            + b"3e8\r\n"
            + bytes(1000),
            413,
        ),
        (b"garbage\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n", 413),
    ],
)
async def test_what_is_too_large_or_garbled_is_refused_after_the_answers_before_it(serve, data: bytes, status: int) -> None:
    server, port = await serve(body_bytes_max=1024)
    caller = await Caller.to(port)
    await caller.send(get("/before") + data)
    assert (await caller.answer()).body == b"GET /before "
    answer = await caller.answer()
    assert answer.status == status and answer.headers["connection"] == "close"
    assert await caller.closed()
    caller.close()
    other = await Caller.to(port)
    await other.send(get("/after"))
    assert (await other.answer()).status == 200
    other.close()


async def test_a_refusal_reaches_a_caller_that_sends_everything_before_it_reads(serve) -> None:
    _, port = await serve(body_bytes_max=1024)

    def run() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
            caller.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n")
            for _ in range(40):
                caller.sendall(bytes(100_000))
                time.sleep(0.005)
            return caller.recv(100)

    # Closing at once would meet the bytes still on their way with a reset: most callers then give up sending and never read the answer.
    assert (await asyncio.to_thread(run)).startswith(b"HTTP/1.1 413 ")


async def test_a_caller_is_made_to_wait_while_its_requests_are_under_way(serve) -> None:
    async def never(request: object) -> Response:
        await asyncio.sleep(3600)
        raise AssertionError

    _, port = await serve(never, pipeline_max=2)
    caller = await Caller.to(port)
    caller.writer.write(get() * 1_000_000)
    assert await settled(caller.writer.transport.get_write_buffer_size) > 10_000_000
    caller.writer.transport.abort()


@pytest.mark.parametrize(
    ("start", "drip", "status"),
    [
        (b"GET / HT", b"", 408),
        (b"GET / HTTP/1.1\r\nX: ", b"a", 408),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", b"a", 408),
    ],
)
async def test_a_slow_sender_is_told_and_closed_however_it_drips(serve, start: bytes, drip: bytes, status: int) -> None:
    server, port = await serve(head_s=0.2, body_s=0.2, linger_s=0.2)
    caller = await Caller.to(port)
    begun = asyncio.get_running_loop().time()
    await caller.send(start)

    async def dripping() -> None:
        while True:
            await asyncio.sleep(0.02)
            caller.writer.write(drip)

    task = asyncio.create_task(dripping())
    answer = await caller.answer()
    task.cancel()
    assert answer.status == status and answer.headers["connection"] == "close"
    assert asyncio.get_running_loop().time() - begun >= 0.2
    caller.close()


async def test_empty_lines_do_not_keep_an_idle_connection_open(serve) -> None:
    _, port = await serve(idle_s=0.2)
    caller = await Caller.to(port)

    async def dripping() -> None:
        while True:
            await asyncio.sleep(0.02)
            caller.writer.write(b"\r\n")

    task = asyncio.create_task(dripping())
    assert await caller.closed()
    task.cancel()
    caller.close()


async def test_an_idle_connection_is_closed_but_not_one_whose_answer_is_late(serve) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def late(request: object) -> Response:
        asked.set()
        await gate.wait()
        return Response(200, b"late")

    server, port = await serve(late, idle_s=0.2, head_s=0.2)
    waiting = await Caller.to(port)
    await waiting.send(get())
    await asked.wait()
    idle = await Caller.to(port)
    assert await idle.closed()
    gate.set()
    assert (await waiting.answer()).body == b"late"
    idle.close()
    waiting.close()


async def test_a_caller_that_leaves_its_answers_unread_is_cut_off(serve) -> None:
    server, port = await serve(lambda request: Response(200, bytes(1_000_000)), write_s=0.3)
    caller = await Caller.to(port)
    caller.writer.write(get() * 100)
    await until(lambda: server.connections)
    await until(lambda: not server.connections)
    caller.close()


async def test_connections_beyond_the_bound_are_told_and_those_within_it_go_on(serve) -> None:
    server, port = await serve(connections_max=2, linger_s=0.1)
    first, second = await Caller.to(port), await Caller.to(port)
    await first.send(get())
    await second.send(get())
    assert (await first.answer()).status == (await second.answer()).status == 200
    third = await Caller.to(port)
    await third.send(get())
    assert (await third.answer()).status == 503
    assert await third.closed()
    third.close()
    first.close()
    await until(lambda: server.connections == 1)
    fourth = await Caller.to(port)
    await fourth.send(get())
    assert (await fourth.answer()).status == 200
    fourth.close()
    second.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.binary(max_size=100), st.sampled_from([get(), post("/", b"x"), get()[:10], b"\r\n", b"0\r\n\r\n"])), max_size=8)
)
def test_no_bytes_hurt_the_server(pieces: list[bytes]) -> None:
    async def run() -> None:
        server = Server(echo, Bounds(linger_s=0.01))
        _, port = await server.listen("127.0.0.1", 0)
        caller = await Caller.to(port)
        try:
            for piece in pieces:
                await caller.send(piece)
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        caller.close()
        other = await Caller.to(port)
        await other.send(get("/alive"))
        assert (await other.answer()).body == b"GET /alive "
        other.close()
        await server.drain(1)

    asyncio.run(run())
