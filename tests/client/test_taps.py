"""Taps over a connection, in columns and as Arrow."""

from __future__ import annotations

import pytest

import dovetail
from dovetail import Outgoing
from dovetail.errors import BadRequest


async def test_a_tap_is_read_as_arrow(node: dovetail.Client) -> None:
    pytest.importorskip("pyarrow", reason="the streams are its own")
    queue = await node.queue("orders")
    tap = await queue.tap("archive")
    sent = await queue.send_many([b"a", Outgoing(b"b", group="g", attributes={"x": "y"}), b"c"])
    batch = await tap.read_arrow()
    rows = batch.table().to_pylist()
    assert [(row["sequence"], row["body"], row["group"]) for row in rows] == [(1, b"a", None), (2, b"b", "g"), (3, b"c", None)]
    assert [row["id"].hex() for row in rows] == [one.id.replace("-", "") for one in sent]
    assert await tap.advance(batch.next) == 4
    assert (await tap.read_arrow()).table().num_rows == 0


@pytest.mark.slow
async def test_a_long_read_is_put_together_of_several_answers(node: dovetail.Client) -> None:
    queue = await node.queue("orders")
    tap = await queue.tap("archive")
    for _ in range(5):
        await queue.send_many([bytes(1000)] * 8000)
    batch = await tap.read(max=40_000)
    assert [one.sequence for one in batch.messages] == list(range(1, 40_001)) and batch.next == 40_001
    assert len(await queue.peek(max=40_000)) == 40_000


async def test_a_tap_knows_where_it_stood_when_it_was_opened(node: dovetail.Client) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b", b"c"])
    assert (await queue.tap("earliest")).position == 1
    late = await queue.tap("late", start="latest")
    assert late.position == 4 and await late.advance(4) == 4 == late.position


async def test_in_the_same_process_there_is_no_arrow_and_the_error_says_what_there_is() -> None:
    async with dovetail.open("memory:") as here:
        tap = await (await here.queue("orders")).tap("archive")
        with pytest.raises(BadRequest, match=r"Tap\.read"):
            await tap.read_arrow()
