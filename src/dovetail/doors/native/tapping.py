"""Requests about taps. What a tap reads is cut out of the log in columns, plain or as Arrow."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.core import slices
from dovetail.core.slices import Slice
from dovetail.doors.native import answers, requests
from dovetail.doors.native.answers.messages import ATTRIBUTES, GROUPS, IDS, MESSAGES
from dovetail.doors.native.bounds import DELIVERY_BYTES_MAX, TAP_READ_MESSAGES_MAX
from dovetail.doors.native.frames import HEADER, Data, Frame, Kind
from dovetail.doors.native.opened import CONFIGURE, LOOK, RECEIVE
from dovetail.doors.native.refusals import NoArrow
from dovetail.doors.native.requests import TAP_POSITION
from dovetail.doors.native.slots import Look
from dovetail.doors.native.work import Working
from dovetail.errors import LimitExceeded
from dovetail.limits import DELAY_MS_MAX
from dovetail.service.broker import Lane, Noted

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

_START_MAX = 1 << 63


class Part(NamedTuple):
    """Neighbours that were read, and their columns."""

    noted: Noted
    slice: Slice


class Reading(NamedTuple):
    """What one read of a tap gives."""

    queue: int
    next: int
    end: int
    messages: int
    parts: list[Part]
    receives: Sequence[int] | None = None
    """Of a batch that was reserved: for each part how often others had received it before. A tap knows nothing of that."""


def tap_open(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.TapOpen)
    opened = connection.opened(request.queue, CONFIGURE)
    if request.age_ms > DELAY_MS_MAX or request.bytes_max >= _START_MAX:
        raise LimitExceeded(f"a tap's bound of {request.age_ms} ms and {request.bytes_max} bytes; at most {DELAY_MS_MAX} ms are allowed")

    async def work() -> answers.Done:
        return answers.Done(await opened.lane.tap_open(request.name, request.start, request.age_ms, request.bytes_max))

    Working(connection, frame.number, frame.kind, opened.order, work)


def tap_advance(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.TapAdvance)
    opened = connection.opened(request.queue, RECEIVE)

    async def work() -> answers.Done:
        return answers.Done(await opened.lane.tap_advance(request.name, request.sequence))

    Working(connection, frame.number, frame.kind, opened.order, work)


def tap_close(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.TapClose)
    opened = connection.opened(request.queue, CONFIGURE)

    async def work() -> answers.Done:
        await opened.lane.tap_close(request.name)
        return answers.Done(1)

    Working(connection, frame.number, frame.kind, opened.order, work)


def tap_list(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.About)
    opened = connection.opened(request.queue, LOOK)
    number = frame.number

    def look() -> bytes:
        return answers.encode(answers.Taps([answers.Tap(*facts) for facts in opened.lane.taps()]), number)

    Look(connection, number, frame.kind, opened, look)


def tap_read(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.TapRead)
    opened = connection.opened(request.queue, RECEIVE)
    if not request.most:
        raise LimitExceeded("0 messages asked for; at least 1")
    door, number = connection.door, frame.number
    if not request.arrow:
        Look(connection, number, frame.kind, opened, lambda: plain_frame(number, read(opened.lane, request)))
        return

    def look() -> bytes:
        streams = door.streams
        if streams is None:
            raise NoArrow
        return streams.frame(number, read(opened.lane, request), door.salt)

    Look(connection, number, frame.kind, opened, look, door.load_arrow())


def read(lane: Lane, request: requests.TapRead) -> Reading:
    """As much as is asked for and one frame takes. The first message always comes."""
    start, runs = lane.tap_runs(request.name, None if request.from_sequence == TAP_POSITION else request.from_sequence)
    most = min(request.most, TAP_READ_MESSAGES_MAX)
    parts = list(_taken(runs, most, min(request.bytes_max or DELIVERY_BYTES_MAX, DELIVERY_BYTES_MAX)))
    following = parts[-1].noted.sequence + parts[-1].noted.length if parts else start
    end = next(facts.end for facts in lane.taps() if facts.name == request.name)
    return Reading(lane.queue, following, end, sum(part.noted.length for part in parts), parts)


def _taken(runs: Iterator[Noted], most: int, left: int) -> Iterator[Part]:
    first = True
    for noted in runs:
        if noted.length > most:
            noted = noted._replace(length=most)
        part = slices.slice_of(noted.record, noted.item, noted.length)
        size = len(part.bodies.blob) if part.groups is None and part.attributes is None else slices.size_of(part)
        if size > left:
            count = _fitting(part, left, first)
            if count:
                yield Part(noted._replace(length=count), slices.slice_of(noted.record, noted.item, count))
            return
        yield Part(noted, part)
        first = False
        left -= size
        most -= noted.length
        if not most:
            return


def _fitting(part: Slice, left: int, first: bool) -> int:
    count = 0
    for size in slices.message_sizes(part):
        left -= size
        if left < 0:
            break
        count += 1
    return count or int(first)


def plain_frame(number: int, reading: Reading) -> bytes:
    """One MESSAGES frame."""
    queue, following, end, count, found, _ = reading
    parts: list[Data] = [b"", MESSAGES.pack(queue, following, end, count, 0)]
    parts += [array("Q", range(noted.sequence, noted.sequence + noted.length)).tobytes() for noted, _ in found]
    parts += [noted.time_ms.to_bytes(8, "little") * noted.length for noted, _ in found]
    flags = 0
    if has_ids(found):
        flags |= IDS
        parts += [slices.own_ids(part.slice, part.noted.length, part.noted.id) for part in found]
    if any(part.slice.groups is not None for part in found):
        flags |= GROUPS
        parts += slices.joined([part.slice.groups or slices.empty(part.noted.length) for part in found])
    if any(part.slice.attributes is not None for part in found):
        flags |= ATTRIBUTES
        parts += slices.joined([part.slice.attributes or slices.empty(part.noted.length) for part in found])
    parts += slices.joined([part.slice.bodies for part in found])
    parts[0] = HEADER.pack(sum(map(len, parts)), Kind.MESSAGES, flags, 0, number)
    return b"".join(parts)


def has_ids(found: list[Part]) -> bool:
    return any(part.slice.ids is not None or part.noted.id for part in found)
