"""Bodies as typed columns: each becomes one struct, and one that does not fit is kept whole in `_corrupt`. Plain Arrow; knows no Spark.

    json        the schema is Spark's own, as DDL or JSON           texts.py
    avro        an Avro schema, or the path of a file that holds one avro.py
    protobuf    the path of a descriptor set and a message's name   protobuf.py

What a format needs beyond Arrow is an extra, and is asked for when the format is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import BadRequest
from dovetail.limits import BODY_SCHEMA_BYTES_MAX
from dovetail.spark.typed import avro, protobuf, texts

CORRUPT = "_corrupt"
FORMATS = ("json", "avro", "protobuf")

Read = Callable[[pa.Array], pa.Array]
"""Bodies to structs, null where a body does not fit."""


class Bodies(NamedTuple):
    """What the options say of bodies. It travels to the tasks with all that it needs: files are read where the driver runs."""

    format: str
    schema: str | bytes
    message: str = ""


def bodies_of(said_format: str, said_schema: str, message: str) -> Bodies | None:
    if not (said_format or said_schema or message):
        return None
    if said_format not in FORMATS:
        raise BadRequest(f"option bodyFormat: {', '.join(FORMATS)}, not {said_format!r}")
    if not said_schema:
        raise BadRequest("options bodyFormat and bodySchema: both or neither")
    if bool(message) != (said_format == "protobuf"):
        raise BadRequest("option bodyMessage: the full name of the message, like shop.Order, of protobuf and of nothing else")
    match said_format:
        case "avro" if not said_schema.lstrip().startswith(("{", "[", '"')):
            return Bodies(said_format, _held(said_schema).decode(errors="replace"))
        case "protobuf":
            return Bodies(said_format, _held(said_schema), message)
        case _:
            if len(said_schema) > BODY_SCHEMA_BYTES_MAX:
                raise BadRequest(f"option bodySchema: at most {BODY_SCHEMA_BYTES_MAX:,} characters")
            return Bodies(said_format, said_schema)


def _held(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(BODY_SCHEMA_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise BadRequest(f"option bodySchema: {error}") from None
    if len(data) > BODY_SCHEMA_BYTES_MAX:
        raise BadRequest(f"option bodySchema: {path} is larger than {BODY_SCHEMA_BYTES_MAX:,} bytes")
    return data


def kind_of(bodies: Bodies) -> pa.StructType:
    """The struct that such bodies become, of a format whose schema says it by itself (that of JSON is Spark's to read)."""
    match bodies.format:
        case "avro":
            return avro.kind_of(avro.parsed(str(bodies.schema)))
        case _:
            return protobuf.kind_of(protobuf.found(_bytes(bodies), bodies.message))


def checked(bodies: Bodies, kind: pa.StructType) -> None:
    """Whether bodies can be read as this struct, found out before anything is read."""
    _reader(bodies, kind)


@lru_cache(maxsize=4)
def _reader(bodies: Bodies, kind: pa.StructType) -> Read:
    match bodies.format:
        case "json":
            return texts.reader(kind)
        case "avro":
            return avro.reader(str(bodies.schema), kind)
        case _:
            return protobuf.reader(_bytes(bodies), bodies.message, kind)


def _bytes(bodies: Bodies) -> bytes:
    assert isinstance(bodies.schema, bytes)
    return bodies.schema


def read(column: pa.Array, bodies: Bodies, kind: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """(structs, null where a body does not fit; those bodies, null where it does)"""
    structs = _reader(bodies, kind)(column)
    return structs, pc.if_else(pc.is_null(structs), column, pa.scalar(None, column.type))


def with_bodies(batch: pa.RecordBatch, bodies: Bodies, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with its bodies as the schema has them."""
    structs, corrupt = read(batch.column("body"), bodies, schema.field("body").type)
    made = {**dict(zip(batch.schema.names, batch.columns, strict=True)), "body": structs, CORRUPT: corrupt}
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
