"""What begins, publishes and ends stages. A publish is one operation: the messages of all its stages join, or none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.core import operation as op
from dovetail.core import pushing
from dovetail.core.operation import Done, Joined, Outcome, Published, Push, Pushed, PushedAll, Refusal, Why
from dovetail.core.stages import Staged, staged
from dovetail.limits import STAGES_OPEN_MAX

if TYPE_CHECKING:
    from dovetail.core.state import State


def stage(state: State, o: op.Stage, address: int) -> Outcome:
    """The count of what was staged. A queue that is not there is refused now already: whoever stages hears of it before it publishes."""
    stages = state.stages
    known = stages.by_id.get(o.stage)
    has = len(known.records) if known is not None else 0
    if known is not None and 0 < o.number <= has:
        return _again(known.records[o.number - 1], o.push)
    if o.number > has + 1:
        return Refusal(Why.STAGE_GAP, str(has + 1))
    for queue in o.push.queues:
        if queue not in state.lanes:
            return Refusal(Why.NO_QUEUE, str(queue))
    if known is None and len(stages.by_id) >= STAGES_OPEN_MAX:
        return Refusal(Why.TOO_MANY_STAGES)
    stages.put(o.stage, state.time, staged(o.push, address))
    return Done(len(o.push.bodies))


def _again(known: Staged, push: Push) -> Outcome:
    """A number that the stage has: the record that came before stands. Two writers under one name are found out as far as sizes tell."""
    if (known.push.queues, len(known.push.bodies), known.bytes) != (tuple(push.queues), len(push.bodies), len(push.bodies.blob)):
        return Refusal(Why.STAGE_DIFFERS)
    return Done(len(push.bodies))


def publish(state: State, o: op.Publish, _: int) -> Outcome:
    """The records of the stages join in the order in which the stages are named, and in the order within each."""
    stages = state.stages
    if o.batch <= stages.last(o.owner):
        for name in o.stages:
            stages.drop(name)
        return Published((), before=True)
    records = records_of(state, o)
    if isinstance(records, Refusal):
        return records
    joined: dict[int, Joined] = {}
    for record in records:
        for pushed in _lanes(pushing.push_items(state, record.push, record.address, 0)):
            _, messages, repeats, size = joined.get(pushed.queue, (0, 0, 0, 0))
            again = len(pushed.repeats)
            fresh = len(record.push.bodies) - again
            joined[pushed.queue] = Joined(pushed.queue, messages + fresh, repeats + again, size + record.bytes)
    for name in o.stages:
        stages.drop(name)
    stages.owners[o.owner] = o.batch
    return Published(tuple(joined.values()))


def records_of(state: State, o: op.Publish) -> list[Staged] | Refusal:
    """What would join; or why nothing may: a stage that is not there, or a queue that is gone, refuses all of it."""
    records: list[Staged] = []
    met: set[bytes] = set()
    for name in o.stages:
        known = state.stages.by_id.get(name)
        if known is None or name in met:
            # Named twice, it is unknown the second time: it has ended then.
            return Refusal(Why.NO_STAGE, name.hex())
        met.add(name)
        records += known.records
    for record in records:
        for queue in record.push.queues:
            if queue not in state.lanes:
                return Refusal(Why.NO_QUEUE, str(queue))
    return records


def _lanes(outcome: Outcome) -> tuple[Pushed, ...]:
    if isinstance(outcome, PushedAll):
        return outcome.lanes
    assert isinstance(outcome, Pushed)  # Every queue was looked for before.
    return (outcome,)


def unstage(state: State, o: op.Unstage, _: int) -> Outcome:
    """How many of them there were."""
    return Done(sum([state.stages.drop(name) for name in o.stages]))


def expire(state: State, o: op.StageExpire, _: int) -> Outcome:
    """Stages that began before then go, whoever they belong to."""
    old = [name for name, known in state.stages.by_id.items() if known.began < o.before]
    return Done(sum([state.stages.drop(name) for name in old]))


def carry(state: State, o: op.StageCarry, address: int) -> Outcome:
    """The record lies at a new address, if it is still staged at the old one."""
    known = state.stages.by_id.get(o.stage)
    for index, record in enumerate(known.records if known is not None else ()):
        if record.address == o.address:
            assert known is not None
            known.records[index] = record._replace(address=address)
            return Done(1)
    return Done(0)
