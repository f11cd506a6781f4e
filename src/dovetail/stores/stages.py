"""The verbs of stages over a replayed log: messages are put by under a stage, and one publish makes them visible. Bodies lie in the log
from the first moment on; what is published later points to where they were staged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.core import codec
from dovetail.core import operation as op
from dovetail.core.operation import Done, Published, Push, Refusal
from dovetail.core.stages import Stage
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue
from dovetail.limits import DELAY_MS_MAX, STAGE_NUMBER_MAX, STAGES_PER_PUBLISH_MAX
from dovetail.stores.batches import check_batch, check_number, error_of, pieces, push_of, whole
from dovetail.stores.committer import Committer
from dovetail.stores.store import Outgoing, Reply, StageFacts

if TYPE_CHECKING:
    from dovetail.core.state import State

NAME_BYTES = 16


class StoreStages:
    """For the store, which is one of these."""

    if TYPE_CHECKING:
        committer: Committer
        state: State

        def now(self) -> int: ...

        def _check_queues(self, queues: Sequence[int], *, exist: bool = True) -> None: ...

    async def stage(self, stage: bytes, queues: Sequence[int], messages: Sequence[Outgoing]) -> int:
        _check_names(stage)
        self._check_queues(queues)
        check_batch(messages)
        if any(message.delay_ms > DELAY_MS_MAX for message in messages):
            raise LimitExceeded(f"a delay has at most {DELAY_MS_MAX} ms")
        submitted = [self.committer.submit(op.Stage(stage, push_of(queues, piece, None))) for piece in pieces(messages)]
        return sum([self.staged(outcome) for outcome in await whole(submitted)])

    def stage_record_for(self, reply: Reply, stage: bytes, push: Push, record: bytes, number: int = 0) -> None:
        _check_names(stage)
        self._check_queues(push.queues)
        if push.numbered is not None:
            raise BadRequest("What is staged has no numbers: a batch is stored once because its publish counts once.")
        if type(number) is not int or not 0 <= number <= STAGE_NUMBER_MAX:
            raise BadRequest(f"{number!r} is no number of a record in a stage: they are whole, from 1 to {STAGE_NUMBER_MAX}")
        self.committer.submit_for(reply, op.Stage(stage, push, number), codec.encode_stage(stage, number, record))

    def staged(self, outcome: Any) -> int:
        return _done(outcome)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        _check_names(owner, *stages)
        check_number(batch)
        outcome = await self.committer.submit(op.Publish(stages, owner, batch))
        if isinstance(outcome, Refusal):
            raise self._not_published(outcome)
        assert isinstance(outcome, Published)
        return outcome

    def _not_published(self, refusal: Refusal) -> Exception:
        """What is missing is named: the caller has to say which attempt to give up."""
        error = error_of(refusal)
        if refusal.why is op.Why.NO_STAGE:
            return type(error)(f"There is no stage {refusal.detail}: it was published, given up, or never begun. Nothing was published.")
        if refusal.why is op.Why.NO_QUEUE:
            return NoSuchQueue(f"A queue of the stages is gone (its id was {refusal.detail}). Nothing was published.")
        return error

    async def unstage(self, stages: Sequence[bytes]) -> int:
        _check_names(*stages)
        return _done(await self.committer.submit(op.Unstage(stages)))

    def stages(self) -> list[StageFacts]:
        return list(self.stages_behind(b""))

    def stages_behind(self, after: bytes) -> Iterator[StageFacts]:
        known = self.state.stages.by_id
        return (_facts(name, known[name]) for name in sorted([name for name in known if name > after]))

    @property
    def staged_bytes(self) -> int:
        return self.state.stages.bytes

    def staged_for(self, stages: Sequence[bytes]) -> Mapping[int, tuple[int, int]]:
        known = self.state.stages.by_id
        held: dict[int, tuple[int, int]] = {}
        for record in [record for name in dict.fromkeys(stages) if name in known for record in known[name].records]:
            for queue in record.push.queues:
                messages, size = held.get(queue, (0, 0))
                held[queue] = messages + len(record.push.bodies), size + record.bytes
        return held

    def published_last(self, owner: bytes) -> int:
        return self.state.stages.last(owner)

    def stage_facts(self) -> Mapping[str, tuple[float, str]]:
        """For an operator: an abandoned stage keeps its part of the log until it is a day old."""
        stages, oldest = self.state.stages.by_id.values(), self.state.stages.oldest()
        messages = sum([len(record.push.bodies) for stage in stages for record in stage.records])
        age_s = max(0, self.now() - oldest) / 1000 if oldest is not None else 0
        return {
            "dovetail_stages_open": (len(stages), "Stages that were not published yet."),
            "dovetail_stage_oldest_age_seconds": (age_s, "How long ago the oldest open stage began; it is given up after a day."),
            "dovetail_staged_messages": (messages, "Messages in open stages."),
            "dovetail_staged_bytes": (self.staged_bytes, "Bytes of bodies in open stages."),
        }


def _facts(name: bytes, stage: Stage) -> StageFacts:
    records = stage.records
    queues = tuple(dict.fromkeys([queue for one in records for queue in one.push.queues]))
    return StageFacts(name, stage.began, sum([len(one.push.bodies) for one in records]), sum([one.bytes for one in records]), queues)


def _check_names(*names: bytes) -> None:
    if len(names) > STAGES_PER_PUBLISH_MAX + 1:
        raise LimitExceeded(f"{len(names)} stages in one step; at most {STAGES_PER_PUBLISH_MAX} are allowed")
    if any(type(name) is not bytes or len(name) != NAME_BYTES for name in names):
        raise BadRequest(f"The name of a stage, or of its owner, has {NAME_BYTES} bytes.")


def _done(outcome: Any) -> int:
    if isinstance(outcome, Refusal):
        raise error_of(outcome)
    assert isinstance(outcome, Done)
    return outcome.value
