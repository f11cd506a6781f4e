"""Space: where the next segment comes from, and what happens when the disk is full. It knows files of zeros, not frames.

Two files wait beside the segments: `next`, made ahead of time so that a change of segment does not stall, and `reserve`, made when the
folder is opened and touched only by *vital* entries (completes, receives, trims) when the disk is full. One rule keeps it honest: a
push is accepted only while a whole reserve exists. So whatever the disk does, there is a segment's worth of room to empty the queues with;
and when space returns the reserve is filled first, and that alone lets pushes in again.

Segments that trim removes are not recycled. Positions would refuse their old frames, but fresh zeros make "nothing was ever written
here" a fact of the file system instead of an argument, and the search for a torn tail ends at the first zeros.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable

from ...errors import StorageFull
from .disk import Disk, File
from .segment import FOLDER

NEXT = f"{FOLDER}/next"
RESERVE = f"{FOLDER}/reserve"
RETRY_S = 1.0
"""How long after a failed allocation the next one is tried."""
WARM_PIECE_BYTES = 512 * 1024
WARM_PAUSE_S = 0.005

_log = logging.getLogger("dovetail.logs.local")


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def warm(file: File, size_bytes: int, hurry: Callable[[], bool]) -> None:
    """Write zeros over blocks that are only set aside, until done or in a hurry.

    The first write to such a block makes the file system note that it is in use, which a sync then waits for: 20 KB take 1.7 times as long.
    The pieces are small and the pauses long enough that the log's own syncs, which go on meanwhile, hardly notice.
    """
    zeros = bytes(WARM_PIECE_BYTES)
    for offset in range(0, size_bytes, WARM_PIECE_BYTES):
        if hurry():
            return
        file.write(zeros[: size_bytes - offset], offset)
        file.sync()
        time.sleep(WARM_PAUSE_S)


class Space:
    """Prepared files. `reserved` says whether the reserve is whole."""

    def __init__(self, disk: Disk, segment_bytes: int, monotonic: Callable[[], float], *, background: bool) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._monotonic = monotonic
        self._background = background
        self._retry_at = 0.0
        self._thread: threading.Thread | None = None
        self._next: File | None = None
        self._next_error: BaseException | None = None
        self._hurry = False
        self.reserved = False

    def open(self) -> None:
        """Tidy what a crash left, and set the reserve aside."""
        self._disk.unlink(NEXT)
        if self._disk.exists(RESERVE):
            file = self._disk.open(RESERVE)
            self.reserved = file.size() == self._segment_bytes
            file.close()
        if not self.reserved:
            self.refill()

    def _make(self, name: str) -> File:
        file = self._disk.create(name)
        try:
            file.allocate(self._segment_bytes)
            file.sync_all()
        except BaseException:
            file.close()
            self._disk.unlink(name)
            raise
        return file

    def refill(self) -> bool:
        """Try to make the reserve whole again; True once it is. Tried at most once in RETRY_S, so that a full disk is not hammered."""
        if self.reserved:
            return True
        if self._monotonic() < self._retry_at:
            return False
        try:
            self._make(RESERVE).close()
            self._disk.sync_folder(FOLDER)
        except OSError as error:
            if not is_full(error):
                raise
            self._postpone()
            return False
        self.reserved = True
        _log.info("the reserve is whole: pushes are accepted")
        return True

    def _postpone(self) -> None:
        self._retry_at = self._monotonic() + RETRY_S
        _log.warning("the disk is full: %s", "the reserve is kept for completes and receives" if self.reserved else "the reserve is in use")

    def prepare(self) -> None:
        """Make the next segment's file ahead of time, in a thread."""
        if not self._background or self._next is not None or self._thread is not None or self._monotonic() < self._retry_at:
            return
        self._thread = threading.Thread(target=self._prepare, name="dovetail-next-segment", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        try:
            self._next = file = self._make(NEXT)
            warm(file, self._segment_bytes, lambda: self._hurry)
        except BaseException as error:
            self._next_error = error

    def _settle(self) -> None:
        if self._thread is not None:
            self._hurry = True
            self._thread.join()
            self._hurry = False
            self._thread = None
        error, self._next_error = self._next_error, None
        if error is not None and not is_full(error):
            raise error

    def take(self, *, vital: bool) -> tuple[str, File]:
        """A file of zeros for the next segment, and its present name. StorageFull where there is none to be had."""
        self._settle()
        file, self._next = self._next, None
        if file is not None:
            return NEXT, file
        if self._monotonic() >= self._retry_at:
            try:
                return NEXT, self._make(NEXT)
            except OSError as error:
                if not is_full(error):
                    raise
                self._postpone()
        if vital and self.reserved:
            file = self._disk.open(RESERVE)
            self.reserved = False
            _log.warning("the disk is full: completes and receives go on in the reserve")
            return RESERVE, file
        raise StorageFull()

    def close(self) -> None:
        """Let go of the prepared file; the reserve stays. What cannot be removed now is removed at the next start."""
        try:
            self._settle()
            if self._next is not None:
                self._next.close()
                self._next = None
            self._disk.unlink(NEXT)
        except OSError as error:
            _log.warning("the prepared segment was not removed: %s", error)
