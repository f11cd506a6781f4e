"""How consistent queues are and how fast: loss, duplicates, disorder, rates and latencies of each, and of each minute.

    --trace PATH                   over a trace that clients wrote: what they saw, by their own clock
    --tap NAME                     over the facts that this tap holds: what the node did
    --tap NAME --target FOLDER     the same kept up: each batch goes on from where the one before stood (consistency.py), and the report in
                                   the folder is replaced. Once over what is there now; with --every until it is stopped

The measures are plain functions on Arrow (measures.py); Spark only shares the queues out among tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dovetail.spark
from dovetail.errors import BadRequest
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, facts, livereport, measures, number_of, running
from dovetail.spark.pipelines.consistency import Consistency, Event
from dovetail.spark.pipelines.measures import MINUTE, REPORT
from dovetail.spark.pipelines.states import States

SETTINGS = {
    **{name: setting for name, setting in SOURCE.items() if name != "queue"},
    "trace": Setting("", "Parquet files of a trace, or a folder of them"),
    "tap": Setting("", "in place of a trace: the tap of the facts table; one for each report"),
    "target": Setting("", "of a trace: a Parquet file for the result; of facts: a folder for the report that is kept up"),
    "minutes": Setting("", "a Parquet file for the result by minute"),
    "every": Setting("", "how often the report is brought up to date, like 5s; without it once over what is there now"),
    "rows": Setting("2000000", "facts of one batch, at most"),
}
TRACED = ("queue", "kind", "time_ns", "payload", "due_ns")
STATE = pa.schema([("queue", pa.string()), ("state", pa.binary())])


def run(settings: Settings, say: Say) -> None:
    if bool(settings["trace"]) == bool(settings["tap"]):
        raise BadRequest("which operations? Either trace, files that clients wrote, or tap, the facts of a node")
    if settings["every"] and not (settings["tap"] and settings["target"]):
        raise BadRequest("every: a report that is kept up is one of facts (tap), and lies in a folder (target)")
    if settings["tap"] and settings["target"]:
        step = Step(Path(settings["target"]).absolute(), say, whole=not settings["every"])
        running.run("measure", partial(start, settings=settings, step=step), options_for(settings), say, step.told)
        return
    spark = dovetail.spark.session("measure")
    rows = traced(spark, settings["trace"]) if settings["trace"] else happened(spark, options_for(settings))
    found = grouped(rows, measures.report, REPORT).sort_by("queue")
    for row in found.to_pylist():
        say(
            f"{row['queue']}: {row['delivered']:,} of {row['acked'] or row['sent']:,} delivered, lost {row['loss']:.3%}, doubled"
            f" {row['duplication']:.3%}, out of order {row['out_of_order']:.1%}, displaced by {row['displacement']:.2f}"
        )
    if settings["target"]:
        pq.write_table(found, settings["target"])
    if settings["minutes"]:
        by_minute = grouped(rows, _minutes, MINUTE).sort_by([("queue", "ascending"), ("minute", "ascending")])
        pq.write_table(by_minute, settings["minutes"])


def options_for(settings: Settings) -> Settings:
    return {**facts.options_for(settings), "maxRowsPerTrigger": str(number_of(settings, "rows"))}


# Over what is there


def traced(spark: Any, trace: str) -> Any:
    rows = spark.read.parquet(trace)
    # What one call brought has one time: where it stands in the file says what came first.
    return rows.selectExpr(*(name for name in TRACED if name in rows.columns), "_metadata.row_index AS place")


def happened(spark: Any, options: Settings) -> Any:
    """The facts as a trace."""
    read = {name: value for name, value in options.items() if name != "maxRowsPerTrigger"}
    rows = spark.read.format("dovetail").options(**read).load().select(*facts.COLUMNS)
    return rows.mapInArrow(_traces, ddl(facts.TRACE))


def _traces(batches: Any) -> Any:
    for batch in batches:
        yield from facts.trace(pa.Table.from_batches([batch])).to_batches()


def over_spark(spark: Any, trace: str) -> pa.Table:
    """The same as `measures.reports`, the queues shared out among tasks."""
    return grouped(traced(spark, trace), measures.report, REPORT).sort_by("queue")


def grouped(rows: Any, measure: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> pa.Table:
    # Spark looks at the hints of a function, which a partial has none of.
    def measured(table: pa.Table) -> pa.Table:
        return measure(facts.current(table) if "queue_id" in table.column_names else table.sort_by("place"))

    found: pa.Table = rows.groupBy("queue").applyInArrow(measured, ddl(schema)).toArrow()
    return found.cast(schema)


def _minutes(table: pa.Table) -> pa.Table:
    return measures.minutes(measures.Seen(table))


_SQL = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN", pa.binary(): "BINARY"}


def ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SQL[field.type]}" for field in schema)


# Kept up


def start(spark: Any, settings: Settings, step: Step) -> Any:
    """The query, under way."""
    checkpoint = step.target / f"_checkpoint-{settings['tap']}"
    return running.start(spark, options_for(settings), step, checkpoint, settings["every"])


class Step:
    """One batch of facts, which may come again under its number: what is known behind it follows from what was known before and from it."""

    def __init__(self, target: Path, say: Say, *, whole: bool) -> None:
        self.target = target
        self._say = say
        self._whole = whole
        """Whether every queue is told of at each batch, and not only the report written."""
        self._states = States(target / "_states")
        self._told = ""

    def told(self) -> str:
        return self._told

    def __call__(self, rows: Any, batch: int) -> None:
        before = self._states.before(batch).get("queues", STATE.empty_table())
        states = dict(zip(before["queue"].to_pylist(), before["state"].to_pylist(), strict=True))
        after = {**states, **self.folded(rows, states)}
        names = sorted(after)
        table = pa.table([pa.array(names, pa.string()), pa.array([after[name] for name in names], pa.binary())], schema=STATE)
        self._states.write(batch, {"queues": table})
        self.report(after)

    def folded(self, rows: Any, states: Mapping[str, bytes]) -> dict[str, bytes]:
        def behind(table: pa.Table) -> pa.Table:
            return folded(states, table)

        chosen = rows.select(*facts.COLUMNS).mapInArrow(_events, ddl(EVENT))
        made = chosen.groupBy("queue").applyInArrow(behind, ddl(STATE)).toArrow()
        return dict(zip(made["queue"].to_pylist(), made["state"].to_pylist(), strict=True))

    def report(self, states: Mapping[str, bytes]) -> None:
        kept = {queue: Consistency.of(json.loads(state)) for queue, state in sorted(states.items())}
        rows = [one.report(queue) for queue, one in kept.items()]
        last = max((one.last_ms for one in kept.values()), default=0)
        livereport.write(self.target, rows, _instant(last))
        if self._whole:
            for row in rows:
                self._say(livereport.line(row))
        worst = max(rows, key=lambda row: float(row["out_of_order"]), default=None)
        self._told = f"{len(rows):,} queues" + (
            f", most out of order {worst['queue']} with {worst['out_of_order']:.1%}" if worst and worst["out_of_order"] else ""
        )


EVENT = pa.schema(
    [
        *(("queue", pa.string()), ("queue_id", pa.int64()), ("number", pa.int64()), ("kind", pa.string()), ("time_ms", pa.int64())),
        *(("sequence", pa.int64()), ("receives", pa.int64()), ("due_ms", pa.int64())),
    ]
)


def event_table(batch: pa.Table) -> pa.Table:
    """Facts as the fold takes them."""
    found = facts.events(batch)
    clearing = pc.is_in(found["kind"], value_set=pa.array(["purge", "drop"]))
    receives = pc.coalesce(pc.if_else(clearing, found["count"].cast(pa.int64()), found["receives"].cast(pa.int64())), 1)
    sequence = pc.if_else(pc.equal(found["kind"], "drop"), facts.LAST - 1, found["sequence"].cast(pa.int64()))
    columns = [
        *(found["queue"], found["queue_id"], found["number"], found["kind"], _ms(found["time"])),
        *(sequence, receives, _ms(found["due"])),
    ]
    made = pa.table([column.cast(field.type) for column, field in zip(columns, EVENT, strict=True)], schema=EVENT)
    return made.filter(pc.is_valid(made["sequence"]))


def _events(batches: Any) -> Any:
    for batch in batches:
        yield from event_table(pa.Table.from_batches([batch])).to_batches()


def folded(states: Mapping[str, bytes], table: pa.Table) -> pa.Table:
    """What is known of one queue behind these events."""
    queue = table["queue"][0].as_py()
    table = table.sort_by([("number", "ascending"), ("sequence", "ascending")])
    kept = Consistency.of(json.loads(states[queue])) if queue in states else Consistency()
    newest = pc.max(table["queue_id"]).as_py() or 0
    if newest > kept.queue_id:
        if kept.queue_id or kept.total["sent"]:
            kept = Consistency()
        kept.queue_id = newest
        first = pc.min(table.filter(pc.equal(table["queue_id"], newest))["number"]).as_py()
        table = table.filter(pc.greater_equal(table["number"], first))
    table = table.filter(pc.fill_null(pc.equal(table["queue_id"], kept.queue_id), True))
    kept.fold(
        map(Event._make, zip(*(table[name].to_pylist() for name in ("kind", "time_ms", "sequence", "receives", "due_ms")), strict=True))
    )
    return pa.table([pa.array([queue]), pa.array([json.dumps(kept.told()).encode()], pa.binary())], schema=STATE)


def _ms(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def _instant(ms: int) -> str:
    return str(pa.scalar(ms, pa.timestamp("ms", "UTC")).as_py().isoformat(timespec="seconds"))


PIPELINE = Pipeline(SETTINGS, run)
