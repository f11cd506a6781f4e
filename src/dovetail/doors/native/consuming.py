"""CONSUME and CREDIT: a consumer that stays connected and is given messages as they become visible, as far as its credit reaches.

Nothing is taken from the queue beyond the credit, and nothing while its connection cannot be written to: a consumer that is slow costs
the node what it has credit for in messages, and no memory for bodies, which stay in the log until they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.doors.native import deliveries, requests
from dovetail.doors.native.deliveries import Cut
from dovetail.doors.native.frames import Frame, Kind
from dovetail.doors.native.opened import RECEIVE, Opened
from dovetail.doors.native.pulling import Deleting, check_lease, keep, take_back
from dovetail.doors.native.slots import refused
from dovetail.errors import Closed, DovetailError, LimitExceeded, OverInFlight
from dovetail.limits import BATCH_MESSAGES_MAX, WAIT_MS_MAX
from dovetail.service.broker import Handed

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

MESSAGE_CREDIT_MAX = (1 << 32) - 1
BYTE_CREDIT_MAX = (1 << 63) - 1
_SLOWLY = 8
"""How many frames the mean size of a message remembers, about."""


class Consumer:
    """One consume. It asks for a pop at a time, and tells the store what becomes of it as a reply."""

    __slots__ = (
        "_asked", "_bytes", "_connection", "_ended", "_mean", "_messages", "_number", "_opened", "_request", "_waiting",
    )  # fmt: skip

    def __init__(self, connection: Connection, number: int, opened: Opened, request: requests.Consume) -> None:
        self._connection = connection
        self._number = number
        self._opened = opened
        self._request = request
        self._messages = request.message_credit
        self._bytes = min(request.byte_credit, BYTE_CREDIT_MAX)
        self._mean = 0
        """Bytes of a message, of late: so many messages are asked for as the credit of bytes will hold."""
        self._asked = False
        self._ended = False
        self._waiting: asyncio.Task[list[Handed]] | None = None

    def credit(self, messages: int, size: int) -> None:
        self._messages = min(self._messages + messages, MESSAGE_CREDIT_MAX)
        self._bytes = min(self._bytes + size, BYTE_CREDIT_MAX)
        self.go_on()

    def go_on(self) -> None:
        """Take what may be taken now, or stand in line for it."""
        connection = self._connection
        if self._ended or self._asked:
            return
        if connection.door.draining:
            self._end(Closed("The node stops."))
            return
        if self._waiting is not None or self._messages <= 0 or self._bytes <= 0:
            return
        if not connection.writable or connection.ready:
            connection.stall(self)
            return
        lane, most = self._opened.lane, self._most()
        try:
            if not connection.door.broker.dequeue.waiting(lane.queue) and lane.has_visible():
                self._asked = True
                lane.take_for(self, most, self._request.lease_ms)
            else:
                self._stand_in_line(most)
        except DovetailError as error:
            self._asked = False
            self._end(error)

    def _most(self) -> int:
        most = min(self._request.frame_messages, self._messages)
        return min(most, max(1, self._bytes // self._mean)) if self._mean else most

    def _stand_in_line(self, most: int) -> None:
        lane = self._opened.lane
        waits = self._connection.door.broker.dequeue.wait_in_columns(lane, most, self._request.lease_ms, WAIT_MS_MAX)
        self._waiting = asyncio.get_running_loop().create_task(waits)
        self._waiting.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[list[Handed]]) -> None:
        self._waiting = None
        try:
            runs = task.result()
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._end(error)
            return
        self._got(runs)

    # What the store tells

    def done(self) -> bool:
        return self._ended

    def set_result(self, outcome: Any, /) -> None:
        self._asked = False
        try:
            self._got(self._opened.lane.handed(outcome, self._request.lease_ms))
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, error: BaseException, /) -> None:
        self._asked = False
        if self._ended:
            return
        if isinstance(error, OverInFlight):
            self._stand_in_line(self._most())
        else:
            self._end(error)

    def _got(self, runs: Sequence[Handed]) -> None:
        if self._ended:
            take_back(self._opened, runs)
            return
        if runs:
            cuts = keep(self._opened, runs, self._bytes)
            size, count = sum(one.size for one in cuts), sum(one.handed.length for one in cuts)
            self._messages -= count
            self._bytes -= size
            mean = max(1, size // count)
            self._mean = (self._mean * (_SLOWLY - 1) + mean) // _SLOWLY if self._mean else mean
            if self._request.delete:
                self._asked = True
                Deleting(self._opened, cuts, self._deleted)
                return
            self._send(cuts)
        self.go_on()

    def _deleted(self, gone: list[Cut] | Exception) -> None:
        self._asked = False
        if self._ended:
            return
        if isinstance(gone, Exception):
            self._end(gone)
            return
        if gone:
            self._send(gone)
        self.go_on()

    def _send(self, cuts: list[Cut]) -> None:
        self._connection.ready.append(Streamed(self._number, self._opened, cuts, self._request.delete))
        self._connection.schedule()

    # The end

    def _end(self, error: BaseException) -> None:
        """It ends with an error that has its number."""
        if self._ended:
            return
        self._close()
        self._connection.refuse(self._number, Kind.CONSUME, error)

    def stop(self) -> None:
        self._close()

    def leave(self) -> None:
        self._close()

    def _close(self) -> None:
        self._ended = True
        self._connection.waits.pop(self._number, None)
        if self._waiting is not None:
            self._waiting.cancel()


class Streamed:
    """Deliveries of a consumer that are to be written."""

    __slots__ = ("_cuts", "_deleted", "_number", "_opened")
    counts = False
    hands_out = True

    def __init__(self, number: int, opened: Opened, cuts: list[Cut], deleted: bool) -> None:
        self._number = number
        self._opened = opened
        self._cuts = cuts
        self._deleted = deleted

    def written(self) -> bytes:
        cuts, self._cuts = self._cuts, []
        try:
            return deliveries.frame(self._number, self._opened.lane, cuts, deleted=self._deleted)
        except Exception as error:
            return refused(error, self._number)

    def give_up(self) -> None:
        if not self._deleted:
            take_back(self._opened, [one.handed for one in self._cuts])


def consume(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Consume)
    opened = connection.opened(request.queue, RECEIVE)
    check_lease(request.lease_ms)
    if not 1 <= request.frame_messages <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{request.frame_messages} messages in a frame; 1 to {BATCH_MESSAGES_MAX} are allowed")
    opened.meter.seen_consumer(connection.peer)
    consumer = Consumer(connection, frame.number, opened, request)
    connection.wait(frame.number, consumer)
    connection.door.count_request("CONSUME", "ok", 0.0)
    consumer.go_on()


def credit(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Credit)
    consumer = connection.waits.get(request.consume)
    if isinstance(consumer, Consumer):
        consumer.credit(request.message_credit, request.byte_credit)
