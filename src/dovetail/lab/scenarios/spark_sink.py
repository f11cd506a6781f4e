"""Rows of 100 bytes from memory into a queue, durable on `local:`, two tasks at a time: `df.write.format("dovetail")`, from the first row
until the publish is answered. Three writes behind one that starts the workers, in turns with the floor: the same rows to nowhere. The node
says at the end how many messages are there.

Node, Spark's JVM and two Python workers share the machine, so this is what is left for each.
"""

from __future__ import annotations

import pyspark

from ..child import result_of
from ..drivers.native import NativeNode
from ..nativewire import Line
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

TASKS = 4


async def run(lab: Lab) -> Figures:
    messages = lab.size(2_000_000, 20_000)
    rounds = lab.size(3, 1)
    node = NativeNode(lab.folder / "node")
    await node.start()
    try:
        lab.say(f"{messages:,} rows, {TASKS} tasks, {rounds} times")
        written = await result_of("dovetail.lab.sparkload:sink", port=node.port, messages=messages, tasks=TASKS, rounds=rounds)
        line = Line(node.port)
        for queue in written["queues"]:
            if (found := line.counts(line.declare(queue)).visible) != messages:
                raise AssertionError(f"{found:,} messages are in {queue} in place of {messages:,}")
        line.close()
        lab.say("every message is there once")
    finally:
        await node.stop()
    lab.peers["pyspark"] = pyspark.__version__
    return {"messages": messages, "tasks": TASKS, **written}


SCENARIO = Scenario(
    "spark-sink",
    SCENARIOS["spark-sink"],
    [Bar("rows of 100 bytes into a queue, durable and published, messages a second", "rows_per_s", least=200_000)],
    run,
)
