"""Queues to Parquet or Delta, partitioned by queue and hour, exactly once: Spark writes a batch where nobody looks, then it is
published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

import dovetail.spark
from dovetail.errors import BadRequest, DovetailError, Refused
from dovetail.spark.options import seconds
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, source_of
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import Published

FORMATS: dict[str, type[Published] | type[DeltaPublished]] = {"parquet": Published, "delta": DeltaPublished}

SETTINGS = {
    **SOURCE,
    "tap": Setting("archive", "the tap that keeps what is not archived yet; one for each archive"),
    "target": Setting(None, "the folder of the archive, which driver and executors share"),
    "format": Setting("parquet", "parquet or delta"),
    "every": Setting("", "how often, like 10s; without it once over what is there now"),
    "rows": Setting("2000000", "rows of one batch, at most"),
    "starting": Setting("earliest", "where a new tap begins: earliest, latest, a time"),
}


def run(settings: Settings, say: Say) -> None:
    # Spark's own words about an error are left out: `watch` says what it was.
    spark = dovetail.spark.session("archive", settings={"spark.log.level": "OFF"})
    try:
        query = start(spark, settings)
        try:
            watch(query, say)
        finally:
            query.stop()
            if query.lastProgress is not None:
                # The listener may not have heard of the last batch yet.
                dovetail.spark.release(query.lastProgress, **options_of(settings))
    finally:
        spark.stop()


def start(spark: Any, settings: Settings) -> Any:
    """The query, under way."""
    if settings["format"] not in FORMATS:
        raise BadRequest(f"format: parquet or delta, not {settings['format']!r}")
    target = Path(settings["target"]).absolute()
    tap = settings["tap"]
    options = options_of(settings)
    published = FORMATS[settings["format"]](target, tap)
    dovetail.spark.follow(spark, **options)
    stream = spark.readStream.format("dovetail").options(**options).load()
    writer = stream.writeStream.foreachBatch(Step(published)).option("checkpointLocation", str(target / f"_checkpoint-{tap}"))
    if not settings["every"]:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(1000 * seconds('every', settings['every']))} milliseconds").start()


def options_of(settings: Settings) -> Settings:
    return {**source_of(settings), "tap": settings["tap"], "maxRowsPerTrigger": settings["rows"], "startingOffsets": settings["starting"]}


class Step:
    """One batch: staged by Spark's own committer, which knows of tasks that were tried twice, and published. One that is done already is
    not even read."""

    def __init__(self, published: Published | DeltaPublished) -> None:
        self._published = published

    def __call__(self, rows: Any, batch: int) -> None:
        if self._published.done(batch):
            return
        hours = rows.selectExpr("*", "date_format(time, 'yyyy-MM-dd-HH') AS hour")
        hours.write.mode("overwrite").partitionBy("queue", "hour").parquet(str(self._published.staging(batch)))
        self._published.publish(batch)


def watch(query: Any, say: Say) -> None:
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
                say(f"batch {told}: {progress['numInputRows']:,} rows, {progress['processedRowsPerSecond']:,.0f}/s, {behind:,} wait")
        if ended:
            return


def reason(error: Exception) -> DovetailError:
    """Why a query ended, in our own words where they are among Spark's: its errors are a page long."""
    said = re.findall(r"^dovetail\.[\w.]+: (.*)$", str(error), re.MULTILINE)
    return Refused(said[0] if said else str(error).partition("\n")[0])


PIPELINE = Pipeline(SETTINGS, run)
