"""What devices report, by the time at which they measured it: windows, late readings apart, silent devices, and what is usual.

tap ──► who spoke, when, what    _staged/…-outcome         a batch is read once: parts of windows, and what is set apart
          ├──► windows/          each closed window once   device, measure, window: readings, mean, spread, least, most, usual
          ├──► apart/            each message once         late, ahead of the clock, or unreadable: whole, with why
          └──► silent.json       replaced                  devices that should have spoken

a crash                            leaves                      the batch is run again and
before the outcome is whole        half an outcome             begins anew
behind the outcome                 the outcome, marked         takes it
behind the states                  what is known behind it     comes to the same from what was known before
between the tables                 one of them                 finds that one done, and publishes the other
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dovetail.errors import BadRequest
from dovetail.spark import shape
from dovetail.spark.options import COLUMNS, seconds
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, archived, running, source_of
from dovetail.spark.pipelines.archive import FORMATS
from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.enrich import WHOLE, whole
from dovetail.spark.pipelines.published import STAGED, Published, staged_files
from dovetail.spark.pipelines.states import States
from dovetail.spark.pipelines.telemetry import OUTCOME, PART, Fields, Reader, added
from dovetail.spark.pipelines.windows import WINDOW, Known, joined, known, silent, summed, usual_of

SETTINGS = {
    **SOURCE,
    "tap": Setting("devices", "the tap that keeps what is not read yet; one for each pipeline"),
    "target": Setting(None, "the folder of the tables and of the pipeline's state, which driver and executors share"),
    "device": Setting("group", "who it is: group, attribute.NAME or body.NAME (of a JSON object; body.where.NAME goes down)"),
    "at": Setting("time", "when it was measured: time (when it was pushed), attribute.NAME or body.NAME"),
    "clock": Setting("iso", "how that time is written: iso (without a zone: UTC), s or ms since 1970"),
    "values": Setting("", "what was measured: attribute.NAME or body.NAME, several with commas; without it readings are counted"),
    "window": Setting("1m", "how long a window is"),
    "late": Setting("30s", "how long a reading may be under way; what comes behind that, to a window that is closed, is set apart"),
    "ahead": Setting("1m", "how far a device's clock may run ahead; readings from further ahead are set apart"),
    "period": Setting("", "how often a device speaks; without it each has its own rhythm, from what it has sent"),
    "missed": Setting("3", "so many periods without a word are silence"),
    "forget": Setting("30d", "a device that was not heard for so long is forgotten, unless it is expected"),
    "expected": Setting(
        "", "a CSV or Parquet file of devices that there are: device, and perhaps period_s and queue; none is then overlooked"
    ),
    "history": Setting("", "an archive, Parquet or Delta, of the same queues: what is usual for each device and measure"),
    "unusual": Setting("3", "a mean that lies more than so many of the usual spreads from the usual mean is unusual"),
    "format": Setting("parquet", "of the tables: parquet or delta"),
    "every": Setting("", "how often, like 10s; without it once over what is there now"),
    "rows": Setting("500000", "messages of one batch, at most"),
    "starting": Setting("earliest", "where a new tap begins: earliest, latest, a time"),
}
APART = pa.schema([*shape.schema(COLUMNS), pa.field("why", pa.string())])
SILENT_SAID = 5
"""Of devices that fell silent or came back, so many are named in a line."""
_SQL = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", PART.field("window").type: "TIMESTAMP"}


class Rules:
    """What the settings say, checked."""

    def __init__(self, settings: Settings) -> None:
        values = tuple(name.strip() for name in settings["values"].split(",") if name.strip())
        self.fields = Fields(settings["device"], settings["at"], values, settings["clock"]).checked()
        self.window_us = _us("window", settings["window"], least=1)
        self.late_us = _us("late", settings["late"])
        self.ahead_us = _us("ahead", settings["ahead"])
        self.period_s = seconds("period", settings["period"]) if settings["period"] else None
        self.forget_us = _us("forget", settings["forget"], least=1)
        self.missed = _number("missed", settings["missed"])
        self.unusual = _number("unusual", settings["unusual"])
        if settings["format"] not in FORMATS:
            raise BadRequest(f"format: parquet or delta, not {settings['format']!r}")
        self.expected = expected(Path(settings["expected"]), settings["queue"]) if settings["expected"] else None


def _us(name: str, text: str, least: int = 0) -> int:
    made = round(1e6 * seconds(name, text))
    if made < least:
        raise BadRequest(f"{name}: longer than nothing, not {text!r}")
    return made


def _number(name: str, text: str) -> float:
    try:
        made = float(text)
    except ValueError:
        made = 0.0
    if not 0 < made < 1e6:
        raise BadRequest(f"{name}: a number above 0, not {text!r}")
    return made


def expected(file: Path, queue: str) -> pa.Table:
    """(queue, device, period_s) of devices that there are. Where the file names no queue, it is the pipeline's."""
    try:
        table = pq.read_table(file, partitioning=None) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)
    except (OSError, pa.ArrowException) as error:
        raise BadRequest(f"expected: {error}") from None
    if "device" not in table.column_names:
        raise BadRequest(f"expected: {file} has no column device")
    rows = table.num_rows
    queues = table["queue"] if "queue" in table.column_names else pa.chunked_array([pa.repeat(pa.scalar(queue), rows)])
    periods = table["period_s"] if "period_s" in table.column_names else pa.chunked_array([pa.nulls(rows, pa.float64())])
    made = {"queue": queues.cast(pa.string()), "device": table["device"].cast(pa.string()), "period_s": periods.cast(pa.float64())}
    return pa.table(made).group_by(["queue", "device"]).aggregate([("period_s", "min")]).rename_columns(list(made))


def run(settings: Settings, say: Say) -> None:
    step = step_of(settings, say)
    running.run("devices", partial(start, settings=settings, step=step), options_for(settings), say, step.told, step.idle)


def options_for(settings: Settings) -> Settings:
    return {**source_of(settings), "tap": settings["tap"], "maxRowsPerTrigger": settings["rows"], "startingOffsets": settings["starting"]}


def step_of(settings: Settings, say: Say) -> Step:
    return Step(Path(settings["target"]).absolute(), settings["tap"], Rules(settings), settings["format"], say)


def start(spark: Any, settings: Settings, step: Step) -> Any:
    """The query, under way."""
    if settings["history"]:
        step.usual = usual(spark, Path(settings["history"]), step.rules)
    return running.start(spark, options_for(settings), step, step.target / f"_checkpoint-{step.name}", settings["every"])


class Step:
    """One batch, which may come again under its number."""

    def __init__(self, target: Path, name: str, rules: Rules, how: str, say: Say) -> None:
        self.target = target
        self.name = name
        self.rules = rules
        self.usual: pa.Table | None = None
        self._say = say
        self._states = States(target / f"_states-{name}")
        self._windows, self._apart = (
            _table(target / folder, name, how, schema) for folder, schema in (("windows", WINDOW), ("apart", APART))
        )
        self._silent: dict[str, float] = {}
        self._told = ""
        self._looked_us = 0

    def __call__(self, rows: Any, batch: int) -> None:
        if self._windows.done(batch) and self._apart.done(batch):
            return
        before = known(self._states.before(batch))
        outcome = self.target / STAGED / f"{self.name}-{batch:012d}-outcome"
        if not (outcome / WHOLE).exists():
            reader = Reader(self.rules.fields, self.rules.window_us, self.rules.ahead_us, before.watermark_us)
            self.read(rows, reader, outcome)
            whole(outcome)
        rules = self.rules
        spans = {"window_us": rules.window_us, "lateness_us": rules.late_us, "forget_us": rules.forget_us}
        now, closed = joined(before, parts_of(outcome), **spans)
        self._states.write(batch, now.tables())
        if not self._apart.done(batch):
            set_apart(outcome / "apart=true", self._apart.staging(batch))
            self._apart.publish(batch)
        if not self._windows.done(batch):
            staged(self._windows.staging(batch), summed(closed, self.usual, self.rules.unusual))
            self._windows.publish(batch)
        self.look(now, now.now_us)
        apart = sum(pq.read_metadata(file).num_rows for file in staged_files(outcome / "apart=true"))
        self._told = f"{closed.num_rows:,} windows closed, {apart:,} set apart, {len(self._silent):,} silent"
        shutil.rmtree(outcome, ignore_errors=True)

    def told(self) -> str:
        return self._told

    def open_readings(self) -> int:
        """Readings in windows that are not closed yet."""
        return int(pc.sum(known(self._states.before(self._states.last() + 1)).open["readings"]).as_py() or 0)

    def read(self, rows: Any, reader: Reader, outcome: Path) -> None:
        """Parts, and what is set apart, in folders of their own."""
        made = rows.mapInArrow(reader, ddl(OUTCOME))
        hour = "date_format(coalesce(time, heard), 'yyyy-MM-dd-HH') AS hour"
        split = made.selectExpr("*", hour, "why IS NOT NULL AS apart")
        split.write.mode("overwrite").partitionBy("apart", "queue", "hour").parquet(str(outcome))

    def idle(self, progress: Any) -> None:
        """Nothing came, and nothing waits: whoever is not heard now is silent, though no batch says so."""
        if progress["numInputRows"] == 0:
            at = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
            self.look(known(self._states.before(self._states.last() + 1)), int(at.timestamp() * 1e6))

    def look(self, now: Known, at_us: int | None) -> None:
        """Who is silent at that time; said when it changes."""
        if at_us is None or at_us <= self._looked_us:
            return
        self._looked_us = at_us
        found = silent(now, at_us, self.rules.missed, self.rules.period_s, self.rules.expected)
        rows = [{**row, "heard": row["heard"] and row["heard"].isoformat()} for row in found.to_pylist()]
        at = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")
        _replaced(self.target / "silent.json", {"version": 1, "at": at, "devices": now.devices.num_rows, "silent": rows})
        names = {f"{row['device']} ({row['queue']})": row["silent_s"] for row in rows}
        self._tell("silent", [f"{name} for {names[name]:,.0f} s" for name in names if name not in self._silent])
        self._tell("heard again", [name for name in self._silent if name not in names])
        self._silent = names

    def _tell(self, what: str, names: list[str]) -> None:
        if names:
            more = f" and {len(names) - SILENT_SAID:,} more" if len(names) > SILENT_SAID else ""
            self._say(f"{what}: {', '.join(names[:SILENT_SAID])}{more}")


def _table(folder: Path, name: str, how: str, schema: pa.Schema) -> Published | DeltaPublished:
    if how == "parquet":
        return Published(folder, name)
    return DeltaPublished(folder, name, schema)


def parts_of(outcome: Path) -> pa.Table:
    """The parts of a batch, whatever tasks they come from."""
    tables = []
    for file in staged_files(outcome / "apart=false"):
        queue, _ = archived.partition_of(file.parent)
        rows = pq.ParquetFile(file).read([field.name for field in PART if field.name != "queue"])
        made = {"queue": pa.chunked_array([pa.repeat(pa.scalar(queue), rows.num_rows)]), **{name: rows[name] for name in rows.column_names}}
        tables.append(pa.table([_column(made[field.name], field.type) for field in PART], schema=PART))
    return added(tables) if tables else PART.empty_table()


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(kind)
    return column.cast(kind)


def set_apart(folder: Path, staging: Path) -> None:
    """Messages that are set apart, in their own columns; there may be none."""
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True, exist_ok=True)
    for file in staged_files(folder):
        made = staging / file.relative_to(folder)
        made.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.ParquetFile(file).read([field.name for field in APART if field.name != "queue"]), made)


def staged(folder: Path, windows: pa.Table) -> None:
    """Closed windows as files of a batch, by queue and hour; there may be none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    hours = pc.strftime(windows["window"], format="%Y-%m-%d-%H")
    keys = pa.table({"queue": windows["queue"], "hour": hours}).group_by(["queue", "hour"]).aggregate([])
    for queue, hour in sorted(zip(keys["queue"].to_pylist(), keys["hour"].to_pylist(), strict=True)):
        chosen = windows.filter(pc.and_(pc.equal(windows["queue"], queue), pc.equal(hours, hour)))
        file = folder / archived.folder_of(queue, hour) / "part-00000.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(chosen.drop_columns(["queue"]), file)


def usual(spark: Any, history: Path, rules: Rules) -> pa.Table:
    """What an archive says of each device and measure, the files shared out among tasks."""
    found = [str(file) for file in archived.files(history)]
    if not found:
        raise BadRequest(f"history: there is no archive in {history}")
    wide = 1 << 62
    reader = Reader(rules.fields, rules.window_us, wide, None)

    def read(batches: Any) -> Any:
        return (one for one in reader(batches) if one.num_rows)

    rows = spark.read.option("basePath", str(history)).parquet(*found).select(*COLUMNS)
    parts = rows.mapInArrow(read, ddl(OUTCOME)).where("why IS NULL AND measure IS NOT NULL").select(*PART.names).toArrow()
    return usual_of(pa.table([_column(parts[field.name], field.type) for field in PART], schema=PART))


def ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {shape.SQL[field.name] if field.name in COLUMNS else _SQL[field.type]}" for field in schema)


def _replaced(file: Path, told: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    os.replace(new, file)


PIPELINE = Pipeline(SETTINGS, run)
