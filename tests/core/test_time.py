"""SEMANTICS §2: entry time, delays, retention."""

from __future__ import annotations

from dovetail.core.operation import DEFAULT, Attributes, Expire, Extend, Head, Pop, Requeue, Reschedule, Retime, Tick
from tests.core.world import Entry, Local, World

DAY = 86_400_000


def test_one_clock_that_runs_ahead_does_not_move_entry_time() -> None:
    world = World()
    world.apply(Entry(Head(5000), (Tick(),), log_stamp=1000))
    assert world.state.time == 1000
    world.apply(Entry(Head(900), (Tick(),), log_stamp=2000))
    assert world.state.time == 1000
    world.apply(Entry(Head(1500), (Tick(),), log_stamp=2000))
    assert world.state.time == 1500


def test_an_operator_moves_a_frozen_clock_only_forwards() -> None:
    log = Local(Attributes())
    start = log.now
    log(Retime(start - 10))
    assert log.state.time == start
    log(Retime(start + 10))
    assert log.state.time == start + 10


def test_a_delayed_message_appears_in_its_millisecond() -> None:
    log = Local(Attributes(delay_ms=1500))
    log.push(b"x")
    assert log.pop(after=1499) == []
    assert [sequence for sequence, _ in log.pop(after=1)] == [1]


def test_a_delay_of_years_is_kept_to_the_millisecond() -> None:
    log = Local(Attributes())
    log.push(b"x", delays=[4000 * DAY])
    assert log.pop(after=4000 * DAY - 1) == []
    assert len(log.pop(after=1)) == 1


def test_a_message_put_off_by_fifty_days_does_not_appear_at_its_old_time() -> None:
    """2^32 ms are 49.7 days: a moment is more than its low half."""
    log = Local(Attributes())
    log.push(b"x", delays=[10])
    assert log(Reschedule(1, [1], 10 + (1 << 32))).done == [True]
    assert log.pop(after=10) == []
    assert len(log.pop(after=1 << 32)) == 1


def test_looking_ahead_counts_every_message_once() -> None:
    log = Local(Attributes(lease_ms=100))
    log.push(b"x")
    [(sequence, delivery)] = log.pop()
    log(Extend(1, [sequence], [delivery], DEFAULT))
    assert log.state.lanes[1].counts(log.now + 99) == (0, 0, 1)
    assert log.state.lanes[1].counts(log.now + 100) == (1, 0, 0)


def test_back_off_doubles_up_to_its_bound() -> None:
    log = Local(Attributes(backoff_ms=10, backoff_max_ms=35))
    log.push(b"x")
    for wait in (10, 20, 35, 35):
        [(sequence, delivery)] = log.pop()
        assert log(Requeue(1, [sequence], [delivery], DEFAULT)).done == [True]
        assert log.counts() == (0, 1, 0)
        assert log.pop(after=wait - 1) == []
        log(Tick(), after=1)


def test_old_messages_are_delivered_until_an_expire_says_otherwise() -> None:
    log = Local(Attributes(retention_ms=1000))
    log.push(b"x", b"y")
    assert len(log.pop(1, after=5000)) == 1
    assert log(Expire(1, log.now - 1000)).value == 1
    assert log.counts() == (0, 0, 1)


def test_retention_counts_from_the_first_visible_time() -> None:
    log = Local(Attributes())
    log.push(b"x", delays=[10_000])
    assert log(Expire(1, log.now + 10_000), after=10_000).value == 0
    assert log(Expire(1, log.now + 1000)).value == 1


def test_a_message_that_waits_for_its_retry_expires_like_any_other() -> None:
    """Expire spares leased messages and no others; first visible was long ago."""
    log = Local(Attributes())
    log.push(b"x")
    [(sequence, delivery)] = log.pop()
    log(Requeue(1, [sequence], [delivery], 10 * DAY))
    assert log(Expire(1, log.now + DAY), after=5 * DAY).value == 1


def test_a_message_called_forward_ages_from_then_on() -> None:
    log = Local(Attributes())
    log.push(b"x", delays=[30 * DAY])
    log(Reschedule(1, [1], 0))
    assert log.counts() == (1, 0, 0)
    assert log(Expire(1, log.now + 4 * DAY), after=5 * DAY).value == 1


def test_reading_changes_nothing() -> None:
    log = Local(Attributes(lease_ms=50))
    log.push(b"x", b"y", delays=[0, 70])
    log.pop()
    lane = log.state.lanes[1]
    for time in (0, 49, 50, 70, 5000, DAY, 0):
        lane.counts(log.now + time)
        lane.has_visible(log.now + time)
        lane.next_visible_at(log.now + time)
    assert lane.counts(log.now) == (0, 1, 1)
    popped = log(Pop(1, 5), after=50)
    assert [taken.sequence for taken in popped.taken] == [1]
