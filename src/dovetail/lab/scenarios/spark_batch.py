"""10 million messages of 100 bytes from `local:` through a tap into Spark, two tasks at a time, to nowhere: with every column, and with the
sequence and the body alone. Three reads each after one that starts the workers, in turns with two others: the floor, a Python source that
makes the same rows from memory; and Spark's own Kafka source, which reads the same messages from one broker, four partitions and all its
columns, or offset and value alone. Spark counts that every message came once.
"""

from __future__ import annotations

import pyspark

from .. import sparkkafka, tapload
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
    peer, topic = None, None
    await node.start()
    try:
        line = Line(node.port)
        tapload.tapped(line, "one")
        line.close()
        pushed = await Load(node.port, PUSH, messages, 4, BATCH, UNDER_WAY, queue="one").played()
        lab.say(f"{pushed['messages']:,} pushed, {pushed['per_s']:,.0f}/s")
        if (peer := sparkkafka.beside(lab)) is not None:
            topic = await peer.filled("one", messages)
        arguments = {"port": node.port, "queue": "one", "messages": messages, "rounds": lab.size(3, 1), "kafka": topic}
        read = await result_of("dovetail.lab.sparkload:batch", **arguments)
    finally:
        await node.stop()
        if peer is not None:
            peer.stop()
    lab.peers["pyspark"] = pyspark.__version__
    return {"messages": messages, **read}


SCENARIO = Scenario(
    "spark-batch",
    SCENARIOS["spark-batch"],
    [
        Bar("10 million of 100 bytes to nowhere, every column, rows a second", "all_columns.rows_per_s", least=1_500_000),
        Bar("the same, times Spark's own Kafka source", "all_columns.times_kafka", least=1),
    ],
    run,
)
