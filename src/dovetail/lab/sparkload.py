"""Spark reading a node, in a process of its own: what scenarios measure of it. Every function here is called in a child."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import dovetail.spark

from .measure import median_ratio, percentile
from .sparkfloor import FloorSource
from .tapload import TAP

MEMORY = {"spark.driver.memory": "3g", "spark.log.level": "OFF"}


@contextmanager
def session() -> Iterator[Any]:
    """A session of local[2]. A child's stdout belongs to its result, and the JVM would inherit it."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        spark = dovetail.spark.session("lab", settings=MEMORY)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    try:
        yield spark
    finally:
        spark.stop()


def options_of(port: int, queue: str, **more: Any) -> dict[str, str]:
    return {"endpoint": f"dovetail://127.0.0.1:{port}", "queue": queue, "tap": TAP, **{name: str(value) for name, value in more.items()}}


def batch(port: int, queue: str, messages: int, rounds: int) -> dict[str, Any]:
    """Rows a second of a batch read to nowhere, with every column and with those that most readers need; beside the floor, in turns."""
    made: dict[str, Any] = {}
    with session() as spark:
        spark.dataSource.register(FloorSource)
        for name, more in (("all_columns", {}), ("sequence_and_body", {"columns": "sequence,body"})):
            ours = spark.read.format("dovetail").options(**options_of(port, queue, **more)).load()
            tasks = ours.rdd.getNumPartitions() if not made else made["tasks"]
            made["tasks"] = tasks
            floor = spark.read.format("floor").options(rows=messages, tasks=tasks, **more).load()
            seconds: dict[str, list[float]] = {"ours": [], "floor": []}
            # The first round starts workers and compiles; it does not count.
            for _ in range(1 + rounds):
                for which, rows in (("ours", ours), ("floor", floor)):
                    begun = time.perf_counter()
                    rows.write.format("noop").mode("overwrite").save()
                    seconds[which].append(time.perf_counter() - begun)
            took = {which: several[1:] for which, several in seconds.items()}
            made[name] = {
                "rows_per_s": messages / median(took["ours"]),
                "floor_rows_per_s": messages / median(took["floor"]),
                "of_the_floor": median_ratio(took["floor"], took["ours"]),
            }
        counted = ours.selectExpr("count(distinct sequence)").first()[0]
    if counted != messages:
        raise AssertionError(f"{counted:,} messages were read in place of {messages:,}")
    return made


def sink(port: int, messages: int, tasks: int, rounds: int) -> dict[str, Any]:
    """Rows a second of a write into a queue of its own, until it is published; beside the same rows to nowhere, in turns."""
    queues = [f"sink-{number}" for number in range(1 + rounds)]
    seconds: dict[str, list[float]] = {"ours": [], "floor": []}
    with session() as spark:
        spark.dataSource.register(FloorSource)
        rows = spark.read.format("floor").options(rows=messages, tasks=tasks, columns="body").load()
        # The first round starts workers and compiles; it does not count.
        for queue in queues:
            ours = rows.write.format("dovetail").options(endpoint=f"dovetail://127.0.0.1:{port}", queue=queue, create="true").mode("append")
            for which, write in (("ours", ours), ("floor", rows.write.format("noop").mode("overwrite"))):
                begun = time.perf_counter()
                write.save()
                seconds[which].append(time.perf_counter() - begun)
    took = {which: several[1:] for which, several in seconds.items()}
    return {
        "rows_per_s": messages / median(took["ours"]),
        "floor_rows_per_s": messages / median(took["floor"]),
        "of_the_floor": median_ratio(took["floor"], took["ours"]),
        "queues": queues,
    }


def stream(port: int, queue: str, rows: int, folder: str) -> dict[str, Any]:
    """Rows a second of micro-batches, as the query itself says: to nowhere from `queue`, to Parquet from its double, since what a query
    has read it lets go of."""
    made: dict[str, Any] = {}
    with session() as spark:
        for sink in ("noop", "parquet"):
            loaded = (
                spark.readStream.format("dovetail")
                .options(**options_of(port, queue, maxRowsPerTrigger=rows, startingOffsets="earliest"))
                .load()
            )
            writer = loaded.writeStream.format(sink).option("checkpointLocation", str(Path(folder, f"checkpoint-{sink}")))
            if sink == "parquet":
                writer = writer.option("path", str(Path(folder, "out")))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            whole = [one for one in query.recentProgress if one["numInputRows"] == rows][1:]
            took_ms = median([one["durationMs"]["triggerExecution"] for one in whole])
            made[sink] = {"rows_per_s": 1000 * rows / took_ms, "batch_ms": took_ms, "batches": len(whole)}
            queue = f"{queue}-2"
    return made


def delay(port: int, queue: str, seconds: float) -> dict[str, Any]:
    """From a push until the batch that has it is done, of live traffic."""
    delays_us: list[pa.ChunkedArray] = []
    warm = time.monotonic() + seconds / 3

    def step(rows: Any, batch: int) -> None:
        pushed = rows.select("time").toArrow()["time"].cast("int64")
        if time.monotonic() > warm:
            delays_us.append(pc.subtract(int(time.time() * 1e6), pushed))

    with session() as spark:
        options = options_of(port, queue, columns="time,sequence")
        dovetail.spark.follow(spark, **options)
        query = spark.readStream.format("dovetail").options(**options).load().writeStream.foreachBatch(step).start()
        query.awaitTermination(seconds)
        query.stop()
    measured = pa.chunked_array([chunk for several in delays_us for chunk in several.chunks], pa.int64())
    return {"messages": len(measured), **{name: (percentile(measured, part) or 0.0) / 1e6 for name, part in (("p50_s", 50), ("p99_s", 99))}}
