"""Consumers, in this process and over a connection: credit, leases, what becomes of a message when its block ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dovetail
from dovetail.errors import LimitExceeded, NoSuchQueue
from dovetail.testing import MovableClock
from tests.client.house import Served, Wire, until


async def test_messages_come_as_they_are_sent_and_are_completed_by_their_blocks(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"0", b"1"])
    sending = asyncio.create_task(_send_slowly(queue, range(2, 10)))
    got = []
    async for message in queue.consume(credit=3):
        async with message:
            got.append(message.body)
        if len(got) == 10:
            break
    await sending
    assert got == [b"%d" % number for number in range(10)]
    await asyncio.sleep(0.05)
    counts = await queue.counts()
    assert (counts.visible, counts.leased) == (0, 0)


async def _send_slowly(queue: dovetail.Queue, numbers: range) -> None:
    for number in numbers:
        await asyncio.sleep(0.01)
        await queue.send(b"%d" % number)


async def test_a_block_that_raises_gives_its_message_back(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send(b"a")
    with pytest.raises(ZeroDivisionError):
        async for message in queue.consume():
            async with message:
                1 / 0
    (again,) = await queue.receive(wait_s=60)
    assert (again.body, again.receives) == (b"a", 2)


async def test_a_block_that_settles_by_itself_is_left_alone(either: dovetail.Queues) -> None:
    queue, bills = await either.queue("orders"), await either.queue("bills")
    await queue.send_many([b"a", b"b"])
    consumer = queue.consume()
    async for message in consumer:
        async with message:
            await (message.requeue(60) if message.body == b"a" else message.complete_and_send(bills, b"bill"))
        if message.body == b"b":
            break
    counts = await queue.counts()
    assert (counts.visible, counts.delayed, counts.leased) == (0, 1, 0)
    assert (await bills.counts()).visible == 1


async def test_no_more_is_here_than_there_is_credit_for_and_credit_comes_back(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(50)])
    most = 0
    async with queue.consume(credit=4) as consumer:
        slow: list[asyncio.Task[None]] = []

        async def handle(message: dovetail.Message) -> None:
            async with message:
                await asyncio.sleep(0.01)

        async for message in consumer:
            slow.append(asyncio.create_task(handle(message)))
            most = max(most, (await queue.counts()).leased)
            if len(slow) == 50:
                break
        await asyncio.gather(*slow)
    assert most == 4
    assert (await queue.counts()).leased == 0


async def test_credit_of_bytes_bounds_what_is_here(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([bytes(1000)] * 20)
    got = 0
    async for message in queue.consume(credit=100, credit_bytes=2500):
        # The first message of a frame may overdraw the credit, no other does.
        assert (await queue.counts()).leased <= 3
        got += 1
        await message.complete()
        if got == 20:
            break
    assert got == 20


async def test_a_slow_consumer_leaves_to_others_what_it_has_no_credit_for(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(10)])
    slow = queue.consume(credit=2)
    messages = aiter(slow)
    held = [await anext(messages), await anext(messages)]
    assert [message.body for message in await queue.receive(max=100)] == [b"%d" % number for number in range(2, 10)]
    await slow.close()
    assert [await message.complete() for message in held] == [True, True]


async def test_leaving_the_loop_gives_back_what_was_not_looked_at(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(10)])
    async for message in queue.consume(credit=10):
        await message.complete()
        break
    await _until_visible(queue, 9)
    assert [(one.body, one.receives) for one in await queue.peek(max=20)] == [(b"%d" % number, 0) for number in range(1, 10)]


async def test_a_consumer_that_is_cancelled_gives_back_what_was_not_looked_at(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(10)])
    looked: list[dovetail.Message] = []

    async def consume() -> None:
        async for message in queue.consume(credit=10):
            looked.append(message)
            await asyncio.sleep(60)

    task = asyncio.create_task(consume())
    await until(lambda: looked)
    task.cancel()
    await asyncio.wait([task])
    await _until_visible(queue, 9)
    assert await looked[0].complete() is True


async def _until_visible(queue: dovetail.Queue, count: int) -> None:
    async with asyncio.timeout(60):
        while (await queue.counts()).visible != count:
            await asyncio.sleep(0.01)


async def test_leases_are_prolonged_while_a_handler_runs_and_no_longer(
    frozen: tuple[dovetail.Queues, MovableClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, clock = frozen
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b"])
    prolonged = 0
    extend = queue.verbs.extend

    async def counted(*asked: Any) -> Any:
        nonlocal prolonged
        answer = await extend(*asked)
        prolonged += 1
        return answer

    monkeypatch.setattr(queue.verbs, "extend", counted)
    consumer = queue.consume(credit=2, lease_s=0.3)
    messages = aiter(consumer)
    first = await anext(messages)
    async with first:
        for _ in range(4):
            seen = prolonged
            await until(lambda: prolonged > seen)  # noqa: B023  # awaited at once
            await clock.advance(0.25)
        assert await queue.receive() == [], "neither the one that is handled nor the one that waits behind it lapsed"
    second = await anext(messages)
    assert (second.body, second.receives) == (b"b", 1)
    assert await second.complete() is True


@pytest.mark.slow
async def test_a_lease_is_prolonged_no_longer_than_the_consumer_holds(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send(b"a")
    messages = aiter(queue.consume(credit=1, lease_s=0.2, hold_s=0.3))
    message = await anext(messages)
    (again,) = await queue.receive(wait_s=60)
    assert again.receives == 2
    assert await message.complete() is False


@pytest.mark.slow
async def test_a_message_that_is_forgotten_is_left_to_its_lease_and_its_credit_comes_back(
    frozen: tuple[dovetail.Queues, MovableClock],
) -> None:
    node, clock = frozen
    queue = await node.queue("orders")
    await queue.send_many([b"%d" % number for number in range(6)])
    seen = []
    async with queue.consume(credit=1, lease_s=1) as consumer:
        async for message in consumer:
            seen.append(message.body)
            del message
            if len(seen) == 6:
                break
    assert seen == [b"%d" % number for number in range(6)], "with a credit of one, each was given back its credit"
    await clock.advance(1.2)
    assert len(await queue.receive(max=10)) == 6


async def test_batches_are_settled_at_once(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(1000)])
    got: list[bytes] = []
    async for batch in queue.consume(credit=100).batches():
        got += batch.bodies
        assert all(await batch.complete())
        if len(got) == 1000:
            break
    assert sorted(got) == sorted(b"%d" % number for number in range(1000))
    assert (await queue.counts()).leased == 0


async def test_receive_and_delete_asks_for_nothing_more(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send_many([b"%d" % number for number in range(20)])
    got = []
    async for message in queue.consume(credit=3, delete=True):
        got.append(message.body)
        if len(got) == 20:
            break
    assert got == [b"%d" % number for number in range(20)]
    counts = await queue.counts()
    assert counts.visible == counts.leased == 0


async def test_a_consumer_is_told_when_its_queue_is_dropped(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    waiting = asyncio.create_task(anext(aiter(queue.consume())))
    await asyncio.sleep(0.05)
    await either.drop("orders")
    with pytest.raises(NoSuchQueue):
        await asyncio.wait_for(waiting, 60)


async def test_a_consumer_that_is_closed_by_somebody_else_ends_its_loop(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    consumer = queue.consume()

    async def consume() -> int:
        return len([message async for message in consumer])

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    await consumer.close()
    assert await asyncio.wait_for(task, 60) == 0


@pytest.mark.parametrize("wrong", [{"credit": 0}, {"credit": 10_001}, {"credit_bytes": 0}, {"credit": 1.5}])
async def test_a_credit_that_makes_no_sense_is_refused(either: dovetail.Queues, wrong: dict[str, int]) -> None:
    queue = await either.queue("orders")
    with pytest.raises(LimitExceeded):
        queue.consume(**wrong)


async def test_a_consumer_goes_on_through_cuts_and_keeps_what_it_has_in_hand(served: Served, node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders", lease_s=60)
    await queue.send_many([b"%d" % number for number in range(5)])
    messages = aiter(queue.consume(credit=10))
    held = [await anext(messages) for _ in range(5)]
    for number in range(5, 25):
        if number % 5 == 0:
            wire.cut()
        await queue.send(b"%d" % number)
        message = await asyncio.wait_for(anext(messages), 60)
        assert message.body == b"%d" % number
        assert await message.complete() is True
    assert [await message.complete() for message in held] == [True] * 5


async def test_the_node_never_sends_more_than_the_credit(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"x"] * 500)
    messages = aiter(queue.consume(credit=7))
    held = [await anext(messages) for _ in range(5)]
    await asyncio.sleep(0.1)
    assert len(held) == 5
    counts = await queue.counts()
    assert (counts.leased, counts.visible) == (7, 493)
