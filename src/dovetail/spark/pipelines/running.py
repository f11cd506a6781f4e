"""A pipeline that is a stream: its session, its query, a line for every batch, and the release of the last one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

import dovetail.spark
from dovetail.errors import BadRequest, DovetailError, Refused
from dovetail.spark.options import COLUMNS, seconds
from dovetail.spark.pipelines import Say, Settings, name_of, source_of

Step = Callable[[Any, int], None]
"""What is done with the rows of a batch, which may come again under the same number."""

SQL = {
    # Hours are UTC's wherever the driver runs.
    "spark.sql.session.timeZone": "UTC",
    # Spark's older way to write a time has no zone, and readers of Parquet beside Spark take it for something else.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def options_of(settings: Settings) -> Settings:
    """What the stream of a pipeline is told. Its columns are the same however it reads."""
    name, said = name_of(settings), {**source_of(settings), "maxRowsPerTrigger": settings["rows"]}
    if settings["mode"] == "reserve":
        if settings["starting"] != "earliest":
            raise BadRequest("starting: not with mode reserve, which takes what can be received")
        return {**said, "mode": "reserve", "reservation": name, "columns": ",".join(COLUMNS)}
    return {**said, "tap": name, "startingOffsets": settings["starting"]}


def run(
    name: str,
    start: Callable[[Any], Any],
    options: Mapping[str, str],
    say: Say,
    more: Callable[[], str] = str,
    looked: Callable[[Any], None] = lambda progress: None,
) -> None:
    """`more` is said behind each line. `looked` gets the last progress now and then: it tells when nothing comes any more."""
    # Spark's own words about an error are left out: `watch` says what it was.
    spark = dovetail.spark.session(name, settings={"spark.log.level": "OFF"})
    try:
        query = start(spark)
        try:
            watch(query, say, more, looked)
        finally:
            query.stop()
            if query.lastProgress is not None:
                # The listener may not have heard of the last batch yet.
                dovetail.spark.release(query.lastProgress, **options)
    finally:
        spark.stop()


def start(spark: Any, options: Mapping[str, str], step: Step, checkpoint: Path, every: str) -> Any:
    """The query, under way: once over what is there now, or again and again."""
    for name, value in SQL.items():
        spark.conf.set(name, value)
    dovetail.spark.follow(spark, **options)
    stream = spark.readStream.format("dovetail").options(**options).load()
    writer = stream.writeStream.foreachBatch(step).option("checkpointLocation", str(checkpoint))
    if not every:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(1000 * seconds('every', every))} milliseconds").start()


def owner_of(pipeline: str, checkpoint: Path) -> str:
    """Whose batches these are, to a sink: the query, whose id lies in its checkpoint. A new checkpoint begins with batch 0 again, which an
    owner of the old one's name would have published before."""
    query: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return f"{pipeline} {query}"


def watch(query: Any, say: Say, more: Callable[[], str] = str, looked: Callable[[Any], None] = lambda progress: None) -> None:
    """A line for every batch, until the query ends."""
    told = -1
    while True:
        try:
            ended = query.awaitTermination(1)
        except StreamingQueryException as error:
            raise reason(error) from error
        for progress in query.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                behind = sum(dovetail.spark.lag(progress).values())
                line = f"batch {told}: {progress['numInputRows']:,} rows, {progress['processedRowsPerSecond']:,.0f}/s, {behind:,} wait"
                say(", ".join(part for part in (line, more()) if part))
        if ended:
            return
        if query.lastProgress is not None:
            looked(query.lastProgress)


def reason(error: Exception) -> DovetailError:
    """Why a query ended, in our own words where they are among Spark's: its errors are a page long."""
    said = re.findall(r"^dovetail\.[\w.]+: (.*)$", str(error), re.MULTILINE)
    return Refused(said[0] if said else str(error).partition("\n")[0])
