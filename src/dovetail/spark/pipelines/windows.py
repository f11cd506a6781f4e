"""Windows of what devices say: which are open, when they close, who is silent, and what is usual. Plain Arrow; no clock is read here.

watermark       the latest time that was measured, less how late a reading may come. It only grows
a window        is closed when the watermark has passed its end, and given once, whole. What belongs to it then is late
silent          not heard for some of its periods. A device's period is what was said, else its own rhythm: from its first reading to
                its last, by how many there were; one that has been heard fewer than three times has none yet
usual           mean and spread of the same measure in the history; a window is unusual when its mean lies more than so many spreads away
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.spark.pipelines.telemetry import PART, TIME, added

READINGS_FOR_RHYTHM = 3
WINDOW = pa.schema(
    [
        *(("queue", pa.string()), ("device", pa.string()), ("measure", pa.string()), ("window", TIME), ("readings", pa.int64())),
        *((name, pa.float64()) for name in ("mean", "spread", "least", "most")),
        *(("first_at", TIME), ("last_at", TIME), ("heard", TIME)),
        *(("usual", pa.float64()), ("usual_spread", pa.float64()), ("unusual", pa.bool_())),
    ]
)
SILENT = pa.schema(
    [("queue", pa.string()), ("device", pa.string()), ("heard", TIME), ("period_s", pa.float64()), ("silent_s", pa.float64())]
)
USUAL = pa.schema(
    [
        *(("queue", pa.string()), ("device", pa.string()), ("measure", pa.string())),
        *(("usual", pa.float64()), ("usual_spread", pa.float64())),
    ]
)


class Known(NamedTuple):
    """What is known between two batches."""

    open: pa.Table
    devices: pa.Table
    """When each was heard, in the columns of a part that is of no measure."""
    watermark_us: int | None = None
    now_us: int | None = None
    """When the last message was pushed that was read."""
    begun_us: int | None = None
    """When the first one was: a device that has never spoken is waited for from then on."""

    def tables(self) -> Mapping[str, pa.Table]:
        stand = {name: pa.array([getattr(self, name)], pa.int64()) for name in ("watermark_us", "now_us", "begun_us")}
        return {"open": self.open, "devices": self.devices, "stand": pa.table(stand)}


def known(tables: Mapping[str, pa.Table]) -> Known:
    if not tables:
        return Known(PART.empty_table(), PART.empty_table())
    return Known(tables["open"], tables["devices"], **tables["stand"].to_pylist()[0])


def joined(before: Known, parts: pa.Table, *, window_us: int, lateness_us: int, forget_us: int) -> tuple[Known, pa.Table]:
    """(what is known now, the windows that are closed by it)"""
    of_devices = pc.is_null(parts["measure"])
    devices = added([before.devices, parts.filter(of_devices)])
    together = added([before.open, parts.filter(pc.invert(of_devices))])
    latest = _most(devices["last_at"])
    told = [one for one in (before.watermark_us, None if latest is None else latest - lateness_us) if one is not None]
    watermark = max(told, default=None)
    closed = pa.repeat(pa.scalar(False), together.num_rows)
    if watermark is not None:
        closed = pc.less_equal(pc.add(together["window"].cast(pa.int64()), window_us), watermark)
    now, first = _most(devices["heard"]), _least(parts["heard"])
    begun = before.begun_us if before.begun_us is not None else first
    if now is not None:
        devices = devices.filter(pc.greater(devices["heard"].cast(pa.int64()), now - forget_us))
    return Known(together.filter(pc.invert(closed)), devices, watermark, now, begun), together.filter(closed)


def _most(times: pa.ChunkedArray) -> int | None:
    found: int | None = pc.max(times.cast(pa.int64())).as_py()
    return found


def _least(times: pa.ChunkedArray) -> int | None:
    found: int | None = pc.min(times.cast(pa.int64())).as_py()
    return found


def summed(closed: pa.Table, usual: pa.Table | None = None, spreads: float = 3.0) -> pa.Table:
    """Windows as they are read, in the order of their time, beside what is usual."""
    mean, spread = _moments(closed)
    rows = closed.append_column("mean", mean).append_column("spread", spread)
    if usual is None:
        usual = USUAL.empty_table()
    rows = rows.join(usual, ["queue", "device", "measure"], join_type="left outer")
    away = pc.greater(pc.abs(pc.subtract(rows["mean"], rows["usual"])), pc.multiply(rows["usual_spread"], spreads))
    rows = rows.append_column("unusual", away)
    return rows.select(WINDOW.names).cast(WINDOW).sort_by([(name, "ascending") for name in ("window", "queue", "device", "measure")])


def usual_of(parts: pa.Table) -> pa.Table:
    """Mean and spread of every measure over all of its windows."""
    whole = parts.filter(pc.is_valid(parts["measure"]))
    whole = added([whole.set_column(whole.schema.get_field_index("window"), "window", pa.nulls(whole.num_rows, TIME))])
    mean, spread = _moments(whole)
    return pa.table([whole["queue"], whole["device"], whole["measure"], mean, spread], schema=USUAL)


def _moments(parts: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    count = pc.if_else(pc.and_(pc.greater(parts["readings"], 0), pc.is_valid(parts["total"])), parts["readings"], None).cast(pa.float64())
    mean = pc.divide(parts["total"], count)
    # Rounding may take what is the same over and over a little below zero.
    square = pc.subtract(pc.divide(parts["squares"], count), pc.multiply(mean, mean))
    return mean, pc.sqrt(pc.if_else(pc.less(square, 0.0), 0.0, square))


def silent(now: Known, at_us: int, periods: float, period_s: float | None = None, expected: pa.Table | None = None) -> pa.Table:
    """Devices that should have spoken by then. `expected` (queue, device, period_s) names those that are there though they never spoke."""
    devices = now.devices.select(["queue", "device", "readings", "first_at", "last_at", "heard"])
    if expected is not None:
        devices = devices.join(expected, ["queue", "device"], join_type="full outer")
        said = devices["period_s"]
    else:
        said = pa.chunked_array([pa.nulls(devices.num_rows, pa.float64())])
    lasted = pc.divide(pc.subtract(devices["last_at"].cast(pa.int64()), devices["first_at"].cast(pa.int64())).cast(pa.float64()), 1e6)
    enough = pc.greater_equal(devices["readings"], READINGS_FOR_RHYTHM)
    rhythm = pc.divide(lasted, pc.if_else(enough, pc.subtract(devices["readings"], 1), None).cast(pa.float64()))
    own = pc.if_else(pc.greater(rhythm, 0.0), rhythm, pa.scalar(None, pa.float64()))
    period = pc.coalesce(said, own if period_s is None else pa.scalar(period_s, pa.float64()))
    since = pc.coalesce(devices["heard"].cast(pa.int64()), pa.scalar(now.begun_us, pa.int64()))
    gone_s = pc.divide(pc.subtract(at_us, since).cast(pa.float64()), 1e6)
    rows = pa.table([devices["queue"], devices["device"], devices["heard"], period, gone_s], schema=SILENT)
    found = rows.filter(pc.fill_null(pc.greater(gone_s, pc.multiply(period, periods)), False))
    return found.sort_by([("silent_s", "descending"), ("queue", "ascending"), ("device", "ascending")])
