"""Inspection: a walk over a data folder that changes nothing and takes no lock, for `dovetail inspect --verify`.

It may run beside a live node: what it sees of the last segment is then a moment's view, and a torn end there means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from ...errors import CodecError, Damaged, FormatUnknown
from ..frame import decode
from .disk import Disk, RealDisk
from .folder import read_format
from .recovery import highest_synced, open_segments, written_bytes
from .segment import Segment


@dataclass(frozen=True)
class SegmentReport:
    """One segment. `damage` names the place of the first broken frame; `torn_bytes` is an unsynced end, which opening would cut."""

    file: str
    start: int
    end: int
    used_bytes: int
    file_bytes: int
    entries: int
    records: int
    damage: str | None
    torn_bytes: int

    @property
    def ok(self) -> bool:
        return self.damage is None


def inspect(folder: str | os.PathLike[str] | Disk) -> Iterator[SegmentReport]:
    """Every segment in order, every frame checked. FormatUnknown or Damaged where not even the headers fit together."""
    disk: Disk = RealDisk(folder) if isinstance(folder, (str, os.PathLike)) else folder
    log_id = read_format(disk)
    if log_id is None:
        raise FormatUnknown(f"{disk.describe('FORMAT')}: there is no such file: this is not a data folder of Dovetail")
    segments = open_segments(disk, log_id, write=False)
    if not segments:
        raise Damaged(f"{disk.describe('log')}: there is not one segment left")
    try:
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            yield _report(disk, segment, following.start if following else None, crc32c(log_id))
    finally:
        for segment in segments:
            segment.close()


def _report(disk: Disk, segment: Segment, end: int | None, salt: int) -> SegmentReport:
    position = segment.start
    entries = records = torn_bytes = 0
    damage: str | None = None
    while end is None or position < end:
        offset = segment.offset(position)
        try:
            size, _, found, _ = decode(segment.view, offset, position, salt)
        except CodecError as error:
            torn_bytes = written_bytes(segment.view, offset)
            if end is not None or highest_synced(segment, offset, salt) > position:
                damage = f"offset {offset} (position {position}): {error}"
            break
        entries += bool(found)
        records += len(found)
        position += size >> 3
    if end is not None and position > end:
        damage = f"offset {segment.offset(end)} (position {end}): a frame reaches beyond the end of the segment"
    return SegmentReport(
        file=disk.describe(segment.name),
        start=segment.start,
        end=position,
        used_bytes=segment.offset(position),
        file_bytes=segment.size_bytes,
        entries=entries,
        records=records,
        damage=damage,
        torn_bytes=0 if damage else torn_bytes,
    )
