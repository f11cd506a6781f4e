"""What callers can make the node hold is bounded: bodies that never end, answers that nobody reads, messages of those who have left."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from dovetail.doors.held import Held
from dovetail.doors.http import Request, Response
from dovetail.doors.http import connection as connections
from dovetail.doors.http import message as messages
from dovetail.doors.http.connection import Connection
from dovetail.doors.http.message import Later, Slot

from .wire import Caller, get, post, settled, until

UNFINISHED = post("/", bytes(8000))[:-2000]
LARGE = 32 * 1024 * 1024


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _parser_of_a_cut_body(serve) -> weakref.ref[object]:
    server, port = await serve()
    caller = await Caller.to(port)
    await caller.send(UNFINISHED)
    await until(lambda: server.bodies.bytes)
    (held,) = server._connections
    parser = weakref.ref(held._parser)
    del held
    caller.close()
    await until(lambda: not server.connections)
    await asyncio.sleep(0.01)
    assert not server.bodies.bytes
    return parser


async def test_a_body_that_was_cut_off_is_let_go_with_its_connection(serve, no_collector: None) -> None:
    parser = await _parser_of_a_cut_body(serve)
    await until(lambda: parser() is None)


async def test_twin_without_the_stop_a_cut_body_waits_for_the_collector(serve, no_collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_stop_parsing", lambda self: self._server.bodies.let_go(self))
    parser = await _parser_of_a_cut_body(serve)
    assert parser() is not None


async def test_a_connection_that_rests_keeps_nothing_of_the_body_it_sent(serve) -> None:
    server, port = await serve()
    caller = await Caller.to(port)
    for _ in range(2):
        await caller.send(UNFINISHED)
        await until(lambda: server.bodies.bytes)
        await caller.send(bytes(2000))
        assert (await caller.answer()).status == 200
        (held,) = server._connections
        assert not server.bodies.bytes and not held._parser._body and not held._parser._events
    caller.close()


async def test_of_all_bodies_that_do_not_end_the_oldest_gives_way_and_is_told(serve) -> None:
    server, port = await serve(bodies_bytes_max=15_000)
    callers = []
    for _ in range(2):
        caller = await Caller.to(port)
        held = server.bodies.bytes
        await caller.send(UNFINISHED)
        await until(lambda held=held: server.bodies.bytes > held)
        callers.append(caller)
    third = await Caller.to(port)
    await third.send(UNFINISHED)
    answer = await callers[0].answer()
    assert answer.status == 503 and b"try again" in answer.body and answer.headers["connection"] == "close"
    assert server.bodies.bytes <= 15_000
    for caller in (callers[1], third):
        await caller.send(bytes(2000))
        assert (await caller.answer()).status == 200
    assert not server.bodies.bytes
    for caller in (*callers, third):
        caller.close()


async def test_twin_without_the_bound_nobody_gives_way(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "let_go", lambda self, holder: None)
    monkeypatch.setattr(Held, "hold", lambda self, holder, size: setattr(self, "bytes", self.bytes + size) or [])
    server, port = await serve(bodies_bytes_max=15_000)
    callers = [await Caller.to(port) for _ in range(3)]
    for caller in callers:
        await caller.send(UNFINISHED)
    await until(lambda: server.bodies.bytes > 15_000)
    for caller in callers:
        await caller.send(bytes(2000))
        assert (await caller.answer()).status == 200
        caller.close()


async def _made_for_one_that_does_not_read(serve, brief: bool) -> int:
    made = 0

    async def large(request: Request) -> Response:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return Response(200, bytes(LARGE))

    server, port = await serve(large, pipeline_max=4)
    server.is_brief = lambda request: brief
    caller = await Caller.to(port)
    await caller.send(get() * 16)
    await until(lambda: made)
    most = await settled(lambda: made)
    caller.writer.transport.abort()
    await until(lambda: not server.connections)
    return most


async def test_a_caller_that_reads_nothing_has_one_large_answer_made_however_many_it_asks_for(serve) -> None:
    assert await _made_for_one_that_does_not_read(serve, brief=False) == 1


async def test_twin_where_every_answer_is_taken_for_small_as_many_are_made_as_may_be_under_way(serve) -> None:
    assert await _made_for_one_that_does_not_read(serve, brief=True) == 4


async def test_requests_with_large_answers_are_answered_in_order_among_others(serve) -> None:
    under_way: set[bytes] = set()

    async def handler(request: Request) -> Response:
        if request.target.startswith(b"/large"):
            assert not under_way
        under_way.add(request.target)
        await asyncio.sleep(0)
        under_way.discard(request.target)
        return Response(200, request.target)

    server, port = await serve(handler)
    server.is_brief = lambda request: not request.target.startswith(b"/large")
    targets = [f"/{'large' if i % 3 == 2 else 'small'}{i}" for i in range(200)]
    caller = await Caller.to(port)
    await caller.send(b"".join(get(target) for target in targets))
    assert [(await caller.answer()).body.decode() for _ in targets] == targets
    caller.close()


async def test_of_all_answers_that_are_not_read_the_oldest_is_cut_off(serve) -> None:
    server, port = await serve(lambda request: Response(200, bytes(LARGE)), unread_bytes_max=LARGE + LARGE // 4)
    first, second = await Caller.to(port), await Caller.to(port)
    await first.send(get())
    await until(lambda: server.unread.bytes)
    await second.send(get())
    await until(lambda: server.connections == 1)
    assert 0 < server.unread.bytes <= LARGE
    assert len((await second.answer()).body) == LARGE
    await until(lambda: not server.unread.bytes)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await first.answer()
    first.close()
    second.close()


def _left_behind(way: str, undone: list[int]) -> None:
    """An answer that was there before its caller was known to have left, and that nobody has looked at."""
    answer = Response(200, undo=lambda: undone.append(1))
    done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    slot: Slot = Later() if way in ("its task", "given") else Slot(answer if way == "waiting" else None)
    if isinstance(slot, Later):
        slot.take(lambda _: None)
        if way == "its task":
            slot.go_on(done)
    elif way == "task":
        slot.work = done
    if "task" in way:
        done.set_result(answer)
    Connection._give_up(slot)
    if isinstance(slot, Later) and way == "given":
        slot.give(answer)


@pytest.mark.parametrize("way", ["waiting", "task", "its task", "given"])
async def test_an_answer_that_was_made_in_the_turn_in_which_its_caller_left_is_undone_once(way: str) -> None:
    undone: list[int] = []
    _left_behind(way, undone)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert undone == [1]


@pytest.mark.parametrize("way", ["task", "its task", "given"])
async def test_twin_without_the_second_look_what_was_handed_out_stays_hidden(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_undo_result", lambda work: None)
    monkeypatch.setattr(messages, "_nobody", lambda slot: None)
    undone: list[int] = []
    _left_behind(way, undone)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not undone
