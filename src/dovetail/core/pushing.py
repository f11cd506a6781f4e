"""How messages join lanes: a push, numbered or not. What was seen before is in core/repeats.py; a lane's own part in core/lane.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.core import noting
from dovetail.core import operation as op
from dovetail.core.operation import Outcome, Pushed, PushedAll, Refusal, Why
from dovetail.core.producers import Producer, Result, results_of
from dovetail.core.repeats import push_new
from dovetail.core.versions import FAIR_VERSION

if TYPE_CHECKING:
    from dovetail.core.lane import Lane
    from dovetail.core.state import State


def push(state: State, o: op.Push, address: int) -> Outcome:
    if o.numbered is not None:
        return push_numbered(state, o, o.numbered, address)
    return push_items(state, o, address, 0)


def push_items(state: State, o: op.Push, address: int, start: int) -> Outcome:
    """The messages of `o` from the `start`-th on join every lane that it names, or none does."""
    lanes = state.lanes
    for queue in o.queues:
        if queue not in lanes:
            if state.chronicle.open:
                noting.push_refused(state, o, start)
            return Refusal(Why.NO_QUEUE, str(queue))
    pushed = [_push_lane(state, lanes[queue], o, address, start) for queue in o.queues]
    if state.chronicle.open:
        for answer in pushed:
            noting.pushed(state, lanes[answer.queue], o, start, answer)
    return pushed[0] if len(pushed) == 1 else PushedAll(tuple(pushed))


def _push_lane(state: State, lane: Lane, o: op.Push, address: int, start: int) -> Pushed:
    now, count = state.time, len(o.bodies)
    lane.advance(now)
    groups = list(o.groups) if o.groups is not None and names_count(state, lane) else None
    if o.dedups is None or not lane.attributes.dedup_ms:
        delays = o.delays if o.delays is None or len(o.delays) == 1 else o.delays[start:]
        first = lane.push(now, count - start, address, start, delays, groups[start:] if groups is not None else None)
        return Pushed(lane.queue, range(first, lane.next))
    return push_new(lane, o, address, start, now, groups)


def names_count(state: State, lane: Lane) -> bool:
    """Does the name that a message carries mean something here?"""
    return lane.groups is not None or state.version >= FAIR_VERSION


def push_numbered(state: State, o: op.Push, numbered: op.Numbered, address: int) -> Outcome:
    """Each number has one outcome: those that were used are answered with it, the others get theirs now."""
    producer = state.producers.judge(*numbered)
    if not isinstance(producer, Producer):
        return Refusal(producer)
    count = len(o.bodies)
    known = min(count, producer.last - numbered.number + 1)
    earlier = [producer.result(numbered.number + index) for index in range(known)]
    if known and state.chronicle.open:
        noting.pushed_before(state, o, o.queues, earlier)
    made = push_items(state, o, address, known) if known < count else None
    lanes = made.lanes if isinstance(made, PushedAll) else (made,) if isinstance(made, Pushed) else ()
    if isinstance(made, Pushed | PushedAll) and not known:
        # All of them are new, by far the most frequent: what the lanes answer is the answer, and only what is kept is written down.
        producer.settle(results_of(lanes, count), count)
        return made
    results: list[Result] = []
    for index in range(count - known):
        results.append(
            made.why if isinstance(made, Refusal) else tuple((lane.queue, lane.sequences[index]) for lane in lanes),
        )
    producer.settle(results)
    outcomes = [*earlier, *results]
    refused = frozenset(index for index, result in enumerate(outcomes) if isinstance(result, Why))
    first = outcomes[0]
    if len(refused) == count and isinstance(first, Why):
        return Refusal(first)
    fresh = {lane.queue: lane.repeats for lane in lanes}
    answers = tuple(
        Pushed(
            queue,
            [_sequence_in(result, queue) for result in outcomes],
            frozenset(range(known)) - refused | {known + index for index in fresh.get(queue, ())},
            refused,
        )
        for queue in o.queues
    )
    return answers[0] if len(answers) == 1 else PushedAll(answers)


def _sequence_in(result: Result | None, queue: int) -> int:
    """The sequence that a number got in this lane; 0 where it is only known to be settled."""
    if isinstance(result, tuple):
        for known, sequence in result:
            if known == queue:
                return sequence
    return 0
