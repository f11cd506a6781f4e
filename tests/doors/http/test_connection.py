"""Promises of one connection: answers in order, one write for many, nothing unbounded, nothing left behind by a caller that leaves."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.doors.http import Request, Response

from .wire import Caller, get, post, settled, until


async def test_a_connection_is_kept_and_each_request_gets_its_answer(serve) -> None:
    _, port = await serve()
    caller = await Caller.to(port)
    for body in (b"one", b"two"):
        await caller.send(post("/x", body))
        answer = await caller.answer()
        assert answer.status == 200 and answer.body == b"POST /x " + body
        assert set(answer.headers) == {"date", "content-type", "content-length"}
    caller.close()


async def test_pipelined_requests_are_answered_in_order_however_late_each_answer_is(serve) -> None:
    gates = [asyncio.get_running_loop().create_future() for _ in range(5)]

    async def later(request: Request) -> Response:
        number = int(request.path[1:])
        await gates[number]
        return Response(200, request.path.encode())

    _, port = await serve(later)
    caller = await Caller.to(port)
    await caller.send(b"".join(get(f"/{i}") for i in range(5)))
    for i in (4, 2, 0, 1, 3):
        await asyncio.sleep(0.005)
        gates[i].set_result(None)
    assert [(await caller.answer()).body for _ in range(5)] == [b"/%d" % i for i in range(5)]
    caller.close()


async def test_pipelined_requests_are_answered_when_the_bytes_are_split_at_every_boundary(serve) -> None:
    _, port = await serve()
    data = post("/a", b"x") + get("/b") + post("/c", b"yz")
    caller = await Caller.to(port)
    for cut in range(1, len(data)):
        await caller.send(data[:cut])
        await asyncio.sleep(0)
        await caller.send(data[cut:])
        assert [(await caller.answer()).body for _ in range(3)] == [b"POST /a x", b"GET /b ", b"POST /c yz"]
    caller.close()


async def test_many_pipelined_requests_all_get_answers_and_never_more_than_the_bound_are_under_way(serve) -> None:
    under_way = most = 0

    async def slow(request: Request) -> Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return Response(200, request.path.encode())

    _, port = await serve(slow, pipeline_max=8)
    caller = await Caller.to(port)
    sending = asyncio.create_task(caller.send(b"".join(get(f"/{i}") for i in range(5000))))
    assert [(await caller.answer()).body for _ in range(5000)] == [b"/%d" % i for i in range(5000)]
    await sending
    assert most == 8
    caller.close()


async def test_answers_of_one_turn_leave_in_one_write(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.doors.http.connection import Connection

    writes = []
    write = Connection._write

    def counted(self: Connection) -> None:
        if self._out:
            writes.append(len(self._out))
        write(self)

    monkeypatch.setattr(Connection, "_write", counted)
    gate = asyncio.get_running_loop().create_future()
    asked: list[Request] = []

    async def later(request: Request) -> Response:
        asked.append(request)
        await asyncio.shield(gate)
        return Response(200)

    _, port = await serve(later)
    caller = await Caller.to(port)
    await caller.send(get() * 20)
    await until(lambda: len(asked) == 20)
    gate.set_result(None)
    for _ in range(20):
        assert (await caller.answer()).status == 200
    assert writes == [20]
    caller.close()


async def test_a_caller_that_does_not_read_its_answers_stops_being_read(serve) -> None:
    asked = 0

    def large(request: Request) -> Response:
        nonlocal asked
        asked += 1
        return Response(200, bytes(100_000))

    _, port = await serve(large, pipeline_max=4)
    caller = await Caller.to(port)
    caller.writer.write(get() * 2000)
    assert await settled(lambda: asked) < 500
    for _ in range(2000):
        assert len((await caller.answer()).body) == 100_000
    assert asked == 2000
    caller.close()


async def test_a_caller_that_leaves_has_its_unanswered_requests_cancelled(serve) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    server, port = await serve(wait)
    caller = await Caller.to(port)
    await caller.send(get())
    await begun.wait()
    caller.close()
    await until(cancelled.is_set)
    await until(lambda: server.connections == 0)


async def test_a_future_is_awaited_without_a_task(serve) -> None:
    made: list[asyncio.Future[Response]] = []

    def ask(request: Request) -> asyncio.Future[Response]:
        made.append(asyncio.get_running_loop().create_future())
        return made[-1]

    _, port = await serve(ask)
    caller = await Caller.to(port)
    tasks = len(asyncio.all_tasks())
    await caller.send(get() * 3)
    await until(lambda: len(made) == 3)
    assert len(asyncio.all_tasks()) == tasks
    made[1].cancel()
    made[2].set_exception(KeyError("lost"))
    made[0].set_result(Response(200, b"first"))
    assert [(await caller.answer()).status for _ in range(3)] == [200, 503, 500]
    caller.close()


@pytest.mark.parametrize("answer", [None, Response(200, headers=((b"x", b"a\r\nb: c"),)), Response(799)])
async def test_a_handler_that_answers_nonsense_costs_its_own_request_only(serve, answer: object, caplog: pytest.LogCaptureFixture) -> None:
    _, port = await serve(lambda request: answer if request.path == "/bad" else Response(200, b"fine"))
    caller = await Caller.to(port)
    await caller.send(get("/bad") + get("/good"))
    assert (await caller.answer()).status == 500
    assert (await caller.answer()).body == b"fine"
    assert "a handler failed" in caplog.text
    caller.close()


async def test_a_handler_that_raises_is_told_to_the_log_and_not_to_the_caller(serve, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: Request) -> Response:
        raise RuntimeError("secret detail")

    _, port = await serve(broken)
    caller = await Caller.to(port)
    await caller.send(get())
    answer = await caller.answer()
    assert answer.status == 500 and b"secret" not in answer.body
    assert "secret detail" in caplog.text
    caller.close()


async def test_head_is_answered_with_the_length_and_without_the_body(serve) -> None:
    _, port = await serve(lambda request: Response(200, b"12345"))
    caller = await Caller.to(port)
    await caller.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + get())
    assert (await caller.answer(head=True)).headers["content-length"] == "5"
    assert (await caller.answer()).body == b"12345"
    caller.close()


async def test_an_answer_without_content_has_neither_length_nor_body(serve) -> None:
    _, port = await serve(lambda request: Response(204))
    caller = await Caller.to(port)
    await caller.send(get() * 2)
    for _ in range(2):
        answer = await caller.answer()
        assert answer.status == 204 and set(answer.headers) == {"date"}
    caller.close()


async def test_a_caller_that_expects_100_continue_is_told_to_go_on_in_its_turn(serve) -> None:
    gate = asyncio.get_running_loop().create_future()

    async def later(request: Request) -> Response:
        if request.path == "/first":
            await gate
        return Response(200, request.body)

    _, port = await serve(later)
    caller = await Caller.to(port)
    await caller.send(get("/first") + b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    await asyncio.sleep(0.02)
    gate.set_result(None)
    assert (await caller.answer()).status == 200
    assert (await caller.answer()).status == 100
    await caller.send(b"hi")
    assert (await caller.answer()).body == b"hi"
    caller.close()


async def test_a_chunked_body_arrives_whole(serve) -> None:
    _, port = await serve()
    caller = await Caller.to(port)
    await caller.send(b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await asyncio.sleep(0.01)
    await caller.send(b"2\r\nde\r\n0\r\n\r\n")
    assert (await caller.answer()).body == b"POST /c abcde"
    caller.close()


@pytest.mark.parametrize("request_bytes", [get("/", "Connection: close"), b"GET / HTTP/1.0\r\n\r\n"])
async def test_a_connection_is_closed_when_the_caller_asks_for_it(serve, request_bytes: bytes) -> None:
    _, port = await serve()
    caller = await Caller.to(port)
    await caller.send(request_bytes + get("/ignored"))
    assert (await caller.answer()).headers["connection"] == "close"
    assert await caller.closed()
    caller.close()
