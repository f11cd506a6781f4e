"""What goes into the chronicle, said by those who make it happen: one function for each way of changing queues. Called only while the
chronicle is open, behind the change and before its outcome is given.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, repeat
from typing import TYPE_CHECKING, Any

from dovetail.core import operation as op
from dovetail.core.chronicle import DONE, NONE, REFUSED, REPEAT, UNKNOWN, Fact
from dovetail.core.chunk import LATER, READY
from dovetail.core.operation import DEFAULT, Outcome, Push, Pushed, Refusal, Reserved, Taken, Why

if TYPE_CHECKING:
    from dovetail.core.chunk import Chunk
    from dovetail.core.column import Column
    from dovetail.core.lane import Lane
    from dovetail.core.state import State

_SETTLES = {
    op.Complete: Fact.COMPLETE,
    op.Requeue: Fact.REQUEUE,
    op.Extend: Fact.EXTEND,
    op.Release: Fact.RELEASE,
    op.Reclaim: Fact.RECLAIM,
    op.Cancel: Fact.CANCEL,
    op.Reschedule: Fact.RESCHEDULE,
}
_MARK_MAX = (1 << 63) - 1
_READY_BYTE = bytes((READY,))


def note(state: State, kind: Fact, queue: int, rows: tuple[Any, Any, Any, Any], *more: Any, again: bool = False) -> None:
    state.chronicle.note(state.position, state.step, state.time, kind, queue, rows, *more, again=again)


# Joining


def pushed(state: State, lane: Lane, o: Push, start: int, answer: Pushed) -> None:
    """The messages of `o` from the `start`-th on joined the lane, or were there before."""
    sizes, count = _sizes(o.bodies, start), len(answer.sequences)
    outcomes: Sequence[int] = bytes((DONE,)) * count
    if answer.repeats:
        outcomes = [REPEAT if index in answer.repeats else DONE for index in range(count)]
    label, number = (o.numbered.producer, o.numbered.number + start) if o.numbered is not None else (b"", NONE)
    delays = _delays(lane, o, start, count)
    if isinstance(delays, int):
        note(state, Fact.PUSH, lane.queue, (answer.sequences, repeat(0, count), sizes, outcomes), delays, 0, label, number)
        return
    at = 0
    for delay, length in _stretches(delays):
        end = at + length
        rows = (answer.sequences[at:end], repeat(0, length), sizes[at:end], outcomes[at:end])
        note(state, Fact.PUSH, lane.queue, rows, delay, 0, label, number + at if label else NONE)
        at = end


def pushed_before(state: State, o: Push, queues: Sequence[int], outcomes: Sequence[Any]) -> None:
    """Numbers of a producer that were used: each with the outcome that it had, which may be longer ago than outcomes are kept."""
    assert o.numbered is not None
    sizes = _sizes(o.bodies, 0)
    for queue in queues:
        found = [{} if one is None or isinstance(one, Why) else dict(one) for one in outcomes]
        told = bytes([REFUSED if isinstance(one, Why) else REPEAT for one in outcomes])
        rows = ([one.get(queue, 0) for one in found], repeat(0, len(found)), sizes[: len(found)], told)
        note(state, Fact.PUSH, queue, rows, NONE, 0, o.numbered.producer, o.numbered.number)


def push_refused(state: State, o: Push, start: int) -> None:
    """A queue that it names is gone: the messages from the `start`-th on join none."""
    sizes = _sizes(o.bodies, start)
    label, number = (o.numbered.producer, o.numbered.number + start) if o.numbered is not None else (b"", NONE)
    for queue in o.queues:
        rows = (repeat(0, len(sizes)), repeat(0, len(sizes)), sizes, bytes((REFUSED,)) * len(sizes))
        note(state, Fact.PUSH, queue, rows, NONE, 0, label, number)


def _sizes(bodies: Column, start: int) -> array[int]:
    offsets = bodies.offsets
    if offsets[-1] != len(bodies.blob):
        # The bodies of what was staged lie elsewhere.
        return array("I", (UNKNOWN,)) * (len(bodies) - start)
    return array("I", [end - begin for begin, end in pairwise(offsets[start:])])


def _delays(lane: Lane, o: Push, start: int, count: int) -> Sequence[int] | int:
    default = lane.attributes.delay_ms
    if o.delays is None:
        return default
    if len(o.delays) == 1:
        return default if o.delays[0] == DEFAULT else o.delays[0]
    return [default if delay == DEFAULT else delay for delay in o.delays[start : start + count]]


def _stretches(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(value, how many neighbours have it)"""
    for value, alike in groupby(values):
        yield value, sum(1 for _ in alike)


def moved(state: State, kind: Fact, lane: Lane, sequence: int, target: int, adopted: int) -> None:
    """A message left the lane for another one."""
    note(state, kind, lane.queue, ((sequence,), (adopted,), (0,), (DONE,)), NONE, target, again=True)


# Leaving, and coming back


def taken(state: State, lane: Lane, runs: Sequence[Taken], lease_ms: int, *, delete: bool, outcome: int = DONE) -> None:
    sequences, deliveries, receives = array("Q"), array("Q"), array("I")
    for run in runs:
        sequences.extend(range(run.sequence, run.sequence + run.length))
        deliveries.extend(range(run.delivery, run.delivery + run.length) if run.delivery else repeat(0, run.length))
        receives.extend([*run.receives])
    kind = Fact.TAKE if delete else Fact.DELIVERY
    note(state, kind, lane.queue, (sequences, deliveries, receives, bytes((outcome,)) * len(sequences)), NONE if delete else lease_ms)


def settled(state: State, lane: Lane, o: op.Settle | op.BySequence, done: Sequence[bool]) -> None:
    deliveries: Any = repeat(0, len(o.sequences)) if isinstance(o, op.BySequence) else o.deliveries
    kind, duration = _SETTLES[type(o)], NONE
    if isinstance(o, op.Extend):
        duration = lane.lease_for(o.lease_ms)
    elif isinstance(o, op.Reschedule | op.Requeue):
        duration = max(o.after_ms, 0)
        if o.after_ms == DEFAULT and lane.attributes.backoff_ms:
            _backed_off(state, lane, o, done)
            return
    note(state, kind, lane.queue, (o.sequences, deliveries, repeat(0, len(done)), bytes(done)), duration)


def _backed_off(state: State, lane: Lane, o: op.Requeue | op.Reschedule, done: Sequence[bool]) -> None:
    """How long each waits depends on how often it was received; the lane knows by now."""
    for index, (sequence, one) in enumerate(zip(o.sequences, done, strict=True)):
        found = lane.find(sequence) if one else None
        wait = 0
        if found is not None and found[0].states[found[1]] == LATER:
            wait = found[0].visible_at(found[1], state.time) - state.time
        delivery = o.deliveries[index] if isinstance(o, op.Requeue) else 0
        note(state, Fact.REQUEUE, lane.queue, ((sequence,), (delivery,), (0,), (int(one),)), wait, again=True)


def cleared(state: State, lane: Lane, count: int) -> None:
    """A purge: everything up to the last sequence, but what is reserved."""
    note(state, Fact.PURGE, lane.queue, ((lane.next - 1,), (0,), (min(count, UNKNOWN),), (DONE,)))


def expired(state: State, lane: Lane, gone: Sequence[tuple[int, int]]) -> None:
    """Runs of sequences, in order."""
    joined: list[tuple[int, int]] = []
    for first, length in gone:
        if joined and sum(joined[-1]) == first:
            first, length = joined[-1][0], joined.pop()[1] + length
        joined.append((first, length))
    runs(state, Fact.EXPIRE, lane.queue, joined)


def ready_runs(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """The runs of READY messages of a chunk."""
    at = chunk.states.find(READY)
    while at >= 0:
        rest = chunk.states[at:]
        length = len(rest) - len(rest.lstrip(_READY_BYTE))
        yield chunk.base + at, length
        at = chunk.states.find(READY, at + length)


def runs(state: State, kind: Fact, queue: int, found: Sequence[tuple[int, int]], label: bytes = b"", mark: int = NONE) -> None:
    rows = ([first for first, _ in found], repeat(0, len(found)), [length for _, length in found], bytes((DONE,)) * len(found))
    note(state, kind, queue, rows, NONE, 0, label, min(mark, _MARK_MAX))


# Reservations


def held(lane: Lane, o: op.Reserving) -> list[tuple[int, list[tuple[int, int]]]]:
    """(batch, runs) of what the operation would end, looked at before it does."""
    known = lane.reservations.get(o.name)
    if known is None or isinstance(o, op.ReserveOpen | op.Reserve):
        return []
    return [
        (number, list(batch.runs())) for number, batch in known.batches.items() if not isinstance(o, op.ReserveSettle) or number <= o.batch
    ]


def reserved(state: State, lane: Lane, o: op.Reserving, ended: list[tuple[int, list[tuple[int, int]]]], outcome: Outcome) -> None:
    label = o.name.encode()
    if isinstance(outcome, Reserved) and isinstance(o, op.Reserve) and not outcome.again:
        runs(state, Fact.RESERVE, lane.queue, list(lane.reservations[o.name].batches[o.batch].runs()), label, o.batch)
    elif ended and not isinstance(outcome, Refusal):
        kind = Fact.SETTLE if isinstance(o, op.ReserveSettle) else Fact.UNRESERVE
        for number, found in ended:
            runs(state, kind, lane.queue, found, label, number)


# Queues


def queue(state: State, kind: Fact, number: int, count: int = 0) -> None:
    note(state, kind, number, ((0,), (0,), (min(count, UNKNOWN),), (DONE,)))
