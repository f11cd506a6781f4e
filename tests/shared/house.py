"""Nodes that share a log in this process: the engine is a list (lab/simengine.py), the clock is the test's, patience is short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dovetail import Node, Queue
from dovetail.clock import ManualClock
from dovetail.core import snapshot
from dovetail.lab.simengine import Faults, Service, SimEngine
from dovetail.logs.shared import log as shared_log
from dovetail.node import join
from dovetail.settings import Settings, Shared

PATIENCE_S = 0.2
SETTINGS = Settings(shared=Shared(snapshot_bytes=1 << 40))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds on a network takes hundredths here."""
    monkeypatch.setattr(shared_log, "RESEND_S", 0.05)
    monkeypatch.setattr(shared_log, "RESEND_PAUSE_S", 0.01)
    monkeypatch.setattr(shared_log, "WATCH_S", 0.01)
    monkeypatch.setattr(shared_log, "RECONNECT_S", 0.01)


class World:
    def __init__(self, seed: int = 0, faults: Faults = Faults()) -> None:  # noqa: B008  # a constant
        self.clock = ManualClock()
        self.service = Service(self.clock, seed)
        self.faults = faults
        self.nodes: list[Node] = []

    async def join(self, *, snapshot_bytes: int = 1 << 40, service: Service | None = None) -> Node:
        settings = replace(SETTINGS, shared=Shared(snapshot_bytes=snapshot_bytes))
        node = await join(SimEngine(service or self.service, self.faults), settings=settings, clock=self.clock)
        self.nodes.append(node)
        return node

    async def same(self) -> None:
        """Until all that live have seen everything."""
        await until(lambda: len({node.store.state.position for node in self.nodes if node.ready}) == 1)

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


@asynccontextmanager
async def world(nodes: int = 2, *, seed: int = 0, faults: Faults = Faults()) -> AsyncIterator[World]:  # noqa: B008  # a constant
    made = World(seed, faults)
    try:
        for _ in range(nodes):
            await made.join()
        yield made
    finally:
        await made.close()


async def until(true: Callable[[], bool], patience_s: float = 60.0) -> None:
    async with asyncio.timeout(patience_s):
        while not true():
            await asyncio.sleep(0.001)


def state_of(node: Node) -> bytes:
    """All of it, as a snapshot would have it."""
    return b"".join(snapshot.dump(node.store.state))


async def drained(queue: Queue, most: int = 1000) -> list[bytes]:
    """Everything that is there, received and completed."""
    found: list[bytes] = []
    while got := await queue.receive(max=most):
        found += [message.body for message in got]
        await queue.complete([message.receipt for message in got])
    return found
