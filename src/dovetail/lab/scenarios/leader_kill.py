"""The NATS server that leads the log is killed under load: how long nothing is acknowledged, and a ledger of what was.

The gap is JetStream's election, and no node can shorten it: it is measured here so that it is known. It is the longest time in which no
send anywhere was acknowledged. At the end everything that is in the queue is taken out and held against what was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic

import dovetail

from ...errors import DovetailError
from ..cluster import Cluster, url_of
from ..measure import median
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

NODES = 2
SENDERS = 8
AROUND = 200
"""Sends that are acknowledged before each kill, and behind it."""
PROGRESS_S = 120.0


class Ledger:
    def __init__(self) -> None:
        self.asked = 0
        self.acked: set[bytes] = set()
        self.unknown = 0
        self.last = monotonic()
        self.gap = 0.0
        """The longest since it was set to 0."""

    async def send(self, queue: dovetail.Queue) -> None:
        while True:
            self.asked += 1
            body = b"%d" % self.asked
            try:
                await queue.send(body)
            except DovetailError:
                # It may have happened, so it is on neither side.
                self.unknown += 1
                await asyncio.sleep(0.05)
                continue
            self.acked.add(body)
            now = monotonic()
            self.gap = max(self.gap, now - self.last)
            self.last = now

    async def more(self, count: int) -> None:
        goal = len(self.acked) + count
        async with asyncio.timeout(PROGRESS_S):
            while len(self.acked) < goal:  # noqa: ASYNC110  # senders tell nobody how far they are
                await asyncio.sleep(0.01)


async def run(lab: Lab) -> Figures:
    kills = lab.size(5, 1)
    ledger = Ledger()
    gaps: list[float] = []
    async with Cluster(lab.folder, NODES) as cluster:
        url = ",".join(url_of(node).removeprefix("dovetail://") for node in cluster.nodes)
        async with dovetail.connect(f"dovetail://{url}", timeout_s=60) as client:
            queue = await client.queue("orders")
            tasks = [asyncio.create_task(ledger.send(queue)) for _ in range(SENDERS)]
            try:
                for kill in range(kills):
                    await ledger.more(AROUND)
                    leader = await cluster.leader()
                    ledger.gap = 0.0
                    await asyncio.to_thread(cluster.servers.kill, leader)
                    await ledger.more(AROUND)
                    gaps.append(ledger.gap)
                    lab.say(f"leader {kill + 1} of {kills} killed: nothing was acknowledged for {ledger.gap:.1f} s")
                    await asyncio.to_thread(cluster.servers.restart, leader)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            found: Counter[bytes] = Counter()
            while got := await queue.receive(max=1000, wait_s=2):
                found.update(message.body for message in got)
                await queue.complete(got)
    return {
        "kills": kills,
        "copies": 3,
        "gap_s": median(gaps),
        "gap_worst_s": max(gaps),
        "acknowledged": len(ledger.acked),
        "unknown": ledger.unknown,
        "lost": len(ledger.acked - found.keys()),
        "doubled": sum(count > 1 for count in found.values()),
    }


SCENARIO = Scenario(
    "leader-kill",
    SCENARIOS["leader-kill"],
    [Bar("acknowledged and lost", "lost", most=0), Bar("stored twice", "doubled", most=0)],
    run,
)
