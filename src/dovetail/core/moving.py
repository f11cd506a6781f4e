"""How messages go from one lane to another of the same log: dead letters, and their way back. A message is in one lane before and in the
other after; its record stays where it lies. (Into other logs: core/crossing.py.)"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dovetail.core import crossing, noting, pushing
from dovetail.core import operation as op
from dovetail.core.chronicle import Fact
from dovetail.core.chunk import HELD, READY
from dovetail.core.operation import Done, Outcome, Refusal, Why

if TYPE_CHECKING:
    from dovetail.core.chunk import Chunk
    from dovetail.core.lane import Bury, Lane
    from dovetail.core.state import State


def burial(state: State, lane: Lane) -> Bury | None:
    """What becomes of a message that was received too often; None where there is nowhere to move it to."""
    target = lane.attributes.dead_letter
    if target in state.lanes:
        return partial(_bury, state) if target != lane.queue else None
    return partial(crossing.bury, state) if crossing.may_leave(state, lane, target) else None


def _bury(state: State, lane: Lane, chunk: Chunk, at: int) -> None:
    """On to the dead letters, where its count starts again."""
    _move_message(state, lane, chunk, at, state.lanes[lane.attributes.dead_letter], Fact.DEAD_LETTER)


def _move_message(state: State, lane: Lane, chunk: Chunk, at: int, target: Lane, why: Fact) -> None:
    address, item = chunk.place(at)
    origin = chunk.origin_from(at, lane.queue)
    name = lane.order.name_of(chunk, at) if lane.order is not None and pushing.names_count(state, target) else b""
    lane.remove(chunk, at)
    target.advance(state.time)
    adopted = target.adopt(state.time, address, item, name, origin)
    state.moved.add((target.queue, adopted))
    if state.chronicle.open:
        noting.moved(state, why, lane, chunk.base + at, target.queue, adopted)


def move(state: State, o: op.Move, _: int) -> Outcome:
    """Redrive: visible messages of the source, in order, go to the target or back to where they came from."""
    lane = state.lane(o.source)
    if lane is None or (o.target and o.target not in state.lanes):
        return Refusal(Why.NO_QUEUE)
    chosen: list[tuple[Chunk, int, Lane]] = []
    blocked: set[int] = set()
    for chunk, at in lane.walk():
        if len(chosen) == o.max:
            break
        group = chunk.named(at) if lane.groups is not None else 0
        if group in blocked or chunk.states[at] not in (READY, HELD):
            # The members of a group go in order: none passes one that stays.
            if group:
                blocked.add(group)
            continue
        origin = chunk.origin(at)
        target = state.lanes.get(o.target or (origin.source if origin is not None else 0))
        moved = (lane.queue, chunk.base + at) in state.moved
        if target is not None and target is not lane and not moved:
            chosen.append((chunk, at, target))
    for chunk, at, target in chosen:
        _move_message(state, lane, chunk, at, target, Fact.REDRIVE)
    return Done(len(chosen))
