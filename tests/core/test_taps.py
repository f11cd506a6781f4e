"""SEMANTICS §9: a tap reads every accepted push by its sequence, whatever consumers do."""

from __future__ import annotations

from dovetail.core.operation import (
    EARLIEST,
    LATEST,
    Attributes,
    Purge,
    Refusal,
    TapAdvance,
    TapClose,
    TapCut,
    TapOpen,
    Why,
)
from dovetail.core.taps import Stretch
from dovetail.limits import TAPS_PER_QUEUE_MAX
from tests.core.world import Local


def tap(name: str, start: int) -> TapOpen:
    return TapOpen(1, name, start, 0, 0)


def readable(log: Local, name: str) -> list[int]:
    lane = log.state.lanes[1]
    start = lane.taps.by_name[name].next
    runs = lane.taps.recent.since(start)
    return [s for run in runs for s in range(run.first, run.first + run.length) if s >= start]


def test_a_tap_reads_what_consumers_have_settled() -> None:
    log = Local(Attributes())
    log(tap("t", LATEST))
    log.push(b"x", b"y")
    log.complete(*log.pop())
    log.push(b"z")
    assert readable(log, "t") == [1, 2, 3]


def test_a_tap_from_the_earliest_reads_what_waits() -> None:
    log = Local(Attributes())
    log.push(b"x", b"y", b"z")
    log.complete(*log.pop(2))
    assert log(tap("t", EARLIEST)).value == 3
    assert readable(log, "t") == [3]


def test_a_second_tap_from_the_earliest_reads_what_waits_too() -> None:
    log = Local(Attributes())
    log.push(b"x", b"y")
    assert log(tap("late", LATEST)).value == 3
    assert log(tap("early", EARLIEST)).value == 1
    assert readable(log, "early") == [1, 2]


def test_a_tap_goes_forward_only_and_never_past_the_end() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    log.push(b"x", b"y", b"z")
    assert log(TapAdvance(1, "t", 3)).value == 3
    assert log(TapAdvance(1, "t", 2)).value == 3
    assert log(TapAdvance(1, "t", 99)).value == 4
    assert readable(log, "t") == []


def test_a_cut_tap_names_what_it_lost_until_it_goes_on() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    log.push(b"x", b"y", b"z")
    assert log(TapCut(1, "t", 2)).value == 2
    assert log(TapCut(1, "t", 3)).value == 3
    cut = log.state.lanes[1].taps.by_name["t"]
    assert (cut.lost_first, cut.lost_count) == (1, 2)
    log(TapAdvance(1, "t", 3))
    assert cut.lost_count == 0
    assert readable(log, "t") == [3]


def test_an_advance_from_before_a_cut_does_not_hide_what_was_lost() -> None:
    """It was on its way when the cut came: whoever said it has not been told."""
    log = Local(Attributes())
    log(TapOpen(1, "t", EARLIEST, 0, 0))
    log.push(b"a", b"b", b"c")
    log(TapCut(1, "t", 3))
    log(TapAdvance(1, "t", 2))
    cut = log.state.lanes[1].taps.by_name["t"]
    assert (cut.next, cut.lost_first, cut.lost_count) == (3, 1, 2)


def test_opening_a_tap_again_finds_it_where_it_was() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    log.push(b"x", b"y")
    log(TapAdvance(1, "t", 2))
    assert log(tap("t", EARLIEST)).value == 2


def test_a_closed_tap_is_gone() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    log(TapClose(1, "t"))
    for operation in (TapClose(1, "t"), TapAdvance(1, "t", 1), TapCut(1, "t", 1)):
        assert log(operation) == Refusal(Why.NO_TAP)


def test_taps_keep_what_a_purge_takes_from_consumers() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    log.push(b"x", b"y")
    log(Purge(1))
    assert readable(log, "t") == [1, 2]


def test_a_queue_has_no_more_taps_than_the_limit() -> None:
    log = Local(Attributes())
    for number in range(TAPS_PER_QUEUE_MAX):
        log(tap(str(number), LATEST))
    assert log(tap("one more", LATEST)) == Refusal(Why.TOO_MANY_TAPS)


def test_it_is_known_when_the_first_message_from_a_sequence_on_was_pushed() -> None:
    log = Local(Attributes())
    log(tap("t", EARLIEST))
    taps = log.state.lanes[1].taps
    assert taps.time_of(1) is None
    times = []
    for bodies in ([b"a", b"b"], [b"c"], [b"d", b"e"]):
        log.now += 1000
        times.append(log.now)
        log.push(*bodies)
    assert [taps.time_of(sequence) for sequence in range(1, 7)] == [times[0], times[0], times[1], times[2], times[2], None]
    # What left memory is known by its beginning alone, and by nothing where an older snapshot did not note that.
    taps.written(Stretch("notes", 1, 4, 0, times[0]))
    assert [taps.time_of(sequence) for sequence in range(1, 7)] == [times[0], times[0], times[0], times[2], times[2], None]
    taps.stretches = [Stretch("notes", 1, 4, 0)]
    assert [taps.time_of(sequence) for sequence in (1, 3, 5)] == [times[2]] * 3
