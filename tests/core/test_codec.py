"""The codec: every operation comes back as it went, and no bytes make a decoder raise anything but its own error."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core import operation as op
from dovetail.core.codec import Item, decode, decode_head, decode_push, encode, encode_head
from dovetail.core.column import Column
from dovetail.core.message import Attribute, decode_attributes, encode_attributes
from dovetail.core.operation import DEFAULT, Attributes, Head, Numbered, Push
from dovetail.errors import CodecError

KEY = b"k" * 16
BIG = (1 << 64) - 1
FULL = Push(
    (1, 1 << 40),
    Column.of([b"", b"body", b"x" * 300]),
    [0, DEFAULT, 1 << 43],
    Column.of([b"", b"g", b"h"]),
    KEY * 3,
    b"i" * 48,
    Column.of([b"", b"attr", b""]),
    Numbered(KEY, 2, 3),
)
OPERATIONS: list[Any] = [
    op.Begin(b"k" * 32),
    op.Open(KEY, 1),
    op.Upgrade(2),
    op.Register("name/space", "größe"),
    op.Unregister(1),
    op.Create(7, Attributes(grouped=True, extra={"a": "b", "ü": "\n"})),
    op.Configure(7, Attributes(lease_ms=0, delay_ms=5, retention_ms=1 << 40)),
    op.Drop(BIG),
    FULL,
    Push((1,), Column.of([b"x"])),
    Push((1,), Column.of([b"x", b"y"]), [5]),
    op.Pop(1, 10, DEFAULT, True, 20_000, b"attempt"),
    op.Pop(1, 1),
    op.Pop(1, 1, wait_ms=20_000, once=True),
    op.Withdraw(1, [5, 7]),
    op.Complete(1, [1, 2, BIG], [3, 4, 5]),
    op.Complete(1, [], []),
    op.Requeue(1, [1], [2], DEFAULT),
    op.Extend(1, [1, 2], [3, 4], 0),
    op.Release(1, [1], [2]),
    op.Reclaim(1, [1, 2]),
    op.Cancel(1, [3]),
    op.Reschedule(1, [3], 1 << 43),
    op.CompletePush(op.Complete(1, [1, 2], [3, 4]), FULL),
    op.Purge(1),
    op.Expire(1, 2),
    op.Move(1, 0, 500),
    op.ProducerOpen(KEY),
    op.Skip(KEY, 1, 2),
    op.TapOpen(1, "täp", op.LATEST, 1, 2),
    op.TapAdvance(1, "t", 5),
    op.TapCut(1, "", 5),
    op.TapClose(1, "t"),
    op.FactsOpen("name/space", "größe", op.LATEST, 1, 2),
    op.FactsAdvance("n", "", 5),
    op.FactsCut("", "t", BIG),
    op.FactsClose("ü", "t"),
    op.Carry(1, 2, 3, Push((1,), Column.of([b"x"]))),
    op.Trim(4096),
    op.Tick(),
    op.Retime(5),
    op.Stage(KEY, FULL._replace(numbered=None)),
    op.Stage(KEY, FULL._replace(numbered=None), 2**32 - 1),
    op.StageCarry(KEY, 5, Push((1,), Column.of([b"x"]))),
    op.Publish([KEY, b"s" * 16], b"o" * 16, BIG),
    op.Publish([], KEY, 0),
    op.Unstage([KEY]),
    op.StageExpire(5),
    op.ReserveOpen(1, "größe"),
    op.Reserve(1, "r", 2, 3, 4),
    op.ReserveSettle(1, "r", 2, BIG),
    op.ReserveRelease(1, "r"),
    op.ReserveClose(BIG, ""),
    op.Leave(1, BIG, 500, True),
    op.Leave(1, 2, 1, False),
    op.Arrive(1, 2, 3, 4, BIG, Push((7,), Column.of([b"x"]), groups=Column.of([b"g"]), ids=KEY)),
    op.MoveSettle(1, 2, [3, 4, BIG], [0, 1, BIG]),
    op.MoveSettle(1, 2, [], []),
    op.Forget(1, 2, BIG),
    op.Divide(3, 2),
]


def comparable(value: Any) -> Any:
    """Sequences are compared by what they hold: a decoder may answer with arrays."""
    if isinstance(value, Column | str | bytes) or value is None:
        return value
    if hasattr(value, "_fields"):
        return (type(value), *map(comparable, value))
    return list(value) if hasattr(value, "__len__") else value


def only_its_own_error(data: bytes) -> None:
    for reader in (decode, lambda part: Item(part, 0), lambda part: Item(part, 2)):
        try:
            reader(data)
        except CodecError:
            pass


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: type(o).__name__)
def test_an_operation_comes_back_as_it_went(operation: Any) -> None:
    for data in (encode(operation), memoryview(encode(operation))):
        assert comparable(decode(data)) == comparable(operation)


def test_every_kind_is_tried_here() -> None:
    assert {encode(operation)[0] for operation in OPERATIONS} == {int(kind) for kind in op.Kind}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: type(o).__name__)
def test_a_damaged_operation_gives_an_operation_or_a_codec_error(operation: Any) -> None:
    data, random = encode(operation), Random(1)
    for cut in range(min(len(data), 200)):
        only_its_own_error(data[:cut])
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 3))):
            changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 255, random.randrange(256)))
        only_its_own_error(bytes(changed))


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(st.sampled_from([0, *map(int, op.Kind), 77]), st.binary(max_size=120))
def test_arbitrary_bytes_give_an_operation_or_a_codec_error(kind: int, rest: bytes) -> None:
    only_its_own_error(bytes((kind,)) + rest)
    only_its_own_error(rest)
    for reader in (decode_head, decode_attributes):
        try:
            reader(rest)
        except CodecError:
            pass


def test_attributes_nested_without_end_are_a_codec_error() -> None:
    data = encode(op.Create(1, Attributes()))[:16]
    for deep in (b"[" * 100_000, b'{"extra":' * 100_000):
        with pytest.raises(CodecError):
            decode(data + deep)


@pytest.mark.parametrize("values", [b'{"lease_ms":-1}', b'{"lease_ms":1.5}', b'{"grouped":1}', b'{"other":1}', b"[]", b"", b"\xff"])
def test_attributes_of_a_wrong_kind_are_a_codec_error(values: bytes) -> None:
    with pytest.raises(CodecError):
        decode(encode(op.Create(1, Attributes()))[:16] + values)


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    data = bytearray(encode(Push((1,), Column.of([b"x"]))))
    data[4:8] = (10_000).to_bytes(4, "little")
    with pytest.raises(CodecError):
        decode(bytes(data))


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=5), st.binary(max_size=5)), min_size=1, max_size=6), st.integers(0, 127)
)
def test_one_item_read_alone_is_what_the_whole_push_says(rows: list[tuple[bytes, bytes, bytes]], flags: int) -> None:
    count = len(rows)
    push = Push(
        (1, 2)[: 1 + (flags & 1)],
        Column.of([row[0] for row in rows]),
        [7] * (count if flags & 4 else 1) if flags & 2 else None,
        Column.of([row[1] for row in rows]) if flags & 8 else None,
        KEY * count if flags & 16 else None,
        bytes(range(16 * count)) if flags & 32 else None,
        Column.of([row[2] for row in rows]) if flags & 64 else None,
        Numbered(KEY, 1, 1) if flags & 1 else None,
    )
    whole = decode_push(encode(push))
    records = [encode(push), encode(op.CompletePush(op.Complete(1, [1], [1]), push)), encode(op.Carry(1, 1, 1, push))]
    if push.numbered is None:
        records += [encode(op.Stage(KEY, push)), encode(op.StageCarry(KEY, 1, push))]
    for record in records:
        for index in range(count):
            item = Item(record, index)
            assert item.body == whole.bodies[index]
            assert item.group == (whole.groups[index] if whole.groups is not None else b"")
            assert item.attributes == (whole.attributes[index] if whole.attributes is not None else b"")
            assert item.id == (whole.ids[16 * index : 16 * index + 16] if whole.ids is not None else b"")
        with pytest.raises(CodecError):
            Item(record, count)


def test_a_head_comes_back_as_it_went() -> None:
    for head in (Head(5), Head(BIG, KEY, 1, 2, 3)):
        assert decode_head(encode_head(head)) == head


def test_message_attributes_come_back_as_they_went() -> None:
    attributes = {"a": Attribute("String", b"x"), "ü": Attribute("Number.int", b""), "b": Attribute("Binary", bytes(300))}
    data = encode_attributes(attributes)
    assert decode_attributes(data) == attributes
    for cut in range(1, len(data)):
        with pytest.raises(CodecError):
            decode_attributes(data[:cut])
