"""A function that fails on some rows costs its neighbours nothing. Plain Arrow, no JVM."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from dovetail.errors import BadRequest
from dovetail.limits import ATTRIBUTES_MAX, BODY_BYTES_MAX
from dovetail.spark import rows, shape
from dovetail.spark.options import COLUMNS
from dovetail.spark.pipelines import transform
from dovetail.spark.pipelines.transform import FAILED, Misshapen, Transform, function_of, tried
from tests.spark.house import ROOT

SCHEMA = pa.schema([*shape.schema(COLUMNS), pa.field("length", pa.int64()), pa.field(FAILED, pa.bool_())])
WHEN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def batch_of(bodies: Sequence[bytes], attributes: Any = None) -> pa.RecordBatch:
    made = [
        {"queue": "q", "sequence": at + 1, "time": WHEN, "id": b"i", "group": None, "attributes": attributes, "body": body}
        for at, body in enumerate(bodies)
    ]
    return pa.RecordBatch.from_pylist(made, shape.schema(COLUMNS))


def measured(batch: pa.RecordBatch) -> pa.RecordBatch:
    if b"poison" in batch["body"].to_pylist():
        raise ValueError("I cannot\nread this")
    return batch.append_column("length", pc.binary_length(batch["body"]))


def over(function: Callable[[pa.RecordBatch], Any], *batches: pa.RecordBatch, apart: bool = True, failures_max: int = 1000) -> pa.Table:
    made = Transform("shop:measured", function, SCHEMA, apart=apart, failures_max=failures_max)
    return pa.Table.from_batches(list(made(iter(batches))), SCHEMA)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"bb", b"poison"]), min_size=1, max_size=60), st.integers(1, 20))
def test_good_neighbours_pass_and_what_fails_is_set_apart_whole(bodies: list[bytes], size: int) -> None:
    calls = []

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return measured(batch)

    batches = [batch_of(bodies).slice(at, size) for at in range(0, len(bodies), size)]
    found = over(counted, *batches).to_pylist()
    assert [row["body"] for row in found] == bodies, "every row once, in its place"
    assert [row[FAILED] for row in found] == [body == b"poison" for body in bodies]
    assert [row["length"] for row in found] == [None if body == b"poison" else len(body) for body in bodies]
    depth = math.ceil(math.log2(size)) + 1
    assert len(calls) <= len(batches) + 2 * depth * bodies.count(b"poison")


def test_one_bad_row_among_ten_thousand_is_found_in_a_few_calls() -> None:
    calls = []

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return measured(batch)

    bodies = [b"%d" % number for number in range(10_000)]
    bodies[4321] = b"poison"
    found = over(counted, batch_of(bodies))
    assert found.filter(found[FAILED])["sequence"].to_pylist() == [4322]
    assert len(calls) <= 1 + 2 * 14


def test_twin_without_the_halves_a_bad_row_takes_its_neighbours_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(function: Any, batch: pa.RecordBatch) -> Any:
        try:
            yield batch, function(batch)
        except ValueError as error:
            yield from ((batch.slice(at, 1), error) for at in range(batch.num_rows))

    monkeypatch.setattr(transform, "tried", whole)
    found = over(measured, batch_of([b"a", b"poison", b"c"]))
    assert found[FAILED].to_pylist() == [True, True, True]


def test_what_is_set_apart_says_why_and_keeps_what_it_was() -> None:
    told = [("trace", {"type": "String", "value": b"7"}), ("error", {"type": "String", "value": b"an older one"})]
    found = over(measured, batch_of([b"a", b"poison"], told)).to_pylist()[1]
    assert dict(found["attributes"]) == {
        "trace": {"type": "String", "value": b"7"},
        "error": {"type": "String", "value": b"ValueError: I cannot read this"},
        "error-queue": {"type": "String", "value": b"q"},
        "error-sequence": {"type": "Number", "value": b"2"},
    }
    assert (found["body"], found["time"]) == (b"poison", WHEN)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9_000), st.integers(0, ATTRIBUTES_MAX), st.text(max_size=3000))
def test_what_is_set_apart_can_always_be_sent(room: int, count: int, text: str) -> None:
    def fails(batch: pa.RecordBatch) -> Any:
        raise RuntimeError(text)

    told = [(f"n{number}", {"type": "String", "value": b"x"}) for number in range(count)]
    found = over(fails, batch_of([bytes(BODY_BYTES_MAX - room)], told)).combine_chunks().to_batches()[0]
    ((_, messages),) = rows.by_queue(found.select(["body", "attributes"]), ("body", "attributes"), "dead")
    assert messages.attributes is not None
    value = {name: one["value"] for name, one in found["attributes"].to_pylist()[0]}
    assert {name for name in value if name.startswith("n")} == {name for name, _ in told}
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in value.get("error", b"").decode())


def test_what_no_message_can_be_is_the_fault_of_its_row() -> None:
    def grown(batch: pa.RecordBatch) -> pa.RecordBatch:
        bodies = [
            None if body == b"none" else bytes(BODY_BYTES_MAX + 1) if body == b"large" else body for body in batch["body"].to_pylist()
        ]
        at = batch.schema.get_field_index("body")
        return measured(batch.set_column(at, "body", pa.array(bodies, pa.binary())))

    found = over(grown, batch_of([b"a", b"none", b"b", b"large"])).to_pylist()
    assert [row[FAILED] for row in found] == [False, True, False, True]
    assert b"no body" in dict(found[1]["attributes"])["error"]["value"]
    assert b"a body has" in dict(found[3]["attributes"])["error"]["value"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batch: None, "gives NoneType, and not a pyarrow.RecordBatch"),
        (lambda batch: batch, "leaves out length"),
        (lambda batch: measured(batch).drop_columns(["time"]), "leaves out time"),
        (lambda batch: measured(batch).append_column("city", batch["queue"]), "gives city, which is not declared"),
    ],
)
def test_a_function_that_gives_something_else_stops_the_pipeline(function: Any, words: str) -> None:
    with pytest.raises(Misshapen, match=words):
        over(function, batch_of([b"a", b"b"]))


def test_rows_may_become_fewer_or_more_and_come_as_a_table() -> None:
    def twice(batch: pa.RecordBatch) -> pa.Table:
        kept = measured(batch).filter(pc.not_equal(batch["body"], b"drop"))
        return pa.Table.from_batches([kept, kept])

    assert over(twice, batch_of([b"a", b"drop", b"b"]))["body"].to_pylist() == [b"a", b"b", b"a", b"b"]
    assert over(twice, batch_of([b"drop"])).num_rows == 0


def test_more_failures_than_may_be_stop_the_pipeline_and_so_does_the_first_without_a_place_for_it() -> None:
    batch = batch_of([b"a", b"poison", b"poison"])
    assert over(measured, batch, failures_max=2)[FAILED].to_pylist() == [False, True, True]
    with pytest.raises(BadRequest, match=r"fails on message 3 of q: ValueError: I cannot read this\. That is one more than 1 in one task"):
        over(measured, batch, failures_max=1)
    with pytest.raises(BadRequest, match=r"shop:measured fails on message 2 of q: .* With a queue for dead letters"):
        over(measured, batch, apart=False)


def test_a_function_that_has_no_memory_is_no_fault_of_a_row() -> None:
    def hungry(batch: pa.RecordBatch) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        list(tried(hungry, batch_of([b"a", b"b"])))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop", "module:function, not 'shop'"),
        ("nowhere_at_all:f", "cannot be imported"),
        ("json:nothing", "there is no function 'nothing'"),
    ],
)
def test_a_function_that_is_not_there_is_named(name: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        function_of(name)


def test_a_function_of_this_folder_travels_to_machines_that_do_not_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_of_mine.py").write_text(
        "RATE = 3\ndef rated(rows):\n    return helper(rows)\ndef helper(rows):\n    return rows * RATE\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickled").write_bytes(cloudpickle.dumps(function_of("shop_of_mine:rated")))
    (tmp_path / "shop_of_mine.py").unlink()
    code = "import pickle, json; print(json.dumps(pickle.load(open('pickled', 'rb'))(5)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert json.loads(done.stdout or "0") == 15, done.stderr
