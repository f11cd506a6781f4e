"""10 million messages of 100 bytes from `local:` through a tap into Spark, two tasks at a time, to nowhere: with every column, and with the
sequence and the body alone. Three reads each after one that starts the workers, in turns with the floor: a Python source that makes the
same rows from memory. Spark counts once that every message came once.

Spark's own Kafka source, the peer one would want, needs a broker and jars that the pip package does not bring; it is not measured here.
"""

from __future__ import annotations

import pyspark

from .. import tapload
from ..child import result_of
from ..drivers.native import NativeNode
from ..nativeload import PUSH, Load
from ..nativewire import Line
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

BATCH = 100
UNDER_WAY = 16


async def run(lab: Lab) -> Figures:
    messages = lab.size(10_000_000, 50_000)
    node = NativeNode(lab.folder / "node")
    await node.start()
    try:
        line = Line(node.port)
        tapload.tapped(line, "one")
        line.close()
        pushed = await Load(node.port, PUSH, messages, 4, BATCH, UNDER_WAY, queue="one").played()
        lab.say(f"{pushed['messages']:,} pushed, {pushed['per_s']:,.0f}/s")
        read = await result_of("dovetail.lab.sparkload:batch", port=node.port, queue="one", messages=messages, rounds=lab.size(3, 1))
    finally:
        await node.stop()
    lab.peers["pyspark"] = pyspark.__version__
    return {"messages": messages, **read}


SCENARIO = Scenario(
    "spark-batch",
    SCENARIOS["spark-batch"],
    [Bar("10 million of 100 bytes to nowhere, every column, rows a second", "all_columns.rows_per_s", least=1_500_000)],
    run,
)
