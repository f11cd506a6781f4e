"""The state of a log and `apply`, the one function that changes it: for the live path, recovery, replicas, the simulator and the checkers.

apply reads only earlier entries of its own log, has no clock, no randomness and no floats, and iterates over nothing whose order is
not fixed. Time is the entry's time: max(previous, min(the log's stamp, the writer's stamp)). One operation's refusal never touches
its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from dovetail.core import clearing, crossing, moving, noting, pushing, reserving, serving, settling, staging, tapping
from dovetail.core import operation as op
from dovetail.core.catalog import Catalog
from dovetail.core.chronicle import REPEAT, Chronicle, Fact
from dovetail.core.digest import Digests
from dovetail.core.groups import Groups
from dovetail.core.lane import Lane
from dovetail.core.message import salt_of
from dovetail.core.moves import Arrivals
from dovetail.core.operation import (
    Applied,
    Done,
    Fate,
    Handout,
    Operation,
    Outcome,
    Popped,
    Refusal,
    Settled,
    Why,
)
from dovetail.core.producers import Producer, Producers
from dovetail.core.stages import Stages
from dovetail.core.versions import APPLY_VERSION, FACTS_VERSION, MOVES_VERSION, STAGES_VERSION, WAITING_VERSION
from dovetail.core.waiting import Attempt, Waiter
from dovetail.core.writers import Handed, Writers


class State:
    """What replaying a log gives. `position` is where the next entry to apply begins."""

    def __init__(self) -> None:
        self.version = APPLY_VERSION
        self.key, self.salt = b"", 0
        self.time = 0
        self.ahead_s = 0
        """Of the last entry; apply itself never looks at it."""
        self.position = 0
        self.trimmed = 0
        self.catalog = Catalog()
        self.lanes: dict[int, Lane] = {}
        self.dropped: dict[int, None] = {}
        self.producers = Producers()
        self.stages = Stages()
        self.writers = Writers()
        self.digests = Digests()
        """Of what was answered to entries of writers: of shared logs only."""
        self.logs, self.place = 1, 0
        """Of the namespace, and which of them this one is."""
        self.leaving: dict[tuple[int, int], None] = {}
        self.arrivals: dict[tuple[int, int], Arrivals] = {}
        """(source, target): between which something is on its way, as their lanes say; and what came here from another log."""
        self.waiting = serving.Waiting()
        """Queues with waiters in their lanes: of shared logs only."""
        self.chronicle = Chronicle()
        self.step = 0
        """Which operation of the entry is under way; known only while the chronicle is open."""
        self.rules_version = 0
        """Grows with every queue that is made, changed or dropped. It counts from the start of the process and is no part of the state."""
        self._writer = b""
        self.moved: set[tuple[int, int]] = set()
        """(queue, sequence) of messages that were moved by the entry under way: each moves at most once."""

    def apply(
        self, after: int, head: op.Head, operations: Sequence[Operation], addresses: Sequence[int], log_stamp: int | None = None
    ) -> Applied:
        """One entry. `addresses[i]` is where the record of `operations[i]` lies; `after` is the position behind the entry."""
        stamp = head.stamp if log_stamp is None else min(log_stamp, head.stamp)
        step = max(0, stamp - self.time) if self.time else 0
        self.time += step if self.time else stamp
        self.position, self.ahead_s = after, head.ahead_s
        self.moved.clear()
        self._writer = head.writer
        if not head.writer:
            return self._take_effect(operations, addresses)
        self._pass_time(step, head.writer)
        if operations and isinstance(operations[0], op.Open):
            # It opens, and holds nothing else.
            outcomes = [self._open_writer(operations[0], head), *(Refusal(Why.NOT_OPEN) for _ in operations[1:])]
            applied = Applied(outcomes, [])
        else:
            fate = self.writers.judge(head.writer, head.number)
            if fate is Fate.TAKEN:
                self.writers.heard(head.writer, head.applied, self.time)
                applied = self._take_effect(operations, addresses)
            else:
                applied = Applied([Refusal(Why.NOT_OPEN)] * len(operations), [], fate)
        self.digests.note(after, self.time, applied)
        return applied

    def agrees(self, head: op.Head) -> bool | None:
        """Had the writer of this entry the state that we had at that position? None where it cannot be said (any more). To be asked
        before the entry is applied; what to do about a difference is for whoever keeps the state."""
        return self.digests.agrees(head.applied, head.digest)

    def _take_effect(self, operations: Sequence[Operation], addresses: Sequence[int]) -> Applied:
        handouts: list[Handout] = []
        outcomes: list[Outcome] = []
        handlers, chronicle = _HANDLERS, self.chronicle
        for operation, address in zip(operations, addresses, strict=True):
            if chronicle.open:
                self.step = len(outcomes)
            outcomes.append(handlers[type(operation)](self, operation, address))
            if self.waiting.places:
                serving.serve(self, operation, handouts)
        return Applied(outcomes, handouts)

    def _pass_time(self, step: int, speaker: bytes) -> None:
        """Writers other than the one who speaks were silent for this step; for some it was one step too many."""
        for silent, handed in self.writers.pass_time(step, speaker, self.time):
            self._left(silent, handed)

    def _left(self, writer: bytes, handed: Handed) -> None:
        """Nobody waits for this writer any more, and what it was handed unseen goes back."""
        for queue in self.waiting.places:
            if queue in self.lanes:
                self.lanes[queue].waiters.leave_with(writer)
        self.waiting.stirred.update(self.waiting.places)
        for _, queue, sequence, delivery in handed:
            held = self.lane(queue)
            if held is not None:
                done = settling.release(held, (sequence,), (delivery,), self.time)
                if self.chronicle.open:
                    self.step = 0
                    noting.settled(self, held, op.Release(queue, (sequence,), (delivery,)), done)

    def lane(self, queue: int) -> Lane | None:
        """The lane, with its time advanced: what is due is visible, and waiters whose time is over have left."""
        lane = self.lanes.get(queue)
        if lane is not None:
            lane.advance(self.time)
            if lane.waiters:
                lane.waiters.leave_late(self.time)
        return lane

    # The log itself

    def _begin(self, o: op.Begin, _: int) -> Outcome:
        if self.key:
            return Refusal(Why.BEGUN)
        self.key, self.salt = o.key, salt_of(o.key)
        self.version = 1
        return Done()

    def _open(self, o: op.Open, _: int) -> Outcome:
        if self._writer:
            return Refusal(Why.NOT_OPEN)
        if o.version < self.version:
            return Refusal(Why.VERSION)
        # On `local` an Open closes all others, so nobody is left who could not follow.
        self.version = o.version
        return Done()

    def _open_writer(self, o: op.Open, head: op.Head) -> Outcome:
        """A writer joins a shared log, perhaps in the place of one that its process gives up."""
        if o.version < self.version:
            return Refusal(Why.VERSION)
        if o.writer != head.writer or not self.writers.open(o.writer, o.version, self.time):
            return Refusal(Why.NOT_OPEN)
        if o.before and o.before != o.writer:
            self._left(o.before, self.writers.close(o.before, head.applied))
        return Done()

    def _upgrade(self, o: op.Upgrade, _: int) -> Outcome:
        lowest = self.writers.lowest_version()
        if o.version <= self.version or o.version > APPLY_VERSION or (lowest is not None and lowest < o.version):
            return Refusal(Why.VERSION)
        self.version = o.version
        return Done()

    def _trim(self, o: op.Trim, _: int) -> Outcome:
        self.trimmed = max(self.trimmed, o.position)
        return Done()

    def _tick(self, _o: op.Tick, _: int) -> Outcome:
        return Done()

    def _retime(self, o: op.Retime, _: int) -> Outcome:
        self.time = max(self.time, o.time)
        return Done()

    # Queues

    def _register(self, o: op.Register, _: int) -> Outcome:
        known = self.catalog.get(o.namespace, o.name)
        if known is not None:
            return Refusal(Why.NAME_TAKEN, str(known))
        return Done(self.catalog.add(o.namespace, o.name))

    def _unregister(self, o: op.Unregister, _: int) -> Outcome:
        if self.chronicle.open and o.queue in self.catalog.by_id:
            self.chronicle.left(o.queue, *self.catalog.by_id[o.queue])
        return Done() if self.catalog.remove(o.queue) else Refusal(Why.NO_QUEUE)

    def _create(self, o: op.Create, _: int) -> Outcome:
        if o.queue in self.dropped:
            return Refusal(Why.DROPPED_ID)
        if crossing.elsewhere(self, o.queue):
            return Refusal(Why.ELSEWHERE)
        if o.queue not in self.lanes:
            self.lanes[o.queue] = Lane(o.queue, o.attributes)
            self.rules_version += 1
            if self.chronicle.open:
                noting.queue(self, Fact.CREATE, o.queue)
        return Done(o.queue)

    def _configure(self, o: op.Configure, _: int) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE)
        if lane.attributes.grouped != o.attributes.grouped:
            if lane.live:
                return Refusal(Why.NEEDS_GROUPS, "a queue with messages keeps its discipline")
            lane.groups, lane.tenants = Groups() if o.attributes.grouped else None, None
        lane.attributes = o.attributes
        self.rules_version += 1
        if self.chronicle.open:
            noting.queue(self, Fact.CONFIGURE, o.queue)
        return Done(o.queue)

    def _drop(self, o: op.Drop, _: int) -> Outcome:
        lane = self.lanes.pop(o.queue, None)
        if lane is None:
            return Refusal(Why.NO_QUEUE, str(o.queue))
        if self.chronicle.open:
            noting.queue(self, Fact.DROP, o.queue, lane.live)
        crossing.dropped(self, lane)
        self.dropped[o.queue] = None
        self.rules_version += 1
        self.waiting.leave(o.queue)
        return Done()

    # Messages

    def full(self, lane: Lane) -> bool:
        return bool(lane.attributes.in_flight_max) and lane.leased >= lane.attributes.in_flight_max

    def _pop(self, o: op.Pop, address: int) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE, str(o.queue))
        if o.attempt:
            repeated = self._repeat_attempt(lane, o)
            if repeated is not None:
                return repeated
        waits = o.wait_ms and self._writer
        if self.full(lane) and not waits:
            return Refusal(Why.OVER_IN_FLIGHT)
        # No later Pop overtakes those that wait already.
        popped = Popped(o.queue, (), 0) if lane.waiters or self.full(lane) else self.take(lane, o.max, o.lease_ms, o.delete)
        if not popped.taken and waits:
            once = o.once and self.version >= WAITING_VERSION
            lane.waiters.join(Waiter(self._writer, address, o.max, o.lease_ms, o.delete, self.time + o.wait_ms, o.attempt, once))
            self.waiting.join(o.queue)
            return popped._replace(waiting=True)
        if o.attempt and popped.taken and not o.delete:
            self.remember(lane, o.attempt, popped)
        return popped

    def _withdraw(self, o: op.Withdraw, _: int) -> Outcome:
        lane = self.lane(o.queue)
        return Refusal(Why.NO_QUEUE, str(o.queue)) if lane is None else Done(lane.waiters.withdraw(self._writer, frozenset(o.waiters)))

    def remember(self, lane: Lane, attempt: bytes, popped: Popped) -> None:
        sequences = tuple(taken.sequence + i for taken in popped.taken for i in range(taken.length))
        deliveries = tuple(taken.delivery + i for taken in popped.taken for i in range(taken.length))
        lane.attempts.put(attempt, Attempt(self.time, sequences, deliveries))

    def take(self, lane: Lane, most: int, lease_ms: int, delete: bool) -> Popped:
        lease = lane.lease_for(lease_ms)
        room = lane.attributes.in_flight_max - lane.leased if lane.attributes.in_flight_max else most
        bury = moving.burial(self, lane) if lane.attributes.receives_max else None
        taken = lane.pop(self.time, min(most, room), lease, delete, bury)
        if self.chronicle.open and taken:
            noting.taken(self, lane, taken, lease, delete=delete)
        return Popped(lane.queue, taken, self.time + lease)

    def _repeat_attempt(self, lane: Lane, o: op.Pop) -> Popped | None:
        """The same attempt within five minutes: the same messages under the same receipts, leases begun anew; void once one was settled."""
        made = lane.attempts.get(o.attempt, self.time)
        if made is None:
            return None
        lease = lane.lease_for(o.lease_ms)
        if not settling.renew(lane, made.sequences, made.deliveries, lease, self.time):
            return None
        taken = [lane.taken(*place) for place in map(lane.find, made.sequences) if place is not None]
        if self.chronicle.open:
            noting.taken(self, lane, taken, lease, delete=False, outcome=REPEAT)
        return Popped(lane.queue, taken, self.time + lease)

    def _settled(self, o: op.Settle | op.BySequence, act: Callable[[Lane], Sequence[bool]]) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE, str(o.queue))
        done = act(lane)
        if self.chronicle.open:
            noting.settled(self, lane, o, done)
        return Settled(done)

    def _complete(self, o: op.Complete, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.complete(lane, o.sequences, o.deliveries))

    def _requeue(self, o: op.Requeue, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.requeue(lane, o.sequences, o.deliveries, o.after_ms, self.time))

    def _extend(self, o: op.Extend, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.extend(lane, o.sequences, o.deliveries, lane.lease_for(o.lease_ms), self.time))

    def _release(self, o: op.Release, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.release(lane, o.sequences, o.deliveries, self.time))

    def _reclaim(self, o: op.Reclaim, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.reclaim(lane, o.sequences, self.time))

    def _cancel(self, o: op.Cancel, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.cancel(lane, o.sequences))

    def _reschedule(self, o: op.Reschedule, _: int) -> Outcome:
        return self._settled(o, lambda lane: settling.reschedule(lane, o.sequences, o.after_ms, self.time))

    def _complete_push(self, o: op.CompletePush, address: int) -> Outcome:
        """All or nothing: every receipt is alive and every target exists, or nothing happens."""
        lane = self.lane(o.complete.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE, str(o.complete.queue))
        number = o.push.numbered
        producer = self.producers.judge(*number) if number is not None else None
        if isinstance(producer, Producer) and number is not None and number.number + len(o.push.bodies) - 1 <= producer.last:
            # A repeat: both halves happened, or were refused, the first time.
            return pushing.push(self, o.push, address)
        if not settling.all_alive(lane, o.complete.sequences, o.complete.deliveries):
            return Refusal(Why.DEAD_RECEIPT)
        pushed = pushing.push(self, o.push, address)
        if not isinstance(pushed, Refusal):
            done = settling.complete(lane, o.complete.sequences, o.complete.deliveries)
            if self.chronicle.open:
                noting.settled(self, lane, o.complete, done)
        return pushed

    def _purge(self, o: op.Purge, _: int) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE)
        count = clearing.purge(lane)
        if self.chronicle.open:
            noting.cleared(self, lane, count)
        return Done(count)

    def _expire(self, o: op.Expire, _: int) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE)
        gone: list[tuple[int, int]] | None = [] if self.chronicle.open else None
        count = clearing.expire(lane, o.before, gone)
        if gone:
            noting.expired(self, lane, gone)
        return Done(count)

    def _carry(self, o: op.Carry, address: int) -> Outcome:
        lane = self.lane(o.queue)
        place = lane.find(o.sequence) if lane is not None else None
        if place is None or place[0].place(place[1])[0] != o.address:
            return Done(0)
        place[0].split(place[1], address, 0)
        return Done(1)

    # Producers and taps

    def _producer_open(self, o: op.ProducerOpen, _: int) -> Outcome:
        return op.Opened(*self.producers.open(o.producer))

    def _tap(self, o: op.TapOpen | op.TapAdvance | op.TapCut | op.TapClose, _: int) -> Outcome:
        lane = self.lane(o.queue)
        return Refusal(Why.NO_QUEUE, str(o.queue)) if lane is None else tapping.tap(lane, o)

    def _reserving(self, o: op.Reserving, _: int) -> Outcome:
        lane = self.lane(o.queue)
        if lane is None:
            return Refusal(Why.NO_QUEUE, str(o.queue))
        if not self.chronicle.open:
            return reserving.reservation(lane, o)
        ended = noting.held(lane, o)
        outcome = reserving.reservation(lane, o)
        noting.reserved(self, lane, o, ended, outcome)
        return outcome

    def _facts_tap(self, o: op.FactsTapping, _: int) -> Outcome:
        return tapping.facts_tap(self.chronicle, o)

    def _skip(self, o: op.Skip, _: int) -> Outcome:
        producer = self.producers.judge(o.producer, o.epoch, o.number)
        if not isinstance(producer, Producer):
            return Refusal(producer)
        if o.number > producer.last:
            producer.settle([Why.SKIPPED])
            return Done(1)
        return Done(0)


Handler = Callable[[State, Any, int], Outcome]


def _since(version: int, handler: Handler) -> Handler:
    """Before that version the operation is refused: a node that does not know it may be among those who apply it."""

    def judged(state: State, o: Any, address: int) -> Outcome:
        return handler(state, o, address) if state.version >= version else Refusal(Why.VERSION)

    return judged


_HANDLERS: dict[type[Any], Handler] = {
    op.Begin: State._begin,
    op.Open: State._open,
    op.Upgrade: State._upgrade,
    op.Register: State._register,
    op.Unregister: State._unregister,
    op.Create: State._create,
    op.Configure: State._configure,
    op.Drop: State._drop,
    op.Push: pushing.push,
    op.Pop: State._pop,
    op.Withdraw: _since(WAITING_VERSION, State._withdraw),
    op.Complete: State._complete,
    op.Requeue: State._requeue,
    op.Extend: State._extend,
    op.Release: State._release,
    op.Reclaim: State._reclaim,
    op.Cancel: State._cancel,
    op.Reschedule: State._reschedule,
    op.CompletePush: State._complete_push,
    op.Purge: State._purge,
    op.Expire: State._expire,
    op.Move: moving.move,
    op.ProducerOpen: State._producer_open,
    op.Skip: State._skip,
    op.TapOpen: State._tap,
    op.TapAdvance: State._tap,
    op.TapCut: State._tap,
    op.TapClose: State._tap,
    **dict.fromkeys(get_args(op.FactsTapping), _since(FACTS_VERSION, State._facts_tap)),
    op.Carry: State._carry,
    op.Trim: State._trim,
    op.Tick: State._tick,
    op.Retime: State._retime,
    op.Stage: _since(STAGES_VERSION, staging.stage),
    op.Publish: _since(STAGES_VERSION, staging.publish),
    op.Unstage: _since(STAGES_VERSION, staging.unstage),
    op.StageExpire: _since(STAGES_VERSION, staging.expire),
    op.StageCarry: _since(STAGES_VERSION, staging.carry),
    **dict.fromkeys(get_args(op.Reserving), _since(STAGES_VERSION, State._reserving)),
    **{made: _since(MOVES_VERSION, handler) for made, handler in crossing.HANDLERS.items()},
}
