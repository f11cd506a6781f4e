"""Nodes as processes: `dovetail serve`, on one store, each on a port that it keeps; killed, told to stop, paused, started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ..drivers.spawned import free_ports

READY_S = 60.0
STOP_S = 30.0
_SETPRIV = ("setpriv", "--pdeathsig", "KILL", "--")


class NotReady(Exception):
    """A node ended, or said nothing for a minute, instead of serving."""


class Node:
    """What it says goes to FOLDER/NAME.out, whatever becomes of it."""

    def __init__(self, name: str, store: str, folder: Path, options: Sequence[str] = ()) -> None:
        self.name = name
        self.port = free_ports(1)[0]
        self.words = folder / f"{name}.out"
        native = ("--http", "off", "--native", f"127.0.0.1:{self.port}")
        self._command = [sys.executable, "-m", "dovetail", "serve", "--store", store, *native, "--log-level", "warning", *options]
        if shutil.which(_SETPRIV[0]) is not None:
            # A run that is killed leaves no node behind.
            self._command = [*_SETPRIV, *self._command]
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.starts = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Started and serving. One whose store is not there yet, or whose folder a dying child still holds, is started again."""
        async with self._turn:
            deadline = asyncio.get_running_loop().time() + READY_S
            while not self.running:
                if await self._started():
                    self.starts += 1
                    return
                if asyncio.get_running_loop().time() > deadline:
                    raise NotReady(f"{self.name} did not start: {self.last_words()}")
                await asyncio.sleep(0.1)

    async def _started(self) -> bool:
        words = os.open(self.words, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=words
            )
        finally:
            os.close(words)
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), READY_S)
        except BaseException:
            await _end(process)
            raise
        if not line.startswith(b"dovetail ready"):
            await _end(process)
            return False
        self._process = process
        return True

    def last_words(self) -> str:
        return self.words.read_text(errors="replace").strip()[-1000:] or "it said nothing"

    async def kill(self) -> None:
        """kill −9: nothing is written, nobody is told."""
        async with self._turn:
            if self._process is not None:
                await _end(self._process)

    async def stop(self) -> int:
        """SIGTERM; the exit code. One that does not stop in time is killed."""
        async with self._turn:
            if self._process is None or not self.running:
                return 0
            self._process.terminate()
            try:
                return await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                await _end(self._process)
                return -signal.SIGKILL

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        if self._process is not None and self.running:
            os.kill(self._process.pid, what)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
        await process.wait()
