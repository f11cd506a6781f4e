"""Micro-batches of 400,000 messages of 100 bytes through a tap, to nowhere and to Parquet; then 10,000 messages a second as they are
pushed: how long until the batch that has a message is done. Rates are of whole batches, as the query's progress tells them, the first
left out. Behind each of the first two Spark's own Kafka source reads the same messages from one broker in batches of the same size.
"""

from __future__ import annotations

import asyncio
import time

import pyspark

from .. import sparkkafka, tapload
from ..child import result_of
from ..drivers.native import NativeNode
from ..nativeload import PUSH, Load
from ..nativewire import Line, push, record
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

BATCH = 100
UNDER_WAY = 16
RATE = 10_000
TICK_S = 0.02


async def run(lab: Lab) -> Figures:
    rows, batches = lab.size(400_000, 10_000), lab.size(6, 3)
    node = NativeNode(lab.folder / "node")
    peer, topic = None, None
    await node.start()
    try:
        line = Line(node.port)
        for name in ("one", "one-2"):
            tapload.tapped(line, name)
            await Load(node.port, PUSH, rows * batches, 4, BATCH, UNDER_WAY, queue=name).played()
        lab.say(f"{2 * rows * batches:,} pushed")
        if (peer := sparkkafka.beside(lab)) is not None:
            topic = await peer.filled("one", rows * batches)
        arguments = {"port": node.port, "queue": "one", "rows": rows, "folder": str(lab.folder), "kafka": topic}
        made = await result_of("dovetail.lab.sparkload:stream", **arguments)
        if peer is not None:
            peer.stop()
        tapload.tapped(line, "live")
        line.close()
        seconds = lab.size(60, 15)
        live = asyncio.create_task(result_of("dovetail.lab.sparkload:delay", port=node.port, queue="live", seconds=seconds))
        await asyncio.to_thread(_paced, node.port, live)
        made["live"] = await live
    finally:
        await node.stop()
        if peer is not None:
            peer.stop()
    lab.peers["pyspark"] = pyspark.__version__
    return {"rows": rows, **made}


def _paced(port: int, until: asyncio.Task[object]) -> None:
    """So many messages a second, on a connection of its own, until somebody has seen enough."""
    line = Line(port)
    queue = line.declare("live")
    head, behind = push(record(queue, [b"x" * 100] * int(RATE * TICK_S)))
    due = time.monotonic()
    while not until.done():
        line.number += 1
        line.socket.sendall(head + line.number.to_bytes(8, "little") + behind)
        line._next()
        due += TICK_S
        time.sleep(max(0.0, due - time.monotonic()))
    line.close()


SCENARIO = Scenario(
    "spark-stream",
    SCENARIOS["spark-stream"],
    [
        Bar("batches of 400,000 to nowhere, rows a second", "noop.rows_per_s", least=700_000),
        Bar("batches of 400,000 to Parquet, rows a second", "parquet.rows_per_s", least=400_000),
        Bar("from a push to the end of its batch at 10,000 a second, p50, seconds", "live.p50_s", most=1.5),
    ],
    run,
)
