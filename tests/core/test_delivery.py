"""SEMANTICS §5: what a receipt may do, and for how long."""

from __future__ import annotations

from dovetail.core.column import Column
from dovetail.core.operation import (
    DEFAULT,
    Attributes,
    Complete,
    CompletePush,
    Extend,
    Pop,
    Purge,
    Push,
    Reclaim,
    Refusal,
    Release,
    Requeue,
    Why,
)
from tests.core.world import Local

LEASE = Attributes(lease_ms=100)


def test_after_its_lease_lapsed_only_complete_is_honoured() -> None:
    log = Local(LEASE)
    log.push(b"x")
    [(sequence, delivery)] = log.pop()
    named = (1, [sequence], [delivery])
    assert log(Extend(*named), after=100).done == [False]
    assert log(Requeue(*named)).done == [False]
    assert log(Release(*named)).done == [False]
    assert log(Complete(*named)).done == [True]
    assert log.counts() == (0, 0, 0)


def test_in_a_queue_with_groups_a_lapsed_receipt_is_dead() -> None:
    log = Local(Attributes(lease_ms=100, grouped=True))
    log.push(b"x", groups=[b"A"])
    [taken] = log.pop()
    assert log.complete(taken, after=100) == [False]


def test_the_last_millisecond_of_a_lease_still_counts() -> None:
    log = Local(Attributes(lease_ms=100, grouped=True))
    log.push(b"x", groups=[b"A"])
    [taken] = log.pop()
    assert log.complete(taken, after=99) == [True]


def test_a_redelivery_ends_the_receipt_before() -> None:
    log = Local(LEASE)
    log.push(b"x")
    [old] = log.pop()
    [new] = log.pop(after=100)
    assert old[0] == new[0] and old[1] != new[1]
    assert log.complete(old) == [False]
    assert log.complete(new, new) == [True, False]


def test_a_release_undoes_the_receive_count_but_never_the_number() -> None:
    log = Local(LEASE)
    log.push(b"x")
    [(sequence, delivery)] = log.pop()
    assert log(Release(1, [sequence], [delivery])).done == [True]
    popped = log(Pop(1, 1), after=5)
    assert list(popped.taken[0].receives) == [1]
    assert popped.taken[0].delivery == delivery + 1
    assert popped.taken[0].first_received == log.now
    assert log.complete((sequence, delivery)) == [False]


def test_a_purge_ends_the_receipts() -> None:
    log = Local(LEASE)
    log.push(b"x", b"y")
    taken = log.pop()
    assert log(Purge(1)).value == 2
    log.push(b"z")
    assert log.complete(*taken) == [False, False]


def test_an_operator_reclaims_a_leased_message_without_its_receipt() -> None:
    log = Local(LEASE)
    log.push(b"x")
    [taken] = log.pop()
    assert log(Reclaim(1, [1, 2])).done == [True, False]
    assert log.complete(taken) == [False]
    assert [sequence for sequence, _ in log.pop()] == [1]


def test_extending_counts_from_the_entry_and_zero_gives_back() -> None:
    log = Local(LEASE)
    log.push(b"x")
    [(sequence, delivery)] = log.pop()
    assert log(Extend(1, [sequence], [delivery], DEFAULT), after=60).done == [True]
    assert log.pop(after=99) == []
    assert log(Extend(1, [sequence], [delivery], 0)).done == [True]
    assert log.counts() == (1, 0, 0)
    assert log.complete((sequence, delivery)) == [False]


def test_receive_and_delete_leaves_nothing_behind() -> None:
    log = Local(LEASE)
    log.push(b"x", b"y")
    assert log.pop(delete=True) == [(1, 0), (2, 0)]
    assert log.counts() == (0, 0, 0)


def test_a_lease_of_nothing_hands_out_and_takes_nothing_away() -> None:
    log = Local(LEASE)
    log.push(b"x")
    log.pop(lease_ms=0)
    popped = log(Pop(1, 1))
    assert list(popped.taken[0].receives) == [2]


def test_each_message_of_a_batch_says_when_it_was_first_received() -> None:
    log = Local(LEASE)
    log.push(b"x", b"y")
    log.pop(1)
    popped = log(Pop(1, 2), after=100)
    times = [taken.first_received for taken in popped.taken for _ in range(taken.length)]
    assert times == [log.now - 100, log.now]


def test_a_message_first_received_after_two_months_says_so() -> None:
    log = Local(LEASE)
    log.push(b"x")
    popped = log(Pop(1, 1), after=60 * 86_400_000)
    assert popped.taken[0].first_received == log.now


def test_complete_and_push_happens_wholly_or_not_at_all() -> None:
    log = Local(LEASE, LEASE)
    log.push(b"x", b"y")
    (one, two) = log.pop()
    push = Push((2,), Column.of([b"z"]))
    dead = CompletePush(Complete(1, [one[0], two[0]], [one[1], two[1] + 7]), push)
    assert log(dead) == Refusal(Why.DEAD_RECEIPT)
    nowhere = CompletePush(Complete(1, [one[0]], [one[1]]), Push((2, 9), Column.of([b"z"])))
    assert log(nowhere).why == Why.NO_QUEUE
    assert (log.counts(1), log.counts(2)) == ((0, 0, 2), (0, 0, 0))
    assert list(log(CompletePush(Complete(1, [one[0], two[0]], [one[1], two[1]]), push)).sequences) == [1]
    assert (log.counts(1), log.counts(2)) == ((0, 0, 0), (1, 0, 0))
