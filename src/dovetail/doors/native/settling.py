"""COMPLETE, REQUEUE, EXTEND and RELEASE, by parts of runs; CANCEL, RESCHEDULE and RECLAIM, by sequences; PURGE."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from dovetail.core.operation import DEFAULT
from dovetail.core.operation import Kind as Operation
from dovetail.doors.native import answers, requests
from dovetail.doors.native.fields import Item
from dovetail.doors.native.frames import HEADER, Frame, Kind
from dovetail.doors.native.opened import CHANGE, DELETE, PURGE, Opened
from dovetail.doors.native.slots import Slot
from dovetail.doors.native.work import Working
from dovetail.errors import LimitExceeded
from dovetail.limits import BATCH_MESSAGES_MAX, DELAY_MS_MAX, LEASE_MS_MAX

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

_SINGLE = Struct("<QqQQIIII8s")
"""The payload of a request about one item."""
_OPERATIONS = {
    int(Kind.COMPLETE): Operation.COMPLETE,
    int(Kind.REQUEUE): Operation.REQUEUE,
    int(Kind.EXTEND): Operation.EXTEND,
    int(Kind.RELEASE): Operation.RELEASE,
}


class Settling(Slot):
    __slots__ = ("opened",)

    def __init__(self, connection: Connection, number: int, kind: int, opened: Opened) -> None:
        super().__init__(connection, number, kind, opened.order)
        self.opened = opened

    def tell(self, outcome: Any) -> bytes:
        done = self.opened.lane.settled(outcome)
        if self.kind == Kind.COMPLETE or self.kind == Kind.COMPLETE_PULL:
            self.opened.meter.completed.value += sum(done)
        return HEADER.pack(len(done), Kind.SETTLED, 0, 0, self.number) + done


def complete(connection: Connection, frame: Frame) -> None:
    payload = frame.payload
    if len(payload) != _SINGLE.size or frame.flags:
        settle(connection, frame)
        return
    queue, parameter, sequence, delivery, length, start, end, zero, seal = _SINGLE.unpack(payload)
    if parameter or zero or not 0 < end - start <= BATCH_MESSAGES_MAX or end > length:
        settle(connection, frame)
        return
    opened = connection.opened(queue, DELETE)
    slot = Settling(connection, frame.number, Kind.COMPLETE, opened)
    try:
        opened.lane.settle_for(slot, Operation.COMPLETE, (Item(sequence, delivery, length, start, end, seal),))
    except Exception as error:
        slot.set_exception(error)


def settle(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Settle)
    opened = connection.opened(request.queue, DELETE if request.kind is Kind.COMPLETE else CHANGE)
    check_duration(request.parameter, LEASE_MS_MAX if request.kind is Kind.EXTEND else DELAY_MS_MAX)
    slot = Settling(connection, frame.number, frame.kind, opened)
    try:
        opened.lane.settle_for(slot, _OPERATIONS[frame.kind], request.items, request.parameter)
    except Exception as error:
        slot.set_exception(error)


def by_sequence(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.BySequence)
    opened = connection.opened(request.queue, DELETE if request.kind is Kind.CANCEL else CHANGE)
    check_duration(request.parameter, DELAY_MS_MAX)
    lane, sequences = opened.lane, request.sequences

    async def work() -> answers.Settled:
        if request.kind is Kind.CANCEL:
            done = await lane.cancel(sequences)
        elif request.kind is Kind.RECLAIM:
            done = await lane.reclaim(sequences)
        else:
            done = await lane.reschedule(sequences, max(request.parameter, 0))
        return answers.Settled(bytes(done))

    Working(connection, frame.number, frame.kind, opened.order, work)


def purge(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, PURGE)

    async def work() -> answers.Done:
        return answers.Done(await opened.lane.purge())

    Working(connection, frame.number, frame.kind, opened.order, connection.door.noted(connection, "PurgeQueue", opened, work))


def check_duration(value: int, most: int) -> None:
    if value != DEFAULT and not 0 <= value <= most:
        raise LimitExceeded(f"a duration of {value} ms; 0 to {most} are allowed")
