"""What a trace says about the consistency and speed of every queue. The measures are plain functions on Arrow; Spark only shares the queues
out among tasks.

A trace has a row for each operation: `queue`, `kind` (sent, acked, delivered, completed), `time_ns`, `payload` (the number of the message
in its queue, counted as it was sent; null where its checksum did not hold), and, of delayed messages, `due_ns`. The lab writes such traces.

    loss                acknowledged and never delivered, of all acknowledged. What came corrupted did not come.
    duplication         deliveries beyond the first of each message, of all acknowledged
    out of order        1 − (longest increasing subsequence / messages delivered): the fewest messages that would have to be moved
    displacement        how many places a message is away from where it belongs, on average
Duplicates are left out of the last two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dovetail.spark
from dovetail.spark.pipelines import Pipeline, Say, Setting, Settings

SETTINGS = {
    "trace": Setting(None, "Parquet files of a trace, or a folder of them"),
    "target": Setting("", "a Parquet file for the result"),
}
REPORT = pa.schema(
    [
        ("queue", pa.string()),
        *((name, pa.int64()) for name in ("sent", "acked", "delivered", "lost", "doubled")),
        *((name, pa.float64()) for name in ("loss", "duplication", "out_of_order", "displacement", "sent_per_s", "delivered_per_s")),
        *((name, pa.float64()) for name in ("latency_p50_ms", "latency_p99_ms", "late_p50_ms", "late_p99_ms")),
    ]
)


def increasing(numbers: Sequence[int]) -> int:
    """The length of the longest strictly increasing subsequence, by patience: n·log n, and n where most is in order."""
    tails: list[int] = []
    last = None
    for number in numbers:
        if last is None or number > last:
            tails.append(number)
            last = number
        else:
            tails[bisect_left(tails, number)] = number
            last = tails[-1]
    return len(tails)


def out_of_order(numbers: Sequence[int]) -> float:
    return 1 - increasing(numbers) / len(numbers) if numbers else 0.0


def displacement(numbers: pa.Array) -> float:
    """Between where a message came and where it would have come in order, on average. Numbers are told apart."""
    if not len(numbers):
        return 0.0
    came = pc.array_sort_indices(numbers).cast(pa.int64())
    return float(pc.mean(pc.abs(pc.subtract(came, pa.array(range(len(numbers)), pa.int64())))).as_py())


def firsts(table: pa.Table, kind: str) -> pa.Table:
    """(payload, time_ns) of the first operation of a kind on each message, in the order in which they happened."""
    chosen = table.filter(pc.and_(pc.equal(table["kind"].cast(pa.string()), kind), pc.is_valid(table["payload"])))
    found = chosen.group_by("payload").aggregate([("time_ns", "min")]).rename_columns(["payload", "time_ns"])
    return found.sort_by([("time_ns", "ascending"), ("payload", "ascending")])


def report(table: pa.Table) -> pa.Table:
    """One row about the one queue of this table."""
    kinds = table["kind"].cast(pa.string())
    sent, acked, came = firsts(table, "sent"), firsts(table, "acked"), _in_order_of_arrival(table)
    known = acked if acked.num_rows else sent
    deliveries = pc.sum(pc.and_(pc.equal(kinds, "delivered"), pc.is_valid(table["payload"]))).as_py() or 0
    lost = pc.sum(pc.invert(pc.is_in(known["payload"], value_set=came["payload"].combine_chunks()))).as_py() or 0
    doubled = deliveries - came.num_rows
    total = max(1, known.num_rows)
    numbers = came["payload"].combine_chunks()
    latency, late = _between(sent, came), _late(table, came)
    row = {
        "queue": str(table["queue"][0].as_py()),
        "sent": sent.num_rows,
        "acked": acked.num_rows,
        "delivered": came.num_rows,
        "lost": lost,
        "doubled": doubled,
        "loss": lost / total,
        "duplication": doubled / total,
        "out_of_order": out_of_order(numbers.to_pylist()),
        "displacement": displacement(numbers),
        "sent_per_s": _rate(sent),
        "delivered_per_s": _rate(came),
        "latency_p50_ms": _percentile(latency, 0.5),
        "latency_p99_ms": _percentile(latency, 0.99),
        "late_p50_ms": _percentile(late, 0.5),
        "late_p99_ms": _percentile(late, 0.99),
    }
    return pa.Table.from_pylist([row], REPORT)


def reports(table: pa.Table) -> pa.Table:
    """A row for each queue, without Spark."""
    if not table.num_rows:
        return REPORT.empty_table()
    queues = pc.unique(table["queue"])
    return pa.concat_tables([report(table.filter(pc.equal(table["queue"], queue))) for queue in queues]).sort_by("queue")


def _in_order_of_arrival(table: pa.Table) -> pa.Table:
    """First deliveries. What one receive handed out has one time, and stands in the trace as it came."""
    chosen = table.filter(pc.and_(pc.equal(table["kind"].cast(pa.string()), "delivered"), pc.is_valid(table["payload"])))
    placed = pa.table({"payload": chosen["payload"], "time_ns": chosen["time_ns"], "place": pa.array(range(chosen.num_rows), pa.int64())})
    placed = placed.sort_by([("time_ns", "ascending"), ("place", "ascending")])
    placed = placed.set_column(2, "place", pa.array(range(placed.num_rows), pa.int64()))
    found = placed.group_by("payload").aggregate([("time_ns", "min"), ("place", "min")]).rename_columns(["payload", "time_ns", "place"])
    return found.sort_by("place")


def _between(begun: pa.Table, ended: pa.Table) -> pa.ChunkedArray:
    """Nanoseconds from the one to the other, of messages that have both."""
    both = begun.rename_columns(["payload", "begun_ns"]).join(ended.select(["payload", "time_ns"]), "payload", join_type="inner")
    return pc.subtract(both["time_ns"], both["begun_ns"])


def _late(table: pa.Table, came: pa.Table) -> pa.ChunkedArray:
    if "due_ns" not in table.column_names:
        return pa.chunked_array([], pa.int64())
    due = table.filter(pc.is_valid(table["due_ns"])).group_by("payload").aggregate([("due_ns", "min")])
    return _between(due.rename_columns(["payload", "time_ns"]), came)


def _rate(found: pa.Table) -> float:
    if found.num_rows < 2:
        return 0.0
    ends = pc.min_max(found["time_ns"]).as_py()
    seconds = (ends["max"] - ends["min"]) / 1e9
    return float((found.num_rows - 1) / seconds) if seconds else 0.0


def _percentile(values_ns: pa.ChunkedArray, part: float) -> float | None:
    found = pc.quantile(values_ns, q=part, interpolation="higher")[0].as_py() if len(values_ns) else None
    return None if found is None else found / 1e6


def run(settings: Settings, say: Say) -> None:
    found = over_spark(dovetail.spark.session("measure"), settings["trace"])
    for row in found.to_pylist():
        say(
            f"{row['queue']}: {row['delivered']:,} of {row['acked'] or row['sent']:,} delivered, lost {row['loss']:.3%}, doubled"
            f" {row['duplication']:.3%}, out of order {row['out_of_order']:.1%}, displaced by {row['displacement']:.2f}"
        )
    if settings["target"]:
        pq.write_table(found, settings["target"])


def over_spark(spark: Any, trace: str) -> pa.Table:
    """The same as `reports`, the queues shared out among tasks."""
    ddl = ", ".join(f"{field.name} {_SQL[field.type]}" for field in REPORT)
    rows = spark.read.parquet(trace)
    kept = [name for name in ("queue", "kind", "time_ns", "payload", "due_ns") if name in rows.columns]
    found: pa.Table = rows.select(*kept).groupBy("queue").applyInArrow(report, ddl).toArrow()
    return found.cast(REPORT).sort_by("queue")


_SQL = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}

PIPELINE = Pipeline(SETTINGS, run)
