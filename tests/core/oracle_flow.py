"""The oracle's messages: how they join, are handed out and move on."""

from __future__ import annotations

from dovetail.core import operation as op
from dovetail.core.operation import DEFAULT, Done, Opened, Origin, Outcome, Popped, Pushed, PushedAll, Refusal, Taken, Why
from tests.core.oracle_facts import MINUTES_5, Message, Producer, Queue, Waiter
from tests.core.oracle_fair import Fair


class Flow(Fair):
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
        begun = queue.next
        for item in items:
            key = o.dedups[16 * item : 16 * item + 16] if o.dedups else b""
            window = queue.rules.dedup_ms if any(key) else 0
            if window and key in queue.dedup and queue.dedup[key][1] + window > self.time:
                repeats.append(item - items.start)
                sequences.append(queue.dedup[key][0])
                begun = queue.next
                continue
            delay = DEFAULT if o.delays is None else o.delays[0] if len(o.delays) == 1 else o.delays[item]
            name = o.groups[item] if o.groups is not None else b""
            message = self._join(queue, (address, item), name, queue.rules.delay_ms if delay == DEFAULT else delay)
            sequences.append(message.sequence)
            # Neighbours that join together are noted together, and forgotten together.
            queue.noted_until.update(dict.fromkeys(range(begun, queue.next), queue.next))
            if window:
                queue.dedup[key] = (message.sequence, self.time)
        return Pushed(queue.number, sequences, frozenset(repeats))

    def _join(self, queue: Queue, place: tuple[int, int], name: bytes, delay: int, origin: Origin | None = None) -> Message:
        group, tenant = (name, b"") if queue.rules.grouped else (b"", name)
        message = Message(queue.next, group, place, self.time, self.time + delay, origin, self.time + delay, tenant=tenant)
        queue.next += 1
        queue.messages.append(message)
        self.meet_tenant(queue, message)
        if queue.taps:
            queue.noted[message.sequence] = (*place, self.time)
        queue.noted_until[message.sequence] = queue.next
        return message

    def do_produceropen(self, o: op.ProducerOpen, _: int) -> Outcome:
        producer = self.producers.setdefault(o.producer, Producer())
        producer.epoch += 1
        return Opened(producer.epoch, len(producer.results))

    def do_skip(self, o: op.Skip, _: int) -> Outcome:
        producer = self.producers.get(o.producer)
        if producer is None or producer.epoch != o.epoch:
            return Refusal(Why.NOT_OPEN)
        if not 1 <= o.number <= len(producer.results) + 1:
            return Refusal(Why.GAP)
        if o.number <= len(producer.results):
            return Done(0)
        producer.results.append(Why.SKIPPED)
        return Done(1)

    # Hand-outs

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
                    if not self.leased(message):
                        self.end_span(message)
                        self.begin_span(queue, message)
                    message.handed, message.visible_at = True, self.time + lease
                return Popped(o.queue, [self._taken(message) for message in again], self.time + lease)
        waits = bool(o.wait_ms and self.writer)
        if self.full(queue) and not waits:
            return Refusal(Why.OVER_IN_FLIGHT)
        popped = Popped(o.queue, (), 0)
        if not queue.waiters and not self.full(queue):
            popped = self._take(queue, o.max, o.lease_ms, o.delete)
        if not popped.taken and waits:
            queue.waiters = [w for w in queue.waiters if not o.attempt or w.attempt != o.attempt]
            queue.waiters.append(Waiter(self.writer, address, o.max, o.lease_ms, self.time + o.wait_ms, o.attempt, o.once))
            self.line += [o.queue] if o.queue not in self.line else []
            return popped._replace(waiting=True)
        if o.attempt and popped.taken and not o.delete:
            queue.attempts[o.attempt] = (self.time, [(t.sequence, t.delivery) for t in popped.taken])
        return popped

    def do_withdraw(self, o: op.Withdraw, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        leaving = [w for w in queue.waiters if w.address in o.waiters and w.writer == self.writer]
        queue.waiters = [w for w in queue.waiters if w not in leaving]
        return Done(len(leaving))

    def _taken(self, m: Message) -> Taken:
        return Taken(m.sequence, 1, m.delivery, *m.place, [m.receives], m.pushed, m.first_received, m.origin)

    def _due_for_dead_letters(self, queue: Queue, message: Message) -> Queue | int | None:
        """The queue, or its number where it is in another log."""
        rules = queue.rules
        target = self.queues.get(rules.dead_letter)
        if not rules.receives_max or message.receives < rules.receives_max or target is queue:
            return None
        return rules.dead_letter if target is None and self.may_leave(queue, rules.dead_letter) else target

    def _take(self, queue: Queue, most: int, lease_ms: int, delete: bool) -> Popped:
        lease = queue.rules.lease_ms if lease_ms == DEFAULT else lease_ms
        if queue.rules.in_flight_max:
            most = min(most, queue.rules.in_flight_max - sum(map(self.leased, queue.messages)))
        if not queue.rules.grouped:
            return Popped(queue.number, self._take_fairly(queue, most, lease, delete), self.time + lease)
        taken: list[Taken] = []
        given: set[bytes] = set()
        free = self.available(queue)
        while free and len(taken) < most:
            lowest = free.pop(0)
            if lowest.group and lowest.group in given:
                continue
            target = self._due_for_dead_letters(queue, lowest)
            if target is not None:
                self._move(queue, lowest, target)
                free = [m for m in self.available(queue) if m.sequence > lowest.sequence] if lowest.group else free
                continue
            line = [lowest]
            for behind in queue.messages if lowest.group else ():
                if behind.sequence > lowest.sequence and behind.group == lowest.group:
                    # A receive stops before a member that is not visible, and before one that is due for the dead letters.
                    if behind.visible_at > self.time or self._due_for_dead_letters(queue, behind):
                        break
                    line.append(behind)
            for message in line[: most - len(taken)]:
                taken.append(self._hand(queue, message, lease, delete))
            if delete and lowest.group:
                free = self.available(queue)
            else:
                given.add(lowest.group)
        return Popped(queue.number, taken, self.time + lease)

    def _take_fairly(self, queue: Queue, most: int, lease: int, delete: bool) -> list[Taken]:
        self.end_spells(queue)
        taken: list[Taken] = []
        given: list[Message] = []
        free = self.available(queue)
        while free and len(taken) < most:
            message = self.fairest(queue, free, given)
            free.remove(message)
            target = self._due_for_dead_letters(queue, message)
            if target is not None:
                self._move(queue, message, target)
                continue
            taken.append(self._hand(queue, message, lease, delete))
            given.append(message)
        return taken

    def _hand(self, queue: Queue, message: Message, lease: int, delete: bool) -> Taken:
        message.receives += 1
        if message.receives == 1:
            message.first_received = self.time
        if delete:
            queue.messages.remove(message)
            return self._taken(message)._replace(delivery=0, first_received=self.time)
        self.end_span(message)
        self.begin_span(queue, message)
        message.delivery = queue.next_delivery
        queue.next_delivery += 1
        message.handed, message.visible_at = True, self.time + lease
        return self._taken(message)

    def _move(self, queue: Queue, message: Message, target: Queue | int) -> None:
        if isinstance(target, int):
            behind = [m for m in queue.messages if m.group == message.group and m.sequence >= message.sequence and m.group]
            for one in behind or [message]:
                # Those of its group that are due as well go with it, up to the first that is not.
                if one.visible_at > self.time or self._due_for_dead_letters(queue, one) is None:
                    return
                self.depart(queue, one, target)
            return
        queue.messages.remove(message)
        was = message.origin or Origin(queue.number, message.sequence, 0, message.pushed)
        self._join(target, message.place, message.group or message.tenant, 0, was._replace(source=queue.number)).moved_at = self.position

    def do_move(self, o: op.Move, _: int) -> Outcome:
        queue = self.queues.get(o.source)
        if queue is None or (o.target and o.target not in self.queues):
            return Refusal(Why.NO_QUEUE)
        moved = 0
        blocked: set[bytes] = set()
        for message in list(queue.messages):
            target = self.queues.get(o.target or (message.origin.source if message.origin else 0))
            there = message.visible_at <= self.time and not message.reserved
            if not there and message.group:
                blocked.add(message.group)
            free = there and message.moved_at != self.position and message.group not in blocked
            if moved < o.max and free and target is not None and target is not queue:
                self._move(queue, message, target)
                moved += 1
        return Done(moved)
