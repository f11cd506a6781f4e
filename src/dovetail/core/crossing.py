"""How messages leave a log for another one of their namespace, and arrive from there: apply's part of core/moves.py.

A message that is on its way is set aside where it was, as a reserved one is: nobody gets it, it blocks its group, purge and expiry spare
it, it is outside of receive counts, and its record stays until the target has said what became of it. It is dropped with its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.core import noting, pushing, reserving
from dovetail.core.chronicle import Fact
from dovetail.core.chunk import HELD, READY
from dovetail.core.moves import REFUSED, Arrivals, Arrive, Departures, Divide, Forget, Leave, Leaving, MoveSettle, log_of
from dovetail.core.operation import Done, Origin, Outcome, Refusal, Settled, Why

if TYPE_CHECKING:
    from dovetail.core.chunk import Chunk
    from dovetail.core.lane import Lane
    from dovetail.core.state import State


def divide(state: State, o: Divide, _: int) -> Outcome:
    """Once, before there is any queue. Said again it must say the same."""
    if state.logs == 1 and not state.lanes and state.catalog.next == 1 and o.logs > 1 and o.place < o.logs:
        state.logs, state.place = o.logs, o.place
    return Done() if (state.logs, state.place) == o else Refusal(Why.DIVIDED, str(state.logs))


def elsewhere(state: State, queue: int) -> bool:
    """Does this queue lie in another log, if there is one?"""
    return queue > 0 and log_of(queue, state.logs) != state.place


# At the source


def may_leave(state: State, lane: Lane, target: int) -> bool:
    known = lane.departures.get(target)
    return elsewhere(state, target) and (known is None or not known.gone)


def bury(state: State, lane: Lane, chunk: Chunk, at: int) -> None:
    """Received too often: on its way to the dead letters, with those behind it in its group that were too. (It blocks the group, so
    receives would meet them one by one; their numbers keep their order.)"""
    rules, groups = lane.attributes, lane.groups
    name = chunk.named(at) if groups is not None else 0
    while True:
        behind = groups.next_visible(lane, chunk.base + at) if groups is not None and name else None
        _depart(state, lane, chunk, at, rules.dead_letter, letter=True)
        if behind is None or behind[0].received(behind[1]) < rules.receives_max:
            return
        chunk, at = behind
        lane.buried += 1


def leave(state: State, o: Leave, _: int) -> Outcome:
    """Visible messages of the source, in order. No member of a group passes one that stays."""
    lane = state.lane(o.source)
    if lane is None or not may_leave(state, lane, o.target):
        return Refusal(Why.NO_QUEUE)
    chosen: list[tuple[Chunk, int]] = []
    blocked: set[int] = set()
    for chunk, at in lane.walk():
        if len(chosen) == o.max:
            break
        origin = chunk.origin(at)
        stays = chunk.states[at] not in (READY, HELD) or (lane.queue, chunk.base + at) in state.moved
        stays = stays or (o.returning and (origin is None or origin.source != o.target))
        group = chunk.named(at) if lane.groups is not None else 0
        if stays and group:
            blocked.add(group)
        elif not stays and group not in blocked:
            chosen.append((chunk, at))
    for chunk, at in chosen:
        _depart(state, lane, chunk, at, o.target, letter=False)
    return Done(len(chosen))


def _depart(state: State, lane: Lane, chunk: Chunk, at: int, target: int, *, letter: bool) -> None:
    leaving = lane.departures.get(target)
    if leaving is None:
        leaving = lane.departures[target] = Departures()
    leaving.under_way[leaving.next] = Leaving(chunk.base + at, letter)
    leaving.next += 1
    state.leaving[lane.queue, target] = None
    reserving.set_aside(lane, chunk, at, 1)
    name = chunk.named(at)
    if name and lane.groups is not None:
        lane.groups.busy[name] += 1
    elif name and lane.tenants is not None:
        lane.tenants.hide(lane, chunk, at, name)


def settle(state: State, o: MoveSettle, _: int) -> Outcome:
    """What arrived is gone; what was refused is back in its place. A number that is not under way changes nothing."""
    lane = state.lane(o.source)
    if lane is None:
        return Refusal(Why.NO_QUEUE)
    done = [_settle_one(state, lane, o.target, number, arrived) for number, arrived in zip(o.numbers, o.arrived, strict=True)]
    return Settled(done)


def _settle_one(state: State, lane: Lane, target: int, number: int, arrived: int) -> bool:
    leaving = lane.departures.get(target)
    one = leaving.under_way.pop(number, None) if leaving is not None else None
    if leaving is None or one is None:
        return False
    if not leaving.under_way:
        del state.leaving[lane.queue, target]
    place = lane.find(one.sequence)
    assert place is not None, "what is on its way is set aside"
    if arrived != REFUSED:
        reserving.end(lane, *place, 1)
        if state.chronicle.open:
            noting.moved(state, Fact.DEAD_LETTER if one.letter else Fact.REDRIVE, lane, one.sequence, target, arrived)
        return True
    reserving.give_back(lane, *place, 1)
    leaving.gone = True
    lane.buried -= one.letter
    return True


def dropped(state: State, lane: Lane) -> None:
    """Its queue is gone, and what was on its way with it."""
    for target in lane.departures:
        state.leaving.pop((lane.queue, target), None)


# At the target


def arrive(state: State, o: Arrive, address: int) -> Outcome:
    """Judged once; whoever asks again is told the same. What was settled long ago is not judged again."""
    (target,) = o.push.queues
    if elsewhere(state, target) or not elsewhere(state, o.source):
        return Refusal(Why.ELSEWHERE)
    known = state.arrivals.get((o.source, target))
    if known is None:
        known = state.arrivals[o.source, target] = Arrivals()
    if o.number <= known.low:
        return Refusal(Why.MOVE_SETTLED)
    sequence = known.judged.get(o.number)
    if sequence is None:
        sequence = known.judged[o.number] = _judge(state, o, target, address)
    return Done(sequence)


def _judge(state: State, o: Arrive, target: int, address: int) -> int:
    lane = state.lane(target)
    if lane is None:
        return REFUSED
    name = o.push.groups[0] if o.push.groups is not None and pushing.names_count(state, lane) else b""
    sequence = lane.adopt(state.time, address, 0, name, Origin(o.home, o.sequence, o.source, o.time))
    state.moved.add((target, sequence))
    return sequence


def forget(state: State, o: Forget, _: int) -> Outcome:
    """How many judgements went."""
    known = state.arrivals.get((o.source, o.target))
    if known is None or o.low <= known.low:
        return Done(0)
    kept = {number: sequence for number, sequence in known.judged.items() if number > o.low}
    gone = len(known.judged) - len(kept)
    known.low, known.judged = o.low, kept
    return Done(gone)


HANDLERS: dict[type[Any], Callable[[State, Any, int], Outcome]] = {
    Divide: divide,
    Leave: leave,
    Arrive: arrive,
    MoveSettle: settle,
    Forget: forget,
}
