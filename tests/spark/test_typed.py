"""JSON bodies as typed columns; what does not fit is kept whole. No JVM."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from dovetail.errors import BadRequest
from dovetail.spark import shape, typed
from dovetail.spark.options import options_of
from dovetail.spark.source import schema_of
from dovetail.spark.typed import Bodies

TEXTS = Bodies("json", "n BIGINT")
KIND = pa.struct([("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("in", pa.struct([("x", pa.float64())]))])
BAD = [b"", b"  ", b"5", b"[1]", b"{", b'{"n": "no number"}', b'{"n":1}{"n":2}', b'{"n":1}\n{"n":2}', b"\xff\xfe", b"null"]


@pytest.mark.parametrize("seed", range(30))
def test_every_body_is_typed_or_kept_whole_and_rows_keep_their_places(seed: int) -> None:
    chance = random.Random(seed)
    bodies, expected = [], []
    for number in range(chance.randrange(1, 200)):
        if chance.random() < 0.1 * (seed % 3):
            bodies.append(chance.choice(BAD))
            expected.append(None)
        else:
            bodies.append(json.dumps({"n": number, "more": [1, 2], "in": {"x": 0.5}}, indent=chance.choice([None, 1])).encode())
            expected.append({"n": number, "text": None, "at": None, "in": {"x": 0.5}})
    structs, corrupt = typed.read(pa.array(bodies, pa.binary()), TEXTS, KIND)
    assert structs.type == KIND
    assert structs.to_pylist() == expected
    assert corrupt.to_pylist() == [body if good is None else None for body, good in zip(bodies, expected, strict=True)]


def test_times_and_missing_fields() -> None:
    structs, _ = typed.read(pa.array([b'{"at": "2026-05-01T12:00:00Z"}', b"{}"], pa.binary()), TEXTS, KIND)
    first, second = structs.to_pylist()
    assert first["at"].isoformat() == "2026-05-01T12:00:00+00:00"
    assert second == {"n": None, "text": None, "at": None, "in": None}


def test_a_batch_gets_the_column_for_what_is_corrupt() -> None:
    schema = shape.schema(["sequence", "body"])
    batch = pa.RecordBatch.from_pylist([{"sequence": 1, "body": b'{"n": 7}'}, {"sequence": 2, "body": b"no"}], schema)
    wanted = pa.schema([("sequence", pa.int64()), ("body", pa.struct([("n", pa.int64())])), ("_corrupt", pa.binary())])
    assert typed.with_bodies(batch, TEXTS, wanted).to_pylist() == [
        {"sequence": 1, "body": {"n": 7}, "_corrupt": None},
        {"sequence": 2, "body": None, "_corrupt": b"no"},
    ]


def test_what_json_cannot_be_read_as_is_said_before_anything_is_read() -> None:
    with pytest.raises(BadRequest, match="JSON cannot be read as"):
        typed.checked(TEXTS, pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))


def test_the_schema_is_named_as_ddl_or_as_json() -> None:
    said = {"queue": "q", "tap": "t", "columns": "sequence,body", "bodyFormat": "json"}
    assert schema_of(options_of({**said, "bodySchema": "n BIGINT"})) == "`sequence` BIGINT, `body` STRUCT<n BIGINT>, `_corrupt` BINARY"
    told = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    assert (
        schema_of(options_of({**said, "bodySchema": json.dumps(told)})) == "`sequence` BIGINT, `body` struct<n:bigint>, `_corrupt` BINARY"
    )
    with pytest.raises(BadRequest, match="both or neither"):
        options_of(said)
