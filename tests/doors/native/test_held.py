"""What clients can make the node hold, or do at a stretch, is bounded: frames that never end and answers that nobody reads, over all
connections; floods of what is answered at once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from dovetail.doors.native.bounds import Bounds
from tests.doors.native.house import Inside
from tests.doors.native.stranger import HEADER, KINDS, Stranger, record

HALF = 500_000


@pytest.fixture
def node() -> Iterator[Callable[[Bounds], Inside]]:
    made: list[Inside] = []

    def make(bounds: Bounds) -> Inside:
        made.append(Inside(bounds=bounds))
        return made[-1]

    yield make
    for one in made:
        one.close()


def half_a_push(inside: Inside, size: int = HALF) -> Stranger:
    """Somebody who has sent so much of a frame of a megabyte, all of which the node has read."""
    before = inside.call(lambda: inside.server.unfinished.bytes)
    stranger = inside.stranger()
    stranger.socket.sendall(HEADER.pack(1_000_000, KINDS["PUSH"], 0, 0, stranger.number + 1) + bytes(size - 16))
    inside.until(lambda: inside.server.unfinished.bytes >= before + size)
    return stranger


def test_of_frames_that_never_end_the_oldest_gives_way_and_is_told(node: Callable[[Bounds], Inside]) -> None:
    inside = node(Bounds(unfinished_bytes_max=3 * HALF))
    slow = [half_a_push(inside) for _ in range(3)]
    assert inside.call(lambda: inside.server.unfinished.bytes) == 3 * HALF
    honest = inside.stranger()
    queue = honest.declare("q")
    assert honest.push(record([queue], [b"x" * 1_000_000]))[0][0] == [1]
    told = slow[0].error(slow[0].take().payload)
    assert (told.code, told.unknown) == ("UNAVAILABLE", False) and slow[0].closed()
    for one in slow[1:]:
        one.close()
    inside.gone(1)
    assert inside.call(lambda: inside.server.unfinished.bytes) == 0


def test_without_a_bound_frames_that_never_end_pile_up(node: Callable[[Bounds], Inside]) -> None:
    inside = node(Bounds(unfinished_bytes_max=1 << 40))
    slow = [half_a_push(inside) for _ in range(4)]
    assert inside.call(lambda: (inside.server.unfinished.bytes, inside.server.connections)) == (4 * HALF, 4)
    for one in slow:
        one.close()


def test_a_frame_that_ends_is_held_no_longer(node: Callable[[Bounds], Inside]) -> None:
    inside = node(Bounds(unfinished_bytes_max=2 * HALF))
    stranger = inside.stranger()
    queue = stranger.declare("q")
    data = record([queue], [b"x" * HALF])
    for number in range(8):
        stranger.send("PUSH", data)
        assert stranger.take().kind == "PUSHED", number
        assert inside.call(lambda: inside.server.unfinished.bytes) == 0


def unread(inside: Inside, queue: int) -> Stranger:
    """Somebody who asked for a megabyte twenty times and reads none of it."""
    slow = inside.narrow()
    slow.open("q")
    slow.send_at_once("PEEK", [struct.pack("<QQII", queue, 0, 1, 0)] * 20)
    return slow


def test_of_those_who_leave_their_answers_unread_the_one_who_began_first_is_cut_off(node: Callable[[Bounds], Inside]) -> None:
    inside = node(Bounds(unread_bytes_max=4_000_000))
    witness = inside.stranger()
    queue = witness.declare("q")
    witness.push(record([queue], [b"x" * 1_000_000]))
    known = inside.call(lambda: set(inside.server._connections))
    slow, slowest = [], []
    while not slowest or inside.call(lambda: not slowest[0].over):
        assert len(slow) < 40, "nobody gives way"
        slow.append(unread(inside, queue))
        (met,) = inside.call(lambda: inside.server._connections - known)
        inside.until(lambda: not met.writable)  # noqa: B023  # awaited at once
        known.add(met)
        slowest.append(met)
        assert inside.call(lambda: inside.server.unread.bytes) <= 4_000_000
    assert [one.over for one in slowest[1:]] == [False] * (len(slow) - 1)
    witness.ask("PING")
    for one in slow:
        one.close()
    inside.gone(1)
    assert inside.call(lambda: inside.server.unread.bytes) == 0


def flood(inside: Inside) -> int:
    """The most that was taken of one connection in a turn, where thousands of small frames lay there at once."""
    most = 0
    stranger = inside.stranger()
    (connection,) = inside.call(lambda: list(inside.server._connections))
    take = type(connection)._take

    def watched(self: object, events: list[object]) -> None:
        nonlocal most
        take(self, events)  # type: ignore[arg-type]  # handed on as it came
        most = max(most, self._taken)  # type: ignore[attr-defined]

    type(connection)._take = watched  # type: ignore[method-assign,assignment]
    try:
        with inside.held():
            stranger.send_at_once("PING", [b""] * 4_000)
        numbers = [stranger.take().number for _ in range(4_000)]
    finally:
        type(connection)._take = take  # type: ignore[method-assign]
    assert numbers == list(range(2, 4_002))
    stranger.send_at_once("CREDIT", [struct.pack("<QQII", 1, 1, 1, 0)] * 4_000)
    stranger.ask("PING")
    return most


def test_a_flood_of_what_is_answered_at_once_is_taken_a_part_at_a_time(node: Callable[[Bounds], Inside]) -> None:
    assert flood(node(Bounds(turn_frames_max=100))) == 100


def test_without_that_bound_everything_that_lies_there_is_taken_at_once(node: Callable[[Bounds], Inside]) -> None:
    assert flood(node(Bounds(turn_frames_max=1 << 30))) > 1_000
