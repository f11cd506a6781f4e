"""What once broke a node, a neighbour or an order, and must not again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, DovetailError, NoSuchQueue
from tests.contract.house import House, bodies


@pytest.mark.parametrize("rules", [{"in_flight_max": True}, {"max_receives": True}, {"groups": 1}, {"groups": "no"}, {"extra": {"a": 1}}])
async def test_a_rule_of_the_wrong_type_is_refused_before_it_is_written(house: House, rules: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        await house.node.queue("orders", **rules)
    await house.again()
    assert await house.node.queues() == []


async def test_a_back_off_without_a_most_ends_at_the_longest_delay_there_is(house: House) -> None:
    queue = await house.node.queue("orders", backoff_s=1e9)
    await queue.send(b"a")
    for _ in range(60):
        (message,) = await queue.receive()
        assert await message.requeue(0)
    (message,) = await queue.receive()
    assert await message.requeue()
    await house.again()
    assert (await (await house.node.queue("orders")).counts()).delayed == 1


async def test_a_receive_of_nonsense_does_not_keep_its_neighbours_waiting(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send(b"a")
    answers = await asyncio.wait_for(
        asyncio.gather(queue.receive(max=2.0), queue.send(b"b"), return_exceptions=True),  # type: ignore[arg-type]  # on purpose
        10,
    )
    assert isinstance(answers[0], DovetailError)
    assert (await queue.counts()).visible == 2


async def test_the_lease_of_a_completed_message_does_not_hide_what_is_due_next(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=0.5)
    await queue.send(b"first")
    (message,) = await queue.receive()
    await message.complete()
    await queue.send(b"later", delay_s=1)
    waiting = asyncio.ensure_future(queue.receive(wait_s=20))
    for _ in range(22):
        await asyncio.sleep(0.01)
        house.clock.advance(0.05)
    assert bodies(await asyncio.wait_for(waiting, 60)) == [b"later"]


async def test_a_drop_that_is_cancelled_leaves_no_name_behind(house: House) -> None:
    for turns in range(6):
        await house.node.queue("orders")
        dropping = asyncio.ensure_future(house.node.drop("orders"))
        for _ in range(turns):
            await asyncio.sleep(0)
        dropping.cancel()
        await asyncio.wait([dropping])
        await asyncio.sleep(0.05)
        queue = await house.node.queue("orders")
        await queue.send(b"a")
        await house.node.drop("orders")
        with pytest.raises(NoSuchQueue):
            await queue.counts()


async def test_a_producer_goes_on_after_a_body_that_is_none(house: House) -> None:
    await house.needs("numbering")
    queue = await house.node.queue("orders")
    producer = await house.node.producer("billing")
    with pytest.raises(BadRequest):
        await producer.send(queue, "text")  # type: ignore[arg-type]  # on purpose
    assert (await producer.send(queue, b"a")).sequence == 1


async def test_redrive_lets_no_member_of_a_group_pass_one_that_is_leased(house: House) -> None:
    dead = await house.node.queue("dead", groups=True)
    target = await house.node.queue("target", groups=True)
    await dead.send_many([Outgoing(b"%d" % number, group="g") for number in range(3)])
    (first,) = await dead.receive()
    task = await dead.redrive(target)
    await asyncio.sleep(0.05)
    house.clock.advance(1)
    await task.wait()
    assert task.moved == 0
    assert await first.complete()
    task = await dead.redrive(target)
    for _ in range(5):
        await asyncio.sleep(0.02)
        house.clock.advance(1)
    await task.wait()
    assert bodies(await target.receive(max=10)) == [b"1", b"2"]
