"""The requests of clients that do one thing at a time, in their plain form: PUSH of one body, PULL of one, COMPLETE of one, COMPLETE_PULL.

Nothing is decided here that the verbs (pushing.py, pulling.py, settling.py) would decide otherwise. A road says False to whatever is not
plain and to whatever would be refused, before it has done anything, and the request goes the long way; what turns out not to be plain when
the store tells the outcome goes on as a Pulling in the same place. The answers are the same to the byte.

    asked     one look at the whole request, one object: its place in the order of answers and the reply that the store tells
    told      in the turn of the commit; of what was taken a row is kept, which lies in the log as before
    written   one string for everything before the body
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dovetail.core.operation import DEFAULT
from dovetail.doors.native import requests
from dovetail.doors.native.answers.messages import LANE, PUSHED
from dovetail.doors.native.deliveries import PADDING, SINGLE, SINGLE_BYTES
from dovetail.doors.native.frames import HEADER, Kind
from dovetail.doors.native.opened import DELETE, RECEIVE, SEND, Opened
from dovetail.doors.native.pulling import Pulling, take_back
from dovetail.doors.native.slots import Slot
from dovetail.errors import DovetailError
from dovetail.limits import BODY_BYTES_MAX, LEASE_MS_MAX, WAIT_MS_MAX
from dovetail.service.broker import One

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

Road = Callable[["Connection", int, bytes, int, int], bool]
"""(connection, number of the request, what arrived, where its payload begins, how long that is) → whether it was taken."""

_PUSH = Struct("<BBHIQII")
_PUSH_HEAD = (Kind.PUSH, 0, 1, 1)
_PUSHED = Struct("<IBBHQBBHIQII")
_PULL = Struct("<QqIIII")
_COMPLETE = Struct("<QqQQIIII8s")
_COMPLETE_PULL = Struct("<QqIIIIQQIIII8s")
_PUSHED_BYTES = PUSHED.size + LANE.size
_ROW = b""
"""In place of an answer that is made of the row when it is written."""

assert _PUSHED.size == HEADER.size + _PUSHED_BYTES


class _Short(Slot):
    """A request under way. Its kind is the one that a refusal is counted under."""

    __slots__ = ("opened",)

    def __init__(self, connection: Connection, number: int, kind: int, opened: Opened) -> None:
        # As Slot does it, without a call for it.
        self.connection = connection
        self.number = number
        self.kind = kind
        self.order = opened.order
        self.counts = True
        self.answer = None
        self.failed = False
        self.began = connection.began
        self.opened = opened
        opened.order.append(self)
        connection.under_way += 1


def _plain_queue(connection: Connection, queue: int, rights: int) -> Opened | None:
    """The queue, if there is nothing to ask about it."""
    opened = connection.queues.get(queue)
    if opened is None or opened.attributes is not opened.lane.attributes or opened.rights & rights != rights or connection.door.limited:
        return None
    return opened


# Sending


class _Pushing(_Short):
    """One message of nothing but a body shares a record with those of strangers."""

    __slots__ = ("size",)
    size: int

    def set_result(self, sequences: Sequence[int], /) -> None:
        meter = self.opened.meter
        meter.pushed.value += 1
        meter.bytes.value += self.size
        door = self.connection.door
        door.count_request("PUSH", "ok", perf_counter() - self.began)
        self.place(_PUSHED.pack(_PUSHED_BYTES, Kind.PUSHED, 0, 0, self.number, door.durability, 0, 0, 1, sequences[0], 1, 0))


def push(connection: Connection, number: int, data: bytes, at: int, size: int) -> bool:
    if size < _PUSH.size:
        return False
    kind, flags, queues, count, queue, start, end = _PUSH.unpack_from(data, at)
    if (kind, flags, queues, count) != _PUSH_HEAD or start or size != _PUSH.size + (end + 3 & ~3) or end > BODY_BYTES_MAX:
        return False
    opened = _plain_queue(connection, queue, SEND)
    if opened is None:
        return False
    opened.meter.publishers.see(connection.peer)
    at += _PUSH.size
    pushing = _Pushing(connection, number, Kind.PUSH, opened)
    pushing.size = end
    try:
        opened.lane.push_for(pushing, (data[at : at + end],))
    except Exception as error:
        pushing.set_exception(error)
    return True


# Completing


class _Completing(_Short):
    __slots__ = ()

    def set_result(self, done: Sequence[bool], /) -> None:
        if done[0]:
            self.opened.meter.completed.value += 1
        self.connection.door.count_request("COMPLETE", "ok", perf_counter() - self.began)
        self.place(_settled(self.number, done))


def _settled(number: int, done: Sequence[bool]) -> bytes:
    return HEADER.pack(1, Kind.SETTLED, 0, 0, number) + bytes(done)


def complete(connection: Connection, number: int, data: bytes, at: int, size: int) -> bool:
    if size != _COMPLETE.size:
        return False
    queue, parameter, sequence, delivery, length, start, end, zero, seal = _COMPLETE.unpack_from(data, at)
    if parameter or zero or end - start != 1 or end > length:
        return False
    opened = _plain_queue(connection, queue, DELETE)
    if opened is None:
        return False
    completing = _Completing(connection, number, Kind.COMPLETE, opened)
    try:
        opened.lane.complete_one_for(completing, sequence, delivery, length, start, seal)
    except Exception as error:
        completing.set_exception(error)
    return True


# Taking


class _Taking(_Short):
    """A pull of one message, and then the message as it lies in the log."""

    __slots__ = ("bytes_max", "lease_ms", "row", "wait_ms")
    hands_out = True
    bytes_max: int
    lease_ms: int
    wait_ms: int
    row: One | None

    def set_result(self, outcome: Any, /) -> None:
        row = self.row = self.opened.lane.one(outcome, self.lease_ms)
        if row is None:
            self._go_on().set_result(outcome)
        else:
            self._got(row)
            self.place(_ROW)

    def set_exception(self, error: BaseException, /) -> None:
        self._go_on().set_exception(error)

    def _got(self, row: One) -> None:
        meter = self.opened.meter
        meter.delivered.value += 1
        if row[2] > 1:
            meter.redelivered.value += 1
        self.connection.door.count_request("PULL", "ok", perf_counter() - self.began)

    def _pulling(self) -> Pulling:
        """The same pull on the long way, at the end of the order."""
        asked = requests.Pull(self.opened.lane.queue, 1, self.lease_ms, self.wait_ms, self.bytes_max)
        pulling = Pulling(self.connection, self.number, Kind.PULL, self.opened, asked, None)
        pulling.began = self.began
        return pulling

    def _go_on(self) -> Pulling:
        """It stands where this one stood, and is what the client waits for."""
        pulling, order = self._pulling(), self.opened.order
        order.pop()
        order[order.index(self)] = pulling
        self.connection.under_way -= 1
        return pulling

    def written(self) -> bytes:
        row = self.row
        if row is None:
            return super().written()
        self.row = None
        sequence, delivery, receives, sent_at, first_received, until, body = row
        lane, size = self.opened.lane, len(body)
        padding = -size & 3
        head = SINGLE.pack(
            SINGLE_BYTES + size + padding, Kind.DELIVERIES, 0, 0, self.number, lane.queue, 1, 1, sequence, delivery, 1, receives, sent_at,
            first_received, until, 0, lane.seal_run(sequence, delivery, 1), 0, size,
        )  # fmt: skip
        return b"".join((head, body, PADDING[padding]))

    def give_up(self) -> None:
        row, self.row = self.row, None
        if row is not None:
            self.opened.give_back([(row[0], row[1], 1)])


def pull(connection: Connection, number: int, data: bytes, at: int, size: int) -> bool:
    if size != _PULL.size:
        return False
    queue, lease_ms, most, bytes_max, wait_ms, zero = _PULL.unpack_from(data, at)
    if most != 1 or zero or not _allowed(lease_ms, wait_ms):
        return False
    opened = _plain_queue(connection, queue, RECEIVE)
    if opened is None or connection.door.broker.dequeue.waiting(queue):
        return False
    if not opened.order and opened.returning is None and not _has_visible(opened):
        return False
    opened.meter.consumers.see(connection.peer)
    taking = _Taking(connection, number, Kind.PULL, opened)
    taking.row = None
    taking.lease_ms, taking.wait_ms, taking.bytes_max = lease_ms, wait_ms, bytes_max
    try:
        opened.lane.take_for(taking, 1, lease_ms)
    except Exception as error:
        taking.set_exception(error)
    return True


def _allowed(lease_ms: int, wait_ms: int) -> bool:
    return (0 <= lease_ms <= LEASE_MS_MAX or lease_ms == DEFAULT) and wait_ms <= WAIT_MS_MAX


def _has_visible(opened: Opened) -> bool:
    try:
        return opened.lane.has_visible()
    except DovetailError:
        return False


# Completing and taking the next


class _Next(_Taking):
    """Two answers in one: SETTLED, and the deliveries of one message. Where the second is not plain, this one is the first."""

    __slots__ = ("pulled", "settled")
    settled: Sequence[bool] | None
    pulled: bool
    """What the pull came to is known."""

    def set_result(self, outcome: Any, /) -> None:
        if type(outcome) is list:
            self._completed(outcome)
            return
        opened = self.opened
        if self.failed:
            take_back(opened, opened.lane.handed(outcome, self.lease_ms))
            return
        self.pulled = True
        row = self.row = opened.lane.one(outcome, self.lease_ms)
        if row is None:
            self._go_on().set_result(outcome)
            return
        self._got(row)
        if self.settled is not None:
            self.place(_ROW)

    def _completed(self, settled: Sequence[bool]) -> None:
        self.settled = settled
        if settled[0]:
            self.opened.meter.completed.value += 1
        self.connection.door.count_request("COMPLETE_PULL", "ok", perf_counter() - self.began)
        if self.pulled:
            self.place(_settled(self.number, settled))

    def set_exception(self, error: BaseException, /) -> None:
        if self.settled is not None:
            self._go_on().set_exception(error)
        elif not self.failed:
            # Nothing was completed, and so nothing is taken.
            self.give_up()
            Slot.set_exception(self, error)

    def _go_on(self) -> Pulling:
        """It stands behind this one."""
        pulling, order = self._pulling(), self.opened.order
        order.pop()
        order.insert(order.index(self) + 1, pulling)
        if self.settled is not None:
            self.place(_settled(self.number, self.settled))
        return pulling

    def written(self) -> bytes:
        settled = self.settled
        if self.row is None or settled is None:
            return super().written()
        return _settled(self.number, settled) + super().written()


def complete_pull(connection: Connection, number: int, data: bytes, at: int, size: int) -> bool:
    if size != _COMPLETE_PULL.size:
        return False
    fields = _COMPLETE_PULL.unpack_from(data, at)
    queue, lease_ms, most, bytes_max, wait_ms, zero, sequence, delivery, length, start, end, empty, seal = fields
    if most != 1 or zero or empty or end - start != 1 or end > length or not _allowed(lease_ms, wait_ms):
        return False
    opened = _plain_queue(connection, queue, RECEIVE | DELETE)
    if opened is None or connection.door.broker.dequeue.waiting(queue):
        return False
    opened.meter.consumers.see(connection.peer)
    following = _Next(connection, number, Kind.COMPLETE_PULL, opened)
    following.row = following.settled = None
    following.pulled = False
    following.lease_ms, following.wait_ms, following.bytes_max = lease_ms, wait_ms, bytes_max
    try:
        opened.lane.complete_and_take_one_for(following, sequence, delivery, length, start, seal, lease_ms)
    except Exception as error:
        following.set_exception(error)
    return True


ROADS: Mapping[int, Road] = {
    int(Kind.PUSH): push,
    int(Kind.PULL): pull,
    int(Kind.COMPLETE): complete,
    int(Kind.COMPLETE_PULL): complete_pull,
}
