"""Deliveries as they came: columns and runs, of which a row is made for whoever looks at a message, and no sooner.

A row is (frame, run, place in the run, place in the frame). Settling names parts of runs, so rows of one run go back as one item; what a
whole frame holds goes back without a row being made. As a text a receipt is

     0       8          16         24      28       32     40
    | queue | sequence | delivery | length | offset | seal |      base64url without padding; the first five of a run, the offset in it
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import overload

from dovetail.core import message
from dovetail.core.receipts import Part
from dovetail.doors.native.answers import Deliveries, Run
from dovetail.errors import ReceiptInvalid
from dovetail.service.verbs import Columns, Held

_RECEIPT = Struct("<QQQII8s")
_TEXT_CHARS = 54
_LAST = frozenset("AQgw")
"""40 bytes leave four bits of the last letter over. They are zero, so that a receipt has one spelling only."""
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/\xff\xff")


class Handout:
    """One frame of deliveries."""

    __slots__ = ("_attributes", "_bodies", "_columns", "_groups", "_starts", "queue", "runs", "salt")

    def __init__(self, columns: Deliveries, salt: int) -> None:
        self._columns = columns
        self._bodies: list[bytes] | None = None
        self._groups: list[bytes] | None = None
        self._attributes: list[bytes] | None = None
        self._starts: list[int] | None = None
        self.queue = columns.queue
        self.runs = columns.runs
        self.salt = salt

    def __len__(self) -> int:
        return len(self._columns.bodies)

    @property
    def bodies(self) -> list[bytes]:
        """Cut out of the frame all at once, when the first of them is looked at: one by one it takes three times as long."""
        if self._bodies is None:
            self._bodies = list(self._columns.bodies)
        return self._bodies

    def group(self, at: int) -> bytes:
        if self._groups is None:
            self._groups = list(self._columns.groups) if self._columns.groups is not None else []
        return self._groups[at] if self._groups else b""

    def attributes(self, at: int) -> bytes:
        if self._attributes is None:
            self._attributes = list(self._columns.attributes) if self._columns.attributes is not None else []
        return self._attributes[at] if self._attributes else b""

    def id(self, at: int, sequence: int) -> bytes:
        ids = self._columns.ids
        own = bytes(ids[16 * at : 16 * at + 16]) if ids is not None else b""
        return own if any(own) else message.id_of(self.queue, sequence, self.salt)

    def size(self, start: int, end: int) -> int:
        """Bytes of bodies, groups and attributes of some of them."""
        columns = self._columns
        return sum(
            [one.offsets[end] - one.offsets[start] for one in (columns.bodies, columns.groups, columns.attributes) if one is not None]
        )

    def rows(self, start: int, end: int) -> list[Row]:
        if len(self.runs) == 1:
            run = self.runs[0]
            return [Row(self, run, at, at) for at in range(start, end)]
        made: list[Row] = []
        for run, first, last, at in self._stretches(start, end):
            made += [Row(self, run, offset, at + offset - first) for offset in range(first, last)]
        return made

    def row(self, at: int) -> Row:
        """One of them. Where there are many runs, its run is looked up."""
        if self._starts is None:
            self._starts = [0, *accumulate([run.length for run in self.runs])]
        index = bisect_right(self._starts, at) - 1
        return Row(self, self.runs[index], at - self._starts[index], at)

    def parts(self, start: int, end: int) -> list[Part]:
        return [Part(run.sequence, run.delivery, run.length, first, last, run.seal) for run, first, last, _ in self._stretches(start, end)]

    def _stretches(self, start: int, end: int) -> Iterator[tuple[Run, int, int, int]]:
        """(run, from, to, where in the frame `from` is) of the messages `start` to `end - 1` of the frame."""
        begin = 0
        for run in self.runs:
            first, last = max(start, begin), min(end, begin + run.length)
            if first < last:
                yield run, first - begin, last - begin, first
            begin += run.length


class Row:
    """A message that was handed out."""

    __slots__ = ("at", "handout", "offset", "run")

    def __init__(self, handout: Handout, run: Run, offset: int, at: int) -> None:
        self.handout = handout
        self.run = run
        self.offset = offset
        self.at = at

    @property
    def sequence(self) -> int:
        return self.run.sequence + self.offset

    @property
    def body(self) -> bytes:
        return self.handout.bodies[self.at]

    @property
    def group(self) -> bytes:
        return self.handout.group(self.at)

    @property
    def attributes(self) -> bytes:
        return self.handout.attributes(self.at)

    @property
    def id(self) -> bytes:
        return self.handout.id(self.at, self.run.sequence + self.offset)

    @property
    def receives(self) -> int:
        return self.run.receives

    @property
    def sent_at_ms(self) -> int:
        return self.run.pushed_ms

    @property
    def first_received_ms(self) -> int:
        return self.run.first_received_ms

    @property
    def lease_until_ms(self) -> int:
        return self.run.lease_until_ms

    @property
    def source(self) -> int:
        return self.run.source

    def deleted(self) -> Row:
        """The same once it is completed: there is nothing to settle any more."""
        return Row(self.handout, self.run._replace(delivery=0), self.offset, self.at)

    @property
    def receipt(self) -> str:
        run = self.run
        return text_of(self.handout.queue, run.sequence, run.delivery, run.length, self.offset, run.seal) if run.delivery else ""


class Rows(Columns):
    """Messages `start` to `end - 1` of a frame."""

    __slots__ = ("_end", "_start", "handout")

    def __init__(self, handout: Handout, start: int, end: int) -> None:
        self.handout = handout
        self._start = start
        self._end = end

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Held]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Held]:
        places = range(self._start, self._end)[index]
        if isinstance(places, int):
            return self.handout.row(places)
        return Rows(self.handout, places.start, places.stop) if places.step == 1 else [self.handout.row(at) for at in places]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.handout.rows(self._start, self._end))

    @property
    def bodies(self) -> list[bytes]:
        return self.handout.bodies[self._start : self._end]

    @property
    def size(self) -> int:
        return self.handout.size(self._start, self._end)

    @property
    def parts(self) -> list[Part]:
        """All of them as a request names them."""
        return self.handout.parts(self._start, self._end)


def parts_of(rows: Sequence[Row]) -> list[Part]:
    """Rows in their order; those of one run that follow one another are one part."""
    made: list[Part] = []
    run: Run | None = None
    start = end = 0
    for row in rows:
        if row.run is run and row.offset == end:
            end += 1
            continue
        if run is not None:
            made.append(Part(run.sequence, run.delivery, run.length, start, end, run.seal))
        run, start, end = row.run, row.offset, row.offset + 1
    if run is not None:
        made.append(Part(run.sequence, run.delivery, run.length, start, end, run.seal))
    return made


def text_of(queue: int, sequence: int, delivery: int, length: int, offset: int, seal: bytes) -> str:
    packed = b2a_base64(_RECEIPT.pack(queue, sequence, delivery, length, offset, seal), newline=False)
    return packed.translate(_TO_URL, b"=").decode()


def part_of(queue: int, text: str) -> Part:
    """What a receipt proves. Whether it does is for the node to say, except where it is no receipt of this queue at all."""
    if len(text) != _TEXT_CHARS or text[-1] not in _LAST:
        raise ReceiptInvalid
    try:
        data = a2b_base64(text.encode().translate(_FROM_URL) + b"==", strict_mode=True)
    except ValueError:
        raise ReceiptInvalid from None
    own, sequence, delivery, length, offset, seal = _RECEIPT.unpack(data)
    if own != queue:
        raise ReceiptInvalid("The receipt belongs to another queue.")
    if offset >= length:
        raise ReceiptInvalid
    return Part(sequence, delivery, length, offset, offset + 1, seal)


def texts_to_parts(queue: int, texts: Sequence[str]) -> list[Part]:
    """The same of many, those of one run that follow one another as one part."""
    made: list[Part] = []
    for text in texts:
        part = part_of(queue, text)
        if made and made[-1][:3] == part[:3] and made[-1].end == part.start and made[-1].seal == part.seal:
            made[-1] = made[-1]._replace(end=part.end)
        else:
            made.append(part)
    return made
