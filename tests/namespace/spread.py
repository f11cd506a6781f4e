"""Nodes that share a namespace of several logs in this process: each log is a list (lab/simengine.py), the clock is the test's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail import Node
from dovetail.clock import ManualClock
from dovetail.lab.simengine import Faults, Service, SimEngine
from dovetail.logs.shared.log import SharedLog
from dovetail.node import join_namespace
from dovetail.settings import Settings, Shared
from dovetail.stores.namespace.log import NamespaceLog

LOGS = 3
SETTINGS = Settings(shared=Shared(snapshot_bytes=1 << 40))


class Spread:
    def __init__(self, logs: int = LOGS, seed: int = 0, faults: Faults = Faults()) -> None:  # noqa: B008  # a constant
        self.clock = ManualClock()
        self.services = [Service(self.clock, seed + place) for place in range(logs)]
        self.faults = faults
        self.nodes: list[Node] = []
        self.engines: dict[Node, dict[int, SimEngine]] = {}

    async def join(self, logs: int = LOGS, *, snapshot_bytes: int = 1 << 40) -> Node:
        engines: dict[int, SimEngine] = {}

        def made(place: int) -> SharedLog:
            engines[place] = SimEngine(self.services[place], self.faults)
            return SharedLog(engines[place])

        node = await join_namespace(made, logs, clock=self.clock, snapshot_bytes=snapshot_bytes)
        self.nodes.append(node)
        self.engines[node] = engines
        return node

    async def kill(self, node: Node) -> None:
        """It says nothing any more, and whatever was on its way to an engine is lost."""
        self.nodes.remove(node)
        for store in node.store.opened():
            store.log._patience_s = 0.0
        for engine in self.engines[node].values():
            engine.cut()
        await node.close()

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


@asynccontextmanager
async def spread(nodes: int = 1, *, seed: int = 0, faults: Faults = Faults()) -> AsyncIterator[Spread]:  # noqa: B008  # a constant
    made = Spread(seed=seed, faults=faults)
    try:
        for _ in range(nodes):
            await made.join()
        yield made
    finally:
        await made.close()


def served(node: Node) -> list[int]:
    """The logs that a node replays."""
    return sorted(store.state.place for store in node.store.opened())


def log(node: Node, place: int) -> NamespaceLog:
    found: NamespaceLog = node.store.store_of(place + 1)
    return found


def under_way(*nodes: Node) -> bool:
    return any(store.state.leaving for node in nodes for store in node.store.opened())
