"""The floor: write and fdatasync on a file whose blocks are there already. It is no queue: what is sent is only made durable.

All senders that wait when a sync begins share it, as in every group commit, but nothing is framed, indexed or answered for.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..driver import Received

FILE_BYTES = 64 << 20


class BareFile:
    name = "bare"

    def __init__(self, folder: Path) -> None:
        self._path = folder
        self._file = -1
        self._at = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []

    async def open(self, queues: int, workers: int) -> str:
        self._path.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path / "bare", os.O_RDWR | os.O_CREAT, 0o600)
        for start in range(0, FILE_BYTES, 1 << 20):
            os.pwrite(self._file, bytes(1 << 20), start)
        os.fsync(self._file)
        return platform.release()

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((b"".join(bodies), done))
        if len(self._waiting) == 1:
            loop.call_soon(self._sync)
        await done
        return ()

    def _sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        data = b"".join([data for data, _ in waiting])
        if self._at + len(data) > FILE_BYTES:
            self._at = 0
        os.pwrite(self._file, data, self._at)
        os.fdatasync(self._file)
        self._at += len(data)
        for _, done in waiting:
            done.set_result(None)

    def loop_ns(self, data: bytes, rounds: int) -> list[int]:
        """The bare loop itself, without a sender: how long each write + fdatasync took."""
        from ..trace import now_ns

        times = []
        for _ in range(rounds):
            if self._at + len(data) > FILE_BYTES:
                self._at = 0
            began = now_ns()
            os.pwrite(self._file, data, self._at)
            os.fdatasync(self._file)
            times.append(now_ns() - began)
            self._at += len(data)
        return times

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        return []

    async def complete(self, worker: int, queue: int, tokens: Sequence[Any]) -> None:
        return None

    async def close(self) -> None:
        os.close(self._file)
        (self._path / "bare").unlink()
