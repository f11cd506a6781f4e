"""Rows become records: what Arrow holds is what the log will hold, whatever slices and nulls it holds it in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.message import decode_attributes, dedup_hash
from dovetail.core.operation import DEFAULT, Push
from dovetail.core.pushcodec import decode_push
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, DELAY_MS_MAX, ENTRY_BYTES_TARGET, GROUP_BYTES_MAX, MESSAGE_BYTES_MAX
from dovetail.spark import rows, shape

TYPES = {
    "body": pa.binary(),
    "queue": pa.string(),
    "group": pa.string(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "delay": pa.int64(),
    "deduplication": pa.string(),
}


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, TYPES[name]) for name, values in columns.items()], names=list(columns))


def records(batch: pa.RecordBatch, queue: str = "q") -> list[tuple[str, Push]]:
    columns = rows.checked(batch.schema, ignore=False, queue=bool(queue))
    made = []
    for name, messages in rows.by_queue(batch, columns, queue):
        made += [(name, decode_push(rows.record(7, piece))) for piece in rows.frames(messages)]
    return made


def told(push: Push) -> list[dict[str, Any]]:
    count = len(push.bodies)
    return [
        {
            "body": bytes(push.bodies[at]),
            "group": bytes(push.groups[at]).decode() if push.groups is not None else "",
            "attributes": {
                name: one.value.decode()
                for name, one in decode_attributes(bytes(push.attributes[at]) if push.attributes is not None else b"").items()
            },
            "delay": push.delays[at] if push.delays is not None else DEFAULT,
            "deduplication": push.dedups[16 * at : 16 * at + 16] if push.dedups is not None else bytes(16),
        }
        for at in range(count)
    ]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=40),
            "queue": st.sampled_from(["a", "b"]),
            "group": st.none() | st.text(max_size=8),
            "attributes": st.none() | st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3),
            "delay": st.none() | st.integers(0, DELAY_MS_MAX),
            "deduplication": st.none() | st.text(max_size=5),
        }
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.data())
def test_a_record_says_what_the_rows_said(made: list[dict[str, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(made) - 1))
    whole = batch_of(
        **{name: [list(one[name].items()) if name == "attributes" and one[name] else one[name] for one in made] for name in TYPES}
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for queue, push in records(whole.slice(start)):
        found.setdefault(queue, []).extend(told(push))
    for queue in ("a", "b"):
        wanted = [
            {
                "body": one["body"],
                "group": one["group"] or "",
                "attributes": one["attributes"] or {},
                "delay": DEFAULT if one["delay"] is None else one["delay"],
                "deduplication": dedup_hash(one["deduplication"].encode()) if one["deduplication"] else bytes(16),
            }
            for one in made[start:]
            if one["queue"] == queue
        ]
        assert found.get(queue, []) == wanted


def test_plain_bodies_are_one_section_and_nothing_else() -> None:
    ((_, push),) = records(batch_of(body=[b"a", b"", b"ccc"], group=[None] * 3, delay=[None] * 3))
    assert (push.delays, push.groups, push.attributes, push.dedups, push.numbered) == (None,) * 5
    assert list(map(bytes, push.bodies)) == [b"a", b"", b"ccc"]


def test_texts_and_large_types_are_taken_too() -> None:
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        batch = pa.RecordBatch.from_arrays([pa.array(["eggs", "ham"]).cast(kind)], names=["body"])
        assert list(map(bytes, records(batch)[0][1].bodies)) == [b"eggs", b"ham"]


def test_what_the_source_gives_the_sink_takes() -> None:
    entry = {"type": "Number", "value": b"7"}
    attributes = pa.array([[("n", entry)], None], shape.ATTRIBUTES)
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), attributes], names=["body", "attributes"])
    ((_, push),) = records(batch)
    assert push.attributes is not None
    (told,) = decode_attributes(bytes(push.attributes[0])).items()
    assert told == ("n", ("Number", b"7")) and not bytes(push.attributes[1])


def test_an_interval_is_a_delay() -> None:
    delays = pa.array([timedelta(seconds=1.5), None, timedelta(0)], pa.duration("us"))
    ((_, push),) = records(pa.RecordBatch.from_arrays([pa.array([b"a"] * 3), delays], names=["body", "delay"]))
    assert list(push.delays or ()) == [1500, DEFAULT, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 100_000)), min_size=1, max_size=40))
def test_pieces_are_as_large_as_a_record_should_be_and_lose_nothing(sizes: list[tuple[int, int]]) -> None:
    batch = batch_of(body=[b"x" * body for body, _ in sizes], attributes=[[("a", "y" * text)] for _, text in sizes])
    (name, messages), *_ = rows.by_queue(batch, ("body", "attributes"), "q")
    pieces = list(rows.frames(messages))
    assert [len(body) for piece in pieces for body in piece.bodies.to_pylist()] == [body for body, _ in sizes]
    for piece in pieces:
        assert len(piece.bodies) == 1 or sum(map(len, piece.bodies.to_pylist() + piece.attributes.to_pylist())) <= ENTRY_BYTES_TARGET


def test_no_piece_has_more_messages_than_a_push_may() -> None:
    (_, messages), *_ = rows.by_queue(batch_of(body=[b""] * (BATCH_MESSAGES_MAX + 1)), ("body",), "q")
    assert [len(piece.bodies) for piece in rows.frames(messages)] == [BATCH_MESSAGES_MAX, 1]


@pytest.mark.parametrize(
    ("columns", "queue", "words"),
    [
        ({"group": ["a"]}, "q", "a row needs a column body; there are group"),
        ({"body": [b"a"]}, "", "which queue"),
    ],
)
def test_what_is_missing_is_named(columns: dict[str, Any], queue: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        rows.checked(batch_of(**columns).schema, ignore=False, queue=bool(queue))


def test_a_column_that_is_no_part_of_a_message_is_refused_by_name_or_ignored() -> None:
    schema = pa.schema([("body", pa.binary()), ("colour", pa.string()), ("size", pa.int32())])
    with pytest.raises(BadRequest, match="no part of a message is called colour, size"):
        rows.checked(schema, ignore=False, queue=True)
    assert rows.checked(schema, ignore=True, queue=True) == ("body",)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("body", pa.struct([("a", pa.int32())])),
        ("queue", pa.int32()),
        ("group", pa.binary()),
        ("attributes", pa.string()),
        ("attributes", pa.map_(pa.string(), pa.int32())),
        ("delay", pa.float64()),
        ("deduplication", pa.int64()),
    ],
)
def test_a_wrong_type_is_refused_with_what_it_can_be(name: str, kind: pa.DataType) -> None:
    fields = {"body": pa.binary(), name: kind}
    with pytest.raises(BadRequest, match=f"column {name}: .* is not what it can be; "):
        rows.checked(pa.schema(list(fields.items())), ignore=False, queue=True)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"body": [None]}, BadRequest, "partition 0, row 0: no body"),
        ({"body": [bytes(BODY_BYTES_MAX + 1)]}, LimitExceeded, f"a body has {BODY_BYTES_MAX + 1} bytes"),
        ({"body": [b"a"], "group": ["é" * GROUP_BYTES_MAX]}, LimitExceeded, f"a group has {2 * GROUP_BYTES_MAX} bytes"),
        ({"body": [b"a"], "delay": [-1]}, LimitExceeded, "not -1"),
        ({"body": [b"a"], "delay": [DELAY_MS_MAX + 1]}, LimitExceeded, f"not {DELAY_MS_MAX + 1}"),
        ({"body": [b"a"], "attributes": [[("a", None)]]}, BadRequest, "the attribute 'a' is null"),
        ({"body": [b"a"], "attributes": [[("n" * 300, "x")]]}, LimitExceeded, "attribute name"),
    ],
)
def test_a_row_that_no_message_can_be_is_refused(columns: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        records(batch_of(**columns))


def test_at_its_limits_a_row_passes() -> None:
    ((_, push),) = records(batch_of(body=[bytes(BODY_BYTES_MAX)], group=["g" * GROUP_BYTES_MAX], delay=[DELAY_MS_MAX]))
    assert (len(push.bodies[0]), list(push.delays or ())) == (BODY_BYTES_MAX, [DELAY_MS_MAX])


def test_a_row_without_a_queue_goes_to_the_one_that_is_named_or_is_refused() -> None:
    batch = batch_of(body=[b"1", b"2", b"3"], queue=["a", None, "a"])
    assert [(name, list(map(bytes, push.bodies))) for name, push in records(batch, "b")] == [("a", [b"1", b"3"]), ("b", [b"2"])]
    with pytest.raises(BadRequest, match=r"partition 0, row 1 \(body b'2'\): no queue, and the option queue names none"):
        records(batch, "")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b"a", b"b", None], "queue": ["x", "y", "x"]}, r"partition 3, row 102 \(queue 'x'\): no body"),
        (
            {"body": [b"a", b"z" * (BODY_BYTES_MAX + 1)], "group": ["g", "h"]},
            r"partition 3, row 101 \(group 'h', body b'z{40}'…\): a body has",
        ),
        ({"body": [b"a", b"b"], "delay": [None, -5]}, r"row 101 \(body b'b'\): a delay is 0 to \d+ ms, not -5"),
        ({"body": [b"a", b"b"], "group": ["g", "g" * (GROUP_BYTES_MAX + 1)]}, r"row 101 \(group 'g{40}'…, body b'b'\): a group has"),
        ({"body": [b"a", b"b"], "attributes": [[("n", "x")], [("n", None)]]}, r"row 101 \(body b'b'\): the attribute 'n' is null"),
        ({"body": [b"a", b"b"], "attributes": [None, [("n", "x" * MESSAGE_BYTES_MAX)]]}, r"row 101 .*: attributes of \d+ bytes"),
        ({"body": [b"a", bytes(BODY_BYTES_MAX)], "attributes": [None, [("n", "x" * 9000)]]}, r"row 101 .*: body and attributes have"),
    ],
)
def test_an_error_says_which_row_it_is(columns: dict[str, Any], words: str) -> None:
    batch = batch_of(**columns)
    with pytest.raises((BadRequest, LimitExceeded), match=words):
        list(rows.by_queue(batch, rows.checked(batch.schema, ignore=False, queue=True), "q", rows.Place(3, 100)))
