"""The columns that Spark sees, and how a node's Arrow becomes them. Plain Arrow; knows neither Spark nor sockets.

    queue STRING · sequence BIGINT · time TIMESTAMP · id BINARY · group STRING · attributes MAP<STRING, STRUCT<type, value>> · body BINARY

`attributes` keeps the type beside the value: a Number and a String of the same characters are different attributes to SQS and its clients,
and what is replayed from an archive must be what was sent. `attributes['trace'].value` is bytes; cast it where it is text.

Spark compares the schema of the first batch with its own to the letter and never looks at the others, so all batches are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core.column import Column
from dovetail.core.message import Attribute, decode_attributes
from dovetail.doors.native.codec import answers

ATTRIBUTE = pa.struct([pa.field("type", pa.string()), pa.field("value", pa.binary())])
ATTRIBUTES = pa.map_(pa.string(), ATTRIBUTE)

ARROW: dict[str, pa.DataType] = {
    "queue": pa.string(),
    "sequence": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "id": pa.binary(),
    "group": pa.string(),
    "attributes": ATTRIBUTES,
    "body": pa.binary(),
    "receives": pa.int32(),
    "state": pa.string(),
}
SQL = {
    "queue": "STRING",
    "sequence": "BIGINT",
    "time": "TIMESTAMP",
    "id": "BINARY",
    "group": "STRING",
    "attributes": "MAP<STRING, STRUCT<type: STRING, value: BINARY>>",
    "body": "BINARY",
    "receives": "INT",
    "state": "STRING",
}


def ddl(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {SQL[name]}" for name in columns)


def schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW[name]) for name in columns])


def shaped(batch: pa.RecordBatch, queue: str, columns: Sequence[str]) -> pa.RecordBatch:
    """A node's batch of one queue as Spark's."""
    made = []
    for name in columns:
        match name:
            case "queue":
                made.append(_repeated(queue, batch.num_rows))
            case "sequence":
                made.append(batch.column(name).view(pa.int64()))
            case "attributes":
                made.append(attributes_of(batch.column(name)))
            case "time" | "id" | "receives":
                made.append(batch.column(name).cast(ARROW[name]))
            case _:
                made.append(batch.column(name))
    return pa.RecordBatch.from_arrays(made, schema=schema(columns))


def looked(messages: answers.Messages, queue: str, columns: Sequence[str]) -> pa.RecordBatch:
    """A look at waiting messages as Spark's. Ids that are made of the sequence are left empty here; `filled` knows them."""
    count = len(messages.sequences)
    assert messages.receives is not None and messages.states is not None
    made: dict[str, pa.Array] = {
        "queue": _repeated(queue, count),
        "sequence": pa.array(messages.sequences, pa.int64()),
        "time": pa.array([1000 * time for time in messages.times], pa.timestamp("us", tz="UTC")),
        "id": pa.array(_ids(messages.ids, count), pa.binary()),
        "group": _texts(messages.groups, count),
        "attributes": attributes_of(_bytes(messages.attributes, count)),
        "body": pa.array(list(messages.bodies), pa.binary()),
        "receives": pa.array(messages.receives, pa.int32()),
        "state": pa.array([answers.STATES[state] for state in bytes(messages.states)], pa.string()),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema(columns))


def attributes_of(column: pa.Array) -> pa.Array:
    """Maps of attributes as they lie in the log. The messages of a producer mostly carry few different sets; each is read once."""
    if column.null_count == len(column):
        return pa.nulls(len(column), ATTRIBUTES)
    found = column.dictionary_encode()
    maps = [list(map(_entry, decode_attributes(data).items())) for data in found.dictionary.to_pylist()]
    return pa.array(maps, ATTRIBUTES).take(found.indices)


def _entry(item: tuple[str, Attribute]) -> tuple[str, dict[str, object]]:
    name, attribute = item
    return name, {"type": attribute.type, "value": attribute.value}


@lru_cache(maxsize=16)
def _column(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _repeated(text: str, count: int) -> pa.Array:
    """The same text for all: a slice of a column that is made once for each power of two."""
    return _column(text, 1 << max(0, count - 1).bit_length()).slice(0, count)


def _ids(ids: memoryview | bytes | None, count: int) -> list[bytes | None]:
    if ids is None:
        return [None] * count
    whole = bytes(ids)
    return [whole[at : at + 16] if any(whole[at : at + 16]) else None for at in range(0, 16 * count, 16)]


def _bytes(column: Column | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.binary()) if column is None else pa.array([data or None for data in column], pa.binary())


def _texts(column: Column | None, count: int) -> pa.Array:
    return _bytes(column, count).cast(pa.string())


def below(batch: pa.RecordBatch, end: int, key: str = "sequence") -> pa.RecordBatch:
    """Without the messages at sequence `end` and above: a range with gaps is read by count and may come out longer."""
    if not batch.num_rows or batch.column(key)[batch.num_rows - 1].as_py() < end:
        return batch
    return batch.slice(0, pc.sum(pc.less(batch.column(key), end)).as_py() or 0)
