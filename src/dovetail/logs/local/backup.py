"""Backup: a consistent copy of a running log into another folder, which opens like any other. It knows whole files, not entries.

The order matters. The segments are pinned first (a mapped file stays readable after trim has unlinked it), then the blobs are copied,
and the log's end is taken last: so every snapshot that was copied finds the log from its position on in the copy.
"""

from __future__ import annotations

import os

from ...errors import BadRequest
from .blobs import FOLDER as BLOBS_FOLDER
from .commitlog import CommitLog
from .disk import Disk, RealDisk
from .folder import FORMAT_FILE, write_format
from .segment import FOLDER, Segment

_PIECE_BYTES = 4 * 1024 * 1024


def export(log: CommitLog, target: str | os.PathLike[str] | Disk) -> int:
    """Copy the log up to what is durable, and all blobs; returns the position where the copy ends. May run in another thread."""
    disk: Disk = RealDisk(target) if isinstance(target, (str, os.PathLike)) else target
    disk.lock()
    try:
        if disk.exists(FORMAT_FILE) or disk.names(FOLDER):
            raise BadRequest(f"{disk.describe('')}: there is a data folder already")
        disk.make_folder(FOLDER)
        disk.make_folder(BLOBS_FOLDER)
        pinned = {segment.start: (segment, segment.view) for segment in log.segments}
        for name in log.blobs.names():
            try:
                blob = log.blobs.get(name)
            except KeyError:
                continue  # It was removed just now: whoever removed it needs it no more.
            _copy(disk, f"{BLOBS_FOLDER}/{name}", blob)
        end = log.durable
        pinned.update({segment.start: (segment, segment.view) for segment in log.segments if segment.start <= end})
        kept: list[tuple[Segment, memoryview]] = [pinned[start] for start in sorted(pinned)]
        starts = [segment.start for segment, _ in kept]
        for (segment, view), after in zip(kept, [*starts[1:], end], strict=True):
            _copy(disk, segment.name, view[: segment.offset(after)])
        disk.sync_folder(BLOBS_FOLDER)
        disk.sync_folder(FOLDER)
        write_format(disk, log.log_id)
        return end
    finally:
        disk.unlock()


def _copy(disk: Disk, name: str, data: memoryview) -> None:
    file = disk.create(name)
    try:
        for begin in range(0, len(data), _PIECE_BYTES):
            file.write(data[begin : begin + _PIECE_BYTES], begin)
            file.sync()
        file.sync_all()
    finally:
        file.close()
