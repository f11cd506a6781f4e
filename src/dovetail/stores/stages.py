"""The verbs of stages over a replayed log: messages are put by under a stage, and one publish makes them visible. Bodies lie in the log
from the first moment on; what is published later points to where they were staged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.core import operation as op
from dovetail.core.operation import Done, Published, Push, Refusal
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue
from dovetail.limits import DELAY_MS_MAX, STAGES_PER_PUBLISH_MAX
from dovetail.stores.batches import check_batch, error_of, pieces, push_of, whole
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

    def stage_record_for(self, reply: Reply, stage: bytes, push: Push, record: bytes) -> None:
        _check_names(stage)
        self._check_queues(push.queues)
        if push.numbered is not None:
            raise BadRequest("What is staged has no numbers: a batch is stored once because its publish counts once.")
        self.committer.submit_for(reply, op.Stage(stage, push), bytes((op.Kind.STAGE, 0, 0, 0, 0, 0, 0, 0)) + stage + record)

    def staged(self, outcome: Any) -> int:
        return _done(outcome)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        _check_names(owner, *stages)
        if type(batch) is not int or batch < 0:
            raise BadRequest(f"{batch!r} is no batch: they are numbered from 0")
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
        return [
            StageFacts(name, stage.began, sum([len(one.push.bodies) for one in stage.records]), sum([one.bytes for one in stage.records]))
            for name, stage in self.state.stages.by_id.items()
        ]

    def stage_facts(self) -> Mapping[str, tuple[float, str]]:
        """For an operator: an abandoned stage keeps its part of the log until it is a day old."""
        found, oldest = self.stages(), self.state.stages.oldest()
        age_s = max(0, self.now() - oldest) / 1000 if oldest is not None else 0
        return {
            "dovetail_stages_open": (len(found), "Stages that were not published yet."),
            "dovetail_stage_oldest_age_seconds": (age_s, "How long ago the oldest open stage began; it is given up after a day."),
            "dovetail_staged_messages": (sum([one.messages for one in found]), "Messages in open stages."),
            "dovetail_staged_bytes": (sum([one.bytes for one in found]), "Bytes of bodies in open stages."),
        }


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
