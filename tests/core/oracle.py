"""A naive second opinion: the state of one log as plain lists, written from the laws and the glossary.

Every question is answered by looking at all messages; nothing is indexed, packed or remembered for speed. It shares with `core` only the
vocabulary of operation.py. Where it and `State` answer differently, one of them breaks a law.
"""

from __future__ import annotations

from typing import Any

from dovetail.core import operation as op
from dovetail.core.operation import Applied, Done, Fate, Handout, Head, Outcome, Refusal, Why
from tests.core.oracle_crossing import Crossing
from tests.core.oracle_facts import HOUR, Queue, Writer


class Oracle(Crossing):
    # Entries, time, writers

    def apply(self, after: int, head: Head, operations: Any, addresses: Any, log_stamp: int | None = None) -> Applied:
        before = self.time
        self.time = max(self.time, head.stamp if log_stamp is None else min(log_stamp, head.stamp))
        self.position = after
        self.handouts = []
        if head.writer:
            self._silence(head.writer, min(self.time - before, 1000) if before else 0)
            if isinstance(operations[0], op.Open):
                opened = self._open(operations[0], head)
                return Applied([opened, *[Refusal(Why.NOT_OPEN) for _ in operations[1:]]], [])
            known = self.writers.get(head.writer)
            if known is None or head.number != known.last + 1:
                again = known is not None and head.number <= known.last
                return Applied([Refusal(Why.NOT_OPEN)] * len(operations), [], Fate.AGAIN if again else Fate.VOID)
            known.last = head.number
            known.silent_ms, known.seen, known.named = 0, self.time, max(known.named, head.applied)
            known.fresh = [hand for hand in known.fresh if hand[0] > known.named]
        self.writer = head.writer
        outcomes: list[Outcome] = []
        for operation, address in zip(operations, addresses, strict=True):
            self._leave_late()
            outcomes.append(getattr(self, "do_" + type(operation).__name__.lower())(operation, address))
            self._serve()
        return Applied(outcomes, self.handouts)

    def _leave_late(self) -> None:
        for queue in self.queues.values():
            queue.waiters = [w for w in queue.waiters if w.until > self.time]

    def _silence(self, speaking: bytes, step: int) -> None:
        for identity, writer in list(self.writers.items()):
            if identity == speaking:
                continue
            writer.silent_ms += step
            closed = self.time - writer.seen >= HOUR
            if writer.silent_ms >= 3000 or closed:
                self._leave(identity, writer)
            if closed:
                del self.writers[identity]
                self.closed.add(identity)

    def _leave(self, identity: bytes, writer: Writer) -> None:
        for queue in self.queues.values():
            queue.waiters = [w for w in queue.waiters if w.writer != identity]
        for _, number, sequence, delivery in writer.fresh:
            if number in self.queues:
                self._undo(self.queues[number], sequence, delivery)
        writer.fresh = []

    def _serve(self) -> None:
        """Every lane gives to its waiters whatever it may, first come first served, until nothing more can be given. The lane at which
        somebody waits longest begins."""
        again = True
        while again:
            again = False
            self.line = [number for number in self.line if number in self.queues and self.queues[number].waiters]
            for queue in [self.queues[number] for number in self.line]:
                while queue.waiters and not self.full(queue) and self.available(queue):
                    waiter = queue.waiters[0]
                    buried = len(queue.messages)
                    popped = self._take(queue, waiter.most, waiter.lease_ms, False)
                    again = again or len(queue.messages) != buried
                    if not popped.taken:
                        break
                    queue.waiters.pop(0)
                    if waiter.attempt:
                        queue.attempts[waiter.attempt] = (self.time, [(t.sequence, t.delivery) for t in popped.taken])
                    if len(popped.taken) < waiter.most and not waiter.once:
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

    def _open(self, o: op.Open, head: Head) -> Outcome:
        if o.writer in self.closed or o.writer != head.writer:
            return Refusal(Why.NOT_OPEN)
        self.writers.setdefault(o.writer, Writer(seen=self.time))
        if o.before and o.before != o.writer:
            self.closed.add(o.before)
            old = self.writers.pop(o.before, None)
            if old is not None:
                old.fresh = [hand for hand in old.fresh if hand[0] > head.applied]
                self._leave(o.before, old)
        return Done()

    def do_open(self, o: op.Open, _: int) -> Outcome:
        return Refusal(Why.NOT_OPEN) if self.writer else Done()

    def do_tick(self, _o: op.Tick, _: int) -> Outcome:
        return Done()

    def do_retime(self, o: op.Retime, _: int) -> Outcome:
        self.time = max(self.time, o.time)
        self._leave_late()
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
        if self.elsewhere(o.queue):
            return Refusal(Why.ELSEWHERE)
        self.queues.setdefault(o.queue, Queue(o.queue, o.attributes))
        return Done(o.queue)

    def do_configure(self, o: op.Configure, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        if queue.messages and queue.rules.grouped != o.attributes.grouped:
            return Refusal(Why.NEEDS_GROUPS)
        if queue.rules.grouped != o.attributes.grouped:
            self.forget_tenants(queue)
        queue.rules = o.attributes
        return Done(o.queue)

    def do_drop(self, o: op.Drop, _: int) -> Outcome:
        if o.queue not in self.queues:
            return Refusal(Why.NO_QUEUE)
        del self.queues[o.queue]
        self.dropped.add(o.queue)
        return Done()
