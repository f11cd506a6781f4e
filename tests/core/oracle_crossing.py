"""The oracle's moves between logs: every number that was ever judged is remembered, and forgetting is only said."""

from __future__ import annotations

from typing import Any

from dovetail.core import operation as op
from dovetail.core.operation import Done, Origin, Outcome, Refusal, Settled, Why
from tests.core.oracle_facts import Message, Queue
from tests.core.oracle_reserving import Reserving


class Crossing(Reserving):
    def do_divide(self, o: op.Divide, _: int) -> Outcome:
        if self.logs == 1 and not self.queues and self.next_queue == 1 and 0 <= o.place < o.logs:
            self.logs, self.place = o.logs, o.place
        return Done() if (o.logs, o.place) == (self.logs, self.place) else Refusal(Why.DIVIDED)

    def do_leave(self, o: op.Leave, _: int) -> Outcome:
        queue = self.queues.get(o.source)
        if queue is None or not self.may_leave(queue, o.target):
            return Refusal(Why.NO_QUEUE)
        left: list[Message] = []
        blocked: set[bytes] = {b""}
        for message in queue.messages:
            home = message.origin.source if message.origin else 0
            there = message.visible_at <= self.time and not message.reserved and message.moved_at != self.position
            if there and (message.group not in blocked or not message.group) and (home == o.target or not o.returning):
                left.append(message)
            else:
                blocked.add(message.group)
        for message in left[: o.max]:
            self.depart(queue, message, o.target)
        return Done(min(len(left), o.max))

    def do_arrive(self, o: op.Arrive, address: int) -> Outcome:
        (target,) = o.push.queues
        if self.elsewhere(target) or not self.elsewhere(o.source):
            return Refusal(Why.ELSEWHERE)
        pair = o.source, target
        if o.number <= self.lows.get(pair, 0):
            return Refusal(Why.MOVE_SETTLED)
        judged = self.judged.setdefault(pair, {})
        if o.number not in judged:
            queue = self.queues.get(target)
            judged[o.number] = self._adopt(queue, o, address) if queue is not None else 0
        return Done(judged[o.number])

    def _adopt(self, queue: Queue, o: op.Arrive, address: int) -> int:
        name = o.push.groups[0] if o.push.groups is not None else b""
        message = self._join(queue, (address, 0), name, 0, Origin(o.home, o.sequence, o.source, o.time))
        message.moved_at = self.position
        return message.sequence

    def do_movesettle(self, o: op.MoveSettle, _: int) -> Outcome:
        queue = self.queues.get(o.source)
        if queue is None:
            return Refusal(Why.NO_QUEUE)
        return Settled([self._settled_move(queue, o.target, *one) for one in zip(o.numbers, o.arrived, strict=True)])

    def _settled_move(self, queue: Queue, target: int, number: int, arrived: int) -> bool:
        message: Any = queue.under_way.pop((target, number), None)
        if message is None:
            return False
        if arrived:
            queue.messages.remove(message)
        else:
            message.reserved = False
            queue.unreachable.add(target)
        return True

    def do_forget(self, o: op.Forget, _: int) -> Outcome:
        pair = o.source, o.target
        low = self.lows.get(pair, 0)
        gone = [number for number in self.judged.get(pair, {}) if low < number <= o.low]
        if pair in self.judged:
            self.lows[pair] = max(low, o.low)
        return Done(len(gone))
