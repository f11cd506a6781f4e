"""Numbered producers, and complete-and-send: what is done twice happens once, and what belongs together happens together."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, NumberRefused, ReceiptInvalid
from tests.contract.house import House, bodies, everything


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_repeated_number_is_answered_with_the_first_outcome_and_not_stored(house: House, snapshot: bool) -> None:
    await house.needs("numbering")
    queue, producer = await house.node.queue("orders"), await house.node.producer("billing")
    sent = [await producer.send(queue, b"%d" % number) for number in (1, 2, 3)]
    again = await producer.send(queue, b"2", number=2)
    assert (again.repeat, again.id, again.sequence) == (True, sent[1].id, sent[1].sequence)
    await house.again(snapshot=snapshot)
    queue, producer = await house.node.queue("orders"), await house.node.producer("billing")
    assert producer.last == 3
    assert (await producer.send(queue, b"3", number=3)).repeat is True
    assert (await producer.send(queue, b"4")).repeat is False
    assert bodies(await everything(queue)) == [b"1", b"2", b"3", b"4"]


async def test_a_number_long_ago_is_still_known_as_stored(house: House) -> None:
    await house.needs("numbering")
    queue, producer = await house.node.queue("orders"), await house.node.producer("billing")
    await asyncio.gather(*(producer.send(queue, b"%d" % number) for number in range(200)))
    await queue.purge()
    old = await producer.send(queue, b"0", number=1)
    assert (old.repeat, old.sequence) == (True, 0)
    assert await everything(queue) == []


async def test_a_gap_is_refused_without_using_the_number_and_a_skip_fills_it(house: House) -> None:
    await house.needs("numbering")
    queue, producer = await house.node.queue("orders"), await house.node.producer("billing")
    await producer.send(queue, b"1")
    for number in (3, 0, -1):
        with pytest.raises((NumberRefused, LimitExceeded, BadRequest)):
            await producer.send(queue, b"x", number=number)
    await producer.skip(2)
    assert (await producer.send(queue, b"3", number=3)).repeat is False
    with pytest.raises(NumberRefused):
        await producer.send(queue, b"2", number=2)
    assert bodies(await everything(queue)) == [b"1", b"3"]


async def test_whoever_opens_a_producer_ends_the_one_before(house: House) -> None:
    await house.needs("numbering")
    queue = await house.node.queue("orders")
    old = await house.node.producer("billing")
    await old.send(queue, b"1")
    new, other = await house.node.producer("billing"), await house.node.producer("other")
    assert (new.last, other.last) == (1, 0)
    with pytest.raises(NumberRefused):
        await old.send(queue, b"2")
    await new.send(queue, b"2")
    await other.send(queue, b"3")
    assert bodies(await everything(queue)) == [b"1", b"2", b"3"]


async def test_a_refused_send_does_not_block_the_next_one(house: House) -> None:
    await house.needs("numbering")
    queue, gone, producer = await house.node.queue("orders"), await house.node.queue("gone"), await house.node.producer("billing")
    await house.node.drop("gone")
    with pytest.raises(LimitExceeded):
        await producer.send(queue, bytes(2_000_000))
    with pytest.raises(NoSuchQueue):
        await producer.send(gone, b"x")
    assert (await producer.send(queue, b"y")).repeat is False


async def test_a_number_that_was_refused_stays_refused(house: House) -> None:
    await house.needs("numbering")
    queue, doomed, producer = await house.node.queue("orders"), await house.node.queue("doomed"), await house.node.producer("billing")
    _, refused = await asyncio.gather(house.node.drop("doomed"), producer.send(doomed, b"x", number=1), return_exceptions=True)
    assert isinstance(refused, NoSuchQueue)
    try:
        again = await producer.send(queue, b"x", number=1)
        assert again.repeat is False and bodies(await everything(queue)) == [b"x"], "the number was not used"
    except (NoSuchQueue, NumberRefused):
        assert await everything(queue) == []


async def test_a_numbered_send_to_several_queues_is_repeated_in_none_of_them(house: House) -> None:
    await house.needs("numbering")
    one, two, producer = await house.node.queue("one"), await house.node.queue("two"), await house.node.producer("billing")
    first = await producer.send_to([one, two], b"a")
    again = await producer.send_to([one, two], b"a", number=1)
    assert [(answer.id, answer.repeat) for answer in again] == [(answer.id, True) for answer in first]
    assert len(await everything(one)) == len(await everything(two)) == 1


@pytest.mark.parametrize("snapshot", [False, True])
async def test_complete_and_send_happen_together(house: House, snapshot: bool) -> None:
    await house.needs("transactions")
    queue, target = await house.node.queue("orders"), await house.node.queue("bills")
    await queue.send(b"order")
    (message,) = await queue.receive()
    sent = await message.complete_and_send(target, b"bill", b"copy")
    await house.again(snapshot=snapshot)
    queue, target = await house.node.queue("orders"), await house.node.queue("bills")
    assert await everything(queue) == []
    assert [(one.id, one.body) for one in await everything(target)] == [(sent[0].id, b"bill"), (sent[1].id, b"copy")]


async def test_complete_and_send_does_neither_when_the_delivery_is_over_or_the_target_gone(house: House) -> None:
    await house.needs("transactions")
    queue, target = await house.node.queue("orders", lease_s=10), await house.node.queue("bills")
    await queue.send(b"order")
    (old,) = await queue.receive()
    house.clock.advance(10)
    (new,) = await queue.receive()
    with pytest.raises(ReceiptInvalid):
        await old.complete_and_send(target, b"bill")
    with pytest.raises(LimitExceeded):
        await new.complete_and_send(target, bytes(2_000_000))
    _, refused = await asyncio.gather(house.node.drop("bills"), new.complete_and_send(target, b"bill"), return_exceptions=True)
    assert isinstance(refused, NoSuchQueue)
    assert [one.state for one in await everything(queue)] == ["leased"]
    assert await new.complete_and_send(queue, b"again")
    assert bodies(await everything(queue)) == [b"again"]
    with pytest.raises(ReceiptInvalid):
        await new.complete_and_send(queue, b"twice")
    assert bodies(await everything(queue)) == [b"again"]
