"""SEMANTICS §4: which message is taken next."""

from __future__ import annotations

from dovetail.core.operation import Attributes, Cancel, Configure, Extend, Release, Requeue, Reschedule
from tests.core.world import Local

GROUPS = Attributes(lease_ms=1000, grouped=True)


def first(taken: list[tuple[int, int]]) -> list[int]:
    return [sequence for sequence, _ in taken]


def test_the_lowest_visible_sequence_is_taken_first() -> None:
    log = Local(Attributes())
    log.push(b"a", b"b", b"c", delays=[5, 0, 0])
    assert first(log.pop(1)) == [2]
    assert first(log.pop(2, after=5)) == [1, 3]


def test_a_message_that_lapsed_returns_to_its_place() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(b"a", b"b", b"c")
    log.pop(1)
    assert first(log.pop(3, after=10)) == [1, 2, 3]


def test_a_message_that_was_given_back_returns_to_its_place() -> None:
    log = Local(Attributes())
    log.push(b"a", b"b", b"c")
    (one, two) = log.pop(2)
    assert log(Requeue(1, [two[0]], [two[1]])).done == [True]
    assert log(Extend(1, [one[0]], [one[1]], 0)).done == [True]
    assert first(log.pop(3)) == [1, 2, 3]


def test_order_holds_across_the_boundary_of_chunks() -> None:
    log = Local(Attributes())
    log.push(*[b"x"] * 1020)
    log.push(*[b"y"] * 2060)
    assert first(log.pop(3080)) == list(range(1, 3081))


def test_sequences_go_on_densely_after_a_purge_in_the_middle_of_a_chunk() -> None:
    from dovetail.core.operation import Purge

    log = Local(Attributes())
    log.push(*[b"x"] * 700)
    assert log(Purge(1)).value == 700
    assert log.push(*[b"y"] * 700) == list(range(701, 1401))
    assert first(log.pop(2000)) == list(range(701, 1401))


def test_one_receive_takes_a_group_in_order_and_leaves_the_other_groups_their_turn() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", b"3", groups=[b"A", b"B", b"A"])
    assert first(log.pop(2)) == [1, 3]
    assert first(log.pop(2)) == [2]


def test_a_group_gives_nothing_while_a_member_is_leased() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", b"3", groups=[b"A", b"A", b"B"])
    [held] = log.pop(1)
    assert first(log.pop(5)) == [3]
    assert log.complete(held) == [True]
    assert first(log.pop(5)) == [2]


def test_a_group_gives_nothing_while_its_lowest_is_not_visible() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", groups=[b"A", b"A"], delays=[50, 0])
    assert log.pop() == []
    assert first(log.pop(after=50)) == [1, 2]


def test_a_group_stops_at_the_first_that_is_not_visible() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", b"3", groups=[b"A"] * 3, delays=[0, 9000, 0])
    assert first(log.pop()) == [1]


def test_a_group_whose_lowest_is_cancelled_goes_on_with_the_next() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", b"3", groups=[b"A"] * 3, delays=[9000, 0, 0])
    assert log(Cancel(1, [2, 1])).done == [True, True]
    assert first(log.pop()) == [3]


def test_a_group_waits_for_its_lowest_when_that_is_rescheduled() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", groups=[b"A"] * 2)
    assert log(Reschedule(1, [1], 40)).done == [True]
    assert log.pop() == []
    assert first(log.pop(after=40)) == [1, 2]


def test_a_message_without_a_group_waits_for_nobody() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", b"3", groups=[b"", b"", b"A"])
    assert first(log.pop(1)) == [1]
    assert first(log.pop(9)) == [2, 3]


def test_a_release_in_a_group_lets_the_same_message_be_taken_next() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", groups=[b"A"] * 2)
    [taken] = log.pop(1)
    assert log(Release(1, [taken[0]], [taken[1]])).done == [True]
    assert first(log.pop()) == [1, 2]


def test_asking_whether_something_is_visible_loses_nothing() -> None:
    log = Local(GROUPS)
    log.push(b"1", b"2", groups=[b"A"] * 2, delays=[1])
    assert log.state.lanes[1].has_visible(log.now + 5000)
    assert first(log.pop(after=5000)) == [1, 2]


def test_a_queue_with_messages_keeps_its_discipline() -> None:
    log = Local(GROUPS)
    [sequence] = log.push(b"1", groups=[b"A"])
    assert type(log(Configure(1, Attributes()))).__name__ == "Refusal"
    log.complete(*log.pop())
    assert log(Configure(1, Attributes())).value == 1
    log.push(b"2", b"3", groups=[b"A", b"A"])
    log.pop(1)
    assert first(log.pop(1)) == [3]
