"""The pipeline `measure` over a trace of 10 million operations on 64 queues, in local[2]: from Parquet files to loss, duplicates, disorder,
rates and latencies of each queue. Beside it the same functions without Spark, and the report that is kept up, one queue on one core.

The trace is made up, and what it holds is known: the pipeline must find the very numbers.
"""

from __future__ import annotations

import pyspark

from .. import measureload
from ..child import result_of
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

QUEUES = 64


async def run(lab: Lab) -> Figures:
    operations = measureload.made(lab.folder / "trace", lab.size(10_000_000, 256_000), QUEUES)
    lab.say(f"{operations:,} operations on {QUEUES} queues were made up")
    arguments = {"folder": str(lab.folder / "trace"), "operations": operations, "queues": QUEUES, "rounds": lab.size(3, 1)}
    found = await result_of("dovetail.lab.measureload:play", **arguments)
    lab.peers["pyspark"] = pyspark.__version__
    return {"operations": operations, "queues": QUEUES, **found}


SCENARIO = Scenario(
    "measure",
    SCENARIOS["measure"],
    [Bar("10 million operations on 64 queues measured, operations a second", "operations_per_s", least=500_000)],
    run,
)
