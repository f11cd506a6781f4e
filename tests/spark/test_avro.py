"""Avro bodies as typed columns, written by Avro's own writer; what does not fit is kept whole. No JVM."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from dovetail.errors import BadRequest
from dovetail.spark import shape, typed
from dovetail.spark.options import options_of
from dovetail.spark.source import schema_of
from dovetail.spark.typed import Bodies, avro

fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'dovetail[avro]'")

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "USED"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
        {"name": "from", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": ["int", "long"]}]}},
        {"name": "to", "type": ["Place", "null"]},
        {"name": "code", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
TEXT = json.dumps(SCHEMA)
BODIES = Bodies("avro", TEXT)


def order(number: int) -> dict[str, Any]:
    return {
        "n": number,
        "city": None if number % 3 else f"city {number}",
        "price": Decimal(number).scaleb(-2),
        "at": datetime(2026, 5, 1, 12, number % 60, tzinfo=UTC),
        "day": date(2026, 5, 1 + number % 30),
        "kind": "USED" if number % 2 else "NEW",
        "tags": ["t"] * (number % 4),
        "weights": {"a": number / 2},
        "from": {"x": number},
        "to": None if number % 2 else {"x": 1 << 40},
        "code": "c0ffee",
    }


def written(row: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    file = BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), row)
    return file.getvalue()


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "weights": list(row["weights"].items())}


@pytest.mark.parametrize("seed", range(20))
def test_every_body_is_typed_or_kept_whole_and_rows_keep_their_places(seed: int) -> None:
    chance = random.Random(seed)
    bodies: list[bytes] = []
    expected: list[dict[str, Any] | None] = []
    for number in range(chance.randrange(1, 200)):
        whole = written(order(number))
        if chance.random() < 0.1 * (seed % 3):
            bodies.append(chance.choice([b"", whole[:-1], whole + b"\0", b"\xff" * 12, b"{}"]))
            expected.append(None)
        else:
            bodies.append(whole)
            expected.append(plain(order(number)))
    kind = typed.kind_of(BODIES)
    structs, corrupt = typed.read(pa.array(bodies, pa.binary()), BODIES, kind)
    assert structs.type == kind
    assert structs.to_pylist() == expected
    assert corrupt.to_pylist() == [body if good is None else None for body, good in zip(bodies, expected, strict=True)]


def test_no_bytes_do_more_than_not_fit() -> None:
    chance, kind = random.Random(0), typed.kind_of(BODIES)
    whole = written(order(7))
    bodies = [chance.randbytes(chance.randrange(80)) for _ in range(2000)]
    bodies += [bytes(chance.choice([byte, chance.randrange(256)]) for byte in whole) for _ in range(2000)]
    structs, corrupt = typed.read(pa.array(bodies, pa.binary()), BODIES, kind)
    structs.validate(full=True)
    assert [body is None for body in corrupt.to_pylist()] == structs.is_valid().to_pylist()
    assert corrupt.null_count < len(bodies) / 2


def test_a_value_that_is_too_large_for_its_column_spoils_its_own_row_only() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}
    kind = pa.struct([("n", pa.int8()), ("s", pa.string())])
    bodies = [written({"n": n, "s": "s"}, schema) for n in (1, 1000, 2, 3, -1000)]
    structs, _ = typed.read(pa.array(bodies, pa.binary()), Bodies("avro", json.dumps(schema)), kind)
    assert [row and row["n"] for row in structs.to_pylist()] == [1, None, 2, 3, None]


def test_a_single_object_encoding_is_known_by_its_fingerprint() -> None:
    # The fingerprint of "null" that the specification of Avro names, so that ours stands in the right order.
    canonical = fastavro.schema.fingerprint('"null"', "CRC-64-AVRO")
    assert int.from_bytes(bytes.fromhex(canonical), "little") == 0x63DD24E7CC258F8A
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    told = Bodies("avro", json.dumps(schema))
    print_of = bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO"))
    body = written({"n": 5}, schema)
    found, _ = typed.read(
        pa.array([body, b"\xc3\x01" + print_of + body, b"\xc3\x01" + bytes(8) + body], pa.binary()), told, typed.kind_of(told)
    )
    assert found.to_pylist() == [{"n": 5}, {"n": 5}, None]


def test_the_columns_are_what_spark_makes_of_them() -> None:
    options = options_of({"queue": "q", "tap": "t", "columns": "sequence,body", "bodyFormat": "avro", "bodySchema": TEXT})
    schema = schema_of(options)
    assert not isinstance(schema, str)
    assert schema.simpleString() == (
        "struct<sequence:bigint,body:struct<n:bigint,city:string,price:decimal(10,2),at:timestamp,day:date,kind:string,tags:array<string>,"
        "weights:map<string,double>,from:struct<x:bigint>,to:struct<x:bigint>,code:string>,_corrupt:binary>"
    )
    assert options.bodies is not None
    batch = pa.RecordBatch.from_pylist(
        [{"sequence": 1, "body": written(order(1))}, {"sequence": 2, "body": b"no"}], shape.schema(["sequence", "body"])
    )
    made = typed.with_bodies(batch, options.bodies, to_arrow_schema(schema, timezone="UTC"))
    assert made.to_pylist() == [
        {"sequence": 1, "body": plain(order(1)), "_corrupt": None},
        {"sequence": 2, "body": None, "_corrupt": b"no"},
    ]


def test_the_schema_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(TEXT)
    options = options_of({"queue": "q", "tap": "t", "bodyFormat": "avro", "bodySchema": str(tmp_path / "order.avsc")})
    assert options.bodies == BODIES


def in_record(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('"long"', "a body is an Avro record"),
        ("{", "no Avro schema"),
        (in_record("mystery"), "no Avro schema: UnknownType"),
        (in_record(["int", "string"]), "one type beside null"),
        (in_record(["null", "R"]), "R contains itself"),
        (in_record({"type": "array", "items": "null"}), "no end"),
        (in_record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "no end"),
        (in_record("[" * 5000), "no Avro schema"),
        ("missing.avsc", "No such file"),
    ],
)
def test_a_schema_that_cannot_be_columns_is_refused_before_anything_is_read(schema: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        schema_of(options_of({"queue": "q", "tap": "t", "bodyFormat": "avro", "bodySchema": schema}))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(BadRequest, match=r"pip install 'dovetail\[avro\]'"):
        avro.parsed(TEXT)
