"""SEMANTICS §9: reservations. A batch is the same whenever it is asked for; nobody else gets its messages until the owner or an operator
says so."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.core import clearing, reserving
from dovetail.core import operation as op
from dovetail.core.chunk import RESERVED
from dovetail.core.lane import Lane
from dovetail.core.operation import Attributes, Done, Opened, Refusal, Reserved, Why
from dovetail.core.reservations import Reservation
from dovetail.limits import RESERVATIONS_PER_QUEUE_MAX, RESERVED_BATCHES_MAX
from tests.core.world import Disagreement, Local, reloaded

DAY = 86_400_000


def settle(log: Local, epoch: int, batch: int, queue: int = 1) -> Any:
    return log(op.ReserveSettle(queue, "r", epoch, batch))


def release(log: Local, queue: int = 1) -> Any:
    return log(op.ReserveRelease(queue, "r"))


def reserved(log: Local, queue: int = 1) -> int:
    return log.state.lanes[queue].reserved


def test_a_batch_is_the_same_whenever_it_is_asked_for_and_nobody_else_gets_it() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(*[b"x"] * 5)
    epoch = log.own()
    assert log.reserve(epoch, 0, 2) == [1, 2]
    assert [sequence for sequence, _ in log.pop(1)] == [3]
    assert log.reserve(epoch, 1, 9) == [4, 5]
    assert log.reserve(epoch, 0, 9, after=60 * DAY) == [1, 2], "also with more asked for, and however late"
    assert (log.counts(), reserved(log)) == ((1, 0, 0), 4)


def test_a_batch_is_the_same_after_a_snapshot_and_to_the_next_owner() -> None:
    log = Local(Attributes())
    log.push(*[b"x"] * 3)
    epoch = log.own()
    log.reserve(epoch, 0, 2)
    log.reserve(epoch, 1, 0 + 1)
    log.reserve(epoch, 2)
    log.world.state = reloaded(log.state)
    log.world.compare()
    assert log(op.ReserveOpen(1, "r")) == Opened(epoch + 1, 2)
    log.push(b"later")
    assert [log.reserve(epoch + 1, batch) for batch in (0, 1, 2)] == [[1, 2], [3], []]


def test_without_its_memory_a_batch_is_not_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Local(Attributes())
    log.push(b"x", b"y")
    epoch = log.own()
    log.reserve(epoch, 0, 1)
    known = log.state.lanes[1].reservations["r"]
    known.batches.clear()
    known.last = -1
    with pytest.raises(Disagreement):
        log.reserve(epoch, 0, 1)


def test_an_empty_batch_stays_empty() -> None:
    log = Local(Attributes())
    epoch = log.own()
    assert log.reserve(epoch, 5) == []
    log.push(b"x")
    assert log(op.Reserve(1, "r", epoch, 5, 9)) == Reserved(1, [], again=True)
    assert log.reserve(epoch, 6) == [1]


def test_batch_numbers_only_grow() -> None:
    log = Local(Attributes())
    log.push(*[b"x"] * 3)
    epoch = log.own()
    log.reserve(epoch, 4, 1)
    log.reserve(epoch, 7, 1)
    for batch in (0, 5, 6):
        assert log(op.Reserve(1, "r", epoch, batch, 1)) == Refusal(Why.BATCH_PAST)
    settle(log, epoch, 4)
    assert log(op.Reserve(1, "r", epoch, 4, 1)) == Refusal(Why.BATCH_PAST)
    assert log.reserve(epoch, 7) == [2]


def test_settling_completes_all_batches_up_to_one_and_can_be_said_again() -> None:
    log = Local(Attributes())
    log.push(*[b"x"] * 6)
    epoch = log.own()
    for batch in range(3):
        log.reserve(epoch, batch, 2)
    assert settle(log, epoch, 1) == Done(4)
    assert (settle(log, epoch, 1), settle(log, epoch, 0)) == (Done(0), Done(0))
    assert (reserved(log), log.reserve(epoch, 2)) == (2, [5, 6])
    assert settle(log, epoch, 3) == Refusal(Why.NO_BATCH)
    assert settle(log, epoch, 2) == Done(2)
    assert log.state.lanes[1].live == 0


def test_an_old_epoch_is_refused() -> None:
    log = Local(Attributes())
    log.push(b"x", b"y")
    old = log.own()
    log.reserve(old, 0, 1)
    new = log.own()
    for operation in (op.Reserve(1, "r", old, 0, 1), op.Reserve(1, "r", old, 1, 1), op.ReserveSettle(1, "r", old, 0)):
        assert log(operation) == Refusal(Why.FENCED)
    assert log.reserve(new, 0) == [1]
    log(op.ReserveClose(1, "r"))
    again = log.own()
    assert again > new, "also after the name was forgotten"
    assert settle(log, new, 0) == Refusal(Why.FENCED)


def test_without_the_fence_an_old_owner_settles_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "owns", lambda known, epoch: True)
    log = Local(Attributes())
    log.push(b"x")
    old = log.own()
    log.reserve(old, 0)
    log.own()
    with pytest.raises(Disagreement, match="ReserveSettle"):
        settle(log, old, 0)


def test_a_reserved_message_blocks_its_group_until_it_is_settled_or_released() -> None:
    log = Local(Attributes(grouped=True))
    log.push(*[b"x"] * 4, groups=[b"a", b"b", b"a", b"a"])
    epoch = log.own()
    assert log.reserve(epoch, 0, 1) == [1]
    assert [sequence for sequence, _ in log.pop(9)] == [2]
    assert log.reserve(epoch, 1) == []
    settle(log, epoch, 1)
    assert log.reserve(epoch, 2, 2) == [3, 4], "one batch takes as many of a group as a receive would"
    release(log)
    assert [sequence for sequence, _ in log.pop(9)] == [3, 4]


def test_without_the_block_a_group_is_given_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_one(lane: Lane, chunk: Any, at: int, name: int, most: int, batch: Any) -> int:
        reserving._set_aside(lane, chunk, at, 1, batch)
        lane.groups.reconsider(lane, name)  # type: ignore[union-attr]  # it has groups
        behind = lane.groups.next_visible(lane, chunk.base + at)  # type: ignore[union-attr]
        if behind is not None:
            lane.make_ready(*behind)
        return 1

    monkeypatch.setattr(reserving, "_take_group", take_one)
    log = Local(Attributes(grouped=True))
    log.push(b"x", b"y", groups=[b"a", b"a"])
    epoch = log.own()
    with pytest.raises((Disagreement, AssertionError)):
        log.reserve(epoch, 0, 1)
        log.pop()


def test_what_is_released_returns_to_its_place_and_the_epoch_ends() -> None:
    log = Local(Attributes())
    log.push(*[b"x"] * 4)
    epoch = log.own()
    log.reserve(epoch, 0, 1)
    log.reserve(epoch, 1, 2)
    assert release(log) == Done(3)
    assert log(op.Reserve(1, "r", epoch, 2, 1)) == Refusal(Why.FENCED)
    assert log(op.Reserve(1, "r", 0, 2, 1)) == Refusal(Why.FENCED), "nobody owns it"
    new = log.own()
    assert settle(log, new, 1) == Refusal(Why.RELEASED), "who believes to have them must hear that others may"
    assert log(op.Reserve(1, "r", new, 1, 1)) == Refusal(Why.BATCH_PAST)
    assert log.reserve(new, 2, 2) == [1, 2]
    assert [sequence for sequence, _ in log.pop()] == [3, 4]
    assert settle(log, new, 2) == Done(2)


def test_a_closed_reservation_is_forgotten() -> None:
    log = Local(Attributes())
    log.push(b"x")
    epoch = log.own()
    log.reserve(epoch, 8)
    assert log(op.ReserveClose(1, "r")) == Done(1)
    for operation in (op.ReserveClose(1, "r"), op.ReserveRelease(1, "r"), op.Reserve(1, "r", epoch, 9, 1)):
        assert log(operation) == Refusal(Why.NO_RESERVATION)
    assert log(op.ReserveOpen(1, "r")) == Opened(epoch + 1, -1)
    assert log.reserve(epoch + 1, 0) == [1], "numbers begin anew"


def test_a_reserved_message_is_outside_of_the_limit_and_of_receive_counts() -> None:
    log = Local(Attributes(in_flight_max=1, lease_ms=10, receives_max=1, dead_letter=2), Attributes())
    log.push(b"x", b"y", b"z")
    log.pop(1)
    epoch = log.own()
    assert log.reserve(epoch, 0, 1) == [2], "with as many in flight as may be"
    assert log.reserve(epoch, 1, 1, after=10) == [1], "one that is due for the dead letters"
    release(log)
    taken = log(op.Pop(1, 1)).taken
    assert [(run.sequence, list(run.receives)) for run in taken] == [(2, [1])], "1 is a dead letter now, as it would have been before"


def test_being_reserved_ends_older_receipts() -> None:
    log = Local(Attributes(lease_ms=10))
    log.push(b"x")
    [receipt] = log.pop()
    epoch = log.own()
    log.reserve(epoch, 0, after=10)
    assert log.complete(receipt) == [False]
    release(log)
    assert log.complete(receipt) == [False]


def test_nothing_but_its_owner_or_an_operator_touches_a_reserved_message() -> None:
    log = Local(Attributes(retention_ms=10), Attributes())
    log.push(b"x", b"y")
    epoch = log.own()
    log.reserve(epoch, 0, 1)
    assert log(op.Cancel(1, [1])).done == [False]
    assert log(op.Reschedule(1, [1], 5)).done == [False]
    assert log(op.Reclaim(1, [1])).done == [False]
    assert log(op.Expire(1, log.now + DAY)) == Done(1)
    assert log(op.Move(1, 2, 9)) == Done(0)
    assert not clearing.has_expired(log.state.lanes[1], log.now + DAY, log.now), "nor is it asked for again and again"
    assert log.reserve(epoch, 0) == [1]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_purge_spares_what_is_reserved_and_says_how_many_went(grouped: bool) -> None:
    log = Local(Attributes(grouped=grouped, lease_ms=1000))
    log.push(*[b"x"] * 5, groups=[b"a", b"a", b"b", b"c", b""], delays=[0, 0, 0, 500, 0])
    epoch = log.own()
    assert log.reserve(epoch, 0, 1) == [1]
    assert log(op.Purge(1)) == Done(4)
    log.push(b"new", groups=[b"b"])
    assert [sequence for sequence, _ in log.pop(9)] == [6]
    assert log.reserve(epoch, 0) == [1]
    assert settle(log, epoch, 0) == Done(1)


def test_without_sparing_it_a_purge_breaks_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    purge = clearing.purge

    def everything(lane: Lane) -> int:
        lane.reserved = 0
        return purge(lane)

    monkeypatch.setattr(clearing, "purge", everything)
    log = Local(Attributes())
    log.push(b"x")
    epoch = log.own()
    log.reserve(epoch, 0)
    with pytest.raises(Disagreement):
        log(op.Purge(1))


def test_a_quiet_tenant_is_reserved_before_a_noisy_one_and_reserving_makes_nobody_noisy() -> None:
    log = Local(Attributes(lease_ms=60_000))
    log.push(*[b"x"] * 40, groups=[b"noisy"] * 40)
    log.push(b"q", groups=[b"quiet"])
    epoch = log.own()
    log.reserve(epoch, 0, 35)
    assert log.reserve(epoch, 1, 1) == [36], "35 reserved ones are not in flight"
    release(log)
    log.pop(30)
    epoch = log.own()
    assert log.reserve(epoch, 2, 2) == [41, 31]


def test_a_carried_message_stays_reserved() -> None:
    log = Local(Attributes())
    address = log.world.position + 16
    log.push(b"x", b"y", b"z")
    epoch = log.own()
    log.reserve(epoch, 0)
    new = log.world.position + 16
    log(op.Carry(1, 2, address, op.Push((1,), op.Column.of([b"y"]))))
    taken = log(op.Reserve(1, "r", epoch, 0, 9)).taken
    assert [(run.sequence, run.address, run.item) for run in taken] == [(1, address, 0), (2, new, 0), (3, address, 2)]


def test_a_batch_costs_by_the_run() -> None:
    log = Local(Attributes())
    for _ in range(5):
        log.push(*[b"x"] * 1000)
    epoch = log.own()
    assert len(log.reserve(epoch, 0, 5000)) == 5000
    batch = log.state.lanes[1].reservations["r"].batches[0]
    assert (list(batch.firsts), list(batch.counts)) == ([1], [5000])
    assert set(log.state.lanes[1].chunks[2].states) == {RESERVED}


def test_reservations_and_their_open_batches_have_limits() -> None:
    log = Local(Attributes())
    epoch = log.own()
    known = log.state.lanes[1].reservations
    known.update({str(number): Reservation() for number in range(RESERVATIONS_PER_QUEUE_MAX - 1)})
    apply = log.state.apply
    assert apply(1 << 30, op.Head(log.now), [op.ReserveOpen(1, "one more")], [1]).outcomes == [Refusal(Why.TOO_MANY_RESERVATIONS)]
    operations = [op.Reserve(1, "r", epoch, batch, 1) for batch in range(RESERVED_BATCHES_MAX + 1)]
    outcomes = apply(1 << 31, op.Head(log.now), operations, [1] * len(operations)).outcomes
    assert outcomes[-2:] == [Reserved(1, []), Refusal(Why.TOO_MANY_BATCHES)]


def test_a_queue_that_is_gone_has_no_reservations() -> None:
    log = Local(Attributes())
    epoch = log.own()
    log(op.Drop(1))
    for operation in (op.ReserveOpen(1, "r"), op.Reserve(1, "r", epoch, 0, 1), op.ReserveRelease(1, "r")):
        assert log(operation) == Refusal(Why.NO_QUEUE, "1")
