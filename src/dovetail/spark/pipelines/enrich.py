"""Messages through a function of one's own, into another queue and into a table, exactly once; what the function fails on becomes a dead
letter.

    tap ──► the function ──► _staged/…-outcome    what the batch comes to, whole before anybody hears of it
                               ├──► queue and dead letters    one publish, by query and batch
                               └──► table                     files or a transaction, by batch

    a crash                            leaves                               the batch is run again and
    while the function runs            half an outcome                      begins anew
    behind the outcome                 the outcome, marked as whole         takes it: queue and table get the same, though the function may
                                                                            give something else the second time
    behind the publish                 rows in the queue                    publishes without effect, then the table
    behind the table                   the whole batch                      finds it done
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dovetail.errors import BadRequest
from dovetail.spark import shape
from dovetail.spark.options import COLUMNS, options_of
from dovetail.spark.pipelines import READING, SOURCE, Pipeline, Say, Setting, Settings, name_of, number_of, running, source_of
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import STAGED, Published, staged_files, sync
from dovetail.spark.pipelines.transform import FAILED, Transform, function_of

SETTINGS = {
    **SOURCE,
    **READING,
    "tap": Setting("enrich", "the tap that keeps what is not through yet; one for each pipeline"),
    "function": Setting(None, "module:function, from Arrow to Arrow; a module in this folder is found"),
    "to": Setting("", "the queue for what the function gives; a declared column `to` says another one"),
    "dead": Setting("", "the queue for what the function fails on; without it the pipeline stops there"),
    "failures": Setting("1000", "more than so many in one task are taken for a fault of the function, and stop the pipeline"),
    "target": Setting(None, "the folder of the table and of the pipeline's state, which driver and executors share"),
    "format": Setting("parquet", "of the table: parquet, delta, or none"),
    "columns": Setting("", "columns that the function adds, like 'city STRING, amount DOUBLE'"),
    "every": Setting("", "how often, like 10s; without it once over what is there now"),
    "rows": Setting("500000", "rows of one batch, at most"),
    "starting": Setting("earliest", "where a new tap begins: earliest, latest, a time"),
}
WHOLE = "_whole"
HOUR = "date_format(time, 'yyyy-MM-dd-HH') AS hour"


def run(settings: Settings, say: Say) -> None:
    counted = Counted()
    running.run("enrich", partial(start, settings=settings, counted=counted), running.options_of(settings), say, counted.told)


class Counted:
    """What the last batch came to, for the line about it."""

    given = failed = 0

    def told(self) -> str:
        return f"{self.given:,} given, {self.failed:,} failed"


class Sent(NamedTuple):
    """Where the rows of an outcome go."""

    endpoint: str
    namespace: str
    key: str
    to: str
    dead: str

    def options(self) -> dict[str, str]:
        said = {"endpoint": self.endpoint, "namespace": self.namespace, "key": self.key}
        return {name: value for name, value in said.items() if value}


def start(spark: Any, settings: Settings, counted: Counted | None = None) -> Any:
    """The query, under way."""
    target, name = Path(settings["target"]).absolute(), name_of(settings)
    checkpoint = target / f"_checkpoint-{name}"
    sent = Sent(settings["endpoint"], settings["namespace"], settings["key"], settings["to"], settings["dead"])
    checked(settings)
    columns = columns_of(settings["columns"])
    schema = to_arrow_schema(columns, timezone="UTC")
    transform = Transform(
        settings["function"],
        function_of(settings["function"]),
        schema,
        apart=bool(settings["dead"]),
        failures_max=number_of(settings, "failures", 0),
    )
    table = table_of(settings["format"], target, name, schema)
    step = Step(target, name, transform, columns, sent, table, checkpoint, counted or Counted())
    return running.start(spark, running.options_of(settings), step, checkpoint, settings["every"])


def checked(settings: Settings) -> None:
    """The queues are there: better known now than behind the first batch."""
    if settings["format"] not in ("parquet", "delta", "none"):
        raise BadRequest(f"format: parquet, delta or none, not {settings['format']!r}")
    options = options_of(source_of(settings))
    if settings["to"] in options.names or settings["dead"] in options.names:
        raise BadRequest("a pipeline that writes to the queue that it reads never ends")
    reach = options.reach(15)
    for name in filter(None, (settings["to"], settings["dead"])):
        reach.patiently(partial(reach.open, options.namespace, name))
    reach.drop()


def columns_of(declared: str) -> StructType:
    """Those of an outcome: the source's, the function's, and whether it failed."""
    known, failed = _struct(shape.ddl(COLUMNS)), _struct(f"{FAILED} BOOLEAN")
    more = _struct(declared) if declared.strip() else StructType()
    for field in more:
        if field.name in (*COLUMNS, FAILED, "hour"):
            raise BadRequest(f"columns: {field.name} is there already")
    return StructType([*known, *more, *failed])


def _struct(ddl: str) -> StructType:
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def table_of(how: str, target: Path, name: str, schema: Any) -> Published | DeltaPublished | None:
    if how == "none":
        return None
    if how == "parquet":
        return Published(target, name)
    return DeltaPublished(target, name, schema.remove(schema.get_field_index(FAILED)))


class Step:
    """One batch, which may come again under its number."""

    def __init__(
        self,
        target: Path,
        name: str,
        transform: Transform,
        columns: StructType,
        sent: Sent,
        table: Published | DeltaPublished | None,
        checkpoint: Path,
        counted: Counted,
    ) -> None:
        self._target = target
        self._name = name
        self._transform = transform
        self._columns = columns
        self._sent = sent
        self._table = table
        self._checkpoint = checkpoint
        self._counted = counted

    def __call__(self, rows: Any, batch: int) -> None:
        outcome = self._target / STAGED / f"{self._name}-{batch:012d}-outcome"
        if self._table is None or not self._table.done(batch):
            if not (outcome / WHOLE).exists():
                self.transform(rows, outcome)
                whole(outcome)
            self._counted.given, self._counted.failed = (counts(outcome / f"{FAILED}={which}") for which in ("false", "true"))
            self.send(rows, outcome, batch)
            if self._table is not None:
                linked(outcome / f"{FAILED}=false", self._table.staging(batch))
                self._table.publish(batch)
        shutil.rmtree(outcome, ignore_errors=True)

    def transform(self, rows: Any, outcome: Path) -> None:
        made = rows.mapInArrow(self._transform, self._columns)
        made.selectExpr("*", HOUR).write.mode("overwrite").partitionBy(FAILED, "queue", "hour").parquet(str(outcome))

    def send(self, rows: Any, outcome: Path, batch: int) -> None:
        made = rows.sparkSession.read.schema(self._columns).parquet(str(outcome))
        to = F.coalesce("to", F.lit(self._sent.to)) if "to" in made.columns else F.lit(self._sent.to)
        queue = F.when(F.col(FAILED), F.lit(self._sent.dead)).otherwise(to).alias("queue")
        chosen = made.select(*(name for name in ("body", "group", "attributes", "delay") if name in made.columns), queue).where(
            "queue != ''"
        )
        owner = running.owner_of("enrich", self._checkpoint)
        chosen.write.format("dovetail").options(**self._sent.options(), owner=owner, batch=batch).mode("append").save()


def whole(outcome: Path) -> None:
    """From here on this is what the batch is, also after a power cut."""
    for file in staged_files(outcome):
        sync(file)
        sync(file.parent)
    (outcome / WHOLE).touch()
    sync(outcome)


def linked(folder: Path, staging: Path) -> None:
    """The same files once more: a publish moves them, and one that died half-way begins with all of them again."""
    shutil.rmtree(staging, ignore_errors=True)
    for file in staged_files(folder):
        copy = staging / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, copy)
        except OSError:  # Not every file system that machines share has links.
            shutil.copy(file, copy)


def counts(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in staged_files(folder))


PIPELINE = Pipeline(SETTINGS, run)
