"""Ours, in the process of the load: `dovetail.open`, as a program that embeds it would."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import dovetail

from ... import node as assembly
from ...service.handles import SentMany
from ...settings import Settings
from ..driver import Received


class Embedded:
    name = "dovetail"

    def __init__(self, folder: Path, settings: Settings | None = None, *, wait_s: float = 0.05) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._settings = settings
        self.node: dovetail.Node
        self.queues: list[dovetail.Queue] = []

    async def open(self, queues: int, workers: int) -> str:
        self.node = await assembly.start(f"local:{self._folder}", settings=self._settings)
        self.queues = [await self.node.queue(f"queue-{index}") for index in range(queues)]
        return dovetail.__version__

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        if delays_ms is not None:
            pairs = zip(bodies, delays_ms, strict=True)
            return [one.sequence for one in await self.queues[queue].send_many([dovetail.Outgoing(body, ms / 1000) for body, ms in pairs])]
        if len(bodies) == 1:
            return ((await self.queues[queue].send(bodies[0])).sequence,)
        sent = await self.queues[queue].send_many(bodies)
        return sent.sequences if isinstance(sent, SentMany) else [one.sequence for one in sent]

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        got = await self.queues[queue].receive(most, wait_s=self._wait_s)
        return [Received(one.body, one.sequence, one.receipt) for one in got]

    async def complete(self, worker: int, queue: int, tokens: Sequence[str]) -> None:
        await self.queues[queue].complete(tokens)

    async def close(self) -> None:
        await self.node.close()
        shutil.rmtree(self._folder, ignore_errors=True)
