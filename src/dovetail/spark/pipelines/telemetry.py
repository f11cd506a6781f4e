"""What devices say, out of messages: who spoke, when it was measured, and what. Plain Arrow; knows neither Spark nor files.

    a field is         group · queue · time (when it was pushed) · attribute.NAME · body.NAME (of a JSON object; body.where.NAME goes down)

A message that cannot be taken for a reading, that comes too late, or whose clock runs ahead is set apart whole, with why; it is never
dropped. Everything else becomes parts of windows, which can be added up in any order:

    setting apart      unreadable      no device, or no time
                       ahead           measured later than it was pushed, by more than clocks may differ. One such clock would otherwise
                                       carry the watermark along, and all the others would be late
                       late            its window is closed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import BadRequest
from dovetail.spark import shape
from dovetail.spark.options import COLUMNS
from dovetail.spark.pipelines.dead_letters import attribute
from dovetail.spark.typed import texts

TIME = pa.timestamp("us", tz="UTC")
CLOCKS = {"iso": pa.string(), "s": pa.float64(), "ms": pa.float64()}
"""How a time in a body or an attribute is written."""
KEY = ("queue", "device", "measure", "window")
PART = pa.schema(
    [
        *(("queue", pa.string()), ("device", pa.string()), ("measure", pa.string()), ("window", TIME)),
        *(("readings", pa.int64()), ("total", pa.float64()), ("squares", pa.float64()), ("least", pa.float64()), ("most", pa.float64())),
        *(("first_at", TIME), ("last_at", TIME), ("heard", TIME)),
    ]
)
"""Part of a window of one measure of one device; without a measure: that the device was heard."""
WHY = pa.field("why", pa.string())
OUTCOME = pa.schema([*(field for field in PART if field.name != "queue"), WHY, *shape.schema(COLUMNS)])
"""Parts, and messages that are set apart, in one schema: a batch is read once for both. `why` is null in parts."""

UNREADABLE, AHEAD, LATE = "unreadable", "ahead", "late"
_NUMBER = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_FAR_MS = 250_000_000_000_000
"""The year 9892: what is beyond it is no time."""


class Fields(NamedTuple):
    device: str = "group"
    at: str = "time"
    values: tuple[str, ...] = ()
    clock: str = "iso"

    def checked(self) -> Fields:
        if self.clock not in CLOCKS:
            raise BadRequest(f"clock: {', '.join(CLOCKS)}, not {self.clock!r}")
        for name in (self.device, self.at, *self.values):
            kind, _, rest = name.partition(".")
            if not (name in ("group", "queue", "time") or (kind in ("attribute", "body") and all(rest.split(".")))):
                raise BadRequest(f"{name!r} is no field; one is group, queue, time, attribute.NAME or body.NAME")
        if self.device == "time" or any(name in ("group", "queue", "time") for name in self.values):
            raise BadRequest("a device is not a time, and a value is a number in an attribute or a body")
        _tree(self._of_bodies())
        return self

    def _of_bodies(self) -> dict[str, pa.DataType]:
        told = {self.device: pa.string(), self.at: CLOCKS[self.clock], **dict.fromkeys(self.values, pa.float64())}
        return {name[5:]: kind for name, kind in told.items() if name.startswith("body.")}

    def read(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array, list[pa.Array]]:
        """(devices, times, values); null where a message does not say."""
        paths = self._of_bodies()
        bodies = texts.reader(_tree(paths))(batch["body"]) if paths else None

        def column(name: str, kind: pa.DataType) -> pa.Array:
            if name in ("group", "queue", "time"):
                return batch[name]
            if name.startswith("body."):
                return _below(bodies, name[5:])
            text = attribute(batch, name.partition(".")[2])
            return text if pa.types.is_string(kind) else _numbers(text)

        device = column(self.device, pa.string())
        at = batch["time"] if self.at == "time" else times(column(self.at, CLOCKS[self.clock]), self.clock)
        device = pc.if_else(pc.equal(device, ""), pa.scalar(None, pa.string()), device)
        return device, at, [column(name, pa.float64()) for name in self.values]


def _tree(paths: dict[str, pa.DataType]) -> pa.StructType:
    """The struct that has these paths."""
    below: dict[str, dict[str, pa.DataType]] = {}
    leaves: dict[str, pa.DataType] = {}
    for path, kind in paths.items():
        name, _, rest = path.partition(".")
        if rest:
            below.setdefault(name, {})[rest] = kind
        else:
            leaves[name] = kind
    if both := below.keys() & leaves.keys():
        raise BadRequest(f"body.{min(both)} is a value and holds others")
    return pa.struct([*leaves.items(), *((name, _tree(inner)) for name, inner in below.items())])


def _below(structs: pa.Array | None, path: str) -> pa.Array:
    for name in path.split("."):
        structs = pc.struct_field(structs, name)
    return structs


def _numbers(told: pa.Array) -> pa.Array:
    fits = pc.match_substring_regex(told, _NUMBER)
    return pc.utf8_trim_whitespace(pc.if_else(fits, told, pa.scalar(None, pa.string()))).cast(pa.float64())


def times(told: pa.Array, clock: str) -> pa.Array:
    """Instants; null for what is none. A text without a zone is UTC's."""
    if clock != "iso":
        ms = told if clock == "ms" else pc.multiply(told, 1000.0)
        ms = pc.if_else(pc.less(pc.abs(ms), float(_FAR_MS)), ms, pa.scalar(None, pa.float64()))
        return pc.multiply(pc.round(ms).cast(pa.int64()), 1000).cast(TIME)
    try:
        return told.cast(TIME)
    except pa.ArrowInvalid:
        return pa.array([_instant(text) for text in told.to_pylist()], TIME)


def _instant(text: str | None) -> datetime | None:
    try:
        when = datetime.fromisoformat(text or "")
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class Reader:
    """What runs in a task. The watermark is that of the batches before, so that a message is late or not whatever task reads it."""

    def __init__(self, fields: Fields, window_us: int, ahead_us: int, watermark_us: int | None) -> None:
        self.fields = fields
        self.window_us = window_us
        self.ahead_us = ahead_us
        self.watermark_us = watermark_us

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            device, at, values = self.fields.read(batch)
            window = windows_of(at, self.window_us)
            why = self._why(batch, device, at, window)
            good = pc.is_null(why)
            names = self.fields.values or ("",)
            parts = [
                part(batch["queue"], device, name, at, window, batch["time"], value).filter(good)
                for name, value in zip(names, values or [pa.nulls(batch.num_rows, pa.float64())], strict=True)
            ]
            # Whoever is late or has a wrong clock was heard all the same.
            silent = pa.nulls(batch.num_rows, pa.string())
            told = pc.if_else(good, at, pa.scalar(None, TIME))
            none = pa.nulls(batch.num_rows, pa.float64())
            heard = part(batch["queue"], device, silent, told, pa.nulls(batch.num_rows, TIME), batch["time"], none)
            together = added([pa.Table.from_batches([one]) for one in (*parts, heard.filter(pc.is_valid(device)))])
            yield from _outcome(together).to_batches()
            apart = batch.append_column(WHY, why).filter(pc.invert(good))
            if apart.num_rows:
                yield from _outcome(pa.Table.from_batches([apart])).to_batches()

    def _why(self, batch: pa.RecordBatch, device: pa.Array, at: pa.Array, window: pa.Array) -> pa.Array:
        unreadable = pc.or_(pc.is_null(device), pc.is_null(at))
        ahead = pc.fill_null(pc.greater(_us(at), pc.add(_us(batch["time"]), self.ahead_us)), False)
        late = pa.repeat(pa.scalar(False), batch.num_rows)
        if self.watermark_us is not None:
            late = pc.fill_null(pc.less_equal(pc.add(_us(window), self.window_us), self.watermark_us), False)
        none = pa.scalar(None, pa.string())
        return pc.if_else(unreadable, UNREADABLE, pc.if_else(ahead, AHEAD, pc.if_else(late, LATE, none)))


def _us(times: pa.Array) -> pa.Array:
    return times.cast(pa.int64())


def windows_of(at: pa.Array, window_us: int) -> pa.Array:
    """Where the window of each time begins; windows lie side by side from 1970 on."""
    us = _us(at)
    rest = pc.subtract(us, pc.multiply(pc.divide(us, window_us), window_us))
    # Arrow divides towards zero; before 1970 that is the wrong side.
    rest = pc.if_else(pc.less(rest, 0), pc.add(rest, window_us), rest)
    return pc.subtract(us, rest).cast(TIME)


def part(
    queue: pa.Array, device: pa.Array, measure: object, at: pa.Array, window: pa.Array, heard: pa.Array, value: pa.Array
) -> pa.RecordBatch:
    """A part for each row; a reading without this value counts as none of it."""
    rows = len(queue)
    one = pa.repeat(1, rows) if measure in ("",) or isinstance(measure, pa.Array) else pc.is_valid(value).cast(pa.int64())
    name = measure if isinstance(measure, pa.Array) else pa.repeat(pa.scalar(measure, pa.string()), rows)
    columns = [queue, device, name, window, one, value, pc.multiply(value, value), value, value, at, at, heard]
    return pa.RecordBatch.from_arrays([column.cast(field.type) for column, field in zip(columns, PART, strict=True)], schema=PART)


def added(parts: Sequence[pa.Table]) -> pa.Table:
    """Parts of the same windows as one."""
    sums = [("readings", "sum"), ("total", "sum"), ("squares", "sum"), ("least", "min"), ("most", "max")]
    sums += [("first_at", "min"), ("last_at", "max"), ("heard", "max")]
    found = pa.concat_tables(parts).group_by(list(KEY)).aggregate(sums)
    made = found.select([*KEY, *(f"{name}_{how}" for name, how in sums)]).rename_columns(PART.names)
    return made.cast(PART)


def _outcome(rows: pa.Table) -> pa.Table:
    columns = [rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type) for field in OUTCOME]
    return pa.table([column.cast(field.type) for column, field in zip(columns, OUTCOME, strict=True)], schema=OUTCOME)
