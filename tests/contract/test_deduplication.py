"""Deduplication: what was sent twice within the window is stored once."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Outgoing
from tests.contract.house import House, bodies, everything


def keyed(body: bytes, key: str) -> Outgoing:
    return Outgoing(body, deduplication=key)


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_repeat_within_the_window_is_answered_with_the_first_and_not_stored(house: House, snapshot: bool) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    first = await queue.send(b"a", deduplication="k")
    house.clock.advance(59.999)
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    again = await queue.send(b"other body", deduplication="k")
    assert (again.id, again.sequence, again.repeat, first.repeat) == (first.id, first.sequence, True, False)
    assert bodies(await everything(queue)) == [b"a"]
    house.clock.advance(0.001)
    fresh = await queue.send(b"b", deduplication="k")
    assert (fresh.repeat, fresh.sequence) == (False, first.sequence + 1)


async def test_a_repeat_is_recognised_long_after_the_message_is_gone(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=300)
    for act in ("complete", "delete", "cancel"):
        sent = await queue.send(b"a", deduplication=act)
        if act == "cancel":
            assert await queue.cancel(sent.id)
        else:
            (message,) = await queue.receive(delete=act == "delete")
            assert act == "delete" or await message.complete()
    house.clock.advance(299)
    await house.again(snapshot=True)
    queue = await house.node.queue("orders")
    for act in ("complete", "delete", "cancel"):
        assert (await queue.send(b"a", deduplication=act)).repeat is True
    assert await everything(queue) == []


async def test_repeats_inside_one_batch_are_recognised_one_by_one(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    await queue.send(b"old", deduplication="x")
    sent = await queue.send_many([keyed(b"1", "x"), keyed(b"2", "y"), b"3", keyed(b"4", "y"), b"3"])
    assert [(one.sequence, one.repeat) for one in sent] == [(1, True), (2, False), (3, False), (2, True), (4, False)]
    assert bodies(await everything(queue)) == [b"old", b"2", b"3", b"3"]


async def test_of_many_senders_at_once_one_stores(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    sent = await asyncio.gather(*(queue.send(b"%d" % number, deduplication="k") for number in range(30)))
    assert sum(not one.repeat for one in sent) == 1 and len({one.id for one in sent}) == 1
    assert len(await everything(queue)) == 1


async def test_purge_forgets_what_was_seen(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    await queue.send(b"a", deduplication="k")
    assert await queue.purge() == 1
    assert (await queue.send(b"b", deduplication="k")).repeat is False
    assert bodies(await everything(queue)) == [b"b"]


async def test_each_queue_has_its_own_memory_and_one_without_a_window_has_none(house: House) -> None:
    await house.needs("transactions")
    await house.needs("dedup_scope", deduplication_s=60)
    one, two = await house.node.queue("one", deduplication_s=60), await house.node.queue("two", deduplication_s=60)
    none = await house.node.queue("none")
    for queue in (one, two, none, none):
        assert (await queue.send(b"a", deduplication="k")).repeat is False
    sent = await house.node.send_to([one, none], Outgoing(b"b", deduplication="k"))
    assert [answer.repeat for answer in sent] == [True, False]


async def test_the_window_holds_for_thousands_of_keys_over_a_long_time(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    stored_s: dict[int, float] = {}
    now_s = 0.0
    for step in range(60):
        keys = [(step * 37 + item * 11) % 1500 for item in range(100)]
        sent = await queue.send_many([keyed(b"", str(key)) for key in keys])
        for key, one in zip(keys, sent, strict=True):
            fresh = key not in stored_s or stored_s[key] + 60 <= now_s
            assert one.repeat is not fresh, (step, key)
            if fresh:
                stored_s[key] = now_s
        house.clock.advance(7)
        now_s += 7


async def test_a_repeat_names_the_id_under_which_the_message_is_stored(house: House) -> None:
    await house.needs("dedup_scope", deduplication_s=60)
    queue = await house.node.queue("orders", deduplication_s=60)
    first = await queue.send(b"a", deduplication="k", id="11111111-2222-3333-4444-555555555555")
    again = await queue.send(b"a", deduplication="k", id="99999999-2222-3333-4444-555555555555")
    assert (again.repeat, again.id) == (True, first.id)
