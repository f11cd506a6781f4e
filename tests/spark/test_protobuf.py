"""Protobuf bodies as typed columns, written by Protobuf's own classes; what does not fit is kept whole. No JVM."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from dovetail.errors import BadRequest
from dovetail.spark import shape, typed
from dovetail.spark.options import options_of
from dovetail.spark.source import schema_of
from dovetail.spark.typed import Bodies, protobuf

pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'dovetail[protobuf]'")

from google.protobuf import descriptor_pb2, duration_pb2, message_factory, text_format, timestamp_pb2

SHOP = """
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/duration.proto"
enum_type { name: "Kind" value { name: "NEW" number: 0 } value { name: "USED" number: 1 } }
message_type { name: "Place" field { name: "x" number: 1 type: TYPE_SINT64 label: LABEL_OPTIONAL } }
message_type { name: "Node" field { name: "next" number: 1 type: TYPE_MESSAGE type_name: ".shop.Node" label: LABEL_OPTIONAL } }
message_type {
  name: "Order"
  field { name: "n" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "city" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
  field { name: "big" number: 3 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "at" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "took" number: 5 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_OPTIONAL }
  field { name: "kind" number: 6 type: TYPE_ENUM type_name: ".shop.Kind" label: LABEL_OPTIONAL }
  field { name: "tags" number: 7 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "weights" number: 8 type: TYPE_MESSAGE type_name: ".shop.Order.WeightsEntry" label: LABEL_REPEATED }
  field { name: "places" number: 9 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_REPEATED }
  field { name: "to" number: 10 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_OPTIONAL }
  field { name: "raw" number: 11 type: TYPE_BYTES label: LABEL_OPTIONAL }
  nested_type {
    name: "WeightsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "_city" }
}
"""


def described(*names: str) -> bytes:
    """A descriptor set, as protoc writes it; `names` leaves out all other files."""
    made = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, duration_pb2):
        known.DESCRIPTOR.CopyToProto(made.file.add())
    text_format.Parse(SHOP, made.file.add())
    kept = descriptor_pb2.FileDescriptorSet(file=[file for file in made.file if not names or file.name in names])
    data: bytes = kept.SerializeToString()
    return data


BODIES = Bodies("protobuf", described(), "shop.Order")
ORDER = message_factory.GetMessageClass(protobuf.found(described(), "shop.Order"))


def order(number: int) -> tuple[Any, dict[str, Any]]:
    """(a message, the row that it is)"""
    made = ORDER(n=number, big=(1 << 64) - 1 - number, kind=number % 4, tags=["t"] * (number % 4), raw=b"\xff")
    row: dict[str, Any] = {
        "n": number,
        "city": None,
        "big": Decimal((1 << 64) - 1 - number),
        "at": datetime(2026, 5, 1, 12, number % 60, 0, 250, tzinfo=UTC),
        "took": timedelta(seconds=-number, microseconds=-5),
        "kind": ["NEW", "USED", "2", "3"][number % 4],
        "tags": ["t"] * (number % 4),
        "weights": [("a", number / 2)],
        "places": [{"x": -number}, {"x": 0}],
        "to": None,
        "raw": b"\xff",
    }
    made.at.FromDatetime(row["at"])
    made.took.FromTimedelta(row["took"])
    made.weights["a"] = number / 2
    made.places.add().x = -number
    made.places.add()
    if number % 3 == 0:
        made.city = row["city"] = "Łódź"
        made.to.x = number
        row["to"] = {"x": number}
    return made, row


@pytest.mark.parametrize("seed", range(20))
def test_every_body_is_typed_or_kept_whole_and_rows_keep_their_places(seed: int) -> None:
    chance = random.Random(seed)
    bodies: list[bytes] = []
    expected: list[dict[str, Any] | None] = []
    for number in range(chance.randrange(1, 200)):
        made, row = order(number)
        if chance.random() < 0.1 * (seed % 3):
            late = ORDER(n=1)
            late.at.seconds = 1 << 62
            bodies.append(chance.choice([b"\xff", made.SerializeToString()[:-1], b'{"n": 1}', late.SerializeToString()]))
            expected.append(None)
        else:
            bodies.append(made.SerializeToString())
            expected.append(row)
    kind = typed.kind_of(BODIES)
    structs, corrupt = typed.read(pa.array(bodies, pa.binary()), BODIES, kind)
    assert structs.type == kind
    assert structs.to_pylist() == expected
    assert corrupt.to_pylist() == [body if good is None else None for body, good in zip(bodies, expected, strict=True)]


def test_no_bytes_do_more_than_not_fit() -> None:
    chance, whole = random.Random(0), order(9)[0].SerializeToString()
    bodies = [chance.randbytes(chance.randrange(80)) for _ in range(2000)]
    bodies += [bytes(chance.choice([byte, chance.randrange(256)]) for byte in whole) for _ in range(2000)]
    structs, corrupt = typed.read(pa.array(bodies, pa.binary()), BODIES, typed.kind_of(BODIES))
    structs.validate(full=True)
    assert [body is None for body in corrupt.to_pylist()] == structs.is_valid().to_pylist()


def test_an_empty_body_is_a_message_of_defaults() -> None:
    structs, _ = typed.read(pa.array([b""], pa.binary()), BODIES, typed.kind_of(BODIES))
    (row,) = structs.to_pylist()
    assert (row["n"], row["kind"], row["tags"], row["city"], row["at"], row["to"]) == (0, "NEW", [], None, None, None)


def test_the_columns_are_what_spark_makes_of_them(tmp_path: Path) -> None:
    (tmp_path / "shop.pb").write_bytes(described())
    said = {"queue": "q", "tap": "t", "columns": "sequence,body", "bodyFormat": "protobuf", "bodyMessage": "shop.Order"}
    options = options_of({**said, "bodySchema": str(tmp_path / "shop.pb")})
    assert options.bodies == BODIES
    schema = schema_of(options)
    assert not isinstance(schema, str)
    assert schema.simpleString() == (
        "struct<sequence:bigint,body:struct<n:bigint,city:string,big:decimal(20,0),at:timestamp,took:interval day to second,kind:string,"
        "tags:array<string>,weights:map<string,double>,places:array<struct<x:bigint>>,to:struct<x:bigint>,raw:binary>,_corrupt:binary>"
    )
    made, row = order(3)
    batch = pa.RecordBatch.from_pylist(
        [{"sequence": 1, "body": made.SerializeToString()}, {"sequence": 2, "body": b"\xff"}], shape.schema(["sequence", "body"])
    )
    found = typed.with_bodies(batch, BODIES, to_arrow_schema(schema, timezone="UTC"))
    assert found.to_pylist() == [{"sequence": 1, "body": row, "_corrupt": None}, {"sequence": 2, "body": None, "_corrupt": b"\xff"}]


@pytest.mark.parametrize(
    ("data", "message", "said"),
    [
        (b"\xff\xff", "shop.Order", "no descriptor set"),
        (described(), "shop.Nothing", "has no message 'shop.Nothing'"),
        (described(), "shop.Node", "shop.Node contains itself"),
        (described("shop.proto"), "shop.Order", "include_imports"),
        (described(), "", "option bodyMessage"),
    ],
)
def test_a_schema_that_cannot_be_columns_is_refused_before_anything_is_read(tmp_path: Path, data: bytes, message: str, said: str) -> None:
    (tmp_path / "set.pb").write_bytes(data)
    told = {"queue": "q", "tap": "t", "bodyFormat": "protobuf", "bodySchema": str(tmp_path / "set.pb"), "bodyMessage": message}
    with pytest.raises(BadRequest, match=said):
        schema_of(options_of(told))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(BadRequest, match=r"pip install 'dovetail\[protobuf\]'"):
        protobuf.found(described(), "shop.Order")
