"""A queue as one connection has it: opened by name once, with what its caller may do to it, and the order of the answers about it."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from dovetail.core.operation import Attributes
from dovetail.doors.native.slots import Order
from dovetail.service.broker import Lane
from dovetail.service.meters import Meter

SEND, RECEIVE, DELETE, CHANGE, LOOK, CONFIGURE, DROP, PURGE, MOVE = (1 << bit for bit in range(9))
"""Rights: what one connection may do to one queue. CHANGE is the visibility of messages, MOVE the way back of dead letters."""
ALL = (1 << 9) - 1

ACTIONS = {
    "SendMessage": SEND,
    "ReceiveMessage": RECEIVE,
    "DeleteMessage": DELETE,
    "ChangeMessageVisibility": CHANGE,
    "GetQueueAttributes": LOOK,
    "SetQueueAttributes": CONFIGURE,
    "DeleteQueue": DROP,
    "PurgeQueue": PURGE,
    "StartMessageMoveTask": MOVE,
}
"""Rights by the names that policies of queues have for them."""


def rights_of(actions: Collection[str]) -> int:
    return sum(right for action, right in ACTIONS.items() if action in actions)


class Opened:
    __slots__ = ("attributes", "lane", "meter", "order", "returning", "rights")

    def __init__(self, lane: Lane, meter: Meter, rights: int) -> None:
        self.lane = lane
        self.meter = meter
        self.rights = rights
        self.attributes: Attributes = lane.attributes
        """As they were when the rights were looked up: a policy is part of them."""
        self.order: Order = deque()
        self.returning: Future[Any] | None = None
        """Something that was taken here and is on its way back: a pull or a look that comes now must see it there."""

    def give_back(self, runs: Sequence[tuple[int, int, int]]) -> None:
        """(sequence, delivery, length) of what does not reach its receiver."""
        done = self.lane.take_back(runs)
        if done is not None:
            self.returning = done
            done.add_done_callback(self._returned)

    def _returned(self, done: Future[Any]) -> None:
        if self.returning is done:
            self.returning = None
