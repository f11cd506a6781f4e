"""The shared log: the Log seam over any engine that replicates (engine.py). Many nodes append to it, and each replays all of it.

    append   the entry becomes a packet, is published, and again and again until `landed` says that it took effect
    follow   every packet of the log, of this node and of others, goes into the spool and then to `deliver`, in order, once
    fetch    out of the spool, without asking anybody

A position is a packet's number, shifted; the address of a record is that and its index (packet.py). So both are the same on every node.

What an engine does wrong is found here: a hole, a number out of order, a packet that is damaged, and, after a cut, a log that is not the
one that was read before. None of it can be mended by going on, so the node stops and names it.

    the engine                                   this node
    -------------------------------------------  ---------------------------------------------------------------------------
    is slow, elects a leader                     waits, publishes again
    cannot be had for PATIENCE_S                 `on_cut`: what was on its way is unknown, what comes is refused
    is back                                      reads what it missed, publishes what is on its way, `on_back`
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...errors import Closed, CodecError, Damaged, DovetailError, LimitExceeded, StorageError, Unavailable
from ...limits import ENTRY_BYTES_MIN
from ..frame import FRAME_BYTES_MAX
from ..log import Entry
from .blobs import SharedBlobs
from .engine import Engine
from .packet import SHIFT, decode, encode, mark_of, packet_bytes
from .spool import Spool

WINDOW = 4
"""Entries of this node that are under way at once. What arrives meanwhile shares the next one."""
RESEND_S = 2.0
"""An entry that was not replayed by then is published again."""
RESEND_PAUSE_S = 0.05
PATIENCE_S = 10.0
"""JetStream takes four to nine seconds to elect a leader after a crash; after this long callers are told."""
RECONNECT_S = 0.25
WATCH_S = 0.25

_logger = logging.getLogger("dovetail.logs.shared")


class SharedLog:
    lasting = True

    def __init__(self, engine: Engine, cache: Path | None = None, *, patience_s: float = PATIENCE_S) -> None:
        """`cache` is a folder for what is replayed; it is emptied when the node ends."""
        self.engine = engine
        self._patience_s = patience_s
        self._cache_given = cache
        self._cache: Path | None = None
        self._spool: Spool
        self.blobs: SharedBlobs
        self._deliver: Callable[[Entry], None] | None = None
        self._fail_once: Callable[[BaseException], None] | None = None
        self.on_cut: Callable[[DovetailError], None] = lambda error: None
        self.on_back: Callable[[], None] = lambda: None
        self._apply_from = 0
        self._error: DovetailError | None = None
        self._outstanding: deque[bytes] = deque()
        self._oldest_since = self._sent_at = self._lost_at = 0.0
        self._last_mark: int | None = None
        self._resending: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reached: list[tuple[int, asyncio.Future[None]]] = []
        self.connected = False
        self.cut: DovetailError | None = None
        self.resent = 0
        self.reconnects = -1
        """How often the line was made again; −1 before it was made at all."""
        self._why: BaseException | None = None

    async def open(self) -> None:
        """Connect, look at the engine's settings, and make room for what will be replayed."""
        await self.engine.open()
        if self.entry_bytes_max < ENTRY_BYTES_MIN:
            raise StorageError(f"{self.engine.name} takes entries of {self.entry_bytes_max} bytes; at least {ENTRY_BYTES_MIN} are needed.")
        try:
            if self._cache_given is not None:
                self._cache_given.mkdir(parents=True, exist_ok=True)
            self._cache = Path(tempfile.mkdtemp(prefix="dovetail-", dir=self._cache_given))
        except OSError as error:
            raise StorageError(f"The cache folder {self._cache_given} cannot be used: {error}") from error
        first, self._goal = await self.engine.bounds()
        self._spool = Spool(self._cache, first)
        self.blobs = SharedBlobs(self.engine, self._cache)

    # What there is

    @property
    def durability(self) -> str:
        return self.engine.durability

    @property
    def entry_bytes_max(self) -> int:
        return min(self.engine.packet_bytes_max, FRAME_BYTES_MAX)

    @property
    def first(self) -> int:
        return self._spool.first << SHIFT

    @property
    def tail(self) -> int:
        return self._spool.next << SHIFT

    @property
    def bytes_kept(self) -> int:
        return self._spool.bytes_kept

    def bytes_since(self, address: int) -> int:
        return self._spool.bytes_since(address >> SHIFT)

    @property
    def busy(self) -> bool:
        return len(self._outstanding) >= WINDOW

    @property
    def under_way(self) -> int:
        return len(self._outstanding)

    def read(self, position: int) -> Iterator[Entry]:
        raise NotImplementedError("a shared log is followed: start() gives what there was too")

    def fetch(self, address: int) -> memoryview | None:
        return self._spool.get(address)

    # Replaying

    def start(self, deliver: Callable[[Entry], None], fail: Callable[[BaseException], None], position: int = 0) -> None:
        """Read all that is kept; entries from `position` on are delivered, those before it only kept at hand."""
        self._deliver, self._fail_once = deliver, fail
        self._apply_from = position >> SHIFT
        self._lost_at = time.monotonic()
        for work in (self._follow(), self._watch()):
            self._spawn(work)

    async def caught_up(self) -> None:
        """Until everything was replayed that was there at `open`."""
        if self._error is not None:
            raise self._error
        if self._spool.next < self._goal:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((self._goal, future))
            await future

    async def _follow(self) -> None:
        # Not for ever: an engine may swallow the cancellation that ends it, where something came in the same moment.
        while self._error is None:
            try:
                first, following = await self.engine.bounds()
                if first > self._spool.next:
                    raise StorageError(
                        f"This node was away until the log was trimmed past what it had read: {first} is the oldest entry that is kept,"
                        f" {self._spool.next} is due. Start it again: it then begins with a snapshot."
                    )
                if following < self._spool.next:
                    raise Unavailable(f"{self.engine.name} ends at {following - 1}, and {self._spool.next - 1} was read from it before")
                # The last one once more: a log that lost its end and went on without it would otherwise be taken for the same.
                again = self._last_mark is not None and first < self._spool.next
                await self.engine.follow(self._spool.next - again, self._take, self._heard)
            except StorageError as error:
                self._stop(error)
                return
            except Exception as error:  # The engine's own: whatever it is, it is tried again.
                self._why = error
            if self.connected:
                self.connected = False
                self._lost_at = time.monotonic()
                _logger.warning("%s cannot be read: %s", self.engine.name, self._why)
            await asyncio.sleep(RECONNECT_S)

    def _take(self, number: int, stamp_ms: int, packet: bytes) -> None:
        """The next packet. What it raises ends the following, and the node."""
        if self._error is not None:
            raise self._error
        try:
            self._heard()
            due = self._spool.next
            if number == due - 1 and self._last_mark is not None:
                decode(packet)
                if mark_of(packet) != self._last_mark:
                    raise Damaged(f"{self.engine.name}: entry {number} is not the one that was read before: the log has lost its end")
                return
            if number != due:
                raise Damaged(f"{self.engine.name}: entry {number} came where {due} was due: there is a hole in the log")
            try:
                records = decode(packet)
            except CodecError as error:
                raise Damaged(f"{self.engine.name}: entry {number} cannot be read: {error}") from None
            self._spool.add(packet)
            self._last_mark = mark = mark_of(packet)
            if number >= self._apply_from and self._deliver is not None:
                position = number << SHIFT
                addresses = range(position, position + len(records))
                self._deliver(Entry(position, (number + 1) << SHIFT, records, addresses, stamp_ms, mark))
            while self._reached and self._reached[0][0] <= number + 1:
                self._reached.pop(0)[1].set_result(None)
        except StorageError as error:
            self._stop(error)
            raise
        except Exception as error:
            stopped = StorageError(f"An entry could not be taken in: {error!r}")
            self._stop(stopped)
            raise stopped from error

    def _heard(self) -> None:
        if not self.connected:
            self.connected = True
            self.reconnects += 1
            self.resend()

    # Appending

    def append(self, records: Sequence[bytes], *, vital: bool = False, more: bool = False, callers: int = 1) -> None:
        """Every entry goes out at once, so `more` changes nothing, and there is no reserve for what is `vital`."""
        if self._error is not None:
            raise StorageError(f"The log has stopped: {self._error}")
        if self._deliver is None:
            raise Closed("The log is not started, or closed.")
        if packet_bytes(records) > self.entry_bytes_max:
            raise LimitExceeded(f"an entry has at most {self.entry_bytes_max} bytes, not {packet_bytes(records)}")
        packet = encode(records)
        if not self._outstanding:
            self._oldest_since = self._sent_at = time.monotonic()
        self._outstanding.append(packet)
        if self.connected:
            self.engine.publish(packet)

    def mark_under_way(self, index: int) -> int:
        """The mark of an entry of ours that has not landed; the oldest is 0."""
        return mark_of(self._outstanding[index])

    def landed(self) -> None:
        """The oldest entry of ours was replayed and took effect."""
        self._outstanding.popleft()
        self._oldest_since = self._sent_at = time.monotonic()
        if self.cut is not None and self.connected:
            self._back()

    def forget(self) -> None:
        """None of ours can take effect any more."""
        self._outstanding.clear()

    def resend(self) -> None:
        """Publish all of ours that has not landed once more, in order. Not at once again and again: one gap shows many times."""
        if self._resending is None and self._outstanding:
            self._resending = asyncio.get_running_loop().call_later(RESEND_PAUSE_S, self._resend_now)

    def _resend_now(self) -> None:
        self._resending = None
        self._sent_at = time.monotonic()
        if self.connected and self._error is None:
            self.resent += len(self._outstanding)
            for packet in self._outstanding:
                self.engine.publish(packet)

    async def _watch(self) -> None:
        while self._error is None:
            await asyncio.sleep(WATCH_S)
            now = time.monotonic()
            if self._outstanding and now - self._sent_at > RESEND_S:
                self.resend()
            away = not self.connected and now - self._lost_at > self._patience_s
            stuck = bool(self._outstanding) and now - self._oldest_since > self._patience_s
            if self.cut is None and (away or stuck):
                why = f": {self._why}" if away and self._why is not None else ""
                self.cut = Unavailable(f"This node is cut off from its log ({self.engine.name}){why}. Try again, or ask another node.")
                _logger.error("%s", self.cut)
                self.on_cut(self.cut)
            elif self.cut is not None and self.connected and not self._outstanding:
                self._back()

    def _back(self) -> None:
        self.cut = None
        _logger.warning("%s is back", self.engine.name)
        self.on_back()

    # Letting go

    def trim(self, position: int) -> None:
        """Ask the engine to let everything before `position` go. Should that fail, the next trim asks for more."""

        async def trim() -> None:
            try:
                await self.engine.trim(position >> SHIFT)
            except Exception as error:
                _logger.warning("%s was not trimmed: %s", self.engine.name, error)

        self._spawn(trim())

    def let_go(self, position: int) -> None:
        """A Trim was applied: what lies before it is not fetched any more."""
        self._spool.trim(position >> SHIFT)

    def in_child(self) -> None:
        """A child reads the spool and writes files of the cache folder; the engine's connection is the parent's."""

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]  # a coroutine of ours
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, error: DovetailError) -> None:
        if self._error is None:
            self._error = error
            self._outstanding.clear()
            _logger.error("the log stops: %s", error)
            for _, future in self._reached:
                if not future.done():
                    future.set_exception(error)
            self._reached.clear()
            if self._fail_once is not None:
                self._fail_once(error)

    def close(self) -> None:
        """Nothing is delivered any more. `shut` lets go of the rest."""
        self._deliver = None
        self._error = self._error or Closed()

    async def shut(self) -> None:
        self.close()
        if self._resending is not None:
            self._resending.cancel()
        tasks = list(self._tasks)
        while tasks:
            # Again, where once was lost: a `wait_for` whose answer has just come gives that and forgets the cancel (Python 3.11).
            for task in tasks:
                task.cancel()
            tasks = list((await asyncio.wait(tasks, timeout=WATCH_S))[1])
        await self.engine.close()
        if self._cache is not None:
            if hasattr(self, "_spool"):
                self._spool.close()
            shutil.rmtree(self._cache, ignore_errors=True)
