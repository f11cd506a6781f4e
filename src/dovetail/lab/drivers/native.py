"""Ours as a server with its native door: `dovetail serve` in a process of its own, as an operator would start it, on any store."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path

import dovetail

from .sqs import end, ready_port

_READY = re.compile(rb"dovetail ready .*native=dovetail://127\.0\.0\.1:(\d+)")


class NativeNode:
    name = "dovetail"

    def __init__(self, folder: Path | None, *options: str) -> None:
        """Durable on `local:` in the folder; without one, in memory."""
        self._folder = folder
        self._options = options
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    async def start(self) -> str:
        store = f"local:{self._folder}" if self._folder is not None else "memory:"
        arguments = ["serve", "--store", store, "--http", "off", "--native", "127.0.0.1:0", "--log-level", "warning", *self._options]
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dovetail", *arguments, stdout=asyncio.subprocess.PIPE)
        self.port = await ready_port(self, _READY)
        return dovetail.__version__

    async def stop(self) -> None:
        await end(self.process)
        self.process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
