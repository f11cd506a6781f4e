"""Dead letters: after so many receives a message moves on, and comes back when somebody redrives it."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Node, Queue
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue
from tests.contract.house import House, bodies, everything


async def pair(node: Node, max_receives: int = 2) -> tuple[Queue, Queue]:
    dead = await node.queue("dead")
    return await node.queue("orders", max_receives=max_receives, dead_letter="dead", lease_s=10), dead


async def fail(queue: Queue, times: int = 2, most: int = 100) -> None:
    """Receive and give back so often, then look once more, which moves what has had enough."""
    for _ in range(times):
        for message in await queue.receive(max=most):
            await message.requeue(0)
    assert await queue.receive(max=most) == []


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_message_moves_after_its_last_receive_and_keeps_what_it_is(house: House, snapshot: bool) -> None:
    queue, _ = await pair(house.node)
    sent = await queue.send(b"a", attributes={"x": "y"})
    sent_at_ms = house.clock.wall_ms()
    await queue.receive()
    house.clock.advance(10)
    (second,) = await queue.receive()
    assert second.receives == 2
    house.clock.advance(10)
    assert await queue.receive() == []
    await house.again(snapshot=snapshot)
    queue, dead = await house.node.queue("orders"), await house.node.queue("dead")
    assert await everything(queue) == []
    assert (await queue.counts()).dead_lettered == 1
    (letter,) = await dead.receive()
    assert (letter.id, letter.body, letter.source, letter.receives) == (sent.id, b"a", "orders", 1)
    assert (letter.sent_at_ms, letter.attributes["x"].value) == (sent_at_ms, b"y")
    assert await queue.complete([second.receipt]) == [False], "a move ends a receipt"


async def test_a_released_delivery_does_not_count_towards_the_dead_letters(house: House) -> None:
    queue, dead = await pair(house.node, max_receives=1)
    await queue.send(b"a")
    for _ in range(5):
        (message,) = await queue.receive()
        await message.release()
    assert await everything(dead) == []


async def test_a_dead_letter_queue_that_is_gone_strands_nothing_silently(house: House) -> None:
    queue, _ = await pair(house.node, max_receives=1)
    await queue.send(b"a")
    (message,) = await queue.receive()
    await message.requeue(0)
    await house.node.drop("dead")
    # Where the two lie in different logs, the first look sends it on its way, and it is back when the other log has said no.
    (again,) = await queue.receive() or await queue.receive()
    assert (again.body, again.receives) == (b"a", 2)
    assert (await queue.counts()).stranded == 1


async def test_a_dead_letter_queue_must_exist_be_another_queue_and_have_a_number_of_receives(house: House) -> None:
    with pytest.raises(NoSuchQueue):
        await house.node.queue("orders", max_receives=1, dead_letter="missing")
    dead = await house.node.queue("dead")
    with pytest.raises(BadRequest):
        await house.node.queue("orders", dead_letter="dead")
    with pytest.raises(BadRequest):
        await dead.configure(max_receives=1, dead_letter=dead)
    assert await house.node.queues() == ["dead"]


async def test_redrive_takes_dead_letters_back_to_where_each_came_from(house: House) -> None:
    queue, dead = await pair(house.node)
    other = await house.node.queue("other", max_receives=2, dead_letter="dead")
    await queue.send_many([b"a", b"b"])
    await other.send(b"c")
    await fail(queue)
    await fail(other)
    await dead.send(b"born here")
    task = await dead.redrive()
    await house.pass_time(1)
    assert (task.status, task.moved) == ("completed", 3)
    await house.again(snapshot=True)
    queue, other, dead = [await house.node.queue(name) for name in ("orders", "other", "dead")]
    assert bodies(await everything(dead)) == [b"born here"]
    assert [(one.body, one.receives) for one in await queue.receive(max=9)] == [(b"a", 1), (b"b", 1)], "the count starts again"
    assert bodies(await other.receive(max=9)) == [b"c"]


async def test_redrive_to_a_named_queue_takes_everything_that_is_visible(house: House) -> None:
    queue, dead = await pair(house.node)
    target = await house.node.queue("target")
    await queue.send_many([b"a", b"b", b"c"])
    await fail(queue)
    await dead.send(b"born here")
    await dead.send(b"later", delay_s=60)
    (held,) = await dead.receive(lease_s=600)
    task = await dead.redrive(to=target)
    await house.pass_time(1)
    assert task.moved == 3
    assert bodies(await everything(target)) == [b"b", b"c", b"born here"]
    assert bodies(await everything(dead)) == [held.body, b"later"]
    assert await held.complete() is True


async def test_redrive_keeps_to_its_rate_and_stops_when_cancelled(house: House) -> None:
    queue, dead = await pair(house.node)
    await queue.send_many([b"%d" % number for number in range(100)])
    await fail(queue)
    task = await dead.redrive(rate_per_s=20)
    with pytest.raises(LimitExceeded):
        await dead.redrive()
    await house.pass_time(2)
    assert 36 <= task.moved <= 44
    cancelling = asyncio.ensure_future(task.cancel())
    await house.pass_time(0.2)
    await cancelling
    assert task.status == "cancelled"
    moved = len(await everything(queue))
    assert moved == task.moved
    await house.pass_time(1)
    assert len(await everything(queue)) == moved
    await dead.redrive(rate_per_s=1_000_000)
    await house.pass_time(1)
    assert bodies(await queue.receive(max=100)) == [b"%d" % number for number in range(100)]


async def test_a_redrive_that_is_cancelled_at_once_leaves_room_for_the_next(house: House) -> None:
    _, dead = await pair(house.node)
    task = await dead.redrive()
    await task.cancel()
    # Elsewhere it may have found that there is nothing to move before it heard of it.
    assert task.moved == 0 and task.status in ("cancelled", "completed")
    await dead.redrive()
    await house.pass_time(1)


@pytest.mark.parametrize("rate", [0, -1, 1_000_001, float("nan")])
async def test_a_rate_that_makes_no_sense_is_refused(house: House, rate: float) -> None:
    queue = await house.node.queue("orders")
    with pytest.raises(BadRequest):
        await queue.redrive(rate_per_s=rate)


async def test_a_moved_message_has_one_id_wherever_it_is_looked_at(house: House) -> None:
    queue, dead = await pair(house.node, max_receives=1)
    await house.needs("taps")
    tap = await dead.tap("watch")
    sent = await queue.send(b"a")
    await fail(queue, times=1)
    assert [one.id for one in await everything(dead)] == [sent.id]
    assert [one.id for one in (await tap.read()).messages] == [sent.id]
