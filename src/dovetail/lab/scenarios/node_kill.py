"""A node is killed under load: what requests to the others notice of it. Three nodes on one log, clients at each of them, kill after kill.

Compared is the time that sends took in the second behind a kill with what they took in the seconds before it, of clients at the two nodes
that live, all kills together. The clients of the dead one try to come back all the while, and it is started again after the second.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import monotonic

import dovetail

from ...errors import DovetailError
from ..cluster import Cluster, url_of
from ..faults.nodes import Node
from ..measure import percentile
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

NODES = 3
CLIENTS = 4
"""At each node, each with one request under way."""
BODY = bytes(100)
BEFORE_S = 3.0
AFTER_S = 1.0
CALM_S = 1.0
"""Behind the start of a node, before anything is counted."""
ANSWERS_MIN = 5
"""Of each client, before a kill: a machine that is very busy gives them later."""


class Sender:
    """Sends one message after the other at one node, and notes when each was answered and how long that took."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.took: list[tuple[float, float]] = []

    async def run(self) -> None:
        async with dovetail.connect(url_of(self.node), timeout_s=60) as client:
            queue = await client.queue("orders")
            while True:
                began = monotonic()
                try:
                    await queue.send(BODY)
                except DovetailError:
                    await asyncio.sleep(0.05)
                    continue
                ended = monotonic()
                self.took.append((ended, ended - began))

    def before(self, start: float, end: float) -> list[float]:
        return [took for ended, took in self.took if start <= ended < end]

    def after(self, start: float, end: float) -> list[float]:
        """Of all that were under way at some moment between them, however late their answers came."""
        return [took for ended, took in self.took if ended >= start and ended - took < end]

    async def answered(self, at: float, count: int = 1) -> None:
        """Until so many answers have come since then."""
        while sum(ended >= at for ended, _ in self.took[-count:]) < count:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)


async def run(lab: Lab) -> Figures:
    kills = lab.size(10, 1)
    before_s, calm_s = lab.size(int(BEFORE_S), 1), lab.size(int(CALM_S), 0)
    before: list[float] = []
    after: list[float] = []
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(lab.folder, NODES))
        senders = [Sender(node) for node in cluster.nodes for _ in range(CLIENTS)]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]
        stack.push_async_callback(_ended, tasks)
        for kill in range(kills):
            started = monotonic()
            for sender in senders:
                await sender.answered(started)
            await asyncio.sleep(calm_s)
            calm = monotonic()
            await asyncio.sleep(before_s)
            for sender in senders:
                await sender.answered(calm, ANSWERS_MIN)
            victim = cluster.nodes[kill % NODES]
            killed = monotonic()
            await victim.kill()
            await asyncio.sleep(AFTER_S)
            for sender in senders:
                if sender.node is not victim:
                    await sender.answered(killed + AFTER_S)
                    before += sender.before(calm, killed)
                    after += sender.after(killed, killed + AFTER_S)
            await victim.start()
            lab.say(f"kill {kill + 1} of {kills}: longest so far {max(after) * 1000:.1f} ms")
    before.sort()
    after.sort()
    p99_before, p99_after = percentile(before, 99) or 0.0, percentile(after, 99) or 0.0
    return {
        "nodes": NODES,
        "clients": NODES * CLIENTS,
        "kills": kills,
        "requests_before": len(before),
        "requests_after": len(after),
        "p50_before_ms": (percentile(before, 50) or 0.0) * 1000,
        "p50_after_ms": (percentile(after, 50) or 0.0) * 1000,
        "p99_before_ms": p99_before * 1000,
        "p99_after_ms": p99_after * 1000,
        "longest_after_ms": after[-1] * 1000,
        "p99_after_to_before": p99_after / p99_before if p99_before else None,
    }


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


SCENARIO = Scenario(
    "node-kill",
    SCENARIOS["node-kill"],
    [Bar("p99 of requests to the other nodes in the second after, times before", "p99_after_to_before", most=2)],
    run,
)
