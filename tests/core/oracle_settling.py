"""The oracle's endings: what settles, gives back, expires; and taps, which outlive it."""

from __future__ import annotations

from typing import Any

from dovetail.core import operation as op
from dovetail.core.operation import DEFAULT, Done, Outcome, Refusal, Settled, Why
from dovetail.limits import TAPS_PER_QUEUE_MAX
from tests.core.oracle_facts import Message, Queue, Tap
from tests.core.oracle_flow import Flow


class Settling(Flow):
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
        self.end_span(message)
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
            message = queue.find(sequence)
            if message is not None and done:
                self.end_span(message)
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
            idle = message is not None and not self.leased(message) and not message.reserved
            queue.messages = [m for m in queue.messages if not idle or m is not message]
            return idle

        return self._settle(o, act)

    def do_reschedule(self, o: op.Reschedule, _: int) -> Outcome:
        def act(queue: Queue, sequence: int, _d: None) -> bool:
            message = queue.find(sequence)
            idle = message is not None and not self.leased(message) and not message.reserved
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
        number = o.push.numbered
        producer = self.producers.get(number.producer) if number is not None else None
        opened = number is not None and producer is not None and producer.epoch == number.epoch
        if opened and 1 <= number.number <= len(producer.results) + 1 - len(o.push.bodies):
            return self.do_push(o.push, address)
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
        gone = [message for message in queue.messages if not message.reserved]
        for message in gone:
            self.end_span(message)
        queue.messages = [message for message in queue.messages if message.reserved]
        queue.dedup, queue.attempts = {}, {}
        if not queue.messages:
            self.forget_tenants(queue)
        return Done(len(gone))

    def do_expire(self, o: op.Expire, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)

        def old(m: Message) -> bool:
            return not self.leased(m) and not m.reserved and max(m.pushed, m.first_visible) < o.before

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
        late = [m for m in queue.messages if m.sequence not in queue.noted]
        queue.noted.update({m.sequence: (*m.place, m.pushed) for m in late})
        queue.noted_until.update({m.sequence: m.sequence + 1 for m in late})
        start = queue.next if o.start == op.LATEST else min(queue.next, max(o.start, min(queue.noted, default=queue.next)))
        queue.taps[o.name] = Tap(start)
        self._forget(queue)
        return Done(start)

    def _forget(self, queue: Queue) -> None:
        lowest = min((tap.next for tap in queue.taps.values()), default=1 << 64)
        queue.noted = {sequence: place for sequence, place in queue.noted.items() if queue.noted_until[sequence] > lowest}

    def _tap(self, o: Any) -> tuple[Queue, Tap] | None:
        queue = self.queues.get(o.queue)
        return (queue, queue.taps[o.name]) if queue is not None and o.name in queue.taps else None

    def _no_tap(self, o: Any) -> Refusal:
        return Refusal(Why.NO_TAP if o.queue in self.queues else Why.NO_QUEUE)

    def do_tapadvance(self, o: op.TapAdvance, _: int) -> Outcome:
        found = self._tap(o)
        if found is None:
            return self._no_tap(o)
        if min(o.sequence, found[0].next) >= found[1].next:
            # One that lies before what was cut was said by a reader that has not been told of the loss yet.
            found[1].lost = (0, 0)
        found[1].next = max(found[1].next, min(o.sequence, found[0].next))
        self._forget(found[0])
        return Done(found[1].next)

    def do_tapcut(self, o: op.TapCut, _: int) -> Outcome:
        found = self._tap(o)
        if found is None:
            return self._no_tap(o)
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
            return self._no_tap(o)
        del found[0].taps[o.name]
        self._forget(found[0])
        return Done()
