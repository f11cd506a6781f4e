"""Blobs: named files beside the log, there whole or not at all. Written under another name, synced, renamed, and the folder synced.

A large blob (a snapshot of millions of messages) is synced piece by piece, with pauses where asked for: one sync of hundreds of
megabytes would make the log's own syncs wait behind it, and so would one of four.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from ...errors import BadRequest, StorageError, StorageFull
from .disk import Disk
from .space import is_full

FOLDER = "blobs"
PIECE_BYTES = 256 * 1024
_SUFFIX = ".tmp"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\Z")


class LocalBlobs:
    """With a `pause` of 2 a put sleeps, after each piece, twice as long as the piece took: it takes longer and disturbs less."""

    def __init__(self, disk: Disk, *, pause: float = 0.0) -> None:
        self._disk = disk
        self.pause = pause

    def put(self, name: str, chunks: Iterator[bytes | memoryview]) -> int:
        """StorageFull or StorageError where it cannot be written. The blob of that name, if there was one, is then still the old one;
        only where the last step failed, the sync of the folder, it may be either."""
        path = _path(name)
        try:
            size = self._write(path + _SUFFIX, chunks)
            self._disk.rename(path + _SUFFIX, path)
            self._disk.sync_folder(FOLDER)
        except OSError as error:
            self._discard(path + _SUFFIX)
            if is_full(error):
                raise StorageFull(f"The disk is full: {self._disk.describe(path)} was not written.") from error
            raise StorageError(f"{self._disk.describe(path)} was not written: {error}") from error
        except Exception:
            self._discard(path + _SUFFIX)
            raise
        return size

    def _write(self, path: str, chunks: Iterator[bytes | memoryview]) -> int:
        file = self._disk.create(path)
        try:
            offset = unsynced = 0
            began = time.perf_counter()
            for chunk in chunks:
                data = memoryview(chunk).cast("B")
                for begin in range(0, len(data), PIECE_BYTES):
                    piece = data[begin : begin + PIECE_BYTES]
                    file.write(piece, offset)
                    offset += len(piece)
                    unsynced += len(piece)
                    if unsynced >= PIECE_BYTES:
                        file.sync()
                        unsynced = 0
                        if self.pause:
                            time.sleep(self.pause * (time.perf_counter() - began))
                            began = time.perf_counter()
            file.sync_all()
            return offset
        finally:
            file.close()

    def _discard(self, path: str) -> None:
        try:
            self._disk.unlink(path)
        except OSError:
            pass  # `tidy_blobs` removes it at the next start.

    def get(self, name: str) -> memoryview:
        try:
            file = self._disk.open(_path(name), write=False)
        except FileNotFoundError:
            raise KeyError(name) from None
        try:
            return file.view()
        finally:
            file.close()

    def names(self) -> list[str]:
        return [name for name in self._disk.names(FOLDER) if not name.endswith(_SUFFIX)]

    def remove(self, name: str) -> None:
        try:
            self._disk.unlink(_path(name))
            self._disk.sync_folder(FOLDER)
        except OSError as error:
            raise StorageError(f"{self._disk.describe(_path(name))} was not removed: {error}") from error


def tidy_blobs(disk: Disk) -> None:
    """Remove what an interrupted put has left."""
    for name in disk.names(FOLDER):
        if name.endswith(_SUFFIX):
            disk.unlink(f"{FOLDER}/{name}")


def _path(name: str) -> str:
    if not _NAME.match(name) or name.endswith(_SUFFIX):
        raise BadRequest(f"{name!r} cannot be the name of a blob")
    return f"{FOLDER}/{name}"
