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


Topic = dict[str, Any]
"""A topic of Kafka with the same messages, for Spark's own source: its jars and its options (sparkkafka.py)."""


@contextmanager
def session(kafka: Topic | None = None) -> Iterator[Any]:
    """A session of local[2]. A child's stdout belongs to its result, and the JVM would inherit it."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        spark = dovetail.spark.session("lab", settings={**MEMORY, **({"spark.jars": kafka["jars"]} if kafka else {})})
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    try:
        yield spark
    finally:
        spark.stop()


def options_of(port: int, queue: str, **more: Any) -> dict[str, str]:
    return {"endpoint": f"dovetail://127.0.0.1:{port}", "queue": queue, "tap": TAP, **{name: str(value) for name, value in more.items()}}


def batch(port: int, queue: str, messages: int, rounds: int, kafka: Topic | None = None) -> dict[str, Any]:
    """Rows a second of a batch read to nowhere, with every column and with those that most readers need; in turns with the floor and with
    Kafka's source."""
    made: dict[str, Any] = {}
    with session(kafka) as spark:
        spark.dataSource.register(FloorSource)
        for name, more in (("all_columns", {}), ("sequence_and_body", {"columns": "sequence,body"})):
            ours = spark.read.format("dovetail").options(**options_of(port, queue, **more)).load()
            tasks = ours.rdd.getNumPartitions() if not made else made["tasks"]
            made["tasks"] = tasks
            read = {"ours": ours, "floor": spark.read.format("floor").options(rows=messages, tasks=tasks, **more).load()}
            if kafka is not None:
                theirs = spark.read.format("kafka").options(**kafka["options"]).load()
                read["kafka"] = theirs.select("offset", "value") if more else theirs
            seconds: dict[str, list[float]] = {which: [] for which in read}
            # The first round starts workers and compiles; it does not count.
            for _ in range(1 + rounds):
                for which, rows in read.items():
                    begun = time.perf_counter()
                    rows.write.format("noop").mode("overwrite").save()
                    seconds[which].append(time.perf_counter() - begun)
            took = {which: several[1:] for which, several in seconds.items()}
            made[name] = {
                "rows_per_s": messages / median(took["ours"]),
                "floor_rows_per_s": messages / median(took["floor"]),
                "of_the_floor": median_ratio(took["floor"], took["ours"]),
            }
            if kafka is not None:
                made[name] |= {
                    "kafka_rows_per_s": messages / median(took["kafka"]),
                    "times_kafka": median_ratio(took["kafka"], took["ours"]),
                }
                counted = theirs.selectExpr("count(distinct partition, offset)").first()[0]
                if counted != messages:
                    raise AssertionError(f"{counted:,} messages were read from Kafka in place of {messages:,}")
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


def stream(port: int, queue: str, rows: int, folder: str, kafka: Topic | None = None) -> dict[str, Any]:
    """Rows a second of micro-batches, as the query itself says: to nowhere from `queue`, to Parquet from its double, since what a query
    has read it lets go of. Kafka's topic is read twice, the same way."""
    made: dict[str, Any] = {}
    with session(kafka) as spark:
        for sink in ("noop", "parquet"):
            ours = options_of(port, queue, maxRowsPerTrigger=rows, startingOffsets="earliest")
            made[sink] = _streamed(spark, "dovetail", ours, sink, rows, Path(folder, f"ours-{sink}"))
            if kafka is not None:
                theirs = {**kafka["options"], "maxOffsetsPerTrigger": str(rows)}
                beside = _streamed(spark, "kafka", theirs, sink, rows, Path(folder, f"kafka-{sink}"))
                made[sink] |= {f"kafka_{name}": value for name, value in beside.items()}
                made[sink]["times_kafka"] = beside["batch_ms"] / made[sink]["batch_ms"]
            queue = f"{queue}-2"
    return made


def _streamed(spark: Any, source: str, options: dict[str, str], sink: str, rows: int, folder: Path) -> dict[str, float]:
    """Everything there is, in micro-batches of so many rows; the first one starts workers and compiles, and does not count."""
    loaded = spark.readStream.format(source).options(**options).load()
    writer = loaded.writeStream.format(sink).option("checkpointLocation", str(folder / "checkpoint"))
    if sink == "parquet":
        writer = writer.option("path", str(folder / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole = [one for one in query.recentProgress if one["numInputRows"] == rows][1:]
    took_ms = median([one["durationMs"]["triggerExecution"] for one in whole])
    return {"rows_per_s": 1000 * rows / took_ms, "batch_ms": took_ms, "batches": len(whole)}


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
