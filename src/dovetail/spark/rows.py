"""Rows of a job as records of a push: which columns a row may have, and how Arrow's become the log's. Plain Arrow; knows neither Spark nor
sockets.

    body            BINARY or STRING                       must be there, in every row
    queue           STRING                                 else option queue
    group           STRING                                 a group, or a tenant
    attributes      MAP<STRING, STRING> or MAP<STRING, STRUCT<type: STRING, value: BINARY>>      as the source gives them
    delay           a whole number of milliseconds, or INTERVAL DAY TO SECOND                    null: what the queue says
    deduplication   STRING                                 null: none

A column of the log is offsets and bytes back to back, and so is Arrow's: bodies, groups and texts are moved as they lie. An object is made
for a row only where it has attributes or a text to recognise repeats by.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core.message import Attribute, dedup_hash, encode_attributes
from dovetail.core.pushcodec import ATTRIBUTES, DEDUPS, DELAYS, GROUPS, HEAD, Data
from dovetail.doors.native.codec import Kind
from dovetail.errors import BadRequest, DovetailError, LimitExceeded
from dovetail.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    DELAY_MS_MAX,
    ENTRY_BYTES_TARGET,
    GROUP_BYTES_MAX,
    MESSAGE_BYTES_MAX,
)

COLUMNS = ("body", "queue", "group", "attributes", "delay", "deduplication")
SHOWN = 40
"""Of a text or a body, where a row is named in an error."""
_OF_THE_QUEUE = -1
"""As u64 it is what says that the queue's own delay holds."""


class Messages(NamedTuple):
    """Rows for one queue, in the log's terms. None: no row has any."""

    bodies: pa.Array
    groups: pa.Array | None
    attributes: pa.Array | None
    delays: pa.Array | None
    dedups: pa.Array | None

    def cut(self, start: int, count: int) -> Messages:
        return Messages(*[None if column is None else column.slice(start, count) for column in self])

    def chosen(self, mask: pa.Array) -> Messages:
        return Messages(*[None if column is None else column.filter(mask) for column in self])


def checked(schema: pa.Schema, *, ignore: bool, queue: bool) -> tuple[str, ...]:
    """The columns of a job that are written; BadRequest where one is missing, of a wrong type, or of no use. `queue`: one is named."""
    names = schema.names
    if "body" not in names:
        raise BadRequest(f"a row needs a column body; there are {', '.join(names) or 'none'}")
    if not queue and "queue" not in names:
        raise BadRequest("which queue? Set the option queue, or give the rows a column queue")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown and not ignore:
        raise BadRequest(
            f"no part of a message is called {', '.join(unknown)}; there are {', '.join(COLUMNS)}. Drop what is not needed, put it into the"
            " body (to_json(struct(…))), or set the option extraColumns=ignore"
        )
    for field in schema:
        if field.name in COLUMNS and not _FITS[field.name](field.type):
            raise BadRequest(f"column {field.name}: {field.type} is not what it can be; {_MAY_BE[field.name]}")
    return tuple(name for name in COLUMNS if name in names)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_attributes(kind: pa.DataType) -> bool:
    if not pa.types.is_map(kind) or not _is_text(kind.key_type):
        return False
    value = kind.item_type
    named = [value.field(index).name for index in range(value.num_fields)] if pa.types.is_struct(value) else []
    return _is_text(value) or named == ["type", "value"]


_FITS = {
    "body": _is_bytes,
    "queue": _is_text,
    "group": _is_text,
    "attributes": _is_attributes,
    "delay": lambda kind: bool(pa.types.is_integer(kind) or pa.types.is_duration(kind)),
    "deduplication": _is_text,
}
_MAY_BE = {
    "body": "BINARY or STRING (of a struct: to_json)",
    "queue": "STRING",
    "group": "STRING",
    "attributes": "MAP<STRING, STRING>, or MAP<STRING, STRUCT<type: STRING, value: BINARY>>",
    "delay": "BIGINT milliseconds, or INTERVAL DAY TO SECOND",
    "deduplication": "STRING",
}


class Place(NamedTuple):
    """Where a batch of rows lies, for those who have to find one of them."""

    partition: int = 0
    first: int = 0
    """Rows of the partition before this batch."""

    def row(self, index: int, batch: pa.RecordBatch) -> str:
        """One row: its place, and how it begins."""
        shown = {name: batch.column(name)[index].as_py() for name in ("queue", "group", "body") if name in batch.schema.names}
        told = ", ".join(f"{name} {_short(value)}" for name, value in shown.items() if value is not None)
        return f"partition {self.partition}, row {self.first + index}{f' ({told})' if told else ''}"


def _short(value: str | bytes) -> str:
    return repr(value if len(value) <= SHOWN else value[:SHOWN]) + ("…" if len(value) > SHOWN else "")


def by_queue(batch: pa.RecordBatch, columns: Sequence[str], queue: str, place: Place = Place()) -> Iterator[tuple[str, Messages]]:  # noqa: B008
    """The messages for each queue, in the order of their rows. A row whose column queue is null goes to the one that is named. Every row is
    looked at before the first is given."""
    messages = messages_of(batch, columns, place)
    if "queue" not in columns:
        yield queue, messages
        return
    told = batch.column("queue").cast(pa.string())
    if told.null_count:
        if not queue:
            _refuse(batch, place, pc.is_null(told), "no queue, and the option queue names none")
        told = told.fill_null(queue)
    names = pc.unique(told).to_pylist()
    for name in names:
        yield name, messages if len(names) == 1 else messages.chosen(pc.equal(told, name))


def messages_of(batch: pa.RecordBatch, columns: Sequence[str], place: Place = Place()) -> Messages:  # noqa: B008
    bodies = batch.column("body").cast(pa.binary())
    if bodies.null_count:
        _refuse(batch, place, pc.is_null(bodies), "no body: null is none (an empty text is one)")
    _no_longer(batch, place, bodies, BODY_BYTES_MAX, "a body")
    groups = _texts(batch, columns, "group")
    if groups is not None:
        _no_longer(batch, place, groups, GROUP_BYTES_MAX, "a group")
    attributes = _attributes(batch, columns, place)
    texts = _texts(batch, columns, "deduplication")
    dedups = None if texts is None else pa.array([dedup_hash(text) if text else bytes(16) for text in texts.to_pylist()], pa.binary(16))
    return Messages(bodies, groups, attributes, _delays(batch, columns, place), dedups)


def _refuse(batch: pa.RecordBatch, place: Place, wrong: pa.Array, what: str, error: type[DovetailError] = BadRequest) -> NoReturn:
    """Says which row it is: the first of those that are wrong."""
    raise error(f"{place.row(pc.index(wrong, True).as_py(), batch)}: {what}")


def _given(batch: pa.RecordBatch, columns: Sequence[str], name: str) -> pa.Array | None:
    found = batch.column(name) if name in columns else None
    return None if found is None or found.null_count == len(found) else found


def _texts(batch: pa.RecordBatch, columns: Sequence[str], name: str) -> pa.Array | None:
    found = _given(batch, columns, name)
    return None if found is None else found.cast(pa.binary()).fill_null(b"")


def _no_longer(batch: pa.RecordBatch, place: Place, column: pa.Array, most: int, what: str) -> None:
    lengths = pc.binary_length(column)
    longest = pc.max(lengths).as_py() or 0
    if longest > most:
        _refuse(batch, place, pc.equal(lengths, longest), f"{what} has {longest} bytes; at most {most} are allowed", LimitExceeded)


def _delays(batch: pa.RecordBatch, columns: Sequence[str], place: Place) -> pa.Array | None:
    found = _given(batch, columns, "delay")
    if found is None:
        return None
    delays = pc.divide(found.cast(pa.duration("us")).cast(pa.int64()), 1000) if pa.types.is_duration(found.type) else found.cast(pa.int64())
    ends = pc.min_max(delays).as_py()
    if ends["min"] < 0 or ends["max"] > DELAY_MS_MAX:
        wrong = ends["min"] if ends["min"] < 0 else ends["max"]
        _refuse(batch, place, pc.equal(delays, wrong), f"a delay is 0 to {DELAY_MS_MAX} ms, not {wrong}", LimitExceeded)
    return delays.fill_null(_OF_THE_QUEUE)


def _attributes(batch: pa.RecordBatch, columns: Sequence[str], place: Place) -> pa.Array | None:
    found = _given(batch, columns, "attributes")
    if found is None:
        return None
    encoded = []
    for index, (entries, body) in enumerate(zip(found.to_pylist(), pc.binary_length(batch.column("body")).to_pylist(), strict=True)):
        try:
            encoded.append(_encoded(entries))
        except (BadRequest, LimitExceeded) as error:
            raise type(error)(f"{place.row(index, batch)}: {error}") from None
        if body + len(encoded[-1]) > MESSAGE_BYTES_MAX:
            told = f"body and attributes have {body + len(encoded[-1])} bytes; at most {MESSAGE_BYTES_MAX} are allowed"
            raise LimitExceeded(f"{place.row(index, batch)}: {told}")
    return pa.array(encoded, pa.binary())


def _encoded(entries: Sequence[tuple[str, Any]] | None) -> bytes:
    """The attributes of one row. The rows of a job mostly carry few different sets."""
    if not entries:
        return b""
    return _of_entries(tuple([(name, *_attribute(name, value)) for name, value in entries]))


def _attribute(name: str, value: Any) -> tuple[str, bytes]:
    if isinstance(value, Mapping):
        label, data = value["type"], value["value"]
        value = None if label is None or data is None else (label, bytes(data))
    elif value is not None:
        value = ("String", value.encode())
    if value is None:
        raise BadRequest(f"the attribute {name!r} is null")
    return value[0], value[1]


@lru_cache(maxsize=1024)
def _of_entries(entries: tuple[tuple[str, str, bytes], ...]) -> bytes:
    return encode_attributes({name: Attribute(label, data) for name, label, data in entries})


# Records


def frames(messages: Messages) -> Iterator[Messages]:
    """The same messages in pieces, each as large as a record should be, or one message that is larger."""
    bodies = _offsets(messages.bodies)
    texts = None if messages.attributes is None else _offsets(messages.attributes)

    def before(index: int) -> int:
        return bodies[index] + (texts[index] if texts is not None else 0)

    at, count = 0, len(messages.bodies)
    while at < count:
        most = min(count, at + BATCH_MESSAGES_MAX)
        end = max(at + 1, bisect_right(range(most + 1), before(at) + ENTRY_BYTES_TARGET, at, key=before) - 1)
        yield messages.cut(at, end - at)
        at = end


def _offsets(column: pa.Array) -> memoryview:
    return memoryview(column.buffers()[1]).cast("i")[column.offset :]


def record(queue: int, messages: Messages) -> bytes:
    """As docs/protocol.md draws it under PUSH."""
    flags = 0
    parts: list[Data] = [b"", queue.to_bytes(8, "little")]
    if messages.delays is not None:
        flags |= DELAYS
        parts.append(_fixed(messages.delays, 8))
    if messages.dedups is not None:
        flags |= DEDUPS
        parts.append(_fixed(messages.dedups, 16))
    if messages.groups is not None:
        flags |= GROUPS
        parts += _column(messages.groups)
    if messages.attributes is not None:
        flags |= ATTRIBUTES
        parts += _column(messages.attributes)
    parts += _column(messages.bodies)
    parts[0] = HEAD.pack(Kind.PUSH, flags, 1, len(messages.bodies))
    return b"".join(parts)


def _fixed(column: pa.Array, width: int) -> Data:
    return memoryview(column.buffers()[1])[width * column.offset : width * (column.offset + len(column))]


def _column(column: pa.Array) -> list[Data]:
    """Offsets from 0 on, the bytes, padding."""
    _, told, data = column.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, told], offset=column.offset)
    first, end = offsets[0].as_py(), offsets[len(column)].as_py()
    moved = pc.subtract(offsets, pa.scalar(first, pa.int32())) if first or column.offset else offsets
    parts: list[Data] = [_fixed(moved, 4)]
    if end > first:
        parts.append(memoryview(data)[first:end])
    if padding := (first - end) & 3:
        parts.append(bytes(padding))
    return parts
