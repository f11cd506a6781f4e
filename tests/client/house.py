"""A node on the test's own loop, and a wire to it that notes frames, holds them back, and is cut where the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from dovetail.clock import SystemClock
from dovetail.doors.native.bounds import Bounds
from dovetail.doors.native.codec import Event, Frame, Kind, Reader
from dovetail.doors.native.server import Server
from dovetail.node import Node, start
from dovetail.service.accounts import Accounts
from dovetail.settings import Settings
from dovetail.testing import MovableClock


class Served:
    """A node and its native door."""

    def __init__(self, settings: Settings | None = None, accounts: Accounts | None = None, bounds: Bounds | None = None) -> None:
        self.settings = settings or Settings()
        self.accounts = accounts
        self.bounds = bounds or Bounds()
        self.clock = MovableClock(SystemClock())
        self.addresses: list[str] = []
        self.node: Node
        self.server: Server
        self.port = 0

    async def open(self) -> Served:
        self.node = await start("memory:", settings=self.settings, clock=self.clock)
        await self.begin()
        return self

    async def begin(self) -> None:
        """Let clients in; once more after a stop."""
        door = self.node.native_door(self.settings, self.accounts)
        door.bounds, door.addresses = self.bounds, self.addresses
        self.server = Server(self.bounds)
        await self.server.serve(door)
        self.port = (await self.server.listen("127.0.0.1", self.port))[1]

    @property
    def url(self) -> str:
        return f"dovetail://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """As on SIGTERM."""
        self.node.broker.stop_waiting()
        await self.server.drain(1)

    async def close(self) -> None:
        await self.stop()
        await self.node.close()


class Wire:
    """Between a client and a node. `asked` and `told` count the kinds of frames that passed."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._open: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.asked: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.payloads: list[tuple[str, bytes]] = []
        self.connections = 0
        self.flowing = asyncio.Event()
        """Cleared: answers are held back."""
        self.flowing.set()
        self.cut_before: Callable[[bool, Event], bool] = lambda asked, event: False
        """Asked of each frame (True: of the client's): is the wire cut before it passes?"""
        self.bytes_left: int | None = None
        """Cut in the middle of whatever is passing after so many bytes, in whatever direction."""
        self.down = False
        self.port = 0

    async def open(self) -> Wire:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        return f"dovetail://127.0.0.1:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to, limit=1 << 20)
        except OSError:
            writer.transport.abort()
            return
        self._open.append((writer, back))
        for source, target, asked in ((reader, back, True), (there, writer, False)):
            pump = asyncio.create_task(self._pump(source, target, asked))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: bool) -> None:
        frames = Reader(hello=asked)
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if not asked:
                    await self.flowing.wait()
                for event in frames.feed(data):
                    if self.cut_before(asked, event):
                        self.cut()
                        return
                    if isinstance(event, Frame):
                        self._note(asked, event)
                if self.bytes_left is not None:
                    if self.bytes_left < len(data):
                        target.write(data[: self.bytes_left])
                        self.cut()
                        return
                    self.bytes_left -= len(data)
                target.write(data)
                await target.drain()
            target.close()

    def _note(self, asked: bool, frame: Frame) -> None:
        name = Kind(frame.kind).name
        (self.asked if asked else self.told)[name] += 1
        if asked:
            self.payloads.append((name, bytes(frame.payload)))

    def cut(self) -> None:
        """Every connection, both ends, at once. What was written before may still arrive."""
        pairs, self._open = self._open, []
        self.bytes_left = None
        for pair in pairs:
            for writer in pair:
                writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        for pump in list(self._pumps):
            pump.cancel()


def pushes(wire: Wire) -> list[int]:
    """How many messages each PUSH had."""
    return [int.from_bytes(payload[4:8], "little") for name, payload in wire.payloads if name == "PUSH"]


async def until(true: Callable[[], Any], within_s: float = 180.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)
