"""What lanes give to those who wait in them (shared logs), after every operation: first come first served, and of several lanes the one
at which somebody began to wait first.

A lane that nothing happened to since it was looked at last has nothing to give, so only those are looked at that the operation named or
that time has reached: with ten thousand lanes in which somebody waits, looking at each of them took 50 ms an operation. What is stirred,
and when time alone may change something, follows from the lanes, and is in no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dovetail.core import operation as op
from dovetail.core.operation import Handout, Operation, Popped

if TYPE_CHECKING:
    from dovetail.core.lane import Lane
    from dovetail.core.state import State

NEVER = 1 << 62
_STILL = op.Tick | op.Stage | op.Trim | op.Divide | op.Forget | op.Register | op.ProducerOpen | op.Skip
"""They make nothing visible anywhere."""


class Waiting:
    """The queues in whose lanes somebody waits."""

    __slots__ = ("_due", "_due_at", "_next", "places", "stirred")

    def __init__(self, queues: Iterable[int] = ()) -> None:
        self.places: dict[int, int] = {queue: place for place, queue in enumerate(queues)}
        """Queue → its place: the order in which they began to wait."""
        self._next = len(self.places)
        self.stirred = set(self.places)
        """Those to look at after the next operation."""
        self._due: list[tuple[int, int]] = []
        self._due_at: dict[int, int] = {}
        """When to look at a queue that nothing happens to: the time that counts in `_due`."""

    def join(self, queue: int) -> None:
        if queue not in self.places:
            self.places[queue] = self._next
            self._next += 1

    def leave(self, queue: int) -> None:
        self.places.pop(queue, None)

    def sleep(self, queue: int, until: int) -> None:
        """Before then time alone changes nothing there. (An earlier look is kept: it does no harm, and a heap of all would grow.)"""
        if until < self._due_at.get(queue, NEVER):
            self._due_at[queue] = until
            heappush(self._due, (until, queue))

    def wake(self, now: int) -> None:
        while self._due and self._due[0][0] <= now:
            until, queue = heappop(self._due)
            if self._due_at.get(queue) == until:
                del self._due_at[queue]
                self.stirred.add(queue)

    def stir(self, state: State, operation: Operation) -> None:
        """Those to which this operation may have done something."""
        if isinstance(operation, op.Push):
            self.stirred.update(operation.queues)
        elif isinstance(operation, op.CompletePush):
            self.stirred.update(operation.push.queues)
            self.stirred.add(operation.complete.queue)
        elif isinstance(operation, op.Arrive):
            self.stirred.update(operation.push.queues)
        elif isinstance(operation, op.Leave | op.MoveSettle):
            self._stir_lane(state, operation.source)
        elif (queue := getattr(operation, "queue", None)) is not None:
            self._stir_lane(state, queue)
        elif not isinstance(operation, _STILL):
            # Whatever moves messages may have brought them to any queue.
            self.stirred.update(self.places)

    def _stir_lane(self, state: State, queue: int) -> None:
        self.stirred.add(queue)
        lane = state.lanes.get(queue)
        if lane is not None:
            self.stirred.add(lane.attributes.dead_letter)


def serve(state: State, operation: Operation, handouts: list[Handout]) -> None:
    """What one lane gives may be a dead letter for another: that one is served in the same round if its place is behind, or in the next."""
    waiting = state.waiting
    waiting.stir(state, operation)
    waiting.wake(state.time)
    places = waiting.places
    round_ = {queue for queue in waiting.stirred if queue in places}
    waiting.stirred.clear()
    emptied: list[int] = []
    while round_:
        due = [(places[queue], queue) for queue in round_]
        heapify(due)
        later: set[int] = set()
        buried = False
        while due:
            place, queue = heappop(due)
            lane = state.lane(queue)
            if lane is None or not lane.waiters:
                waiting.leave(queue)
                continue
            if _serve_lane(state, lane, handouts):
                buried = True
                target = lane.attributes.dead_letter
                behind = places.get(target)
                if behind is not None and behind < place:
                    later.add(target)
                elif behind is not None and target not in round_:
                    round_.add(target)
                    heappush(due, (behind, target))
            if lane.waiters:
                waiting.sleep(queue, min(lane.index.earliest, lane.waiters.first_over))
            else:
                emptied.append(queue)
        if buried:
            for queue in emptied:
                waiting.leave(queue)
            emptied.clear()
        round_ = {queue for queue in later if queue in places}
    # Whoever comes with the very next operation finds the place of those before.
    waiting.stirred.update(emptied)


def _serve_lane(state: State, lane: Lane, handouts: list[Handout]) -> bool:
    """Did dead letters leave it?"""
    line, before = lane.waiters.line, lane.buried
    while line and lane.has_visible(state.time) and not state.full(lane):
        waiter = line.popleft()
        popped = state.take(lane, waiter.most, waiter.lease_ms, False)
        if not popped.taken:
            line.appendleft(waiter)
            break
        if waiter.attempt:
            state.remember(lane, waiter.attempt, popped)
        _note_handout(state, waiter.writer, lane.queue, popped)
        handouts.append(Handout(waiter.writer, waiter.waiter, popped))
        count = sum(taken.length for taken in popped.taken)
        if count < waiter.most and not waiter.once:
            lane.waiters.append(waiter._replace(most=waiter.most - count))
    return lane.buried > before


def _note_handout(state: State, writer: bytes, queue: int, popped: Popped) -> None:
    known = state.writers.by_id.get(writer)
    if known is not None:
        for taken in popped.taken:
            for offset in range(taken.length):
                known.handed.append((state.position, queue, taken.sequence + offset, taken.delivery + offset))
