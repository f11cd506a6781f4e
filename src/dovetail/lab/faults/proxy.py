"""A wire between clients and a node that can be cut, slowed down and made lossy. It knows bytes only.

Bytes of a TCP connection cannot be lost one by one: the kernel sends them again. So a lossy wire is one whose connections break, in the
middle of whatever was passing; and a silent cut keeps the bytes, as a network does that comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

PIECE_BYTES = 16 * 1024


class Proxy:
    """Listens on a port of its own, for whoever listens on `target()`, which may move."""

    def __init__(self, target: Callable[[], int], seed: int = 0) -> None:
        self._target = target
        self._chance = Random(seed)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._down = False
        self._loss = 0.0
        self._delay_s = (0.0, 0.0)
        self.port = 0
        self.connections = self.broken = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=PIECE_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    # What goes wrong, until `heal`

    def cut(self, *, silent: bool = False) -> None:
        if silent:
            self._flowing.clear()
        else:
            self._down = True
            self.break_all()

    def slow(self, delay_ms: int, jitter_ms: int) -> None:
        self._delay_s = delay_ms / 1000, jitter_ms / 1000

    def lossy(self, loss: float) -> None:
        self._loss = loss

    def heal(self) -> None:
        self._down, self._loss, self._delay_s = False, 0.0, (0.0, 0.0)
        self._flowing.set()

    def break_all(self) -> None:
        """Every connection, both ends, at once. What was written before may still arrive."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.break_all()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What passes

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._down:
            self._break(writer)
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target(), limit=PIECE_BYTES)
        except OSError:
            self._break(writer)
            return
        self.connections += 1
        self._writers.add(back)
        for source, target, other in ((reader, back, writer), (there, writer, back)):
            task = asyncio.create_task(self._pump(source, target, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _break(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, other: asyncio.StreamWriter) -> None:
        """One direction. When it ends, so does the other: nobody here says goodbye with one half only."""
        with contextlib.suppress(ConnectionError):
            while data := await source.read(PIECE_BYTES):
                delay, jitter = self._delay_s
                if delay or jitter:
                    await asyncio.sleep(delay + self._chance.random() * jitter)
                await self._flowing.wait()
                if self._loss and self._chance.random() < self._loss:
                    self.broken += 1
                    target.write(data[: self._chance.randrange(len(data))])
                    break
                target.write(data)
                await target.drain()
        self._break(target, other)
