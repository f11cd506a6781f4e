"""A Redis server of our own, and the leanest client for it: commands as bytes, replies counted and parsed by hand, on asyncio protocols.

The usual clients cost several times what the server does and would flatter us. It knows Redis's protocol and nothing of queues.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..driver import PeerMissing

_READY_S = 30.0


class ReplyError(Exception):
    """Redis refused a command."""


def command(*parts: bytes | str | int) -> bytes:
    """A command as it travels."""
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(texts) + b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def parse(data: bytes, at: int) -> tuple[Any, int] | None:
    """(reply, where the next begins), or None where it is not whole yet."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, line, after = data[at], data[at + 1 : end], end + 2
    if kind == 36:  # $
        size = int(line)
        if size < 0:
            return None, after
        return (data[after : after + size], after + size + 2) if len(data) >= after + size + 2 else None
    if kind == 58:  # :
        return int(line), after
    if kind == 42:  # *
        items = []
        for _ in range(max(0, int(line))):
            found = parse(data, after)
            if found is None:
                return None
            item, after = found
            items.append(item)
        return items, after
    return (ReplyError(line.decode()) if kind == 45 else line), after


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._wanted: deque[tuple[int, list[Any], asyncio.Future[list[Any]]]] = deque()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        at = 0
        while at < len(data) and self._wanted:
            found = parse(data, at)
            if found is None:
                break
            reply, at = found
            count, replies, done = self._wanted[0]
            replies.append(reply)
            if len(replies) == count:
                self._wanted.popleft()
                if not done.done():
                    done.set_result(replies)
        self._data = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        for _, _, done in self._wanted:
            if not done.done():
                done.set_exception(ConnectionError("Redis closed the connection"))

    def ask(self, commands: bytes, count: int = 1) -> asyncio.Future[list[Any]]:
        """Send `count` commands, already joined; the future gives their replies."""
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._wanted.append((count, [], done))
        self._transport.write(commands)
        return done

    def close(self) -> None:
        self._transport.close()


def checked(replies: Sequence[Any]) -> Sequence[Any]:
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise reply
    return replies


def version() -> str:
    """The installed server's version."""
    program = shutil.which("redis-server")
    if program is None:
        raise PeerMissing("redis-server is not installed")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\S+)", told)
    return found[1] if found else told.strip()


class Server:
    """redis-server on a free port of the loopback, its files in `folder`; every answer comes after an fsync."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.connections: list[Connection] = []

    async def start(self, connections: int) -> str:
        told = version()
        self._folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = f"--port {self.port} --bind 127.0.0.1 --dir {self._folder} --appendonly yes --appendfsync always --loglevel warning"
        # No snapshots and no rewriting beside the log: Redis at its fastest.
        arguments = ["redis-server", *options.split(), "--auto-aof-rewrite-percentage", "0", "--save", ""]
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220  # a fork, once
        try:
            await self._connect(connections, asyncio.get_running_loop().time() + _READY_S)
        except BaseException:
            await self.stop()  # A server that nobody holds would outlive us.
            raise
        return told

    async def _connect(self, connections: int, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while len(self.connections) < connections:
            try:
                self.connections.append((await loop.create_connection(Connection, "127.0.0.1", self.port))[1])
            except OSError:
                assert self._process is not None
                if self._process.poll() is not None or loop.time() > deadline:
                    raise PeerMissing("redis-server did not start") from None
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections = []
        if self._process is not None:
            self._process.kill()
            await asyncio.get_running_loop().run_in_executor(None, self._process.wait)
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
