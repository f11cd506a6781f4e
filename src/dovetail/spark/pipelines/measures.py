"""What a trace says about the consistency and speed of a queue: plain functions on Arrow.

A trace has a row for each operation: `queue`, `kind`, `time_ns`, `payload` (the number of the message in its queue, counted as it was sent;
null where its checksum did not hold), and, of delayed messages, `due_ns`. The lab writes such traces; facts.py makes them of facts.

    kind            sent · acked · delivered · completed · discarded (gone on purpose: cancelled, expired, moved) · cleared (all up to it)
    loss            acknowledged and never delivered, of all acknowledged. What came corrupted did not come. Of facts, which know what
                    became of each message: completed though nobody was given it; those that wait or were discarded are no loss
    duplication     deliveries beyond the first of each message, of all acknowledged
    out of order    1 − (longest increasing subsequence / messages delivered): the fewest messages that would have to be moved
    displacement    how many places a message is away from where it belongs, on average
Duplicates are left out of the last two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

REPORT = pa.schema(
    [
        ("queue", pa.string()),
        *((name, pa.int64()) for name in ("sent", "acked", "delivered", "completed", "waiting", "discarded", "lost", "doubled")),
        *((name, pa.float64()) for name in ("loss", "duplication", "out_of_order", "displacement", "sent_per_s", "delivered_per_s")),
        *((name, pa.float64()) for name in ("latency_p50_ms", "latency_p99_ms", "late_p50_ms", "late_p99_ms")),
    ]
)
MINUTE = pa.schema(
    [
        *(("queue", pa.string()), ("minute", pa.int64())),
        *((name, pa.int64()) for name in ("sent", "delivered", "completed", "doubled")),
        *((name, pa.float64()) for name in ("latency_p50_ms", "latency_p99_ms", "late_p50_ms", "late_p99_ms")),
    ]
)
"""`minute` is where it begins, in seconds on the clock of the trace; latencies are of what was first delivered in it."""
MINUTE_NS = 60_000_000_000


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


class Seen:
    """The operations of one queue, each kind by itself: the first on each message, in the order in which they happened."""

    def __init__(self, table: pa.Table) -> None:
        self.queue = str(table["queue"][0].as_py())
        kinds = table["kind"].cast(pa.string())
        valid = table.filter(pc.is_valid(table["payload"]))
        self._kinds = kinds.filter(pc.is_valid(table["payload"]))
        self._rows = valid.select(["payload", "time_ns"])
        self.sent, self.acked, self.completed = (self._firsts(kind) for kind in ("sent", "acked", "completed"))
        self.deliveries = self._of("delivered")
        self.came = _in_order_of_arrival(self.deliveries)
        self.discarded = self._of("discarded")["payload"]
        self.cleared = pc.max(self._of("cleared")["payload"]).as_py()
        self.known = self.acked if self.acked.num_rows else self.sent
        self.of_facts = bool(pc.any(pc.equal(table["from_facts"], True)).as_py()) if "from_facts" in table.column_names else False
        self.latency = between(self.sent, self.came)
        due = valid.filter(pc.is_valid(valid["due_ns"])) if "due_ns" in valid.column_names else valid.slice(0, 0)
        if due.num_rows:
            first = due.group_by("payload").aggregate([("due_ns", "min")]).rename_columns(["payload", "time_ns"])
            self.late = between(first, self.came)
        else:
            self.late = self.came.slice(0, 0).append_column("took_ns", pa.chunked_array([], pa.int64()))

    def _of(self, kind: str) -> pa.Table:
        return self._rows.filter(pc.equal(self._kinds, kind))

    def _firsts(self, kind: str) -> pa.Table:
        return self._of(kind).group_by("payload").aggregate([("time_ns", "min")]).rename_columns(["payload", "time_ns"])


def report(table: pa.Table) -> pa.Table:
    """One row about the one queue of this table."""
    return reported(Seen(table))


def reported(seen: Seen) -> pa.Table:
    came = seen.came
    numbers = came["payload"].combine_chunks()
    away = seen.known.filter(pc.invert(pc.is_in(seen.known["payload"], value_set=numbers)))["payload"]
    lost, waiting, discarded = len(away), 0, 0
    if seen.of_facts:
        left = pc.is_in(away, value_set=seen.discarded.combine_chunks())
        if seen.cleared is not None:
            left = pc.or_(left, pc.less_equal(away, seen.cleared))
        finished = pc.is_in(away, value_set=seen.completed["payload"].combine_chunks())
        discarded, lost = (int(pc.sum(mask).as_py() or 0) for mask in (pc.and_(left, pc.invert(finished)), finished))
        waiting = len(away) - lost - discarded
    doubled, total = seen.deliveries.num_rows - came.num_rows, max(1, seen.known.num_rows)
    row = {
        "queue": seen.queue,
        "sent": seen.sent.num_rows,
        "acked": seen.acked.num_rows,
        "delivered": came.num_rows,
        "completed": seen.completed.num_rows,
        "waiting": waiting,
        "discarded": discarded,
        "lost": lost,
        "doubled": doubled,
        "loss": lost / total,
        "duplication": doubled / total,
        "out_of_order": out_of_order(numbers.to_pylist()),
        "displacement": displacement(numbers),
        "sent_per_s": _rate(seen.sent),
        "delivered_per_s": _rate(came),
        **_latencies(seen.latency, seen.late),
    }
    return pa.Table.from_pylist([row], REPORT)


def minutes(seen: Seen) -> pa.Table:
    """A row for each minute of the queue in which something happened."""
    kinds = {"sent": seen.sent, "delivered": seen.came, "completed": seen.completed, "all": seen.deliveries}
    counts = {name: _by_minute(rows) for name, rows in kinds.items()}
    rows = []
    for minute in sorted(set().union(*counts.values())):
        of = {name: count.get(minute, 0) for name, count in counts.items()}
        rows.append(
            {
                "queue": seen.queue,
                "minute": minute * 60,
                "doubled": of.pop("all") - of["delivered"],
                **of,
                **_latencies(_in_minute(seen.latency, minute), _in_minute(seen.late, minute)),
            }
        )
    return pa.Table.from_pylist(rows, MINUTE)


def _by_minute(rows: pa.Table) -> dict[int, int]:
    counted = pc.value_counts(pc.divide(rows["time_ns"], MINUTE_NS)) if rows.num_rows else []
    return {one["values"].as_py(): one["counts"].as_py() for one in counted}


def _in_minute(rows: pa.Table, minute: int) -> pa.Table:
    return rows.filter(pc.equal(pc.divide(rows["time_ns"], MINUTE_NS), minute)) if rows.num_rows else rows


def _latencies(latency: pa.Table, late: pa.Table) -> dict[str, float | None]:
    found = (("latency_p50_ms", latency, 0.5), ("latency_p99_ms", latency, 0.99), ("late_p50_ms", late, 0.5), ("late_p99_ms", late, 0.99))
    return {name: _percentile(rows["took_ns"], share) for name, rows, share in found}


def reports(table: pa.Table) -> pa.Table:
    """A row for each queue, without Spark."""
    if not table.num_rows:
        return REPORT.empty_table()
    queues = pc.unique(table["queue"])
    return pa.concat_tables([report(table.filter(pc.equal(table["queue"], queue))) for queue in queues]).sort_by("queue")


def _in_order_of_arrival(deliveries: pa.Table) -> pa.Table:
    """First deliveries. What one receive handed out has one time, and stands in the trace as it came."""
    placed = deliveries.append_column("place", pa.array(range(deliveries.num_rows), pa.int64()))
    placed = placed.sort_by([("time_ns", "ascending"), ("place", "ascending")])
    placed = placed.set_column(2, "place", pa.array(range(placed.num_rows), pa.int64()))
    found = placed.group_by("payload").aggregate([("time_ns", "min"), ("place", "min")]).rename_columns(["payload", "time_ns", "place"])
    return found.sort_by("place")


def between(begun: pa.Table, ended: pa.Table) -> pa.Table:
    """(payload, time_ns of the end, took_ns) of messages that have both."""
    both = begun.select(["payload", "time_ns"]).rename_columns(["payload", "begun_ns"])
    both = both.join(ended.select(["payload", "time_ns"]), "payload", join_type="inner")
    return both.append_column("took_ns", pc.subtract(both["time_ns"], both["begun_ns"]))


def _rate(found: pa.Table) -> float:
    if found.num_rows < 2:
        return 0.0
    ends = pc.min_max(found["time_ns"]).as_py()
    seconds = (ends["max"] - ends["min"]) / 1e9
    return float((found.num_rows - 1) / seconds) if seconds else 0.0


def _percentile(values_ns: pa.ChunkedArray, part: float) -> float | None:
    found = pc.quantile(values_ns, q=part, interpolation="higher")[0].as_py() if len(values_ns) else None
    return None if found is None else found / 1e6
