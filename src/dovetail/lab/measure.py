"""Measures: plain functions from traces (Arrow tables of trace.py) to numbers. They know no driver and no scenario."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median as _median

import pyarrow as pa
import pyarrow.compute as pc

from .trace import ACKED, DELIVERED, SENT


def of_kind(table: pa.Table, kind: str, phase: str | None = None) -> pa.Table:
    chosen = table.filter(pc.equal(pc.cast(table["kind"], pa.string()), kind))
    return chosen if phase is None else chosen.filter(pc.equal(pc.cast(chosen["phase"], pa.string()), phase))


def loss(table: pa.Table) -> int:
    """Messages that were acked and never delivered."""
    acked = of_kind(table, ACKED).group_by(["queue", "payload"]).aggregate([])
    delivered = of_kind(table, DELIVERED).group_by(["queue", "payload"]).aggregate([])
    return int(acked.join(delivered, keys=["queue", "payload"], join_type="left anti").num_rows)


def duplicates(table: pa.Table) -> int:
    """Deliveries beyond the first of each message."""
    delivered = of_kind(table, DELIVERED)
    return int(delivered.num_rows - delivered.group_by(["queue", "payload"]).aggregate([]).num_rows)


def rate_per_s(table: pa.Table, kind: str, phase: str | None = None) -> float:
    """Messages of a kind per second, from the first call that began to the last of that kind."""
    chosen = of_kind(table, kind, phase)
    if chosen.num_rows == 0:
        return 0.0
    begun = of_kind(table, SENT, phase) if kind == ACKED else chosen
    first = pc.min(begun["time_ns"] if begun.num_rows else chosen["time_ns"]).as_py()
    seconds = (pc.max(chosen["time_ns"]).as_py() - first) / 1e9
    return float(chosen.num_rows / seconds) if seconds > 0 else 0.0


def latency_ns(table: pa.Table, start: str = SENT, end: str = ACKED, phase: str | None = None) -> pa.ChunkedArray:
    """From the first `start` to the first `end` of each message that has both; the phase is that of the start."""
    keys = ["queue", "payload"]
    begun = of_kind(table, start, phase).group_by(keys).aggregate([("time_ns", "min")]).rename_columns([*keys, "begun_ns"])
    ended = of_kind(table, end).group_by(keys).aggregate([("time_ns", "min")]).rename_columns([*keys, "ended_ns"])
    both = begun.join(ended, keys=keys, join_type="inner")
    return pc.subtract(both["ended_ns"], both["begun_ns"])


def lateness_ns(table: pa.Table) -> pa.ChunkedArray:
    """From when each delayed message was due to when it was first delivered."""
    keys = ["queue", "payload"]
    sent = of_kind(table, SENT)
    due = sent.filter(pc.is_valid(sent["due_ns"])).group_by(keys).aggregate([("due_ns", "min")])
    got = of_kind(table, DELIVERED).group_by(keys).aggregate([("time_ns", "min")])
    both = due.join(got, keys=keys, join_type="inner")
    return pc.subtract(both["time_ns_min"], both["due_ns_min"])


def percentile(values: pa.ChunkedArray, percent: float) -> float | None:
    """The smallest value that `percent` per cent do not exceed; None of nothing."""
    if len(values) == 0:
        return None
    found = pc.quantile(values, q=percent / 100, interpolation="higher")[0].as_py()
    return float(found)


def median(values: Sequence[float]) -> float:
    return float(_median(values))


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of interleaved pairs: what slowed both of a pair down cancels out."""
    return median([one / other for one, other in zip(above, below, strict=True)])
