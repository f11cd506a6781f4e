"""The simulated disk: the commit log's file interface over memory that fails, tears and forgets on purpose. Everything follows a seed.

It keeps two truths. *Now* is what the running process sees (the page cache); *durable* is what survives when the power goes. Between
them lie, for each 512-byte sector, all versions since the last sync, and for each folder the names made, changed or removed since.

    call               what a power failure may leave of it before the next sync
    -----------------  -----------------------------------------------------------------------------------------------
    write              any subset of its sectors, each in any version it had; one of them torn inside
    allocate           the size before or after
    create, rename,    none, all, the first few, or any subset of them
    unlink

Every call is a *point*, counted from 1. At the point named `crash_at` the process dies (`SimCrash`) and the disk is dead until
`after_power_failure` or `after_kill` gives the disk that the next process finds. At points in `faults` the call fails with that errno;
a sync that fails loses what it should have written and calls it clean, as Linux does.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Mapping

from ..errors import FolderLocked

SECTOR_BYTES = 512


class SimCrash(BaseException):
    """The simulated process died here. Not an Exception: nobody may catch it and go on."""


class _Inode:
    """A file's bytes, now and durable, and what lies between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.versions: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def sectors(self, begin: int, end: int) -> range:
        return range(begin // SECTOR_BYTES, -(-end // SECTOR_BYTES))

    def note(self, begin: int, end: int) -> None:
        for sector in self.sectors(begin, end):
            at = sector * SECTOR_BYTES
            self.versions.setdefault(sector, []).append(bytes(self.data[at : at + SECTOR_BYTES]))

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.change_size(end)
        self.data[offset:end] = data
        self.note(offset, end)

    def change_size(self, size: int) -> None:
        """Views of the old bytes stay as they are; a real map would trap."""
        before = len(self.data)
        self.data = self.data[:size] + bytes(max(0, size - before))
        self.sizes.append(size)
        for sector in self.sectors(min(size, before), max(size, before)):
            self.versions.setdefault(sector, []).append(bytes(self.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]))

    def settle(self) -> None:
        """A sync that worked: what is dirty is durable. (What an earlier failed sync called clean is not.)"""
        durable = bytearray(self.durable[: len(self.data)].ljust(len(self.data), b"\0"))
        for sector in self.versions:
            at = sector * SECTOR_BYTES
            durable[at : at + SECTOR_BYTES] = self.data[at : at + SECTOR_BYTES]
        self.durable = bytes(durable[: len(self.data)])
        self.versions.clear()
        self.sizes.clear()

    def survivor(self, chance: random.Random, keep: float) -> _Inode:
        """What is found after a power failure; each unsynced thing is kept with probability `keep`."""
        size = chance.choice(self.sizes) if self.sizes and chance.random() < keep else len(self.durable)
        top = max([size, len(self.durable), *((sector + 1) * SECTOR_BYTES for sector in self.versions)])
        data = bytearray(self.durable.ljust(top, b"\0"))
        for sector, versions in self.versions.items():
            if chance.random() < keep:
                at = sector * SECTOR_BYTES
                chosen = versions[-1] if chance.random() < 0.7 else chance.choice(versions)
                chosen = chosen.ljust(SECTOR_BYTES, b"\0")
                if chance.random() < 0.1:
                    cut = chance.randrange(SECTOR_BYTES)
                    chosen = chosen[:cut] + bytes(data[at + cut : at + SECTOR_BYTES])
                data[at : at + SECTOR_BYTES] = chosen
        found = _Inode()
        found.durable = bytes(data[:size])
        found.data = bytearray(found.durable)
        return found


class SimFile:
    """One open file of a SimDisk."""

    def __init__(self, disk: SimDisk, name: str, inode: _Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self.descriptor = -1

    def write(self, data: bytes | memoryview, offset: int) -> None:
        data = bytes(data)
        inode = self._inode
        try:
            self._disk.point("write", self._name)
            self._disk.need(offset + len(data) - len(inode.data))
        except OSError:
            part = data[: self._disk.chance.randrange(len(data))] if data else b""
            if part and offset + len(part) <= len(inode.data):
                inode.write(part, offset)
            raise
        inode.write(data, offset)

    def sync(self) -> None:
        try:
            self._disk.point("sync", self._name)
        except OSError:
            self._inode.versions.clear()
            self._inode.sizes.clear()
            raise
        self._inode.settle()

    def sync_all(self) -> None:
        self.sync()

    def allocate(self, size_bytes: int) -> None:
        self._disk.point("allocate", self._name)
        self._disk.need(size_bytes - len(self._inode.data))
        if size_bytes > len(self._inode.data):
            self._inode.change_size(size_bytes)

    def size(self) -> int:
        return len(self._inode.data)

    def view(self) -> memoryview:
        return memoryview(self._inode.data).toreadonly()

    def close(self) -> None:
        pass


class SimDisk:
    """One data folder of a simulated disk."""

    def __init__(
        self,
        seed: int = 0,
        *,
        crash_at: int | None = None,
        faults: Mapping[int, int] | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        self.crash_at = crash_at
        self.faults = dict(faults or {})
        self.capacity_bytes = capacity_bytes
        self.points = 0
        self.trace: list[str] = []
        self._now: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._changes: dict[str, list[dict[str, _Inode | None]]] = {}
        self._locked = False
        self._dead = False

    # -- what goes wrong ----------------------------------------------------------------------------------------------------------

    def point(self, call: str, name: str) -> None:
        """Every call that changes something passes here first."""
        if self._dead:
            raise SimCrash
        self.points += 1
        self.trace.append(f"{call} {name}")
        if self.points == self.crash_at:
            self._dead = True
            raise SimCrash
        code = self.faults.get(self.points)
        if code is not None:
            raise OSError(code, f"simulated at point {self.points} ({call} {name})")

    def need(self, growth_bytes: int) -> None:
        if self.capacity_bytes is not None and growth_bytes > 0 and self.used_bytes + growth_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._now.values())

    def after_kill(self) -> SimDisk:
        """What the next process finds when only this one died: the page cache as it is, still unsynced."""
        found = SimDisk(self.chance.randrange(1 << 30), capacity_bytes=self.capacity_bytes)
        found._now, found._durable, found._changes = self._now, self._durable, self._changes
        self._dead = True
        return found

    def after_power_failure(self) -> SimDisk:
        """What is found when the power comes back."""
        chance = self.chance
        found = SimDisk(chance.randrange(1 << 30), capacity_bytes=self.capacity_bytes)
        names = dict(self._durable)
        for changes in self._changes.values():
            fate = chance.randrange(4)
            if fate == 1:
                kept = changes
            elif fate == 2:
                kept = changes[: chance.randrange(len(changes) + 1)]
            elif fate == 3:
                kept = [change for change in changes if chance.random() < 0.5]
            else:
                kept = []
            for change in kept:
                _apply(names, change)
        keep = chance.choice((0.0, 0.3, 0.7, 0.95, 1.0))
        survivors: dict[int, _Inode] = {}
        for name, inode in sorted(names.items()):
            if id(inode) not in survivors:
                survivors[id(inode)] = inode.survivor(chance, keep)
            found._now[name] = found._durable[name] = survivors[id(inode)]
        self._dead = True
        return found

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """One bit of a file at rest changes, now and durably."""
        inode = self._now[name]
        inode.data[offset] ^= 1 << bit
        durable = bytearray(inode.durable)
        durable[offset] ^= 1 << bit
        inode.durable = bytes(durable)

    def files(self) -> Iterator[tuple[str, int]]:
        """(name, bytes) of every file as it is now."""
        for name, inode in sorted(self._now.items()):
            yield name, len(inode.data)

    # -- the file interface -------------------------------------------------------------------------------------------------------

    def _change(self, folder: str, change: dict[str, _Inode | None]) -> None:
        self._changes.setdefault(folder, []).append(change)
        _apply(self._now, change)

    def describe(self, name: str) -> str:
        return f"sim:{name}"

    def create(self, name: str) -> SimFile:
        self.point("create", name)
        inode = _Inode()
        self._change(_folder(name), {name: inode})
        return SimFile(self, name, inode)

    def open(self, name: str, *, write: bool = True) -> SimFile:
        if name not in self._now:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return SimFile(self, name, self._now[name])

    def exists(self, name: str) -> bool:
        return name in self._now

    def names(self, folder: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self._now if _folder(name) == folder)

    def make_folder(self, folder: str) -> None:
        """Folders are simply there: making one is followed by a sync of its parent, and a crash before that leaves nothing to lose."""

    def rename(self, old: str, new: str) -> None:
        self.point("rename", f"{old} {new}")
        self._change(_folder(new), {old: None, new: self._now[old]})

    def unlink(self, name: str) -> None:
        self.point("unlink", name)
        if name in self._now:
            self._change(_folder(name), {name: None})

    def sync_folder(self, folder: str) -> None:
        self.point("sync-folder", folder)
        for change in self._changes.pop(folder, []):
            _apply(self._durable, change)

    def lock(self) -> None:
        if self._locked:
            raise FolderLocked("the simulated folder is open")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _apply(names: dict[str, _Inode], change: dict[str, _Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
