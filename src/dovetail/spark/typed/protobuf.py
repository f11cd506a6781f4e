"""Protobuf bodies as structs: one message each, as its descriptor says.

    protoc --include_imports --descriptor_set_out=shop.pb shop.proto

| Protobuf | column |
| --- | --- |
| bool, int32, int64, float, double, string, bytes and their kin | the same; uint32 BIGINT, uint64 DECIMAL(20, 0) |
| enum | STRING; a number without a name is that number |
| repeated, map, message | ARRAY, MAP, STRUCT |
| google.protobuf.Timestamp, Duration | TIMESTAMP, INTERVAL DAY TO SECOND |

A field that knows whether it was set (optional, oneof, message) is null where it was not; any other has its default then, as everywhere in
Protobuf. Fields that the descriptor does not know are left out. Refused: messages within themselves, since a column has an end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from dovetail.errors import BadRequest
from dovetail.spark.typed import rows

# By the number of a field's type, as descriptor.proto has them.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM = range(1, 15)
_SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(15, 19)
_PLAIN = {
    _DOUBLE: pa.float64(), _FLOAT: pa.float32(), _BOOL: pa.bool_(), _STRING: pa.string(), _BYTES: pa.binary(), _ENUM: pa.string(),
    _INT32: pa.int32(), _SINT32: pa.int32(), _SFIXED32: pa.int32(), _UINT32: pa.int64(), _FIXED32: pa.int64(),
    _INT64: pa.int64(), _SINT64: pa.int64(), _SFIXED64: pa.int64(), _UINT64: pa.decimal128(20, 0), _FIXED64: pa.decimal128(20, 0),
}  # fmt: skip
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_KNOWN = {_TIMESTAMP: pa.timestamp("us", tz="UTC"), _DURATION: pa.duration("us")}
_SECONDS_FIRST, _SECONDS_LAST = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999: what a Timestamp may say."""

Value = Callable[[Any], Any]


def found(data: bytes, name: str) -> Any:
    """The descriptor of a message in a descriptor set."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise BadRequest("bodyFormat protobuf needs protobuf, which is not installed here: pip install 'dovetail[protobuf]'") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except DecodeError:
        raise BadRequest("option bodySchema: the file is no descriptor set, as protoc --descriptor_set_out writes it") from None
    except KeyError:
        raise BadRequest(f"option bodyMessage: the descriptor set has no message {name!r}") from None
    except (TypeError, ValueError) as error:
        raise BadRequest(
            f"option bodySchema: the descriptor set is not whole (protoc --include_imports makes one that is): {error}"
        ) from None


def kind_of(message: Any, within: tuple[str, ...] = ()) -> pa.StructType:
    name = message.full_name
    if name in within:
        raise BadRequest(f"option bodySchema: {name} contains itself, and a column has an end")
    return pa.struct([pa.field(field.name, _kind(field, (*within, name))) for field in message.fields])


def _kind(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return pa.map_(_one(key, within), _one(value, within))
    return pa.list_(_one(field, within)) if field.is_repeated else _one(field, within)


def _one(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if field.type in (_MESSAGE, _GROUP):
        return _KNOWN.get(field.message_type.full_name) or kind_of(field.message_type, within)
    return _PLAIN[field.type]


def _is_map(field: Any) -> bool:
    return field.type == _MESSAGE and bool(field.message_type.GetOptions().map_entry)


def reader(data: bytes, name: str, kind: pa.StructType) -> Callable[[pa.Array], pa.Array]:
    message = found(data, name)
    kind_of(message)
    from google.protobuf import message_factory

    parse, row = message_factory.GetMessageClass(message).FromString, _row(message)

    def decode(body: bytes) -> rows.Row:
        made: rows.Row = row(parse(body))
        return made

    return partial(rows.structs, decode=decode, kind=kind)


def _row(message: Any) -> Value:
    """What takes such a message apart: worked out once, and then only followed."""
    fields = [(field.name, _value(field)) for field in message.fields]
    return lambda read: {name: value(read) for name, value in fields}


def _value(field: Any) -> Value:
    name = field.name
    if _is_map(field):
        key, value = map(_item, field.message_type.fields)
        return lambda read: [(key(one), value(other)) for one, other in getattr(read, name).items()]
    item = _item(field)
    if field.is_repeated:
        return lambda read: list(map(item, getattr(read, name)))
    if field.has_presence:
        return lambda read: item(getattr(read, name)) if read.HasField(name) else None
    return lambda read: item(getattr(read, name))


def _item(field: Any) -> Value:
    if field.type in (_MESSAGE, _GROUP):
        known = field.message_type.full_name
        return {_TIMESTAMP: _instant, _DURATION: _span}.get(known) or _row(field.message_type)
    if field.type == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    return lambda value: value


def _instant(read: Any) -> int:
    if not (_SECONDS_FIRST <= read.seconds <= _SECONDS_LAST and 0 <= read.nanos < 1_000_000_000):
        raise ValueError("no time")
    return int(read.seconds) * 1_000_000 + int(read.nanos) // 1000


def _span(read: Any) -> int:
    return int(read.seconds) * 1_000_000 + int(read.nanos / 1000)
