"""RESERVE_OPEN, RESERVE, RESERVE_READ, RESERVE_SETTLE, RESERVE_RELEASE, RESERVE_CLOSE and RESERVE_LIST.

A batch may hold more than one frame does: RESERVE answers how many messages it has, and its content is read in ranges, by whoever may
receive, over any connection. Reading changes nothing. A reservation's name belongs to its queue, as a tap's does: who may receive from a
queue and delete from it may open any reservation of it, and ends its owner by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dovetail.doors.native import answers, deliveries, requests
from dovetail.doors.native.bounds import DELIVERY_BYTES_MAX, TAP_READ_MESSAGES_MAX
from dovetail.doors.native.deliveries import Cut
from dovetail.doors.native.frames import Frame, Kind
from dovetail.doors.native.opened import CONFIGURE, DELETE, LOOK, RECEIVE, Opened
from dovetail.doors.native.refusals import NoArrow
from dovetail.doors.native.slots import Look, Slot
from dovetail.doors.native.tapping import Part, Reading
from dovetail.doors.native.work import Working
from dovetail.errors import LimitExceeded
from dovetail.service.broker import Handed, Lane, Noted

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection


class _Reserving(Slot):
    __slots__ = ("opened",)

    def __init__(self, connection: Connection, number: int, opened: Opened) -> None:
        super().__init__(connection, number, Kind.RESERVE, opened.order)
        self.opened = opened

    def tell(self, outcome: Any) -> bytes:
        count, again = self.opened.lane.set_aside_count(outcome)
        if not again:
            self.opened.meter.delivered.value += count
        return answers.encode(answers.Reserved(count, again), self.number)


def reserve(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Reserve)
    opened = connection.opened(request.queue, RECEIVE)
    opened.meter.seen_consumer(connection.peer)
    slot = _Reserving(connection, frame.number, opened)
    try:
        opened.lane.reserve_for(slot, request.name, request.epoch, request.batch, request.most)
    except Exception as error:
        slot.set_exception(error)


def reserve_open(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.Reservation)
    opened = connection.opened(request.queue, RECEIVE | DELETE)

    async def work() -> answers.Reserving:
        return answers.Reserving(*await connection.door.broker.reserve_open(opened.lane, request.name))

    Working(connection, frame.number, frame.kind, opened.order, work)


def reserve_settle(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.ReserveSettle)
    opened = connection.opened(request.queue, DELETE)

    async def work() -> answers.Done:
        broker = connection.door.broker
        return answers.Done(await broker.reserve_settle(opened.lane, request.name, request.epoch, request.batch))

    Working(connection, frame.number, frame.kind, opened.order, work)


def reserve_release(connection: Connection, frame: Frame) -> None:
    """RESERVE_RELEASE and RESERVE_CLOSE, which are an operator's."""
    request = requests.decode(frame)
    assert isinstance(request, requests.Reservation)
    opened = connection.opened(request.queue, CONFIGURE)
    closes = request.kind is Kind.RESERVE_CLOSE

    async def work() -> answers.Done:
        broker = connection.door.broker
        act = broker.reserve_close if closes else broker.reserve_release
        return answers.Done(await act(opened.lane, request.name))

    noted = connection.door.noted(connection, "CloseReservation" if closes else "ReleaseReservation", opened, work)
    Working(connection, frame.number, frame.kind, opened.order, noted)


def reserve_list(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, LOOK)
    number = frame.number

    def look() -> bytes:
        found = [answers.Reservation(*facts) for facts in opened.lane.reservations()]
        return answers.encode(answers.Reservations(found), number)

    Look(connection, number, frame.kind, opened, look)


def reserve_read(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.ReserveRead)
    opened = connection.opened(request.queue, RECEIVE)
    if not request.most:
        raise LimitExceeded("0 messages asked for; at least 1")
    door, number = connection.door, frame.number

    def look() -> bytes:
        total, cuts = read(opened.lane, request)
        if not request.arrow:
            return deliveries.frame(number, opened.lane, cuts) if cuts else deliveries.empty_frame(number, request.queue)
        if door.streams is None:
            raise NoArrow
        return door.streams.frame(number, reading(request, total, cuts), door.salt)

    Look(connection, number, frame.kind, opened, look, door.load_arrow() if request.arrow else None)


def read(lane: Lane, request: requests.ReserveRead) -> tuple[int, list[Cut]]:
    """(how many messages the batch has, as much as is asked for and one frame takes). The first message always comes."""
    total, runs = lane.reserved_runs(request.name, request.batch, request.start)
    bytes_max = min(request.bytes_max or DELIVERY_BYTES_MAX, DELIVERY_BYTES_MAX)
    cuts, _ = deliveries.fit(list(_cuts(runs, min(request.most, TAP_READ_MESSAGES_MAX), bytes_max)), bytes_max)
    return total, cuts


def _cuts(runs: Iterator[Handed], most: int, left: int) -> Iterator[Cut]:
    """Runs are read as long as there is room: of large messages nobody looks at those that come later."""
    for handed in runs:
        (one,) = deliveries.cut([handed._replace(length=min(handed.length, most))])
        yield one
        most -= one.handed.length
        left -= one.size
        if not most or left <= 0:
            return


def reading(request: requests.ReserveRead, total: int, cuts: list[Cut]) -> Reading:
    """As a read of a tap gives it, and how often others had received each. `next` and `end` count the messages of the batch."""
    parts = [Part(_noted(one.handed), one.slice) for one in cuts]
    count = sum([part.noted.length for part in parts])
    return Reading(request.queue, request.start + count, total, count, parts, [one.handed.receives for one in cuts])


def _noted(handed: Handed) -> Noted:
    return Noted(handed.sequence, handed.length, handed.sent_at_ms, handed.record, handed.item, handed.id)
