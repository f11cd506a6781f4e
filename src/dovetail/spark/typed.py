"""Bodies as typed columns: JSON texts to one struct, and what is no such text to `_corrupt`, whole. Plain Arrow; knows no Spark.

All bodies of a batch are parsed at once. Where that fails the batch is halved, and again, until the bodies that are at fault stand alone: a
good batch pays nothing, and a bad row about one more parse of the batch. (Refused: `json.loads` for each, an object for every value.)
"""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from dovetail.errors import BadRequest

CORRUPT = "_corrupt"


def checked(kind: pa.DataType) -> pa.DataType:
    """The type of the struct, if JSON can be read as it."""
    try:
        _parsed([b"{}"], kind)
    except pa.ArrowException as error:
        raise BadRequest(f"option bodySchema: JSON cannot be read as {kind}: {error}") from None
    return kind


def with_bodies(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with its bodies as the schema has them."""
    bodies, corrupt = read(batch.column("body"), schema.field("body").type)
    made = {**dict(zip(batch.schema.names, batch.columns, strict=True)), "body": bodies, CORRUPT: corrupt}
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def read(bodies: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """(structs, null where a body is no such JSON; those bodies, null where it is)"""
    found: list[pa.Array] = []
    _halved(bodies, kind, found)
    structs = pa.concat_arrays(found) if found else pa.nulls(0, kind)
    return structs, pc.if_else(pc.is_null(structs), bodies, pa.scalar(None, bodies.type))


def _halved(bodies: pa.Array, kind: pa.DataType, found: list[pa.Array]) -> None:
    if not len(bodies):
        return
    try:
        found.append(_parsed(bodies.to_pylist(), kind))
        return
    except pa.ArrowException:
        pass
    if len(bodies) == 1:
        found.append(pa.nulls(1, kind))
        return
    half = len(bodies) // 2
    _halved(bodies.slice(0, half), kind, found)
    _halved(bodies.slice(half), kind, found)


def _parsed(bodies: list[bytes], kind: pa.DataType) -> pa.Array:
    """All of them, or ArrowInvalid."""
    # Each body is an object from its first byte to its last, so each gives one row at least; as many rows as bodies then means one for
    # each. Without this a body with two objects and an empty one would together shift the rows between them.
    if not all(body[:1] == b"{" and body[-1:] == b"}" for body in map(bytes.strip, bodies)):
        raise pa.ArrowInvalid("a body is no object")
    fields = pa.schema([kind.field(index) for index in range(kind.num_fields)])
    text = b"\n".join(bodies)
    told = json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    rows = json.read_json(BytesIO(text), json.ReadOptions(use_threads=False, block_size=len(text) + 1), told)
    if rows.num_rows != len(bodies):
        raise pa.ArrowInvalid("a body holds several objects")
    columns = [rows.column(field.name).combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(columns, fields=list(fields)) if columns else pa.array([{}] * len(bodies), kind)
