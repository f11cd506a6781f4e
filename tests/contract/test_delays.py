"""Delays without a limit that anybody meets, and what can be done to a message by its id."""

from __future__ import annotations

import random

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, CodecError
from tests.contract.house import House, bodies, everything

DAY_S = 86_400


@pytest.mark.parametrize("delay_s", [0.001, 1, 900, DAY_S, 40 * DAY_S, 49.7102696 * DAY_S, 3 * 365 * DAY_S, 80 * 365 * DAY_S])
async def test_a_delayed_message_appears_at_its_time_and_not_before(house: House, delay_s: float) -> None:
    if delay_s > 40 * 365 * DAY_S and not house.owns_time:
        pytest.skip("the log's time is its server's, and no test waits so long")
    queue = await house.node.queue("orders")
    await queue.send(b"a", delay_s=delay_s)
    assert [one.state for one in await everything(queue)] == ["delayed"]
    house.clock.advance(delay_s / 2)
    await house.again(snapshot=True)
    queue = await house.node.queue("orders")
    assert await queue.receive() == []
    house.clock.advance(round(delay_s * 1000) / 1000 - round(delay_s / 2 * 1000) / 1000 - 0.001)
    assert await queue.receive() == []
    assert [one.state for one in await everything(queue)] == ["delayed"]
    house.clock.advance(0.001)
    assert [one.state for one in await everything(queue)] == ["visible"]
    assert bodies(await queue.receive()) == [b"a"]


async def test_a_queue_delays_what_does_not_say_otherwise(house: House) -> None:
    queue = await house.node.queue("orders", delay_s=10)
    await queue.send_many([b"default", Outgoing(b"now", delay_s=0), Outgoing(b"later", delay_s=20)])
    assert bodies(await queue.receive(max=10)) == [b"now"]
    house.clock.advance(10)
    assert bodies(await queue.receive(max=10)) == [b"default"]
    house.clock.advance(10)
    assert bodies(await queue.receive(max=10)) == [b"later"]


async def test_many_delays_at_random_come_each_in_its_time(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=DAY_S * 365)
    chance = random.Random(7)
    due = {b"%d" % number: round(chance.choice((2, 300, 5000, 200_000)) * chance.random(), 3) for number in range(400)}
    await queue.send_many([Outgoing(body, delay_s=delay_s) for body, delay_s in due.items()])
    now_s, moments = 0.0, sorted({0.0, *(round(chance.random() * 210_000, 3) for _ in range(60)), 210_000.0})
    got: set[bytes] = set()
    for moment in moments:
        house.clock.advance(moment - now_s)
        now_s = moment
        if chance.random() < 0.05:
            await house.again(snapshot=chance.random() < 0.5)
            queue = await house.node.queue("orders")
        got.update(bodies(await queue.receive(max=1000)))
        assert got == {body for body, delay_s in due.items() if delay_s <= now_s}


async def test_a_waiting_or_delayed_message_is_cancelled_by_its_id_once(house: House) -> None:
    queue = await house.node.queue("orders")
    delayed, visible, kept = await queue.send_many([Outgoing(b"delayed", delay_s=99), b"visible", b"kept"])
    assert await queue.cancel(delayed.id) is True
    assert await queue.cancel(visible.id) is True
    assert await queue.cancel(visible.id) is False
    await house.again()
    queue = await house.node.queue("orders")
    assert bodies(await everything(queue)) == [b"kept"]
    (message,) = await queue.receive()
    assert await queue.cancel(kept.id) is False, "somebody has it in hand"
    await message.requeue(0)
    assert await queue.cancel(kept.id) is True
    house.clock.advance(100)
    assert await queue.receive() == []


async def test_an_id_of_another_queue_or_of_nobody_is_refused_and_cancels_nothing(house: House) -> None:
    queue, other = await house.node.queue("orders"), await house.node.queue("other")
    sent, _ = await queue.send(b"a"), await other.send(b"b")
    for identity in (sent.id, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "nonsense"):
        for act in (other.cancel(identity), other.reschedule(identity, 1), other.reclaim(identity)):
            with pytest.raises((BadRequest, CodecError)):
                await act
    assert len(await everything(queue)) == len(await everything(other)) == 1


async def test_reschedule_moves_the_time_both_ways(house: House) -> None:
    queue = await house.node.queue("orders")
    sent = await queue.send(b"a", delay_s=1000)
    assert await queue.reschedule(sent.id, 10) is True
    assert await queue.reschedule(sent.id, 20) is True
    house.clock.advance(19.999)
    assert await queue.receive() == []
    house.clock.advance(0.001)
    (message,) = await queue.receive(lease_s=5)
    assert await queue.reschedule(sent.id, 0) is False, "somebody has it in hand"
    await message.requeue(0)
    assert await queue.reschedule(sent.id, 50) is True
    house.clock.advance(49)
    await house.again(snapshot=True)
    queue = await house.node.queue("orders")
    assert await queue.receive() == []
    assert await queue.reschedule(sent.id, 0) is True
    assert bodies(await queue.receive()) == [b"a"]


async def test_a_message_that_is_put_off_by_seven_weeks_does_not_come_at_its_first_time(house: House) -> None:
    """2^32 ms: the low halves of both times are the same."""
    queue = await house.node.queue("orders")
    sent = await queue.send(b"a", delay_s=10)
    await queue.reschedule(sent.id, 10 + (1 << 32) / 1000)
    house.clock.advance(11)
    assert await queue.receive() == []
    house.clock.advance((1 << 32) / 1000)
    assert bodies(await queue.receive()) == [b"a"]


async def test_reclaim_takes_a_message_back_from_whoever_has_it(house: House) -> None:
    queue = await house.node.queue("orders")
    sent = await queue.send(b"a")
    assert await queue.reclaim(sent.id) is False, "nobody has it"
    (message,) = await queue.receive(lease_s=10_000)
    assert await queue.reclaim(sent.id) is True
    assert await message.complete() is False
    assert [one.receives for one in await queue.receive()] == [2]
