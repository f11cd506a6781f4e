"""The spool: what this node has replayed, once more, where it can be read without asking anybody.

    FOLDER/   files without names (they go with the process, however it ends), SEGMENT_BYTES each, packets back to back

The engine keeps the log; the spool is a cache in the page cache of this machine. Nothing is synced and nothing is ever read from an earlier
process: a node that starts fills it again. So a body is fetched by one lookup and one checksum, as from the log of `local`, and columns,
taps and carries work as they do there. (Asking the engine for each body stops at 19,000 a second, and would make every answer wait.)
"""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from collections import OrderedDict
from pathlib import Path

from ...errors import CodecError, Damaged, StorageError
from .packet import SHIFT, record_at

SEGMENT_BYTES = 64 << 20
CHECKED_BYTES_MIN = 512
"""Records from this size on are remembered once they were checked; smaller ones are checked faster than looked up."""
CHECKED_RECORDS_MAX = 256


class _Segment:
    __slots__ = ("descriptor", "view")

    def __init__(self, folder: Path, size: int) -> None:
        with tempfile.TemporaryFile(dir=folder, prefix="spool-") as file:
            file.truncate(size)
            self.view = memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
            self.descriptor = os.dup(file.fileno())

    def close(self) -> None:
        """The mapping goes when the last view of it does: somebody may be about to send what lies in it."""
        os.close(self.descriptor)


class Spool:
    """Packets of growing, dense numbers. `first` and `next` are numbers."""

    def __init__(self, folder: Path, first: int, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._segments_gone = 0
        self._places = array("Q")
        self._end = 0
        """Where the next packet would begin, counted over all segments there ever were."""
        self._begin = 0
        self.first = first
        self._checked: OrderedDict[int, memoryview] = OrderedDict()

    @property
    def next(self) -> int:
        return self.first + len(self._places)

    @property
    def bytes_kept(self) -> int:
        return self._end - self._begin

    def bytes_since(self, number: int) -> int:
        at = max(0, number - self.first)
        return self._end - self._places[at] if at < len(self._places) else 0

    def add(self, packet: bytes) -> None:
        """The next one. StorageError where the machine has no room for it."""
        size = len(packet)
        room = -self._end % self._segment_bytes
        if size > self._segment_bytes:
            raise StorageError(f"a packet of {size} bytes does not fit the spool")
        place = self._end if size <= room else self._end + room
        try:
            if place % self._segment_bytes == 0:
                self._segments.append(_Segment(self._folder, self._segment_bytes))
            segment = self._segments[-1]
            # A write says when the disk is full; through a mapping the process would be killed.
            written = os.pwrite(segment.descriptor, packet, place % self._segment_bytes)
        except OSError as error:
            raise StorageError(f"The cache folder {self._folder} cannot take what was replayed: {error}") from error
        if written != size:
            raise StorageError(f"The cache folder {self._folder} is full.")
        self._places.append(place)
        self._end = place + size

    def get(self, address: int) -> memoryview | None:
        """One record, checked; None where it is not, or no longer, here."""
        known = self._checked.get(address)
        if known is not None:
            return known
        at = (address >> SHIFT) - self.first
        if not 0 <= at < len(self._places):
            return None
        segment, offset = divmod(self._places[at], self._segment_bytes)
        try:
            record = record_at(self._segments[segment - self._segments_gone].view, offset, address & ((1 << SHIFT) - 1))
        except CodecError as error:
            raise Damaged(f"{self._folder}: what was replayed cannot be read again: {error}") from None
        if len(record) >= CHECKED_BYTES_MIN:
            self._checked[address] = record
            if len(self._checked) > CHECKED_RECORDS_MAX:
                self._checked.popitem(last=False)
        return record

    def trim(self, number: int) -> None:
        """Everything below `number` goes; its files as far as nothing else lies in them."""
        gone = min(number, self.next) - self.first
        if gone <= 0:
            return
        del self._places[:gone]
        self.first += gone
        self._checked.clear()
        self._begin = self._places[0] if self._places else self._end
        kept = self._begin // self._segment_bytes
        while self._segments and self._segments_gone < kept:
            self._segments.pop(0).close()
            self._segments_gone += 1

    def close(self) -> None:
        self._checked.clear()
        self._places = array("Q")
        for segment in self._segments:
            segment.close()
        self._segments.clear()
