"""Where messages are moved from. A source is looked at while it is in use, and then ended: nothing behind its end counts.

| | looked at | ended |
| --- | --- | --- |
| a data folder | beside the node that has it open, as a backup does | when that node has let go of it: END is the last entry |
| a shared log | as a node that joins and says nothing | at once: END is in the log, and every node stops there |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from dovetail.clock import Clock, SystemClock
from dovetail.core import codec, moved
from dovetail.core.moved import END, MOVER, Note
from dovetail.core.operation import Head
from dovetail.core.state import State
from dovetail.core.taps import Runs
from dovetail.errors import StorageError
from dovetail.logs.local.commitlog import CommitLog
from dovetail.logs.local.outside import Folder
from dovetail.logs.log import Entry, Log
from dovetail.logs.shared.log import SharedLog
from dovetail.stores.replayed import Replayed
from dovetail.stores.shared.store import SharedStore

NEVER_BYTES = 1 << 62
"""No snapshot is due: nothing but END is written."""


class Seen(NamedTuple):
    state: State
    fetch: Callable[[int], memoryview | None]
    sure: int
    """Records below this address stay what they are, whatever happens to the source."""


class Source(Protocol):
    @property
    def ended(self) -> Note | None:
        """END, where it was met."""

    async def look(self) -> Seen:
        """What there is now. May be called again and again."""

    async def last(self, end: Note) -> Seen:
        """What there is when nothing can be added any more. FolderLocked while a node has the folder."""

    async def leave(self, end: Note) -> None:
        """END stands in the log."""

    async def close(self) -> None: ...


def entry_of(note: Note, records: Sequence[bytes | memoryview] = (), number: int = 0) -> list[Any]:
    """The records of an entry of ours. Numbers tell entries apart that hold the same."""
    return [codec.encode_head(Head(0, MOVER, number)), *records, note.encode()]


def note_in(entry: Entry) -> Note | None:
    return moved.note_of(codec.decode_head(entry.records[0]), entry.records)


class _UpToEnd:
    """A log whose reading ends where END stands."""

    def __init__(self, log: Folder | CommitLog) -> None:
        self._log = log
        self.end: Note | None = None

    def read(self, position: int) -> Iterator[Entry]:
        for entry in self._log.read(position):
            note = note_in(entry)
            if note is not None and note.kind == END:
                self.end = note
                return
            yield entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def _gathered(store: Replayed) -> State:
    """What lies beside the log comes into memory: notes of taps, and facts."""
    state = store.state
    for lane in state.lanes.values():
        lowest, recent = lane.taps.lowest(), Runs()
        if lowest is not None:
            for run in store.tap_runs(lane, lowest):
                recent.append(run)
        lane.taps.recent, lane.taps.stretches = recent, []
    state.chronicle.pages, state.chronicle.stretches = list(store.pages_from(state.chronicle.lowest())), []
    return state


class LocalSource:
    def __init__(self, path: str) -> None:
        self._path = path
        self._log: CommitLog | None = None
        self.ended: Note | None = None

    async def look(self) -> Seen:
        folder = Folder(self._path)
        state = self._replayed(folder)
        return Seen(state, folder.fetch, folder.vouched)

    def _replayed(self, log: Folder | CommitLog) -> State:
        reading = _UpToEnd(log)
        state = _gathered(Replayed(cast(Log, reading), SystemClock(), NEVER_BYTES))
        self.ended = reading.end
        return state

    async def last(self, end: Note) -> Seen:
        if self._log is None:
            self._log = CommitLog(self._path)
        return Seen(self._replayed(self._log), self._log.fetch, self._log.tail)

    async def leave(self, end: Note) -> None:
        log = self._log
        assert log is not None, "the end comes last"
        if self.ended is None:
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            log.start(lambda entry: written.set_result(None), written.set_exception)
            log.append(entry_of(end), vital=True)
            await written
            self.ended = end

    async def close(self) -> None:
        if self._log is not None:
            self._log.close()


class SharedSource:
    def __init__(self, log: SharedLog, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._store: SharedStore | None = None
        self._changed = asyncio.Event()
        self._failed: BaseException | None = None
        self.ended: Note | None = None

    async def look(self) -> Seen:
        if self._store is None:
            self._store = await SharedStore.prepared(self._log, self._clock, NEVER_BYTES)
            self._log.start(self._deliver, self._fail, self._store.state.position)
            await self._log.caught_up()
        if self._failed is not None:
            raise self._failed
        return Seen(self._store.state, self._log.fetch, self._log.tail)

    def _deliver(self, entry: Entry) -> None:
        assert self._store is not None, "it was prepared before anything came"
        note = note_in(entry) if self.ended is None else None
        if note is not None and note.kind == END:
            self.ended = note
            self._log.forget()
            self._changed.set()
        elif self.ended is None:
            self._store.committer.deliver(entry)

    def _fail(self, error: BaseException) -> None:
        self._failed = error if isinstance(error, StorageError) else StorageError(str(error))
        self._changed.set()

    async def last(self, end: Note) -> Seen:
        seen = await self.look()
        assert self._store is not None, "it was looked at"
        if self.ended is None:
            self._log.append(entry_of(end))
            await self._changed.wait()
            seen = await self.look()
        _gathered(self._store)
        return seen

    async def leave(self, end: Note) -> None:
        """It was the first step here."""

    async def close(self) -> None:
        await self._log.shut()


def local(path: str) -> LocalSource:
    Folder(path)  # Is it one? Opened for writing, it would be made.
    return LocalSource(str(Path(path)))
