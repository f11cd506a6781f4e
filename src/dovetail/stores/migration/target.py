"""Where messages are moved to: first copies of records, each with the address that it had; at the end one snapshot, in which everything is.

Until the snapshot's manifest is there nothing of it exists for a node, which refuses to begin on copies alone (core/moved.py). What a
killed migration has copied is found again by reading the log, so nothing is noted anywhere else.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dovetail.core.moved import COPY, Note
from dovetail.core.state import State
from dovetail.errors import BadRequest, StorageError
from dovetail.logs.local.commitlog import CommitLog
from dovetail.logs.log import Entry
from dovetail.logs.shared.log import SharedLog
from dovetail.stores.migration.source import entry_of, note_in
from dovetail.stores.shared.chores import SharedSnapshots
from dovetail.stores.snapshots import Snapshots

IN_USE = "{} is in use: messages are moved only to where nobody has written yet"


class Places:
    """Address there → address here. Records are copied in the order of their addresses, so nearly all of it is two columns."""

    def __init__(self) -> None:
        self._there = array("Q")
        self._here = array("Q")
        self._late: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._there) + len(self._late)

    def put(self, there: int, here: int) -> None:
        if not self._there or there > self._there[-1]:
            self._there.append(there)
            self._here.append(here)
        elif self.find(there) is None:
            self._late[there] = here

    def find(self, there: int) -> int | None:
        index = bisect_left(self._there, there)
        if index < len(self._there) and self._there[index] == there:
            return self._here[index]
        return self._late.get(there)


class Target(Protocol):
    name: str
    places: Places
    facts_in_memory: bool
    """Nodes on it keep facts in memory, so that a facts tap has a smaller bound."""

    async def open(self, identity: bytes) -> bool:
        """Read what a migration of this source has copied before. True where it is finished already, or in use: there is a snapshot."""

    async def put(self, records: Sequence[bytes | memoryview], addresses: Sequence[int]) -> None:
        """Copies, durable when it returns."""

    @property
    def entry_bytes_max(self) -> int: ...

    @property
    def following(self) -> int:
        """The position behind all copies."""

    async def finish(self, state: State) -> None:
        """`state` is what nodes begin with from now on. Its position is `following`."""

    async def close(self) -> None: ...


class _Copies:
    """What both have in common: entries of our own come back, and nothing else may."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places = Places()
        self._identity = b""
        self._written = 0
        self._waiting: asyncio.Future[None] | None = None

    def _took(self, entry: Entry) -> None:
        note = note_in(entry)
        if note is None or note.kind != COPY:
            raise StorageError(IN_USE.format(self.name))
        if note.identity != self._identity:
            raise StorageError(f"{self.name} is the target of another migration that is not finished")
        self._written += 1
        for there, here in zip(note.addresses, entry.addresses[1:-1], strict=True):
            self.places.put(there, here)

    def _failed(self, error: BaseException) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _entry(self, records: Sequence[bytes | memoryview], addresses: Sequence[int]) -> list[bytes]:
        self._waiting = asyncio.get_running_loop().create_future()
        return entry_of(Note(COPY, self._identity, addresses), records, self._written)


class LocalTarget(_Copies):
    facts_in_memory = False

    def __init__(self, path: str, segment_bytes: int) -> None:
        super().__init__(f"local:{Path(path).resolve()}")
        self._path = path
        self._segment_bytes = segment_bytes
        self._log: CommitLog

    async def open(self, identity: bytes) -> bool:
        self._identity = identity
        self._log = CommitLog(self._path, segment_bytes=self._segment_bytes)
        if any(name.startswith("manifest-") for name in self._log.blobs.names()):
            return True
        for entry in self._log.read(self._log.first):
            self._took(entry)
        self._log.start(self._deliver, self._failed)
        return False

    def _deliver(self, entry: Entry) -> None:
        self._took(entry)
        if self._waiting is not None:
            self._waiting.set_result(None)

    @property
    def entry_bytes_max(self) -> int:
        return self._log.entry_bytes_max

    @property
    def following(self) -> int:
        return self._log.tail

    async def put(self, records: Sequence[bytes | memoryview], addresses: Sequence[int]) -> None:
        made = self._entry(records, addresses)
        self._log.append(made)
        assert self._waiting is not None
        await self._waiting

    async def finish(self, state: State) -> None:
        await asyncio.get_running_loop().run_in_executor(None, Snapshots(self._log).write, state)

    async def close(self) -> None:
        if hasattr(self, "_log"):
            self._log.close()


class SharedTarget(_Copies):
    facts_in_memory = True

    def __init__(self, log: SharedLog) -> None:
        super().__init__(log.engine.name)
        self._log = log

    async def open(self, identity: bytes) -> bool:
        self._identity = identity
        await self._log.open()
        if any(name.startswith("manifest-") for name in await self._log.blobs.there()):
            return True
        if self._log.first >> 16 > 1:
            raise BadRequest(IN_USE.format(self.name))
        self._log.start(self._deliver, self._stopped)
        await self._log.caught_up()
        return False

    def _deliver(self, entry: Entry) -> None:
        self._took(entry)
        if self._log.under_way and entry.mark == self._log.mark_under_way(0):
            self._log.landed()
            if self._waiting is not None:
                self._waiting.set_result(None)

    def _stopped(self, error: BaseException) -> None:
        self._failed(error)

    @property
    def entry_bytes_max(self) -> int:
        return self._log.entry_bytes_max

    @property
    def following(self) -> int:
        return self._log.tail

    async def put(self, records: Sequence[bytes | memoryview], addresses: Sequence[int]) -> None:
        made = self._entry(records, addresses)
        # One at a time: an entry that overtook another would have to be told from it, and there is a megabyte in each.
        self._log.append(made)
        assert self._waiting is not None
        await self._waiting

    async def finish(self, state: State) -> None:
        snapshots = SharedSnapshots(self._log)
        made = await asyncio.get_running_loop().run_in_executor(None, snapshots.write, state)
        await snapshots.publish(made)

    async def close(self) -> None:
        await self._log.shut()


def check_room(target: Target, size: int) -> None:
    if size > target.entry_bytes_max:
        raise StorageError(
            f"{target.name} takes entries of {target.entry_bytes_max} bytes, and one record has {size} with what belongs to it: allow"
            " larger ones (NATS: max_payload 2MB)."
        )
