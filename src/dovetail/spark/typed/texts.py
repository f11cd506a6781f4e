"""JSON texts as structs.

All bodies of a batch are parsed at once. Where that fails the batch is halved, and again, until the bodies that are at fault stand alone: a
good batch pays nothing, and a bad row about one more parse of the batch. (Refused: `json.loads` for each, an object for every value.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO

import pyarrow as pa
from pyarrow import json

from dovetail.errors import BadRequest


def reader(kind: pa.StructType) -> Callable[[pa.Array], pa.Array]:
    try:
        _parsed([b"{}"], kind)
    except pa.ArrowException as error:
        raise BadRequest(f"option bodySchema: JSON cannot be read as {kind}: {error}") from None
    return partial(_read, kind)


def _read(kind: pa.StructType, bodies: pa.Array) -> pa.Array:
    found: list[pa.Array] = []
    _halved(bodies, kind, found)
    return pa.concat_arrays(found) if found else pa.nulls(0, kind)


def _halved(bodies: pa.Array, kind: pa.StructType, found: list[pa.Array]) -> None:
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


def _parsed(bodies: list[bytes], kind: pa.StructType) -> pa.Array:
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
