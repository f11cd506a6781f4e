"""Peers as processes of ours: on free ports of the loopback, ended with us whatever ends us; one that does not start has its last words.

A process asks the kernel to be killed when its parent dies, so that a test that is killed leaves no broker behind. It knows no peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..driver import PeerMissing

READY_S = 180.0
LENT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_APART_S = 0.05
_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")


def free_ports(count: int) -> list[int]:
    """Different ones, so all are held until all are known. None that the kernel may lend to a caller for a call of its own: whoever
    is restarted at its port would find it taken."""
    lent_from = int(LENT.read_text().split()[0]) if LENT.exists() else 32768
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_server(("127.0.0.1", random.randrange(min(10_000, lent_from // 2), lent_from))))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


def required(program: str, package: str, path: str | None = None) -> str:
    found = shutil.which(program, path=path)
    if found is None:
        raise PeerMissing(f"{program} is not installed (apt-get install {package})")
    return found


class Spawned:
    """One process; what it says goes to a file in the folder."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        required(_SETPRIV[0], "util-linux")
        self._name = name
        self._words = folder / f"{name}.out"
        with open(self._words, "wb") as words:
            self._process = subprocess.Popen(
                (*_SETPRIV, *command), stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=dict(environment)
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait_or_fail(self, deadline: float) -> None:
        """A moment, for whoever looks again and again whether it is ready."""
        loop = asyncio.get_running_loop()
        if self._process.poll() is not None or loop.time() > deadline:
            last = self._words.read_text(errors="replace").strip().splitlines()[-3:]
            raise PeerMissing(f"{self._name} did not start: {' · '.join(last) or 'it said nothing'}")
        await asyncio.sleep(_APART_S)

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.get_running_loop().run_in_executor(None, self._process.wait)
