"""Dead-letter queues that were deleted while others still name them. AWS names them by ARN, so one that is made again takes its place
again; the core knows queues by numbers that are never reused, so somebody must notice. Looking for sources on every CreateQueue would make
the ten-thousandth queue dear, hence this set of names for which there is something to do."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.doors.sqs import queueattributes as qa
from dovetail.doors.sqs.queueattributes import Arn
from dovetail.service.broker import Broker, Lane


class Orphans:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: set[Arn] | None = None
        """None until somebody asks: a start need not look at every queue."""

    def note_deleted(self, arn: Arn) -> None:
        if self._names is not None:
            self._names.add(arn)

    async def reattach(self, arn: Arn, lane: Lane) -> None:
        """A queue was made: those that named it as their dead-letter queue when it did not exist have one again."""
        if self._names is None:
            self._names = {target for _, target in self._lost()}
        if arn not in self._names:
            return
        self._names.discard(arn)
        for source, target in list(self._lost()):
            if target == arn and source.attributes.grouped == lane.attributes.grouped:
                await self._broker.catalog.configure(source, dead_letter=lane.queue)

    def _lost(self) -> Iterator[tuple[Lane, Arn]]:
        """Queues whose dead-letter queue is gone, and which one that was."""
        store = self._broker.store
        for _, _, queue in store.all_queues():
            lane = store.lane(queue)
            if lane is not None and lane.attributes.dead_letter and store.lane(lane.attributes.dead_letter) is None:
                text = qa.shown(lane.attributes).get("RedrivePolicy")
                if text:
                    yield lane, qa.redrive_policy(text).target
