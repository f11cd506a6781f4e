"""Nodes that share a log on NATS servers of this machine, for scenarios that kill one or the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..logs.nats.engine import JetStream
from .engines.nats import NatsServers
from .faults.nodes import Node

COPIES = 3
LEADER_S = 60.0


class Cluster:
    """`async with Cluster(folder, nodes) as cluster`: everything serves, and everything is gone after it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._folder = folder
        self.servers = NatsServers(folder / "nats", COPIES)
        self.store = f"{self.servers.url}/lab"
        self.nodes = [self.node(f"node-{number}") for number in range(nodes)]

    def node(self, name: str) -> Node:
        """One more, not started."""
        return Node(name, self.store, self._folder)

    async def __aenter__(self) -> Cluster:
        try:
            await asyncio.to_thread(self.servers.start)
            for node in self.nodes:
                await node.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.kill()
        await asyncio.to_thread(self.servers.stop)

    async def leader(self) -> int:
        """The number of the server that leads the log; there is none while one is elected."""
        engine = JetStream(self.store)
        try:
            async with asyncio.timeout(LEADER_S):
                while True:
                    health = await engine.health()
                    leading = [copy.server for copy in health.copies if copy.leads] if health is not None else []
                    if leading:
                        return int(leading[0].removeprefix("n")) - 1
                    await asyncio.sleep(0.1)
        finally:
            await engine.close()


def url_of(node: Node) -> str:
    return f"dovetail://127.0.0.1:{node.port}"
