"""Sending, receiving, completing: what every store keeps for every message."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Attribute, Outgoing
from dovetail.core.message import id_bytes
from dovetail.errors import NoSuchQueue, ReceiptInvalid
from tests.contract.house import House, bodies, everything, turns


async def test_a_message_is_received_as_it_was_sent(house: House) -> None:
    queue = await house.node.queue("orders")
    attributes = {"colour": "red", "size": 12, "raw": b"\0\xff", "typed": Attribute("String.json", b"{}")}
    sent = await queue.send(b"body", attributes=attributes, group="g")
    (message,) = await queue.receive(max=10)
    assert (message.id, message.sequence, message.body, message.receives) == (sent.id, sent.sequence, b"body", 1)
    assert message.attributes == {
        "colour": Attribute("String", b"red"),
        "size": Attribute("Number", b"12"),
        "raw": Attribute("Binary", b"\0\xff"),
        "typed": Attribute("String.json", b"{}"),
    }
    assert (message.group, message.sent_at_ms, message.first_received_ms) == ("g", house.clock.wall_ms(), house.clock.wall_ms())
    assert message.lease_until_ms == house.clock.wall_ms() + 30_000
    assert message.queue is queue and message.source is None


async def test_an_answer_names_the_durability_that_was_reached(house: House) -> None:
    queue = await house.node.queue("orders")
    sent = await queue.send(b"body")
    assert (sent.sequence, sent.durability, sent.repeat) == (1, house.kind.durability, False)
    assert house.node.store.promises.durability == house.kind.durability


async def test_an_empty_body_is_a_message_too(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send(b"")
    assert bodies(await queue.receive()) == [b""]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_an_acknowledged_message_is_there_after_a_restart(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders")
    sent = await queue.send_many([b"a", Outgoing(b"b", attributes={"x": "y"}), b"c"])
    await house.again(snapshot=snapshot)
    got = await (await house.node.queue("orders")).receive(max=10)
    assert [(message.id, message.sequence, message.body) for message in got] == [
        (one.id, one.sequence, body) for one, body in zip(sent, (b"a", b"b", b"c"), strict=True)
    ]
    assert got[1].attributes == {"x": Attribute("String", b"y")}


async def test_a_completed_message_never_comes_back(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b"])
    first, second = await queue.receive(max=2)
    assert await first.complete() is True
    assert await first.complete() is False
    house.clock.advance(31)
    await house.again()
    queue = await house.node.queue("orders")
    assert bodies(await queue.receive(max=10)) == [b"b"]
    assert (await queue.complete([second.receipt])) == [False]


async def test_messages_come_in_the_order_in_which_they_were_sent(house: House) -> None:
    await house.needs("order")
    queue = await house.node.queue("orders")
    expected = []
    for number in range(40):
        many = [b"%d-%d" % (number, item) for item in range(number % 5 + 1)]
        await queue.send_many(many) if number % 2 else await asyncio.gather(*map(queue.send, many))
        expected += many
    got: list[bytes] = []
    while more := await queue.receive(max=7):
        got += bodies(more)
    assert got == expected


async def test_every_message_goes_to_one_of_many_receivers(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"%d" % number for number in range(500)])
    answers = await asyncio.gather(*(queue.receive(max=9) for _ in range(60)))
    got = [message for answer in answers for message in answer]
    assert sorted(bodies(got)) == sorted(b"%d" % number for number in range(500))
    assert all(await asyncio.gather(*(message.complete() for message in got)))
    assert await everything(queue) == []


async def test_each_receipt_of_a_batch_is_judged_by_itself(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b", b"c", b"d"])
    a, b, c, d = await queue.receive(max=4)
    await b.complete()
    assert await queue.complete([a.receipt, b.receipt, c.receipt, c.receipt]) == [True, False, True, False]
    assert await queue.requeue([a.receipt, d.receipt], 0) == [False, True]
    assert bodies(await everything(queue)) == [b"d"]


async def test_a_receipt_that_was_not_made_here_is_refused(house: House) -> None:
    queue, other = await house.node.queue("orders"), await house.node.queue("other")
    await queue.send(b"a")
    await other.send(b"b")
    (message,) = await queue.receive()
    forged = message.receipt[:20] + ("A" if message.receipt[20] != "A" else "B") + message.receipt[21:]
    for receipt in ("", "nonsense", "é" * 43, message.receipt[:-1], message.receipt + "A", forged):
        with pytest.raises(ReceiptInvalid):
            await queue.complete([receipt])
    with pytest.raises(ReceiptInvalid):
        await other.complete([message.receipt])
    assert await message.complete() is True


async def test_receive_and_delete_gives_each_message_once_and_keeps_nothing(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b", b"c"])
    got = await queue.receive(max=2, delete=True)
    assert [(message.body, message.receipt, message.receives) for message in got] == [(b"a", "", 1), (b"b", "", 1)]
    house.clock.advance(3600)
    await house.again()
    queue = await house.node.queue("orders")
    assert bodies(await queue.receive(max=10, delete=True)) == [b"c"]
    assert await everything(queue) == []


async def test_a_message_keeps_the_id_that_its_sender_gave(house: House) -> None:
    queue = await house.node.queue("orders")
    given = "00112233-4455-6677-8899-aabbccddeeff"
    assert (await queue.send(b"a", id=given)).id == given
    assert (await queue.send(b"b")).id != given
    await house.again(snapshot=True)
    queue = await house.node.queue("orders")
    assert (await everything(queue))[0].id == given
    assert (await queue.receive())[0].id == given
    assert id_bytes(given) == bytes.fromhex("00112233445566778899aabbccddeeff")


async def test_one_message_to_several_queues_is_in_all_of_them_or_in_none(house: House) -> None:
    await house.needs("transactions")
    one, two = await house.node.queue("one"), await house.node.queue("two")
    sent = await house.node.send_to(["one", two], b"both")
    assert len({answer.id for answer in sent}) == 2
    with pytest.raises(NoSuchQueue):
        await house.node.send_to(["one", "missing"], b"neither")
    # One that is dropped in the very same moment: refused for both.
    doomed = await house.node.queue("doomed")
    _, refused = await asyncio.gather(house.node.drop("doomed"), house.node.send_to([one, doomed], b"neither"), return_exceptions=True)
    assert isinstance(refused, NoSuchQueue)
    await house.again()
    for name, answer in zip(("one", "two"), sent, strict=True):
        queue = await house.node.queue(name)
        (message,) = await queue.receive(max=10)
        assert (message.id, message.body) == (answer.id, b"both")
        assert await message.complete()


async def test_peek_shows_messages_in_order_and_changes_nothing(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", Outgoing(b"b", delay_s=60), b"c", b"d"])
    (leased,) = await queue.receive()
    before = await queue.counts()
    seen = await queue.peek(max=3)
    assert [(one.body, one.state, one.receives) for one in seen] == [(b"a", "leased", 1), (b"b", "delayed", 0), (b"c", "visible", 0)]
    assert bodies(await queue.peek(max=3, after=seen[1].sequence)) == [b"c", b"d"]
    assert await queue.counts() == before
    assert await leased.complete() is True


async def test_counts_follow_time_although_nothing_is_written(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b", Outgoing(b"c", delay_s=10)])
    await queue.receive(lease_s=5)
    counts = await queue.counts()
    assert (counts.visible, counts.delayed, counts.leased, counts.pushed) == (1, 1, 1, 3)
    tail = house.node.store.log.tail
    house.clock.advance(7)
    counts = await queue.counts()
    assert (counts.visible, counts.delayed, counts.leased, counts.oldest_age_ms) == (2, 1, 0, 7000)
    house.clock.advance(3)
    counts = await queue.counts()
    assert (counts.visible, counts.delayed, counts.leased) == (3, 0, 0)
    assert await queue.receive(max=1, wait_s=0) and house.node.store.log.tail > tail


async def test_a_receive_that_finds_nothing_writes_nothing(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send(b"later", delay_s=60)
    await turns()
    tail = house.node.store.log.tail
    for _ in range(10):
        assert await queue.receive(max=10) == []
    assert house.node.store.log.tail == tail


async def test_a_closed_node_refuses_whatever_is_asked(house: House) -> None:
    from dovetail.errors import Closed

    queue = await house.node.queue("orders")
    await queue.send(b"a")
    await house.node.close()
    assert not house.node.ready
    with pytest.raises(Closed):
        await queue.send(b"b")
    with pytest.raises(Closed):
        await queue.receive()
