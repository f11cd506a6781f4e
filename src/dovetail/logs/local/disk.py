"""The file interface of the commit log, and the real one behind it. It knows files and folders, not frames.

Everything the log does to a disk goes through these few verbs, so that a simulated disk can stand in for the real one and fail,
tear and forget at each of them. Names are relative to one data folder ("log/0000000000000000.seg"). Errors are OSErrors, as they come.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from typing import Protocol

from ...errors import FolderLocked
from .platform import allocate, sync_all, sync_data


class File(Protocol):
    """One open file."""

    @property
    def descriptor(self) -> int:
        """For those who have the kernel do something to it; -1 where it has none."""

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """All of it, or OSError (after which any part of it may have been written)."""

    def sync(self) -> None:
        """What was written is durable when this returns. After an error nothing is known and it must not be tried again."""

    def sync_all(self) -> None:
        """The same with the file's size."""

    def allocate(self, size_bytes: int) -> None:
        """Grow the file to this size with blocks of zeros set aside for it; OSError(ENOSPC) where there is no room."""

    def size(self) -> int: ...

    def view(self) -> memoryview:
        """The whole file as it is now, read-only; later writes within its size show through."""

    def close(self) -> None:
        """Views that were given out stay good."""


class Disk(Protocol):
    """One data folder."""

    def describe(self, name: str) -> str:
        """The name as a person would look for it."""

    def create(self, name: str) -> File:
        """A new, empty file; one of that name is replaced."""

    def open(self, name: str, *, write: bool = True) -> File:
        """FileNotFoundError where there is none."""

    def exists(self, name: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """Sorted; empty where there is no such folder."""

    def make_folder(self, folder: str) -> None:
        """Idempotent."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, name: str) -> None:
        """Idempotent."""

    def sync_folder(self, folder: str) -> None:
        """Names made, changed and removed in it are durable when this returns."""

    def lock(self) -> None:
        """FolderLocked where another process has it."""

    def unlock(self) -> None: ...


RELEASE_S = 1.0
"""So much later the blocks of a removed file are given back, when nobody else holds it open any more."""


class RealFile:
    """A file by its descriptor: positioned writes, reads through a shared map (a fetch is then a slice, not a system call)."""

    def __init__(self, fd: int, write: bool) -> None:
        self._fd = fd
        self._write = write
        self._map: mmap.mmap | None = None

    def write(self, data: bytes | memoryview, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            rest = memoryview(data)
            while written < len(rest):
                written += os.pwrite(self._fd, rest[written:], offset + written)

    @property
    def descriptor(self) -> int:
        return self._fd

    def sync(self) -> None:
        sync_data(self._fd)

    def sync_all(self) -> None:
        sync_all(self._fd)

    def allocate(self, size_bytes: int) -> None:
        self._map = None  # The next view maps the file anew, with its new size.
        allocate(self._fd, size_bytes)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def view(self) -> memoryview:
        if self._map is None:
            if self.size() == 0:
                return memoryview(b"")
            self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def close(self) -> None:
        # The map is not closed: views of it may be in use, and it goes with the last of them.
        self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """A folder of a real file system."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._lock_fd = -1

    def describe(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def create(self, name: str) -> RealFile:
        return RealFile(os.open(self.describe(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), True)

    def open(self, name: str, *, write: bool = True) -> RealFile:
        return RealFile(os.open(self.describe(name), (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC), write)

    def exists(self, name: str) -> bool:
        return os.path.exists(self.describe(name))

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.describe(folder)))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        os.makedirs(self.describe(folder), exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(self.describe(old), self.describe(new))

    def unlink(self, name: str) -> None:
        try:
            fd = os.open(self.describe(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        os.unlink(self.describe(name))
        # Giving a large file's blocks back takes tens of milliseconds and happens when its last descriptor is closed: not on the loop.
        closing = threading.Timer(RELEASE_S, os.close, (fd,))
        closing.daemon = True
        closing.start()

    def sync_folder(self, folder: str) -> None:
        fd = os.open(self.describe(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_all(fd)
        finally:
            os.close(fd)

    def lock(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        fd = os.open(self.describe("LOCK"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise FolderLocked(f"{self.folder} is open in another process (pid {owner})") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        # The file stays: removing it would let two processes lock two files of the same name.
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
