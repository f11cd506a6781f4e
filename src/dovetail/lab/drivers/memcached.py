"""memcached as a peer: Debian's with its own defaults, on a free port of the loopback, in memory that nothing is ever evicted from."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path

from ..driver import PeerMissing
from ..scenario import Lab
from .spawned import READY_S, Spawned, free_ports, required

MEMORY_MB = 1024


def present() -> bool:
    return shutil.which("memcached") is not None


class Memcached:
    name = "memcached"

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._process: Spawned | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    async def start(self) -> str:
        program = required("memcached", "memcached")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        options = f"-l 127.0.0.1 -p {self.port} -m {MEMORY_MB} -M".split()
        if os.geteuid() == 0:
            # It wants to be told who it shall be; a change of user would take back that it dies with us.
            options += ["-u", "root"]
        try:
            self._process = Spawned("memcached", [program, *options, *self._options], self._folder, os.environ)
            return await self._ready(asyncio.get_running_loop().time() + READY_S)
        except BaseException:
            await self.stop()
            raise

    async def _ready(self, deadline: float) -> str:
        assert self._process is not None
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), READY_S) as line:
                    line.sendall(b"version\r\n")
                    return line.recv(100).decode().removeprefix("VERSION ").strip()
            except OSError:
                await self._process.wait_or_fail(deadline)

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.kill()
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)


async def beside(lab: Lab) -> Memcached | None:
    """Started, for a scenario that measures it beside us; None, with a line that says why, where it cannot be had."""
    server = Memcached(lab.folder / "memcached")
    try:
        lab.peers[server.name] = await server.start()
    except PeerMissing as missing:
        lab.say(str(missing))
        return None
    return server
