"""A node joins a namespace in which ten million messages wait: from the start of its process until it has stored one and handed one out.

It has nothing of its own: it loads the newest snapshot out of NATS, reads the whole log that is kept, so that every body is at hand, and
applies what lies behind the snapshot.
"""

from __future__ import annotations

from time import monotonic

import dovetail

from ...logs.nats.engine import JetStream
from ..cluster import Cluster, url_of
from ..measure import median
from ..nativeload import PUSH, Load
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

BATCH = 1000
ROUNDS = 3


async def run(lab: Lab) -> Figures:
    waiting = lab.size(10_000_000, 20_000)
    times: list[float] = []
    async with Cluster(lab.folder, 1) as cluster:
        began = monotonic()
        await Load(cluster.nodes[0].port, PUSH, waiting, batch=BATCH, under_way=4, queue="orders").played()
        filled_s = monotonic() - began
        lab.say(f"{waiting:,} messages wait after {filled_s:.0f} s")
        for number in range(1 if lab.quick else ROUNDS):
            joining = cluster.node(f"joining-{number}")
            cluster.nodes.append(joining)
            began = monotonic()
            await joining.start()
            async with dovetail.connect(url_of(joining), timeout_s=60) as client:
                queue = await client.queue("orders")
                await queue.send(b"x")
                (message,) = await queue.receive(1)
                times.append(monotonic() - began)
                await message.release()
                found = (await queue.counts()).visible
            lab.say(f"round {number + 1}: served after {times[-1]:.1f} s")
            await joining.kill()
        kept, snapshots = await _kept(cluster.store)
    return {
        "messages_waiting": found,
        "log_bytes": kept,
        "snapshots": snapshots,
        "filled_s": filled_s,
        "serving_s": median(times),
        "serving_worst_s": max(times),
    }


async def _kept(store: str) -> tuple[int, int]:
    engine = JetStream(store)
    try:
        health = await engine.health()
        assert health is not None and health.bytes is not None, "it was filled"
        return health.bytes, sum(name.startswith("manifest-") for name, _ in health.blobs)
    finally:
        await engine.close()


SCENARIO = Scenario(
    "node-join",
    SCENARIOS["node-join"],
    [Bar("a node that joins serves, worst round, seconds", "serving_worst_s", most=15)],
    run,
)
