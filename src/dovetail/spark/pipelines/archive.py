"""Queues to Parquet or Delta, partitioned by queue and hour, exactly once: Spark writes a batch where nobody looks, then it is
published."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from dovetail.errors import BadRequest
from dovetail.spark.pipelines import READING, SOURCE, Pipeline, Say, Setting, Settings, name_of, running
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import Published

FORMATS: dict[str, type[Published] | type[DeltaPublished]] = {"parquet": Published, "delta": DeltaPublished}

SETTINGS = {
    **SOURCE,
    **READING,
    "tap": Setting("archive", "the tap that keeps what is not archived yet; one for each archive"),
    "target": Setting(None, "the folder of the archive, which driver and executors share"),
    "format": Setting("parquet", "parquet or delta"),
    "every": Setting("", "how often, like 10s; without it once over what is there now"),
    "rows": Setting("2000000", "rows of one batch, at most"),
    "starting": Setting("earliest", "where a new tap begins: earliest, latest, a time"),
}


def run(settings: Settings, say: Say) -> None:
    running.run("archive", partial(start, settings=settings), running.options_of(settings), say)


def start(spark: Any, settings: Settings) -> Any:
    """The query, under way."""
    if settings["format"] not in FORMATS:
        raise BadRequest(f"format: parquet or delta, not {settings['format']!r}")
    target, name = Path(settings["target"]).absolute(), name_of(settings)
    step = Step(FORMATS[settings["format"]](target, name))
    return running.start(spark, running.options_of(settings), step, target / f"_checkpoint-{name}", settings["every"])


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


PIPELINE = Pipeline(SETTINGS, run)
