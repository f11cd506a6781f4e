"""SEMANTICS §8: deduplication, dead letters, in-flight limits, receive attempts, purge; and redrive (§7)."""

from __future__ import annotations

from dovetail.core.column import Column
from dovetail.core.operation import Attributes, Cancel, Drop, Move, Pop, Purge, Push, Refusal, Requeue, Reschedule, Why
from tests.core.world import Local

KEY = b"k" * 16
DEDUP = Attributes(dedup_ms=1000)


def dedup(log: Local, key: bytes = KEY, after: int = 0) -> tuple[list[int], set[int]]:
    pushed = log(Push((1,), Column.of([b"x"]), dedups=key), after=after)
    return list(pushed.sequences), set(pushed.repeats)


def test_a_repeat_within_the_window_is_answered_with_the_first_sequence() -> None:
    log = Local(DEDUP)
    assert dedup(log) == ([1], set())
    assert dedup(log, after=999) == ([1], {0})
    assert dedup(log, after=1) == ([2], set())
    assert log.counts() == (2, 0, 0)


def test_deduplication_survives_the_message() -> None:
    log = Local(DEDUP)
    dedup(log)
    log.complete(*log.pop())
    assert dedup(log) == ([1], {0})


def test_a_purge_clears_deduplication() -> None:
    log = Local(DEDUP)
    dedup(log)
    log(Purge(1))
    assert dedup(log) == ([2], set())


def test_a_batch_is_judged_one_by_one() -> None:
    log = Local(DEDUP)
    pushed = log(Push((1,), Column.of([b"x"] * 4), dedups=KEY + bytes(16) + KEY + bytes(16)))
    assert (list(pushed.sequences), set(pushed.repeats)) == ([1, 2, 1, 3], {2})


def test_every_lane_of_a_push_judges_for_itself() -> None:
    log = Local(DEDUP, DEDUP)
    dedup(log)
    one, two = log(Push((1, 2), Column.of([b"x"]), dedups=KEY)).lanes
    assert (list(one.sequences), set(one.repeats)) == ([1], {0})
    assert (list(two.sequences), set(two.repeats)) == ([1], set())


def test_a_push_to_several_lanes_is_stored_in_all_or_none() -> None:
    log = Local(Attributes(), Attributes())
    assert log(Push((1, 9, 2), Column.of([b"x"]))).why == Why.NO_QUEUE
    assert (log.counts(1), log.counts(2)) == ((0, 0, 0), (0, 0, 0))
    log(Push((1, 2), Column.of([b"x"])))
    places = [(t.address, t.item) for queue in (1, 2) for t in log(Pop(queue, 1)).taken]
    assert places[0] == places[1]


def test_the_receive_after_the_last_allowed_one_moves_the_message_to_the_dead_letters() -> None:
    log = Local(Attributes(lease_ms=10, receives_max=2, dead_letter=2), Attributes())
    log.push(b"x", b"y")
    log.pop()
    log.pop(after=10)
    assert log.pop(after=10) == []
    assert (log.counts(1), log.counts(2)) == ((0, 0, 0), (2, 0, 0))
    popped = log(Pop(2, 1))
    assert list(popped.taken[0].receives) == [1]
    assert popped.taken[0].origin[:3] == (1, 1, 1)


def test_where_the_dead_letters_are_gone_the_message_stays() -> None:
    log = Local(Attributes(lease_ms=10, receives_max=1, dead_letter=2), Attributes())
    log.push(b"x")
    log.pop()
    log(Drop(2))
    popped = log(Pop(1, 1), after=10)
    assert list(popped.taken[0].receives) == [2]
    assert log.state.lanes[1].stranded == 1


def test_a_dead_letter_that_is_a_groups_lowest_makes_way_for_the_next() -> None:
    log = Local(Attributes(lease_ms=10, receives_max=1, dead_letter=2, grouped=True), Attributes(grouped=True))
    log.push(b"1", b"2", groups=[b"A", b"A"])
    log.pop(1)
    assert [sequence for sequence, _ in log.pop(1, after=10)] == [2]
    assert log.counts(2) == (1, 0, 0)


def test_a_group_goes_on_behind_a_member_that_has_nowhere_to_be_moved() -> None:
    log = Local(Attributes(lease_ms=10, receives_max=1, dead_letter=9, grouped=True))
    log.push(b"1", b"2", groups=[b"A", b"A"])
    assert len(log.pop()) == 2
    assert [sequence for sequence, _ in log.pop(after=10)] == [1, 2]


def test_a_redrive_takes_each_message_back_to_its_own_source() -> None:
    rules = Attributes(lease_ms=10, receives_max=1, dead_letter=3)
    log = Local(rules, rules, Attributes())
    log.push(b"x")
    log.push(b"y", queue=2)
    for queue in (1, 2):
        log.pop(queue=queue)
    log(Pop(1, 1), Pop(2, 1), after=10)
    log.push(b"its own", queue=3)
    assert log(Move(3, 0, 100)).value == 2
    assert [log.counts(queue) for queue in (1, 2, 3)] == [(1, 0, 0), (1, 0, 0), (1, 0, 0)]
    assert log.push(b"next") == [3]


def test_a_redrive_moves_what_is_visible_up_to_its_bound() -> None:
    log = Local(Attributes(), Attributes())
    log.push(b"a", b"b", b"c", b"d", delays=[0, 50, 0, 0])
    log.pop(1)
    assert log(Move(1, 2, 1)).value == 1
    assert log(Move(1, 2, 9)).value == 1
    assert (log.counts(1), log.counts(2)) == ((0, 1, 1), (2, 0, 0))
    assert log(Move(1, 9, 1)) == Refusal(Why.NO_QUEUE)


def test_no_more_than_the_limit_is_in_flight() -> None:
    log = Local(Attributes(in_flight_max=2, lease_ms=100))
    log.push(b"a", b"b", b"c")
    taken = log.pop(9)
    assert len(taken) == 2
    assert log(Pop(1, 1)) == Refusal(Why.OVER_IN_FLIGHT)
    log.complete(taken[0])
    assert len(log.pop(9)) == 1
    assert len(log.pop(9, after=100)) == 2


def test_a_repeated_attempt_gets_the_same_messages_under_the_same_receipts() -> None:
    log = Local(Attributes(lease_ms=1000))
    log.push(b"a", b"b", b"c")
    first = log.pop(2, attempt=b"t")
    assert log.pop(2, after=500, attempt=b"t") == first
    assert log.pop(9, after=999) == [(3, 3)]
    assert log.complete(*first) == [True, True]


def test_a_repeated_attempt_counts_as_the_same_receive() -> None:
    log = Local(Attributes(lease_ms=1000))
    log.push(b"a")
    log.pop(1, attempt=b"t")
    assert list(log(Pop(1, 1, attempt=b"t")).taken[0].receives) == [1]


def test_an_attempt_is_void_once_one_of_its_messages_was_settled() -> None:
    log = Local(Attributes(lease_ms=1000))
    log.push(b"a", b"b", b"c")
    first = log.pop(2, attempt=b"t")
    log.complete(first[0])
    assert log.pop(2, attempt=b"t") == [(3, 3)]


def test_an_attempt_whose_leases_lapsed_is_still_the_same_attempt() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(b"a", b"b", b"c")
    first = log.pop(2, attempt=b"t")
    assert log.pop(2, after=20, attempt=b"t") == first


def test_an_attempt_is_kept_five_minutes() -> None:
    log = Local(Attributes(lease_ms=10_000_000))
    log.push(b"a", b"b")
    first = log.pop(1, attempt=b"t")
    assert log.pop(1, after=299_999, attempt=b"t") == first
    assert log.pop(1, after=1, attempt=b"t") == [(2, 2)]


def test_a_purge_ends_the_attempts() -> None:
    log = Local(Attributes())
    log.push(b"a")
    log.pop(1, attempt=b"t")
    log(Purge(1))
    log.push(b"b")
    assert log.pop(1, attempt=b"t") == [(2, 2)]


def test_cancel_and_reschedule_leave_a_leased_message_alone() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(b"a", b"b", delays=[0, 5000])
    log.pop()
    assert log(Cancel(1, [1])).done == [False]
    assert log(Reschedule(1, [1, 2], 3)).done == [False, True]
    assert [sequence for sequence, _ in log.pop(after=3)] == [2]
    assert log(Cancel(1, [1, 7]), after=7).done == [True, False]


def test_a_requeue_with_a_delay_hides_the_message_for_so_long() -> None:
    log = Local(Attributes())
    log.push(b"a")
    [(sequence, delivery)] = log.pop()
    assert log(Requeue(1, [sequence], [delivery], 30)).done == [True]
    assert log.pop(after=29) == []
    assert list(log(Pop(1, 1), after=1).taken[0].receives) == [2]
