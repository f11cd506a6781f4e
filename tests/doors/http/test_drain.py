"""A stop loses no answer: requests under way are finished, idle connections go at once, and nothing new is begun."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.doors.http import Request, Response

from .wire import PATIENCE_S, Caller, get, post, until


async def test_requests_under_way_are_finished_and_the_last_answer_says_close(serve) -> None:
    gate = asyncio.get_running_loop().create_future()
    begun = []

    async def later(request: Request) -> Response:
        begun.append(request.path)
        await asyncio.shield(gate)
        return Response(200, request.path.encode())

    server, port = await serve(later)
    idle, busy = await Caller.to(port), await Caller.to(port)
    await busy.send(get("/1") + get("/2"))
    await until(lambda: len(begun) == 2)
    draining = asyncio.create_task(server.drain(5))
    assert await idle.closed()
    await busy.send(get("/never"))
    await asyncio.sleep(0.05)
    assert not draining.done()
    gate.set_result(None)
    first, second = await busy.answer(), await busy.answer()
    assert (first.body, second.body) == (b"/1", b"/2")
    assert "connection" not in first.headers and second.headers["connection"] == "close"
    assert await busy.closed()
    busy.close()
    assert await draining is True
    assert begun == ["/1", "/2"]
    with pytest.raises(OSError):
        await Caller.to(port)


async def test_a_request_that_has_begun_to_arrive_is_still_answered(serve) -> None:
    server, port = await serve()
    caller = await Caller.to(port)
    await caller.send(post("/half", b"body")[:-2])
    # Whoever asks now is answered after that was read.
    other = await Caller.to(port)
    await other.send(get())
    assert (await other.answer()).status == 200
    other.close()
    draining = asyncio.create_task(server.drain(5))
    await asyncio.sleep(0.05)
    await caller.send(b"dy")
    answer = await caller.answer()
    assert answer.body == b"POST /half body" and answer.headers["connection"] == "close"
    caller.close()
    assert await draining is True


async def test_what_takes_longer_than_the_time_given_is_cut_off_and_told(serve) -> None:
    begun = asyncio.Event()

    async def forever(request: Request) -> Response:
        begun.set()
        await asyncio.sleep(3600)
        raise AssertionError

    server, port = await serve(forever)
    caller = await Caller.to(port)
    await caller.send(get())
    await begun.wait()
    assert await server.drain(0.1) is False
    assert await caller.closed()
    assert server.connections == 0
    caller.close()


async def test_a_server_without_connections_drains_at_once(serve) -> None:
    server, _ = await serve()
    async with asyncio.timeout(PATIENCE_S):
        assert await server.drain(3600) is True
