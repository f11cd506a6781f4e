"""A naive second opinion: the state of one log as plain lists, written from the laws and the glossary.

Every question is answered by looking at all messages; nothing is indexed, packed or remembered for speed. It shares with `core` only the
vocabulary of operation.py. Where it and `State` answer differently, one of them breaks a law.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dovetail.core import operation as op
from dovetail.core.operation import (
    DEFAULT,
    Applied,
    Attributes,
    Done,
    Handout,
    Head,
    Opened,
    Origin,
    Outcome,
    Popped,
    Pushed,
    PushedAll,
    Refusal,
    Settled,
    Taken,
    Why,
)
from dovetail.limits import TAPS_PER_QUEUE_MAX

MINUTES_5 = 300_000
HOUR = 3_600_000


@dataclass(eq=False)
class Message:
    sequence: int
    group: bytes
    place: tuple[int, int]
    pushed: int
    visible_at: int
    origin: Origin | None = None
    first_visible: int = 0
    handed: bool = False
    """Its last change was a hand-out; it is leased as long as visible_at lies ahead."""
    delivery: int = 0
    receives: int = 0
    first_received: int = 0


@dataclass
class Waiter:
    writer: bytes
    address: int
    most: int
    lease_ms: int
    until: int
    attempt: bytes


@dataclass
class Tap:
    next: int
    lost: tuple[int, int] = (0, 0)


@dataclass
class Queue:
    number: int
    rules: Attributes
    messages: list[Message] = field(default_factory=list)
    next: int = 1
    next_delivery: int = 1
    dedup: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    attempts: dict[bytes, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)
    taps: dict[str, Tap] = field(default_factory=dict)
    noted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """What taps may read: sequence → (address, item, time)."""

    def find(self, sequence: int) -> Message | None:
        return next((m for m in self.messages if m.sequence == sequence), None)


@dataclass
class Producer:
    epoch: int = 0
    results: list[Any] = field(default_factory=list)
    """The outcome of every number from 1 on: {queue: sequence}, or why it was refused."""


@dataclass
class Writer:
    last: int = 0
    named: int = 0
    silent_ms: int = 0
    seen: int = 0
    fresh: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Hand-outs that it may not have seen: (position, queue, sequence, delivery)."""


class Oracle:
    def __init__(self) -> None:
        self.time = 0
        self.position = 0
        self.key = b""
        self.names: dict[int, tuple[str, str]] = {}
        self.next_queue = 1
        self.queues: dict[int, Queue] = {}
        self.dropped: set[int] = set()
        self.producers: dict[bytes, Producer] = {}
        self.writers: dict[bytes, Writer] = {}
        self.writer = b""
        self.handouts: list[Handout] = []

    # Entries, time, writers

    def apply(self, after: int, head: Head, operations: Any, addresses: Any, log_stamp: int | None = None) -> Applied:
        before = self.time
        self.time = max(self.time, head.stamp if log_stamp is None else min(log_stamp, head.stamp))
        self.position = after
        self.handouts = []
        if head.writer:
            self._silence(head.writer, min(self.time - before, 1000) if before else 0)
            known = self.writers.get(head.writer)
            if not isinstance(operations[0], op.Open):
                if known is None or head.number != known.last + 1:
                    return Applied([Refusal(Why.NOT_OPEN)] * len(operations), [])
                known.last = head.number
            if known is not None:
                known.silent_ms, known.seen, known.named = 0, self.time, max(known.named, head.applied)
                known.fresh = [hand for hand in known.fresh if hand[0] > known.named]
        self.writer = head.writer
        outcomes: list[Outcome] = []
        for operation, address in zip(operations, addresses, strict=True):
            for queue in self.queues.values():
                queue.waiters = [w for w in queue.waiters if w.until > self.time]
            outcomes.append(getattr(self, "do_" + type(operation).__name__.lower())(operation, address))
            self._serve()
        return Applied(outcomes, self.handouts)

    def _silence(self, speaking: bytes, step: int) -> None:
        for identity, writer in list(self.writers.items()):
            if identity == speaking:
                continue
            before = writer.silent_ms
            writer.silent_ms += step
            if before < 3000 <= writer.silent_ms:
                for queue in self.queues.values():
                    queue.waiters = [w for w in queue.waiters if w.writer != identity]
                for _, number, sequence, delivery in writer.fresh:
                    if number in self.queues:
                        self._undo(self.queues[number], sequence, delivery)
                writer.fresh = []
            if self.time - writer.seen >= HOUR:
                del self.writers[identity]

    def _serve(self) -> None:
        """Every lane gives to its waiters whatever it may, first come first served, until nothing more can be given."""
        again = True
        while again:
            again = False
            for queue in self.queues.values():
                while queue.waiters and not self._full(queue):
                    waiter = queue.waiters[0]
                    buried = len(queue.messages)
                    popped = self._take(queue, waiter.most, waiter.lease_ms, False)
                    again = again or len(queue.messages) != buried
                    if not popped.taken:
                        break
                    queue.waiters.pop(0)
                    if len(popped.taken) < waiter.most:
                        waiter.most -= len(popped.taken)
                        queue.waiters.append(waiter)
                    if waiter.writer in self.writers:
                        fresh = self.writers[waiter.writer].fresh
                        fresh += [(self.position, queue.number, t.sequence, t.delivery) for t in popped.taken]
                    self.handouts.append(Handout(waiter.writer, waiter.address, popped))

    def do_begin(self, o: op.Begin, _: int) -> Outcome:
        if self.key:
            return Refusal(Why.BEGUN)
        self.key = o.key
        return Done()

    def do_open(self, o: op.Open, _: int) -> Outcome:
        if self.writer and o.writer not in self.writers:
            self.writers[o.writer] = Writer(seen=self.time)
        return Done()

    def do_tick(self, _o: op.Tick, _: int) -> Outcome:
        return Done()

    def do_retime(self, o: op.Retime, _: int) -> Outcome:
        self.time = max(self.time, o.time)
        return Done()

    # Queues

    def do_register(self, o: op.Register, _: int) -> Outcome:
        for number, name in self.names.items():
            if name == (o.namespace, o.name):
                return Refusal(Why.NAME_TAKEN, str(number))
        self.names[self.next_queue] = (o.namespace, o.name)
        self.next_queue += 1
        return Done(self.next_queue - 1)

    def do_unregister(self, o: op.Unregister, _: int) -> Outcome:
        return Done() if self.names.pop(o.queue, None) else Refusal(Why.NO_QUEUE)

    def do_create(self, o: op.Create, _: int) -> Outcome:
        if o.queue in self.dropped:
            return Refusal(Why.DROPPED_ID)
        self.queues.setdefault(o.queue, Queue(o.queue, o.attributes))
        return Done(o.queue)

    def do_configure(self, o: op.Configure, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        if queue.messages and queue.rules.grouped != o.attributes.grouped:
            return Refusal(Why.NEEDS_GROUPS)
        queue.rules = o.attributes
        return Done(o.queue)

    def do_drop(self, o: op.Drop, _: int) -> Outcome:
        if o.queue not in self.queues:
            return Refusal(Why.NO_QUEUE)
        del self.queues[o.queue]
        self.dropped.add(o.queue)
        return Done()

    # Pushes

    def do_push(self, o: op.Push, address: int) -> Outcome:
        if o.numbered is None:
            return self._push(o, address, range(len(o.bodies)))
        producer = self.producers.get(o.numbered.producer)
        if producer is None or producer.epoch != o.numbered.epoch:
            return Refusal(Why.NOT_OPEN)
        first, count = o.numbered.number, len(o.bodies)
        if not 1 <= first <= len(producer.results) + 1:
            return Refusal(Why.GAP)
        fresh = range(min(count, len(producer.results) + 1 - first), count)
        made = self._push(o, address, fresh) if fresh else None
        lanes = made.lanes if isinstance(made, PushedAll) else (made,) if isinstance(made, Pushed) else ()
        forgotten = len(producer.results) - 64 + len(fresh)
        for index in range(len(fresh)):
            producer.results.append(made.why if isinstance(made, Refusal) else {lane.queue: lane.sequences[index] for lane in lanes})
        forgotten = len(producer.results) - len(fresh) - 64
        # A result older than the last 64 is answered "stored before", which is a repeat with the sequence 0.
        results = [{} if number <= forgotten else producer.results[number - 1] for number in range(first, first + count)]
        if all(isinstance(result, Why) for result in results):
            return Refusal(results[0])
        answers = []
        for queue in o.queues:
            repeats = set(range(fresh.start)) | {fresh.start + i for lane in lanes if lane.queue == queue for i in lane.repeats}
            sequences = [0 if isinstance(result, Why) else result.get(queue, 0) for result in results]
            answers.append(Pushed(queue, sequences, frozenset(i for i in repeats if not isinstance(results[i], Why))))
        return answers[0] if len(answers) == 1 else PushedAll(tuple(answers))

    def _push(self, o: op.Push, address: int, items: range) -> Outcome:
        for number in o.queues:
            if number not in self.queues:
                return Refusal(Why.NO_QUEUE)
        made = tuple(self._push_one(self.queues[number], o, address, items) for number in o.queues)
        return made[0] if len(made) == 1 else PushedAll(made)

    def _push_one(self, queue: Queue, o: op.Push, address: int, items: range) -> Pushed:
        sequences: list[int] = []
        repeats: list[int] = []
        for item in items:
            key = o.dedups[16 * item : 16 * item + 16] if o.dedups else b""
            window = queue.rules.dedup_ms if any(key) else 0
            if window and key in queue.dedup and queue.dedup[key][1] + window > self.time:
                repeats.append(item - items.start)
                sequences.append(queue.dedup[key][0])
                continue
            delay = DEFAULT if o.delays is None else o.delays[0] if len(o.delays) == 1 else o.delays[item]
            group = o.groups[item] if o.groups is not None and queue.rules.grouped else b""
            message = self._join(queue, (address, item), group, queue.rules.delay_ms if delay == DEFAULT else delay)
            sequences.append(message.sequence)
            if window:
                queue.dedup[key] = (message.sequence, self.time)
        return Pushed(queue.number, sequences, frozenset(repeats))

    def _join(self, queue: Queue, place: tuple[int, int], group: bytes, delay: int, origin: Origin | None = None) -> Message:
        message = Message(queue.next, group, place, self.time, self.time + delay, origin, self.time + delay)
        queue.next += 1
        queue.messages.append(message)
        if queue.taps:
            queue.noted[message.sequence] = (*place, self.time)
        return message

    def do_producer_open(self, o: op.ProducerOpen, _: int) -> Outcome:
        producer = self.producers.setdefault(o.producer, Producer())
        producer.epoch += 1
        return Opened(producer.epoch, len(producer.results))

    do_produceropen = do_producer_open

    def do_skip(self, o: op.Skip, _: int) -> Outcome:
        producer = self.producers.get(o.producer)
        if producer is None or producer.epoch != o.epoch:
            return Refusal(Why.NOT_OPEN)
        if not 1 <= o.number <= len(producer.results) + 1:
            return Refusal(Why.GAP)
        if o.number <= len(producer.results):
            return Done(0)
        producer.results.append({})
        return Done(1)

    # Hand-outs

    def leased(self, message: Message) -> bool:
        return message.handed and message.visible_at > self.time

    def _full(self, queue: Queue) -> bool:
        return bool(queue.rules.in_flight_max) and sum(map(self.leased, queue.messages)) >= queue.rules.in_flight_max

    def do_pop(self, o: op.Pop, address: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        if o.attempt and o.attempt in queue.attempts:
            made, receipts = queue.attempts[o.attempt]
            found = [queue.find(sequence) for sequence, _ in receipts]
            alive = all(m is not None and m.delivery == d for m, (_, d) in zip(found, receipts, strict=True))
            if made + MINUTES_5 > self.time and alive:
                lease = queue.rules.lease_ms if o.lease_ms == DEFAULT else o.lease_ms
                again = [message for message in found if message is not None]
                for message in again:
                    message.handed, message.visible_at = True, self.time + lease
                return Popped(o.queue, [self._taken(message) for message in again], self.time + lease)
        waits = bool(o.wait_ms and self.writer)
        if self._full(queue) and not waits:
            return Refusal(Why.OVER_IN_FLIGHT)
        popped = Popped(o.queue, (), 0)
        if not queue.waiters and not self._full(queue):
            popped = self._take(queue, o.max, o.lease_ms, o.delete)
        if not popped.taken and waits:
            queue.waiters = [w for w in queue.waiters if not o.attempt or w.attempt != o.attempt]
            queue.waiters.append(Waiter(self.writer, address, o.max, o.lease_ms, self.time + o.wait_ms, o.attempt))
            return popped._replace(waiting=True)
        if o.attempt and popped.taken and not o.delete:
            queue.attempts[o.attempt] = (self.time, [(t.sequence, t.delivery) for t in popped.taken])
        return popped

    def _taken(self, m: Message) -> Taken:
        return Taken(m.sequence, 1, m.delivery, *m.place, [m.receives], m.pushed, m.first_received, m.origin)

    def available(self, queue: Queue) -> list[Message]:
        """What a receive could begin with, lowest first."""
        free = []
        met: set[bytes] = set()
        busy = {message.group for message in queue.messages if self.leased(message)}
        for message in queue.messages:
            blocked = message.group and (message.group in met or message.group in busy)
            met.add(message.group)
            if message.visible_at <= self.time and not blocked:
                free.append(message)
        return free

    def _due_for_dead_letters(self, queue: Queue, message: Message) -> Queue | None:
        rules = queue.rules
        target = self.queues.get(rules.dead_letter)
        return target if rules.receives_max and message.receives >= rules.receives_max and target is not queue else None

    def _take(self, queue: Queue, most: int, lease_ms: int, delete: bool) -> Popped:
        lease = queue.rules.lease_ms if lease_ms == DEFAULT else lease_ms
        if queue.rules.in_flight_max:
            most = min(most, queue.rules.in_flight_max - sum(map(self.leased, queue.messages)))
        taken: list[Taken] = []
        given: list[Message] = []
        while len(taken) < most:
            groups = {message.group for message in given if message.group and not delete}
            free = [m for m in self.available(queue) if m not in given and m.group not in groups]
            if not free:
                break
            target = self._due_for_dead_letters(queue, free[0])
            if target is not None:
                self._move(queue, free[0], target)
                continue
            line = [free[0]]
            for behind in queue.messages:
                if behind.sequence > free[0].sequence and behind.group and behind.group == free[0].group:
                    # A receive stops before a member that is not visible, and before one that is due for the dead letters.
                    if behind.visible_at > self.time or self._due_for_dead_letters(queue, behind):
                        break
                    line.append(behind)
            for message in line[: most - len(taken)]:
                given.append(message)
                taken.append(self._hand(queue, message, lease, delete))
        return Popped(queue.number, taken, self.time + lease)

    def _hand(self, queue: Queue, message: Message, lease: int, delete: bool) -> Taken:
        message.receives += 1
        if message.receives == 1:
            message.first_received = self.time
        if delete:
            queue.messages.remove(message)
            return self._taken(message)._replace(delivery=0, first_received=self.time)
        message.delivery = queue.next_delivery
        queue.next_delivery += 1
        message.handed, message.visible_at = True, self.time + lease
        return self._taken(message)

    def _move(self, queue: Queue, message: Message, target: Queue) -> None:
        queue.messages.remove(message)
        was = message.origin or Origin(queue.number, message.sequence, 0, message.pushed)
        self._join(target, message.place, message.group if target.rules.grouped else b"", 0, was._replace(source=queue.number))

    def do_move(self, o: op.Move, _: int) -> Outcome:
        queue = self.queues.get(o.source)
        if queue is None or (o.target and o.target not in self.queues):
            return Refusal(Why.NO_QUEUE)
        moved = 0
        for message in list(queue.messages):
            target = self.queues.get(o.target or (message.origin.source if message.origin else 0))
            if moved < o.max and message.visible_at <= self.time and target is not None and target is not queue:
                self._move(queue, message, target)
                moved += 1
        return Done(moved)

    # Settling

    def _settle(self, o: Any, act: Any) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        deliveries = getattr(o, "deliveries", [None] * len(o.sequences))
        return Settled([act(queue, s, d) for s, d in zip(o.sequences, deliveries, strict=True)])

    def honoured(self, queue: Queue, sequence: int, delivery: int) -> bool:
        """Would a complete with this receipt count?"""
        message = queue.find(sequence)
        current = message is not None and bool(delivery) and message.delivery == delivery
        return current and message is not None and (self.leased(message) or not queue.rules.grouped)

    def _held(self, queue: Queue, sequence: int, delivery: int) -> Message | None:
        message = queue.find(sequence)
        return message if message is not None and delivery and message.delivery == delivery and self.leased(message) else None

    def _return(self, message: Message, after_ms: int) -> None:
        message.handed, message.delivery, message.visible_at = False, 0, self.time + max(after_ms, 0)

    def _undo(self, queue: Queue, sequence: int, delivery: int) -> bool:
        message = self._held(queue, sequence, delivery)
        if message is not None:
            message.receives -= 1
            self._return(message, 0)
        return message is not None

    def do_complete(self, o: op.Complete, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, delivery: int) -> bool:
            done = self.honoured(queue, sequence, delivery)
            queue.messages = [m for m in queue.messages if not done or m.sequence != sequence]
            return done

        return self._settle(o, act)

    def do_requeue(self, o: op.Requeue, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, delivery: int) -> bool:
            message = self._held(queue, sequence, delivery)
            if message is not None:
                backoff = queue.rules.backoff_ms * 2 ** (message.receives - 1)
                if queue.rules.backoff_max_ms:
                    backoff = min(backoff, queue.rules.backoff_max_ms)
                self._return(message, backoff if o.after_ms == DEFAULT else o.after_ms)
            return message is not None

        return self._settle(o, act)

    def do_extend(self, o: op.Extend, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, delivery: int) -> bool:
            message = self._held(queue, sequence, delivery)
            lease = queue.rules.lease_ms if o.lease_ms == DEFAULT else o.lease_ms
            if message is not None and lease:
                message.visible_at = self.time + lease
            elif message is not None:
                self._return(message, 0)
            return message is not None

        return self._settle(o, act)

    def do_release(self, o: op.Release, _: int) -> Outcome:
        return self._settle(o, self._undo)

    def do_reclaim(self, o: op.Reclaim, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, _d: None) -> bool:
            message = queue.find(sequence)
            leased = message is not None and self.leased(message)
            if message is not None and leased:
                self._return(message, 0)
            return leased

        return self._settle(o, act)

    def do_cancel(self, o: op.Cancel, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, _d: None) -> bool:
            message = queue.find(sequence)
            idle = message is not None and not self.leased(message)
            queue.messages = [m for m in queue.messages if not idle or m is not message]
            return idle

        return self._settle(o, act)

    def do_reschedule(self, o: op.Reschedule, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, _d: None) -> bool:
            message = queue.find(sequence)
            idle = message is not None and not self.leased(message)
            if message is not None and idle:
                self._return(message, o.after_ms)
                if not message.receives:
                    message.first_visible = message.visible_at
            return idle

        return self._settle(o, act)

    def do_completepush(self, o: op.CompletePush, address: int) -> Outcome:
        queue = self.queues.get(o.complete.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        receipts = list(zip(o.complete.sequences, o.complete.deliveries, strict=True))
        if len(dict(receipts)) != len(receipts) or not all(self.honoured(queue, *receipt) for receipt in receipts):
            return Refusal(Why.DEAD_RECEIPT)
        pushed = self.do_push(o.push, address)
        if not isinstance(pushed, Refusal):
            self.do_complete(o.complete, address)
        return pushed

    def do_purge(self, o: op.Purge, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        gone = len(queue.messages)
        queue.messages, queue.dedup, queue.attempts = [], {}, {}
        return Done(gone)

    def do_expire(self, o: op.Expire, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)

        def old(m: Message) -> bool:
            # The first visible time of a delayed message is kept in whole seconds, rounded up: it may live that much longer.
            first = m.pushed if m.first_visible == m.pushed else -(-m.first_visible // 1000) * 1000
            return not self.leased(m) and max(m.pushed, first) < o.before

        gone = list(filter(old, queue.messages))
        queue.messages = [m for m in queue.messages if m not in gone]
        return Done(len(gone))

    # Taps and the place of bodies

    def do_carry(self, o: op.Carry, address: int) -> Outcome:
        queue = self.queues.get(o.queue)
        message = queue.find(o.sequence) if queue is not None else None
        if message is None or message.place[0] != o.address:
            return Done(0)
        message.place = (address, 0)
        return Done(1)

    def do_tapopen(self, o: op.TapOpen, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        if o.name in queue.taps:
            return Done(queue.taps[o.name].next)
        if len(queue.taps) >= TAPS_PER_QUEUE_MAX:
            return Refusal(Why.TOO_MANY_TAPS)
        # Whatever waits can be read, and whatever another tap still needs.
        queue.noted.update({m.sequence: (*m.place, m.pushed) for m in queue.messages if m.sequence not in queue.noted})
        start = queue.next if o.start == op.LATEST else min(queue.next, max(o.start, min(queue.noted, default=queue.next)))
        queue.taps[o.name] = Tap(start)
        self._forget(queue)
        return Done(start)

    def _forget(self, queue: Queue) -> None:
        lowest = min((tap.next for tap in queue.taps.values()), default=1 << 64)
        queue.noted = {sequence: place for sequence, place in queue.noted.items() if sequence >= lowest}

    def _tap(self, o: Any) -> tuple[Queue, Tap] | None:
        queue = self.queues.get(o.queue)
        return (queue, queue.taps[o.name]) if queue is not None and o.name in queue.taps else None

    def do_tapadvance(self, o: op.TapAdvance, _: int) -> Outcome:
        found = self._tap(o)
        if found is None:
            return Refusal(Why.NO_TAP)
        found[1].next = max(found[1].next, min(o.sequence, found[0].next))
        found[1].lost = (0, 0)
        self._forget(found[0])
        return Done(found[1].next)

    def do_tapcut(self, o: op.TapCut, _: int) -> Outcome:
        found = self._tap(o)
        if found is None:
            return Refusal(Why.NO_TAP)
        queue, tap = found
        target = min(o.sequence, queue.next)
        if target > tap.next:
            first = tap.lost[0] if tap.lost[1] else tap.next
            tap.lost, tap.next = (first, target - first), target
            self._forget(queue)
        return Done(tap.next)

    def do_tapclose(self, o: op.TapClose, _: int) -> Outcome:
        found = self._tap(o)
        if found is None:
            return Refusal(Why.NO_TAP)
        del found[0].taps[o.name]
        self._forget(found[0])
        return Done()

    # Looking

    def counts(self, number: int, now: int) -> tuple[int, int, int]:
        messages = self.queues[number].messages
        later = [m for m in messages if m.visible_at > now]
        leased = sum(m.handed for m in later)
        return len(messages) - len(later), len(later) - leased, leased
