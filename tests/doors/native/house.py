"""Nodes for these tests: the real command in a process of its own, and the same door inside this process, whose clock the test moves."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dovetail.clock import ManualClock
from dovetail.doors.native.bounds import Bounds
from dovetail.doors.native.door import Door
from dovetail.doors.native.server import Server
from dovetail.node import Node, start
from dovetail.service.accounts import Accounts
from dovetail.settings import Settings
from dovetail.testing import MovableClock
from tests.doors.native.stranger import PATIENCE_S, Stranger

T = TypeVar("T")
READY = re.compile(r"dovetail ready http=(\S+) native=dovetails?://127\.0\.0\.1:(\d+)\n")


class Process:
    """`dovetail serve` with the native door open. A later `begin` has the same folder, and a port of its own."""

    def __init__(self, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        self.flags = flags
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")} | dict(environment or {})
        self.port = 0
        self.http = ""
        self.process: subprocess.Popen[str] | None = None

    def begin(self) -> Process:
        command = [sys.executable, "-m", "dovetail", "serve", "--native", "127.0.0.1:0", *self.flags]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        match = READY.fullmatch(self.process.stdout.readline())
        assert match is not None, "the node did not start"
        self.http, self.port = match[1], int(match[2])
        return self

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Its exit code. Without a number it is ending already."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if number is not None:
            process.send_signal(number)
        try:
            return process.wait(PATIENCE_S)
        finally:
            assert process.stdout is not None
            process.stdout.close()

    @property
    def resident_bytes(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]  # Linux has the line


class Watchful(Bounds):
    """Patient like the real bounds, and looks many times a second at who has worn its patience out: no client is cut off here because the
    machine is slow."""

    @property
    def sweep_s(self) -> float:
        return 0.05


class Inside:
    """A node with its native door, on a loop in a thread. `call` does something there; `advance` moves its clock, which stands `still`
    otherwise if it is told to."""

    def __init__(
        self,
        *,
        bounds: Bounds | None = None,
        settings: Settings | None = None,
        accounts: Accounts | None = None,
        still: bool = False,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = MovableClock(ManualClock()) if still else MovableClock()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._settings = settings or Settings()
        self._bounds = bounds or Bounds()
        self._accounts = accounts
        self.node: Node
        self.server: Server
        self.door: Door
        self.port = self.do(self._open())

    async def _open(self) -> int:
        self.node = await start("memory:", settings=self._settings, clock=self.clock)
        sqs = self.node.sqs_door(self._settings, self._accounts)
        self.door = self.node.native_door(self._settings, self._accounts, sqs)
        self.door.bounds = self._bounds
        self.server = Server(self._bounds)
        await self.server.serve(self.door)
        return (await self.server.listen("127.0.0.1", 0))[1]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def call(self, act: Callable[[], T]) -> T:
        async def work() -> T:
            return act()

        return self.do(work())

    def advance(self, seconds: float) -> None:
        async def work() -> None:
            await self.clock.advance(seconds)

        self.do(work())

    def stranger(self, **given: Any) -> Stranger:
        return Stranger(self.port, **given)

    @property
    def met(self) -> int:
        """Connections that the node has met, those that have ended since included."""
        return int(self.call(lambda: self.server._admitted.value))

    def alone(self, met: int = 0) -> None:
        """Until the node has met so many connections, and no more than one is left. Whoever says something and leaves may be gone before
        the node has so much as accepted the connection."""
        self.until(lambda: self.server._admitted.value >= met)
        self.gone(1)

    def gone(self, left: int = 0) -> None:
        """Until no more connections are left."""
        self.until(lambda: self.server.connections <= left)

    def until(self, true: Callable[[], bool]) -> None:
        """Asked where the node is."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.call(true):
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.001)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The node does nothing meanwhile: what is sent to it lies in the kernel, and is there as a whole when it looks."""
        stopped, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            stopped.set()
            go_on.wait(PATIENCE_S)

        self.loop.call_soon_threadsafe(hold)
        assert stopped.wait(PATIENCE_S)
        try:
            yield
        finally:
            go_on.set()

    def narrow(self) -> Stranger:
        """One whose socket takes next to nothing that is not read, on whatever machine."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", self.port))
        return Stranger(self.port, sock=raw)

    def close(self) -> None:
        async def work() -> None:
            await self.server.drain(0.2)
            await self.node.close()

        self.do(work())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()
