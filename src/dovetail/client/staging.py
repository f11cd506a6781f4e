"""What is put by under a stage: frames that are numbered, one behind the other, so that one which was cut off is sent again.

One frame of a stage is under way at a time. A frame that is refused leaves a gap in the numbers, and whatever was sent behind it would be
refused as well; and who waits for the answer to each frame is never further than the node. Many stages go side by side.

| the answer | the frame | the stage |
| --- | --- | --- |
| DONE | is there once | goes on |
| lost | is asked again under its number on the next connection | goes on |
| THROTTLED | is asked again when the node says | goes on |
| any other refusal, or none in time | perhaps there: an earlier one may have been acted on | is broken |
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.client.checks import check_messages, check_places
from dovetail.core.codec import encode_push
from dovetail.core.operation import Joined, Published
from dovetail.doors.native import answers
from dovetail.doors.native.answers import Done
from dovetail.doors.native.codec import requests
from dovetail.errors import BadRequest, LimitExceeded, Throttled, Unknown
from dovetail.limits import STAGES_PER_PUBLISH_MAX
from dovetail.stores.batches import check_number, pieces, push_of
from dovetail.stores.store import Outgoing, StageFacts

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

LIST_STAGES = 1_000
_UNWRITABLE = (struct.error, OverflowError, TypeError, ValueError, AttributeError)


class Staging:
    """One stage."""

    def __init__(self, session: Session, name: bytes) -> None:
        self._session = session
        self._name = name
        self._number = 0
        """Of the last frame that is there."""
        self._turn = asyncio.Lock()
        self._broken: BaseException | None = None

    async def put(self, places: Sequence[Place], messages: Sequence[Outgoing]) -> int:
        check_places(places)
        check_messages(messages)
        queues = [place.queue for place in places]
        try:
            records = [encode_push(push_of(queues, piece, None)) for piece in pieces(messages)]
        except _UNWRITABLE as error:
            raise BadRequest(f"a value that cannot be sent: {error}") from None
        async with self._turn:
            return sum([await self._sent(record) for record in records])

    async def _sent(self, record: bytes) -> int:
        if self._broken is not None:
            why = str(self._broken) or type(self._broken).__name__
            raise Unknown(f"The stage is broken, and what it holds is not what was meant: begin another one. ({why})")
        try:
            done = await self._asked(requests.Stage(self._name, record, self._number + 1))
        except BaseException as error:
            self._broken = error
            raise
        self._number += 1
        return done.value

    async def _asked(self, request: requests.Stage) -> Done:
        until = self._session.deadline()
        while True:
            try:
                return await self._session.asks.ask(request, Done, again=True)
            except Throttled as told:
                pause_s = max(told.retry_after_ms, 1) / 1000
                if self._session.loop.time() + pause_s > until:
                    raise
                await asyncio.sleep(pause_s)


class RemoteStages:
    """For the verbs, which are one of these."""

    if TYPE_CHECKING:
        _session: Session

    def stage(self, name: bytes) -> Staging:
        return Staging(self._session, name)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        check_number(batch)
        _check_names(stages)
        answer = await self._session.asks.ask(requests.Publish(stages, owner, batch), answers.Published, again=True)
        self._session.durability = answers.DURABILITY[answer.durability]
        return Published(tuple([Joined(*one) for one in answer.joined]), answer.before)

    async def unstage(self, stages: Sequence[bytes], *, kept: bool = False) -> int:
        _check_names(stages)
        return (await self._session.asks.ask(requests.Unstage(stages, kept), Done, again=True)).value

    async def stages(self) -> list[StageFacts]:
        found: list[StageFacts] = []
        more = True
        while more:
            request = requests.Stages(found[-1].stage if found else bytes(16), LIST_STAGES)
            answer = await self._session.asks.ask(request, answers.Staged, again=True)
            found += [StageFacts(*one) for one in answer.stages]
            more = answer.more
        return found


def _check_names(stages: Sequence[bytes]) -> None:
    if len(stages) > STAGES_PER_PUBLISH_MAX:
        raise LimitExceeded(f"{len(stages)} stages in one step; at most {STAGES_PER_PUBLISH_MAX} are allowed")
