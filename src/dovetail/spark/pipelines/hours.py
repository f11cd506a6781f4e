"""What accounts and queues used in each hour, out of facts: plain Arrow, hour by hour.

    live        the messages that are there: queue, sequence, when they were pushed, how large. What is delivered later costs bytes then,
                and how old the oldest is can be said exactly
    an hour     is closed by the first fact behind it: times of facts never fall, so nothing comes to it any more

Messages that were there before the facts began are in no figure. The facts of messages that were staged and published have no size; they
are counted in `unsized`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.spark.pipelines import facts

ALL = "*"
"""In place of a queue: all of them together."""
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
COUNTS = ("pushed", "delivered", "again", "completed", "discarded", "moved", "bytes_in", "bytes_out", "unsized")
USAGE = pa.schema(
    [
        *(("account", pa.string()), ("queue", pa.string()), ("hour", pa.timestamp("ms", "UTC"))),
        *((name, pa.int64()) for name in COUNTS),
        *(("busiest_per_s", pa.float64()), ("depth", pa.int64()), ("depth_peak", pa.int64()), ("oldest_s", pa.float64())),
    ]
)
"""`depth` and `oldest_s` at the end of the hour. `busiest_per_s`: pushes and deliveries of its busiest minute, a second."""
LIVE = pa.schema([("queue_id", pa.int64()), ("sequence", pa.int64()), ("pushed_ms", pa.int64()), ("bytes", pa.int64())])
NAMES = pa.schema([("queue_id", pa.int64()), ("queue", pa.string())])
SUMS = pa.schema([("queue_id", pa.int64()), *((name, pa.int64()) for name in (*COUNTS, "depth_peak"))])
MINUTES = pa.schema([("queue_id", pa.int64()), ("minute", pa.int64()), ("messages", pa.int64())])
_DISCARDING = ("cancel", "expire", "purge", "drop")


class Stand(NamedTuple):
    """What is known between two batches: of the hour that is open, and of what is there."""

    live: pa.Table
    names: pa.Table
    sums: pa.Table
    minutes: pa.Table
    hour: int | None = None
    """Since 1970."""

    def tables(self) -> Mapping[str, pa.Table]:
        hour = pa.table({"hour": pa.array([self.hour], pa.int64())})
        return {"live": self.live, "names": self.names, "sums": self.sums, "minutes": self.minutes, "hour": hour}


def stand(tables: Mapping[str, pa.Table]) -> Stand:
    if not tables:
        return Stand(LIVE.empty_table(), NAMES.empty_table(), SUMS.empty_table(), MINUTES.empty_table())
    live, names, sums, minutes = (tables[name] for name in ("live", "names", "sums", "minutes"))
    return Stand(live, names, sums, minutes, tables["hour"]["hour"][0].as_py())


def after(before: Stand, rows: pa.Table, account: str) -> tuple[Stand, list[pa.Table]]:
    """(what is known behind these facts, the hours that they close)"""
    happened = numbered(facts.events(rows), before.names)
    closed: list[pa.Table] = []
    now = before._replace(names=happened.names)
    for hour, some in _by_hour(happened.events):
        while now.hour is not None and now.hour < hour:
            closed.append(told(now, account, (now.hour + 1) * HOUR_MS))
            now = now._replace(hour=now.hour + 1, sums=SUMS.empty_table(), minutes=MINUTES.empty_table())
        now = joined(now._replace(hour=hour), some)
    return now, closed


class Numbered(NamedTuple):
    events: pa.Table
    names: pa.Table


def numbered(events: pa.Table, names: pa.Table) -> Numbered:
    """Events in order, each with its queue's id: what came from another queue says the name alone."""
    events = events.sort_by([("number", "ascending"), ("sequence", "ascending")])
    kept = dict(zip(names["queue_id"].to_pylist(), names["queue"].to_pylist(), strict=True))
    # The newest queue of a name is the one that is there.
    known = {name: one for one, name in sorted(kept.items())}
    ids = events["queue_id"].cast(pa.int64())
    pairs = pa.table({"queue_id": ids, "queue": events["queue"]}).group_by(["queue_id", "queue"]).aggregate([])
    kept.update((one, name) for one, name in zip(*(pairs[name].to_pylist() for name in NAMES.names), strict=True) if one is not None)
    if ids.null_count:
        made = []
        for one, name in zip(ids.to_pylist(), events["queue"].to_pylist(), strict=True):
            if one is not None:
                known[name] = one
            made.append(known.get(name))
        ids = pa.chunked_array([pa.array(made, pa.int64())])
    events = events.set_column(events.schema.get_field_index("queue_id"), "queue_id", ids).filter(pc.is_valid(ids))
    return Numbered(events, pa.table([pa.array(list(kept), pa.int64()), pa.array(list(kept.values()), pa.string())], schema=NAMES))


def _by_hour(events: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    hours = pc.divide(_ms(events["time"]), HOUR_MS)
    for hour in sorted(pc.unique(hours).to_pylist()):
        yield hour, events.filter(pc.equal(hours, hour))


def joined(before: Stand, events: pa.Table) -> Stand:
    """Behind some events of one hour."""
    kinds = events["kind"]
    pushes = events.filter(pc.equal(kinds, "push"))
    came = pa.table(
        [*(pushes[name].cast(pa.int64()) for name in ("queue_id", "sequence")), _ms(pushes["time"]), pushes["bytes"].cast(pa.int64())],
        schema=LIVE,
    )
    there = pa.concat_tables([before.live, came])
    gone = _gone(there, events)
    live = there.join(gone.select(["queue_id", "sequence"]), ["queue_id", "sequence"], join_type="left anti").select(LIVE.names).cast(LIVE)
    deliveries = events.filter(pc.is_in(kinds, value_set=pa.array(["delivery", "take", "reserve"])))
    sizes = deliveries.select(["queue_id", "sequence"]).cast(_KEY).join(there, ["queue_id", "sequence"], join_type="inner")
    sums = {
        "pushed": _counted(pushes),
        "delivered": _counted(deliveries),
        "again": _counted(deliveries.filter(pc.fill_null(pc.greater(deliveries["receives"], 1), False))),
        "completed": _counted(events.filter(pc.is_in(kinds, value_set=pa.array(["take", "complete", "settle"])))),
        "discarded": _counted(gone.filter(pc.is_in(gone["kind"], value_set=pa.array(_DISCARDING)))),
        "moved": _counted(events.filter(pc.is_in(kinds, value_set=pa.array(facts.MOVED)))),
        "bytes_in": _counted(came, "bytes"),
        "bytes_out": _counted(sizes, "bytes"),
        "unsized": _counted(came.filter(pc.is_null(came["bytes"]))),
    }
    peaks = _peaks(before.live, pushes, gone)
    made = _summed([before.sums, _table(sums, peaks)])
    busy = pa.concat_tables([one.select(["queue_id", "time"]) for one in (pushes, deliveries)])
    minutes = pa.table(
        [busy["queue_id"], pc.divide(_ms(busy["time"]), MINUTE_MS), pa.array([1] * busy.num_rows, pa.int64())], schema=MINUTES
    )
    minutes = pa.concat_tables([before.minutes, minutes]).group_by(["queue_id", "minute"]).aggregate([("messages", "sum")])
    return before._replace(live=live, sums=made, minutes=minutes.rename_columns(MINUTES.names).cast(MINUTES))


_KEY = pa.schema([("queue_id", pa.int64()), ("sequence", pa.int64())])


def _gone(there: pa.Table, events: pa.Table) -> pa.Table:
    """(queue_id, sequence, number, kind) of the messages that left, each once."""
    left = events.filter(pc.is_in(events["kind"], value_set=pa.array(facts.GONE)))
    columns = ["queue_id", "sequence", "number", "kind"]
    parts = [left.select(columns).cast(_GONE)]
    clearing = events.filter(pc.is_in(events["kind"], value_set=pa.array(["purge", "drop"])))
    for one in clearing.select([*columns]).to_pylist():
        last = facts.LAST if one["kind"] == "drop" else one["sequence"]
        swept = there.filter(pc.and_(pc.equal(there["queue_id"], one["queue_id"]), pc.less_equal(there["sequence"], last)))
        told = [pa.repeat(pa.scalar(one[name], _GONE.field(name).type), swept.num_rows) for name in ("number", "kind")]
        parts.append(pa.table([swept["queue_id"], swept["sequence"], *told], schema=_GONE))
    first = pa.concat_tables(parts).sort_by("number").group_by(["queue_id", "sequence"], use_threads=False)
    found = first.aggregate([("number", "first"), ("kind", "first")]).rename_columns(columns)
    known = found.join(there.select(["queue_id", "sequence"]), ["queue_id", "sequence"], join_type="left semi")
    return known.select(columns).cast(_GONE)


_GONE = pa.schema([("queue_id", pa.int64()), ("sequence", pa.int64()), ("number", pa.int64()), ("kind", pa.string())])


def _counted(rows: pa.Table, of: str = "") -> dict[int, int]:
    """queue_id → rows, or the sum of a column."""
    what: list[Any] = [(of, "sum")] if of else [([], "count_all")]
    found = rows.group_by("queue_id").aggregate(what)
    counts = found[f"{of}_sum" if of else "count_all"].to_pylist()
    return {one: count or 0 for one, count in zip(found["queue_id"].to_pylist(), counts, strict=True)}


def _peaks(live: pa.Table, pushes: pa.Table, gone: pa.Table) -> dict[int, int]:
    """The most messages that were there at once, of each queue."""
    begun = _counted(live)
    steps = pa.concat_tables(
        [
            pa.table(
                [one["queue_id"].cast(pa.int64()), one["number"].cast(pa.int64()), pa.array([step] * one.num_rows, pa.int64())], _STEPS
            )
            for one, step in ((pushes, 1), (gone, -1))
        ]
    ).sort_by([("queue_id", "ascending"), ("number", "ascending")])
    depth = pc.cumulative_sum(steps["step"])
    found = steps.append_column("depth", depth).group_by("queue_id", use_threads=False)
    rows = found.aggregate([("depth", "max"), ("depth", "first"), ("step", "first")]).to_pylist()
    # Sums run on from one queue to the next: each begins where its first step does.
    peaks = {row["queue_id"]: max(0, row["depth_max"] - (row["depth_first"] - row["step_first"])) for row in rows}
    return {one: begun.get(one, 0) + peaks.get(one, 0) for one in {*begun, *peaks}}


_STEPS = ["queue_id", "number", "step"]


def _table(sums: Mapping[str, Mapping[int, int]], peaks: Mapping[int, int]) -> pa.Table:
    rows = [
        {"queue_id": one, "depth_peak": peaks.get(one, 0), **{name: counts.get(one, 0) for name, counts in sums.items()}}
        for one in sorted({*peaks, *(one for counts in sums.values() for one in counts)})
    ]
    return pa.Table.from_pylist(rows, SUMS)


def _summed(parts: list[pa.Table]) -> pa.Table:
    how: list[tuple[str, str]] = [*((name, "sum") for name in COUNTS), ("depth_peak", "max")]
    found = pa.concat_tables(parts).group_by("queue_id").aggregate(how)
    return found.select(["queue_id", *(f"{name}_{one}" for name, one in how)]).rename_columns(SUMS.names).cast(SUMS)


def told(now: Stand, account: str, at_ms: int) -> pa.Table:
    """The hour that is open, as it stands at that time; last a row for all queues together."""
    assert now.hour is not None
    names = dict(zip(now.names["queue_id"].to_pylist(), now.names["queue"].to_pylist(), strict=True))
    sums = {row.pop("queue_id"): row for row in now.sums.to_pylist()}
    depths = _counted(now.live)
    oldest = dict(zip(*_oldest(now.live), strict=True))
    busiest = now.minutes.group_by("queue_id").aggregate([("messages", "max")])
    busy = dict(zip(busiest["queue_id"].to_pylist(), busiest["messages_max"].to_pylist(), strict=True))
    rows = []
    for one in sorted({*sums, *depths}, key=lambda one: (names.get(one, ""), one)):
        depth = depths.get(one, 0)
        counts = sums.get(one) or {**dict.fromkeys(COUNTS, 0), "depth_peak": depth}
        age_s = (at_ms - oldest[one]) / 1000 if one in oldest else 0.0
        more = {"busiest_per_s": busy.get(one, 0) / 60, "depth": depth, "oldest_s": age_s}
        rows.append({"account": account, "queue": names.get(one, f"#{one}"), "hour": now.hour * HOUR_MS, **counts, **more})
    together = now.minutes.group_by("minute").aggregate([("messages", "sum")])["messages_sum"]
    everything = {name: sum(row[name] for row in rows) for name in (*COUNTS, "depth", "depth_peak")}
    everything |= {"busiest_per_s": (pc.max(together).as_py() or 0) / 60, "oldest_s": max((row["oldest_s"] for row in rows), default=0.0)}
    rows.append({"account": account, "queue": ALL, "hour": now.hour * HOUR_MS, **everything})
    return pa.Table.from_pylist(rows, USAGE)


def _oldest(live: pa.Table) -> tuple[list[int], list[int]]:
    found = live.group_by("queue_id").aggregate([("pushed_ms", "min")])
    return found["queue_id"].to_pylist(), found["pushed_ms_min"].to_pylist()


def _ms(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
