"""A data folder seen from outside: read only, without its lock, so also beside the node that has it open.

The log only grows at its end and goes at its beginning by whole files, so what is mapped here stays true whatever the node does
meanwhile. What was written and not yet synced may be seen as well; nobody was promised it and nobody was refused it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from crc32c import crc32c

from ..errors import BadRequest, CodecError, Damaged, FormatUnknown
from ..limits import ENTRY_BYTES_MIN
from ..logs.frame import decode, record_at
from ..logs.local import CommitLog, SegmentReport, inspect
from ..logs.local.backup import export
from ..logs.local.blobs import LocalBlobs
from ..logs.local.disk import RealDisk
from ..logs.local.folder import read_format
from ..logs.local.recovery import find_tail, open_segments
from ..logs.local.segment import Segment
from ..logs.log import Entry

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
                    size, _, records, addresses = decode(segment.view, offset, position, self.salt)
                except CodecError as error:
                    where = self._disk.describe(segment.name)
                    raise Damaged(f"{where}: damaged at offset {offset} (position {position}): {error}") from None
                after = position + (size >> 3)
                if records:
                    yield Entry(position, after, records, addresses)
                position = after

    def fetch(self, address: int) -> memoryview | None:
        for segment in reversed(self._pinned):
            if segment.start <= address:
                return record_at(segment.view, segment.offset(address))
        return None


def path_of(name: str) -> str:
    """The folder behind `./data` or `local:./data`."""
    if name.startswith("local:"):
        return name.removeprefix("local:")
    if ":" in name.split("/")[0] and not os.path.exists(name):
        raise BadRequest(f"{name}: only data folders (DIR or local:DIR) are kept in files that can be read")
    return name


def copy(source: str, target: str) -> int:
    """Copy what `source` holds now to the new folder `target`; returns the position where the copy ends."""
    if os.path.realpath(target) == os.path.realpath(source) or Path(source).resolve() in Path(target).resolve().parents:
        raise BadRequest(f"{target}: the copy cannot lie inside what is copied")
    return export(cast(CommitLog, Folder(source)), target)


def verified(path: str) -> list[SegmentReport]:
    """Every segment, with every checksum looked at; Damaged where one does not match."""
    found = list(reports(path))
    for report in found:
        if report.damage is not None:
            raise Damaged(f"{report.file}: {report.damage}")
    return found


def reports(path: str) -> Iterator[SegmentReport]:
    if not os.path.isdir(path):
        raise BadRequest(f"{path}: there is no such folder")
    return inspect(path)


def size(count: float) -> str:
    """Bytes as a person reads them."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"
