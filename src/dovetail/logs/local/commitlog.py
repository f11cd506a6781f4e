"""The commit log: the Log seam on a data folder. append → write at the tail → sync → deliver.

It owns the tail, the list of segments and the order of delivery; where files come from is `space`, where a sync runs is `syncer`,
what a crash left is `recovery`. All but a sync and the making of the next segment happens on the caller's thread: there are no locks.

    what happens                        what the caller sees
    ----------------------------------  -------------------------------------------------------------------
    written and synced                  deliver(entry), in order, once
    no room                             append raises StorageFull: nothing was written
    a write or a sync fails             fail(error), once; nothing after it is delivered, every later append raises
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from ...errors import Closed, Damaged, LimitExceeded, StorageError, StorageFull
from ...limits import SEGMENT_BYTES_DEFAULT
from ..frame import FRAME_BYTES_MAX, HEADER_BYTES, encode
from ..log import Entry
from .blobs import FOLDER as BLOBS_FOLDER
from .blobs import LocalBlobs, tidy_blobs
from .disk import Disk, RealDisk
from .folder import make_folder, read_format
from .reading import read_record, read_segment
from .recovery import Recovered, mend, open_segments
from .segment import FOLDER, SEGMENT_HEADER_BYTES, Segment, make_segment
from .space import Space, is_full
from .syncer import Syncer, SyncMode

IDLE_S = 0.05
"""After this long without an append one mark is written, which makes later damage to the last entries detectable."""
CHECKED_BYTES_MIN = 512
"""Records from this size on are remembered once they were checked; smaller ones are checked faster than looked up."""
CHECKED_RECORDS_MAX = 256
CHILD_PAUSE = 5.0
"""Five sixths of the time that a child takes to write a snapshot it sleeps, so that the log's own syncs find the device free."""

_logger = logging.getLogger("dovetail.logs.local")


class CommitLog:
    """One append-only log in a folder. Opening it locks the folder, recovers, and raises Damaged, FormatUnknown or FolderLocked."""

    durability = "disk"
    lasting = True

    def __init__(
        self,
        folder: str | os.PathLike[str] | Disk,
        *,
        segment_bytes: int = SEGMENT_BYTES_DEFAULT,
        sync: SyncMode = "auto",
        background: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.disk: Disk = RealDisk(folder) if isinstance(folder, (str, os.PathLike)) else folder
        self.entry_bytes_max = min(FRAME_BYTES_MAX, segment_bytes - SEGMENT_HEADER_BYTES)
        self.blobs = LocalBlobs(self.disk)
        self.syncer = Syncer(sync)
        self.recovered: Recovered | None = None
        self._space = Space(self.disk, segment_bytes, monotonic, background=background)
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._deliver: Callable[[Entry], None] | None = None
        self._fail_once: Callable[[BaseException], None] | None = None
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._pending: list[Entry] = []
        self._riding: list[Entry] = []
        self._riding_to = 0
        self._callers = 0
        self._ready: list[Entry] = []
        self._flushing = False
        self._rolling = False
        self._prepare_at = segment_bytes // 4
        self._checked: dict[int, memoryview] = {}
        self._unlinked = False
        self.disk.lock()
        try:
            self._open()
        except OSError as error:
            self._release()
            raise StorageError(f"The data folder {self.disk.describe('')} cannot be opened: {error}") from error
        except BaseException:
            self._release()
            raise

    # -- opening ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        log_id = read_format(self.disk)
        if log_id is None:
            log_id = make_folder(self.disk, self._space)
        self.log_id = log_id
        self.salt = crc32c(log_id)
        # Names that a killed process made without having synced their folder are seen now and could be gone after a power failure.
        for folder in ("", FOLDER, BLOBS_FOLDER):
            self.disk.sync_folder(folder)
        self._segments = open_segments(self.disk, log_id)
        if not self._segments:
            raise Damaged(f"{self.disk.describe(FOLDER)}: there is not one segment left")
        self._active = self._segments[-1]
        self._starts = [segment.start for segment in self._segments]
        self._tail, self.recovered = mend(self.disk, self._active, self._segment_bytes, self.salt)
        self._synced = self._vouched = self._tail
        tidy_blobs(self.disk)
        self._space.open()

    # -- what there is ------------------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return self._starts[0]

    @property
    def tail(self) -> int:
        return self._tail

    @property
    def durable(self) -> int:
        """Everything before this position is on the disk."""
        return self._synced

    @property
    def busy(self) -> bool:
        return self._flushing or self.syncer.running

    @property
    def bytes_kept(self) -> int:
        return (self._tail - self._starts[0]) << 3

    def bytes_since(self, address: int) -> int:
        return (self._tail - address) << 3

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def read(self, position: int) -> Iterator[Entry]:
        if not self.first <= position <= self._tail:
            raise StorageError(f"position {position} is not in the log, which reaches from {self.first} to {self._tail}")
        index = bisect_right(self._starts, position) - 1
        ends = [*self._starts[index + 1 :], max(self._synced, position)]
        for segment, end in zip(self._segments[index:], ends, strict=True):
            yield from read_segment(self.disk, segment, position, end, self.salt)
            position = end

    def fetch(self, address: int) -> memoryview | None:
        record = self._checked.get(address)
        if record is not None:
            return record
        segment = self._active
        if address < segment.start:
            if address < self._starts[0]:
                return None
            segment = self._segments[bisect_right(self._starts, address) - 1]
        elif address >= self._synced:
            return None
        record = read_record(self.disk, segment, address)
        if len(record) >= CHECKED_BYTES_MIN:
            if len(self._checked) >= CHECKED_RECORDS_MAX:
                del self._checked[next(iter(self._checked))]
            self._checked[address] = record
        return record

    # -- appending ----------------------------------------------------------------------------------------------------------------

    def start(self, deliver: Callable[[Entry], None], fail: Callable[[BaseException], None]) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self.syncer.start(self._loop)
        self._deliver = deliver
        self._fail_once = fail

    def append(self, records: Sequence[bytes], *, vital: bool = False, more: bool = False, callers: int = 1) -> None:
        """`more` says that another append follows at once: this entry then rides with that one's sync."""
        if self._error is not None:
            raise StorageError(f"The log has stopped: {self._error}")
        if self._deliver is None:
            raise Closed("The log is not started, or closed.")
        position, synced = self._tail, self._synced
        frame, addresses = encode(records, position, synced, self.salt)
        size = len(frame)
        if not addresses or size > self.entry_bytes_max:
            raise LimitExceeded(f"an entry has at least one record and at most {self.entry_bytes_max} bytes as a frame, not {size}")
        try:
            self._write(frame, position, vital)
        except StorageFull:
            self.flush()
            raise
        except OSError as error:
            self._fail(error)
            return
        self._vouched = synced
        self._tail = after = position + (size >> 3)
        self._pending.append(Entry(position, after, records, addresses))
        self._callers += callers
        if not more:
            self.flush()

    def _write(self, frame: bytes, position: int, vital: bool) -> None:
        """The frame at the tail. StorageFull leaves nothing of it; any other OSError ends the log."""
        if not vital and not self._space.reserved and not self._space.refill():
            raise StorageFull()
        if self._active.offset(position) + len(frame) > self._active.size_bytes:
            self._roll(vital)
        for attempt in (1, 2):
            offset = self._active.offset(position)
            try:
                self._active.file.write(frame, offset)
                if offset > self._prepare_at:
                    self._prepare_at = self._active.size_bytes
                    self._space.prepare()
                return
            except OSError as error:
                if not is_full(error):
                    raise
                # A file system that copies on write can be full even for blocks that were set aside. What was written of a refused
                # entry is not whole, unless its missing end is zeros: so its header is wiped, durably, before it is called refused.
                self._active.file.write(bytes(HEADER_BYTES), offset)
                self._active.file.sync()
                # An empty segment has nothing to gain from another one, and both would begin at the same position.
                if attempt == 2 or position == self._active.start:
                    raise StorageFull() from error
            self._roll(vital)

    def _roll(self, vital: bool) -> None:
        """Go on in a new segment. All before it is durable first: that a segment exists vouches for everything before its start."""
        name, file = self._space.take(vital=vital)
        # A sync in the thread would see an error of this file that the one below does not. Its entries are delivered after this append.
        self._rolling = True
        self.syncer.wait()
        self._rolling = False
        if self._error is not None:
            raise OSError(f"the log has stopped: {self._error}")
        self._active.file.sync()
        self._synced = self._tail
        segment = make_segment(self.disk, name, file, self.log_id, self._tail, self._active.start)
        self._segments.append(segment)
        self._starts.append(segment.start)
        self._active = segment
        self._prepare_at = segment.size_bytes // 4

    def flush(self) -> None:
        """Sync what was written and deliver it; where a sync or a delivery is under way, right after it."""
        deliver = self._deliver
        if self._flushing or deliver is None:
            return
        self._flushing = True
        try:
            while self._error is None:
                entries, self._ready = self._ready, []
                for entry in entries:
                    deliver(entry)
                if self._ready:
                    continue
                if not self._pending or self.syncer.running:
                    break
                self._riding, self._pending = self._pending, []
                self._riding_to = self._tail
                callers, self._callers = self._callers, 0
                file = self._active.file
                self.syncer.run(file.sync, self._on_synced, file.descriptor, callers)
        except BaseException as broken:
            # Whoever was told of half a batch cannot go on, and the log must not go on without it.
            self._fail(broken)
            raise
        finally:
            self._flushing = False
        if self._idle is None and self._loop is not None:
            self._idle = self._loop.call_later(IDLE_S, self._on_idle, self._tail)

    def _on_synced(self, error: BaseException | None) -> None:
        entries, self._riding = self._riding, []
        if error is not None:
            self._fail(error)
        elif self._error is None:
            self._ready += entries
            if self._riding_to > self._synced:
                self._synced = self._riding_to
            if not self._rolling:
                self.flush()

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            self._pending.clear()
            self._ready.clear()
            _logger.error("the log stops: %s", error)
            if self._fail_once is not None:
                self._fail_once(error if isinstance(error, StorageError) else StorageError(f"The log cannot go on: {error}"))

    def _on_idle(self, tail: int) -> None:
        self._idle = None
        if self._loop is None:
            return
        if tail != self._tail or self.busy:
            self._idle = self._loop.call_later(IDLE_S, self._on_idle, self._tail)
            return
        self.mark()

    def mark(self) -> None:
        """Write down how far the log is durable, unless the last frame has said so. The mark itself is not synced."""
        if self._error is not None or self._vouched >= self._synced or self._synced != self._tail:
            return
        offset = self._active.offset(self._tail)
        if offset + HEADER_BYTES > self._active.size_bytes:
            return
        try:
            self._active.file.write(encode((), self._tail, self._synced, self.salt)[0], offset)
        except OSError as error:
            self._fail(error)
            return
        self._vouched = self._synced
        self._tail += HEADER_BYTES >> 3

    # -- letting go ---------------------------------------------------------------------------------------------------------------

    def trim(self, position: int) -> None:
        """Whole segments below `position` go, oldest first; each removal is durable before the next, so that no hole can appear."""
        try:
            while self._error is None and len(self._segments) > 1 and self._starts[1] <= position:
                if self._unlinked:
                    self.disk.sync_folder(FOLDER)
                segment = self._segments[0]
                self.disk.unlink(segment.name)
                self._unlinked = True
                self._checked.clear()
                del self._segments[0], self._starts[0]
                segment.close()
        except OSError as error:
            self._fail(error)

    def in_child(self) -> None:
        """The lock is the parent's: a child that kept it would hold the folder after a kill -9 of the parent. What the child writes gives
        way to the parent's syncs."""
        self.disk.unlock()
        self.blobs.pause = CHILD_PAUSE

    def close(self) -> None:
        if self._deliver is not None and self._error is None:
            try:
                self.syncer.wait()
                self.flush()
                self.syncer.wait()
                if self._error is None:
                    self.mark()
                    self._active.file.sync()
            except OSError as error:
                self._fail(error)
        self._release()

    def _release(self) -> None:
        self._deliver = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self.syncer.close()
        self._space.close()
        self._checked.clear()
        for segment in self._segments:
            segment.view = memoryview(b"")
            segment.close()
        self.disk.unlock()
