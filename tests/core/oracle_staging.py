"""The oracle's stages: records put by, and what their publishing brings."""

from __future__ import annotations

from dovetail.core import operation as op
from dovetail.core.operation import Done, Joined, Outcome, Published, Pushed, PushedAll, Refusal, Why
from tests.core.oracle_settling import Settling


class Staging(Settling):
    def do_stage(self, o: op.Stage, address: int) -> Outcome:
        began, records = self.stages.get(o.stage, (self.time, []))
        if o.number and o.number <= len(records):
            _, same = records[o.number - 1]
            alike = (tuple(same.queues), len(same.bodies), sum(map(len, same.bodies)))
            if alike != (tuple(o.push.queues), len(o.push.bodies), sum(map(len, o.push.bodies))):
                return Refusal(Why.STAGE_DIFFERS)
            return Done(len(o.push.bodies))
        if o.number > len(records) + 1:
            return Refusal(Why.STAGE_GAP)
        if any(queue not in self.queues for queue in o.push.queues):
            return Refusal(Why.NO_QUEUE)
        self.stages[o.stage] = (began, [*records, (address, o.push)])
        return Done(len(o.push.bodies))

    def do_publish(self, o: op.Publish, _: int) -> Outcome:
        if o.batch <= self.owners.get(o.owner, -1):
            for name in o.stages:
                self.stages.pop(name, None)
            return Published((), before=True)
        if any(name not in self.stages for name in o.stages) or len(set(o.stages)) < len(o.stages):
            return Refusal(Why.NO_STAGE)
        records = [record for name in o.stages for record in self.stages[name][1]]
        if any(queue not in self.queues for _, push in records for queue in push.queues):
            return Refusal(Why.NO_QUEUE)
        met: list[Joined] = []
        for address, push in records:
            made = self._push(push, address, range(len(push.bodies)))
            for one in made.lanes if isinstance(made, PushedAll) else (made,):
                assert isinstance(one, Pushed)
                met.append(Joined(one.queue, len(push.bodies) - len(one.repeats), len(one.repeats), sum(map(len, push.bodies))))
        for name in o.stages:
            del self.stages[name]
        self.owners[o.owner] = o.batch
        sums = []
        for queue in dict.fromkeys(one.queue for one in met):
            mine = [one for one in met if one.queue == queue]
            sums.append(Joined(queue, sum(m.messages for m in mine), sum(m.repeats for m in mine), sum(m.bytes for m in mine)))
        return Published(tuple(sums))

    def do_unstage(self, o: op.Unstage, _: int) -> Outcome:
        return Done(sum(self.stages.pop(name, None) is not None for name in o.stages))

    def do_stageexpire(self, o: op.StageExpire, _: int) -> Outcome:
        return Done(sum(self.stages.pop(name) is not None for name, (began, _) in list(self.stages.items()) if began < o.before))

    def do_stagecarry(self, o: op.StageCarry, address: int) -> Outcome:
        began, records = self.stages.get(o.stage, (0, []))
        moved = [(address, push) if place == o.address else (place, push) for place, push in records]
        if moved == records:
            return Done(0)
        self.stages[o.stage] = (began, moved)
        return Done(1)
