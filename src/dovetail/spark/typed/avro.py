"""Avro bodies as structs: one record each, as its binary encoding alone, or behind the ten bytes of a single-object encoding (C3 01 and the
fingerprint of this very schema). No container files, and no registry of schemas: the schema is the option's.

| Avro | column |
| --- | --- |
| boolean, int, long, float, double, bytes, string | the same |
| fixed, enum | BINARY, STRING |
| array, map, record | ARRAY, MAP, STRUCT |
| a union with null | the other type; of several numbers, the one that holds them all |
| date; decimal | DATE; DECIMAL |
| timestamp-millis, timestamp-micros; local-… | TIMESTAMP; TIMESTAMP_NTZ |
| any other logical type | what it is made of |

Refused: unions of anything else (a value does not say which it is), records within themselves (a column has an end), and arrays of items
without a byte (an array of ten bytes could hold 2^60 of them).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from io import BytesIO
from types import ModuleType
from typing import Any

import pyarrow as pa

from dovetail.errors import BadRequest
from dovetail.spark.typed import rows

_MARK = b"\xc3\x01"
_PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIDER = [pa.int32(), pa.int64(), pa.float32(), pa.float64()]
"""Each holds those before it, as Avro promotes numbers."""
DECIMAL_DIGITS = 38
"""As many as a column of decimals has; more of them stay bytes."""


def _library() -> ModuleType:
    try:
        import fastavro
    except ImportError:
        raise BadRequest("bodyFormat avro needs fastavro, which is not installed here: pip install 'dovetail[avro]'") from None
    return fastavro


def parsed(text: str) -> Any:
    """The schema with every name replaced by what it names, and without the logical types that nothing is made of here."""
    library = _library()
    try:
        told = _plainer(json.loads(text))
        library.parse_schema(told)
        return library.schema.expand_schema(told)
    except RecursionError:
        raise BadRequest("option bodySchema: the Avro schema goes too deep") from None
    except Exception as error:
        # The library says what is wrong with a schema in errors of many kinds.
        raise BadRequest(f"option bodySchema is no Avro schema: {type(error).__name__}: {error}"[:500]) from None


def _plainer(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plainer(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _plainer(value) if name in ("type", "items", "values", "fields") else value for name, value in schema.items()}
    name, logical = kept.get("type"), kept.get("logicalType")
    if isinstance(name, str) and logical is not None and not _means(name, logical, kept.get("precision")):
        del kept["logicalType"]
    return kept


def _means(name: str, logical: Any, precision: Any) -> bool:
    """Whether a logical type is more here than what it is made of."""
    if logical == "decimal":
        return isinstance(precision, int) and precision <= DECIMAL_DIGITS
    return isinstance(logical, str) and (name, logical) in _LOGICAL


def kind_of(schema: Any) -> pa.StructType:
    kind = _kind(schema)
    if not pa.types.is_struct(kind):
        raise BadRequest(f"option bodySchema: a body is an Avro record, not {schema if isinstance(schema, str) else schema.get('type')!r}")
    return kind


def _kind(schema: Any) -> pa.DataType:
    if isinstance(schema, list):
        return _union([one for one in schema if one != "null" and not (isinstance(one, dict) and one.get("type") == "null")])
    if isinstance(schema, str):
        if schema not in _PLAIN:
            raise BadRequest(f"option bodySchema: {schema} contains itself, and a column has an end")
        return _PLAIN[schema]
    name, logical = schema["type"], schema.get("logicalType")
    if not isinstance(name, str):
        return _kind(name)
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    match name:
        case "record" | "error":
            return pa.struct([pa.field(field["name"], _kind(field["type"])) for field in schema["fields"]])
        case "array":
            if not _size(schema["items"]):
                raise BadRequest("option bodySchema: an array of items that take no bytes has no end")
            return pa.list_(_kind(schema["items"]))
        case "map":
            return pa.map_(pa.string(), _kind(schema["values"]))
        case _:
            return _LOGICAL.get((name, logical), _PLAIN[name])


def _union(members: list[Any]) -> pa.DataType:
    kinds = [_kind(one) for one in members]
    if len(kinds) == 1:
        return kinds[0]
    if kinds and all(kind in _WIDER for kind in kinds):
        return max(kinds, key=_WIDER.index)
    raise BadRequest(f"option bodySchema: a union of {', '.join(map(str, kinds)) or 'nothing'}; one type beside null can be a column")


def _size(schema: Any) -> int:
    """The fewest bytes that a value can take; 0 where it may take none."""
    if isinstance(schema, list):
        return 1
    if isinstance(schema, str):
        return int(schema != "null")
    name = schema["type"]
    if name in ("record", "error"):
        return sum(_size(field["type"]) for field in schema["fields"])
    if name == "fixed":
        return int(schema["size"])
    return _size(name)


def reader(text: str, kind: pa.StructType) -> Callable[[pa.Array], pa.Array]:
    library = _library()
    kind_of(parsed(text))
    told = _plainer(json.loads(text))
    mark = _MARK + bytes.fromhex(library.schema.fingerprint(library.schema.to_parsing_canonical_form(told), "CRC-64-AVRO"))
    decode = partial(_decoded, library.schemaless_reader, library.parse_schema(told), mark)
    return partial(rows.structs, decode=decode, kind=kind)


def _decoded(read: Callable[[BytesIO, Any], Any], schema: Any, mark: bytes, body: bytes) -> rows.Row:
    file = BytesIO(body[len(mark) :] if body.startswith(mark) else body)
    row: rows.Row = read(file, schema)
    if file.read(1):
        raise ValueError("there is more behind the record")
    return row
