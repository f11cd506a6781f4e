"""A data folder seen from outside: read only, without its lock, so also beside the node that has it open.

The log only grows at its end and goes at its beginning by whole files, so what is mapped here stays true whatever the node does
meanwhile. What was written and not yet synced may be seen as well; nobody was promised it and nobody was refused it.
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from ...errors import CodecError, Damaged, FormatUnknown
from ...limits import ENTRY_BYTES_MIN
from ..frame import decode, record_at
from ..log import Entry
from .blobs import LocalBlobs
from .disk import RealDisk
from .folder import read_format
from .recovery import find_tail, open_segments
from .segment import Segment

ATTEMPTS = 20
"""A trim may take the oldest file away between listing and opening it; the next look finds the folder as it is now."""


class Folder:
    """The reading half of a log: what a backup copies and a replay reads."""

    durability = "disk"
    entry_bytes_max = ENTRY_BYTES_MIN

    def __init__(self, path: str) -> None:
        self._disk = RealDisk(path)
        log_id = read_format(self._disk)
        if log_id is None:
            raise FormatUnknown(f"{path}: there is no data folder of Dovetail")
        self.log_id = log_id
        self.salt = crc32c(log_id)
        self.blobs = LocalBlobs(self._disk)
        # Mapped once and kept: whatever is trimmed from now on can still be read here.
        self._pinned = self.segments
        self.vouched = 0
        """What lies below was on the disk when it was read: the log itself says so. Beyond it a power failure could still put
        something else in its place."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments as they are now."""
        for left in reversed(range(ATTEMPTS)):
            try:
                segments = tuple(open_segments(self._disk, self.log_id, write=False))
            except FileNotFoundError:
                if not left:
                    raise
                continue
            if segments:
                return segments
            break
        raise Damaged(f"{self._disk.describe('log')}: there is not one segment left")

    @property
    def durable(self) -> int:
        """The end of the log as it is now."""
        return find_tail(self.segments[-1], self.salt)[0]

    @property
    def first(self) -> int:
        return self._pinned[0].start

    def read(self, position: int) -> Iterator[Entry]:
        """Every entry from `position` to the end of the log as it was when the folder was opened."""
        ends = [*(segment.start for segment in self._pinned[1:]), find_tail(self._pinned[-1], self.salt)[0]]
        for segment, end in zip(self._pinned, ends, strict=True):
            while segment.start <= position < end:
                offset = segment.offset(position)
                try:
                    size, vouched, records, addresses = decode(segment.view, offset, position, self.salt)
                except CodecError as error:
                    where = self._disk.describe(segment.name)
                    raise Damaged(f"{where}: damaged at offset {offset} (position {position}): {error}") from None
                self.vouched = max(self.vouched, vouched)
                after = position + (size >> 3)
                if records:
                    yield Entry(position, after, records, addresses)
                position = after

    def fetch(self, address: int) -> memoryview | None:
        for segment in reversed(self._pinned):
            if segment.start <= address:
                return record_at(segment.view, segment.offset(address))
        return None
