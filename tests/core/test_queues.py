"""SEMANTICS §1 and §3: entries, names and ids."""

from __future__ import annotations

from dovetail.core.column import Column
from dovetail.core.operation import (
    Attributes,
    Begin,
    Carry,
    Create,
    Done,
    Drop,
    Pop,
    Push,
    Refusal,
    Register,
    Unregister,
    Why,
)
from tests.core.world import Local


def test_one_operations_refusal_never_touches_its_neighbours() -> None:
    log = Local(Attributes())
    push = Push((1,), Column.of([b"x"]))
    first, refused, second = log(push, Push((9,), Column.of([b"x"])), push)
    assert (list(first.sequences), refused.why, list(second.sequences)) == ([1], Why.NO_QUEUE, [2])


def test_a_queue_id_is_never_given_again() -> None:
    log = Local(Attributes())
    assert log(Unregister(1)) == Done()
    assert log(Register("", "q1")) == Done(2)
    assert log(Register("", "q1")) == Refusal(Why.NAME_TAKEN, "2")
    assert log(Unregister(1)) == Refusal(Why.NO_QUEUE)


def test_a_dropped_queue_is_never_created_again() -> None:
    log = Local(Attributes())
    assert log(Drop(1)) == Done()
    assert log(Create(1, Attributes())) == Refusal(Why.DROPPED_ID)


def test_a_refused_drop_leaves_its_id_usable() -> None:
    """A refusal means that nothing happened."""
    log = Local()
    assert log(Drop(1)) == Refusal(Why.NO_QUEUE, "1")
    assert log(Register("", "q"), Create(1, Attributes())) == [Done(1), Done(1)]


def test_create_may_be_repeated_and_changes_nothing_then() -> None:
    log = Local(Attributes(lease_ms=5))
    log.push(b"x")
    assert log(Create(1, Attributes(lease_ms=50))) == Done(1)
    assert log(Pop(1, 1)).lease_until == log.now + 5


def test_the_key_of_a_log_is_given_once() -> None:
    log = Local()
    assert log(Begin(b"k" * 32)) == Done()
    assert log(Begin(b"l" * 32)) == Refusal(Why.BEGUN)
    assert log.state.key == b"k" * 32


def test_a_carried_message_is_found_at_its_new_place_and_its_neighbours_at_the_old_one() -> None:
    log = Local(Attributes())
    log.push(b"a", b"b", b"c")
    [chunk] = log.state.lanes[1].chunks.values()
    address, _ = chunk.place(2)
    assert log(Carry(1, 2, address, Push((1,), Column.of([b"b"])))) == Done(1)
    assert log(Carry(1, 2, address, Push((1,), Column.of([b"b"])))) == Done(0)
    taken = [(t.address + 0, t.item + i) for t in log(Pop(1, 3)).taken for i in range(t.length)]
    assert taken[0] == (address, 0) and taken[2] == (address, 2)
    assert taken[1][0] > address and taken[1][1] == 0
