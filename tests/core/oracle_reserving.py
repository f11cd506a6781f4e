"""The oracle's reservations: batches as plain lists of messages."""

from __future__ import annotations

from dovetail.core import operation as op
from dovetail.core.operation import Done, Opened, Outcome, Refusal, Reserved, Why
from dovetail.limits import RESERVATIONS_PER_QUEUE_MAX, RESERVED_BATCHES_MAX
from tests.core.oracle_facts import Message, Queue, Reservation
from tests.core.oracle_staging import Staging


class Reserving(Staging):
    def _reservation(self, o: op.Reserving) -> tuple[Queue, Reservation] | Refusal:
        """The owner's, or why it has none."""
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        known = queue.reservations.get(o.name)
        if known is None:
            return Refusal(Why.NO_RESERVATION)
        if isinstance(o, op.Reserve | op.ReserveSettle) and (known.epoch != o.epoch or not o.epoch):
            return Refusal(Why.FENCED)
        return queue, known

    def do_reserveopen(self, o: op.ReserveOpen, _: int) -> Outcome:
        queue = self.queues.get(o.queue)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        if o.name not in queue.reservations and len(queue.reservations) >= RESERVATIONS_PER_QUEUE_MAX:
            return Refusal(Why.TOO_MANY_RESERVATIONS)
        known = queue.reservations.setdefault(o.name, Reservation())
        queue.epochs += 1
        known.epoch = queue.epochs
        return Opened(known.epoch, max(known.given, default=-1))

    def do_reserve(self, o: op.Reserve, _: int) -> Outcome:
        found = self._reservation(o)
        if isinstance(found, Refusal):
            return found
        queue, known = found
        again = o.batch in known.batches
        if not again:
            if o.batch <= max(known.given, default=-1):
                return Refusal(Why.BATCH_PAST)
            if len(known.batches) >= RESERVED_BATCHES_MAX:
                return Refusal(Why.TOO_MANY_BATCHES)
            chosen = self._choose(queue, o.max) if queue.rules.grouped else self._choose_fairly(queue, o.max)
            for message in chosen:
                message.reserved, message.handed, message.delivery = True, False, 0
            known.batches[o.batch] = chosen
            known.given.append(o.batch)
        return Reserved(o.queue, [self._set_aside(message) for message in known.batches[o.batch]], again)

    def _set_aside(self, message: Message) -> op.Taken:
        """A delivery that was undone is as if it had never been, so there is no first one to tell of."""
        return self._taken(message)._replace(delivery=0, first_received=message.first_received if message.receives else 0)

    def _choose(self, queue: Queue, most: int) -> list[Message]:
        chosen: list[Message] = []
        for lowest in self.available(queue):
            line = [lowest]
            for behind in queue.messages if lowest.group else ():
                if behind.sequence > lowest.sequence and behind.group == lowest.group:
                    if behind.visible_at > self.time:
                        break
                    line.append(behind)
            chosen += [message for message in line if message not in chosen][: most - len(chosen)]
        return chosen

    def _choose_fairly(self, queue: Queue, most: int) -> list[Message]:
        self.end_spells(queue)
        chosen: list[Message] = []
        free = self.available(queue)
        while free and len(chosen) < most:
            chosen.append(self.fairest(queue, free, []))
            free.remove(chosen[-1])
        return chosen

    def do_reservesettle(self, o: op.ReserveSettle, _: int) -> Outcome:
        found = self._reservation(o)
        if isinstance(found, Refusal):
            return found
        queue, known = found
        if o.batch <= known.settled:
            return Done(0)
        if o.batch <= known.released:
            return Refusal(Why.RELEASED)
        if o.batch > max(known.given, default=-1):
            return Refusal(Why.NO_BATCH)
        known.settled = o.batch
        done = [message for number, batch in known.batches.items() if number <= o.batch for message in batch]
        known.batches = {number: batch for number, batch in known.batches.items() if number > o.batch}
        queue.messages = [message for message in queue.messages if message not in done]
        return Done(len(done))

    def do_reserverelease(self, o: op.ReserveRelease | op.ReserveClose, _: int) -> Outcome:
        found = self._reservation(o)
        if isinstance(found, Refusal):
            return found
        _, known = found
        back = [message for batch in known.batches.values() for message in batch]
        for message in back:
            message.reserved = False
        known.batches, known.epoch, known.released = {}, 0, max(known.given, default=-1)
        return Done(len(back))

    def do_reserveclose(self, o: op.ReserveClose, address: int) -> Outcome:
        done = self.do_reserverelease(o, address)
        if not isinstance(done, Refusal):
            del self.queues[o.queue].reservations[o.name]
        return done
