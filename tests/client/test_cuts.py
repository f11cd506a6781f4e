"""Connections that are cut, at chosen places and at random ones: what was acknowledged is there once, what was not is there at most once,
and whoever cannot be told is told so."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

import dovetail
from dovetail import Outgoing
from dovetail.client.pushes import Pushes
from dovetail.doors.native.codec import Event, Frame, Kind
from dovetail.errors import NumberRefused, Unavailable, Unknown
from tests.client.house import Served, Wire, until


class Once:
    """Cuts the wire once, before the frame of a kind passes: an answer that is lost, or a request that never came."""

    def __init__(self, kind: Kind, *, asked: bool = False) -> None:
        self.kind = kind
        self.asked = asked
        self.done = False

    def __call__(self, asked: bool, event: Event) -> bool:
        if self.done or asked != self.asked or not isinstance(event, Frame) or event.kind != self.kind:
            return False
        self.done = True
        return True


@pytest.mark.parametrize("count", [1, 64, 65, 1000])
@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_send_that_was_cut_off_is_stored_once_and_answered_as_if_it_had_not_been(
    node: dovetail.Client, wire: Wire, count: int, lost: str
) -> None:
    queue = await node.queue("orders")
    await queue.send(b"first")
    wire.cut_before = Once(Kind.PUSHED) if lost == "answer" else Once(Kind.PUSH, asked=True)
    sent = await queue.send_many([b"%d" % number for number in range(count)])
    assert wire.connections == 2
    assert [(one.sequence, one.repeat) for one in sent] == [(2 + number, False) for number in range(count)]
    seen = await queue.peek(max=2000)
    assert [one.body for one in seen] == [b"first", *(b"%d" % number for number in range(count))]
    assert [one.id for one in sent] == [one.id for one in seen[1:]]


async def test_of_single_sends_that_were_cut_off_each_has_its_own_answer(node: dovetail.Client, wire: Wire) -> None:
    queue, other = await node.queue("orders"), await node.queue("other")
    await asyncio.gather(*((queue if number % 2 else other).send(b"warm") for number in range(8)))
    wire.cut_before = Once(Kind.PUSHED)
    sent = await asyncio.gather(*((queue if number % 3 else other).send(b"%d" % number) for number in range(300)))
    stored = {one.id: one.body for name in (queue, other) for one in await name.peek(max=1000)}
    assert [stored[one.id] for one in sent] == [b"%d" % number for number in range(300)]
    assert len(stored) == 308 and not any(one.repeat for one in sent)


async def test_what_was_under_way_keeps_its_order_through_a_cut(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await asyncio.gather(*(queue.send(b"warm", group=str(number)) for number in range(4)))
    wire.cut_before = Once(Kind.PUSHED)
    tasks = []
    for number in range(200):
        tasks.append(asyncio.create_task(queue.send(b"%03d" % number)))
        if number % 10 == 0:
            await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    assert [one.body for one in await queue.peek(max=1000)][4:] == [b"%03d" % number for number in range(200)]


async def test_a_message_with_everything_survives_a_cut(node: dovetail.Client, wire: Wire) -> None:
    queue, copy = await node.queue("orders", deduplication_s=60), await node.queue("copy")
    await queue.send(b"warm")
    wire.cut_before = Once(Kind.PUSHED)
    given = "00112233-4455-6677-8899-aabbccddeeff"
    many = [Outgoing(b"%d" % number, deduplication=str(number), group="g", attributes={"n": number}) for number in range(200)]
    sent = await asyncio.gather(queue.send_many([*many, Outgoing(b"own", id=given)]), node.send_to([queue, copy], b"both"))
    assert [one.sequence for one in sent[0]] == list(range(2, 203)) and sent[0][-1].id == given
    assert [one.sequence for one in sent[1]] == [203, 1]
    assert (await queue.counts()).visible == 203 and (await copy.counts()).visible == 1


async def test_complete_and_send_happens_once_through_a_cut(node: dovetail.Client, wire: Wire) -> None:
    queue, bills = await node.queue("orders"), await node.queue("bills")
    await queue.send(b"order")
    (message,) = await queue.receive()
    wire.cut_before = Once(Kind.PUSHED)
    (sent,) = await message.complete_and_send(bills, b"bill")
    assert wire.connections == 2
    assert [(one.id, one.body) for one in await bills.peek()] == [(sent.id, b"bill")]
    assert await queue.peek() == []


async def test_without_numbers_a_send_that_was_cut_off_is_unknown_and_not_sent_again(served: Served, wire: Wire) -> None:
    async with dovetail.connect(wire.url, numbered=False, timeout_s=60) as node:
        queue = await node.queue("orders")
        wire.cut_before = Once(Kind.PUSHED)
        with pytest.raises(Unknown):
            await queue.send(b"a")
        assert (await queue.send(b"b")).sequence == 2
        assert [one.body for one in await queue.peek()] == [b"a", b"b"]


async def test_without_the_numbers_a_send_that_is_repeated_is_stored_twice(
    served: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: what is sent again without its numbers is stored again."""

    def cut(pushes: Pushes, batch: Any, doubt: bool) -> None:
        batch.loan.batch = None
        pushes._line.appendleft(batch)

    monkeypatch.setattr(Pushes, "cut", cut)
    async with dovetail.connect(wire.url, numbered=False, timeout_s=60) as node:
        queue = await node.queue("orders")
        wire.cut_before = Once(Kind.PUSHED)
        await queue.send(b"a")
        assert [one.body for one in await queue.peek()] == [b"a", b"a"]


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_complete_that_was_cut_off_is_done_and_said_so_where_that_can_be_known(
    node: dovetail.Client, wire: Wire, lost: str
) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b"])
    a, b = await queue.receive(max=2)
    await b.complete()
    wire.cut_before = Once(Kind.SETTLED) if lost == "answer" else Once(Kind.COMPLETE, asked=True)
    if lost == "answer":
        # It is done, but nobody can tell whether it was this time or too late.
        with pytest.raises(Unknown):
            await a.complete()
    else:
        assert await a.complete() is True
    assert await queue.peek() == []


async def test_receivers_go_on_waiting_through_a_cut(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    receiving = [asyncio.create_task(queue.receive(wait_s=60)) for _ in range(3)]
    await until(lambda: wire.asked["PULL"] == 1)
    wire.cut()
    await until(lambda: wire.asked["PULL"] == 2)
    await queue.send_many([b"a", b"b", b"c"])
    assert [one.body for messages in await asyncio.gather(*receiving) for one in messages] == [b"a", b"b", b"c"]


async def test_a_receipt_holds_on_the_next_connection(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b"])
    a, b = await queue.receive(max=2)
    wire.cut()
    assert await a.complete() is True
    assert await queue.complete([b.receipt]) == [True]


async def test_a_producer_of_the_program_is_opened_again_by_the_program(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    producer = await node.producer("billing")
    await producer.send(queue, b"1")
    wire.cut_before = Once(Kind.PUSHED)
    with pytest.raises(Unknown):
        await producer.send(queue, b"2")
    # We do not open it by ourselves: that would end whoever has opened it meanwhile.
    with pytest.raises(NumberRefused):
        await producer.send(queue, b"3", number=3)
    again = await node.producer("billing")
    assert again.last == 2
    assert (await again.send(queue, b"2", number=2)).repeat is True
    assert (await again.send(queue, b"3")).repeat is False
    assert [one.body for one in await queue.peek()] == [b"1", b"2", b"3"]


async def test_a_queue_that_was_dropped_meanwhile_fails_loudly(served: Served, node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send(b"a")
    wire.down = True
    wire.cut()
    await served.node.drop("orders")
    await served.node.queue("orders")
    wire.down = False
    for act in (queue.send(b"b"), queue.receive(), queue.receive(wait_s=1), queue.counts()):
        with pytest.raises(dovetail.errors.BadRequest):
            await act
    assert (await (await node.queue("orders")).send(b"c")).sequence == 1


@pytest.mark.slow
async def test_what_never_left_is_refused_at_its_deadline_and_what_left_is_unknown(served: Served, wire: Wire) -> None:
    async with dovetail.connect(wire.url, timeout_s=60) as node:
        queue = await node.queue("orders")
        await queue.send_many([b"warm", b"warm"])
        (message,) = await queue.receive()
        node._session.timeout_s = 0.6
        wire.flowing.clear()
        answers = await asyncio.gather(queue.send(b"a"), message.complete(), queue.purge(), queue.counts(), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unknown] * 4
        wire.down = True
        wire.cut()
        await until(lambda: not node.ready)
        acts = (queue.send(b"b"), message.requeue(), queue.purge(), queue.receive(), queue.receive(wait_s=0.1))
        answers = await asyncio.gather(*acts, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 5, answers
        wire.flowing.set()
        wire.down = False
        node._session.timeout_s = 60
        await until(lambda: node.ready)
        await queue.send(b"c")
        assert b"b" not in [one.body for one in await queue.peek()], "what was refused is not sent later"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_cuts_at_random_places_lose_nothing_double_nothing_and_give_back_everything(served: Served, seed: int) -> None:
    """Senders and workers, and a wire that is cut in the middle of frames, in both directions."""
    chance = random.Random(seed)
    wire = await Wire(served.port).open()
    acked: list[bytes] = []
    unknown: list[bytes] = []
    done: Counter[bytes] = Counter()
    worked: Counter[bytes] = Counter()
    sending = True

    async def sender(node: dovetail.Client, name: int) -> None:
        queue = await node.queue("orders")
        for number in range(60):
            many = [b"%d-%d-%d" % (name, number, item) for item in range(chance.choice((1, 1, 3, 100)))]
            try:
                await (queue.send(many[0]) if len(many) == 1 else queue.send_many(many))
                acked.extend(many)
            except Unknown:
                unknown.extend(many)
            await asyncio.sleep(chance.random() * 0.004)

    async def worker(node: dovetail.Client) -> None:
        queue = await node.queue("orders")
        while sending or (await queue.counts()).visible:
            for message in await queue.receive(max=50, wait_s=0.1, lease_s=1000):
                worked[message.body] += 1
                try:
                    done[message.body] += await message.complete()
                except Unknown:
                    done[message.body] += 1

    async def harm() -> None:
        while sending:
            wire.bytes_left = chance.randrange(20, 8000)
            await asyncio.sleep(chance.random() * 0.03)

    async with dovetail.connect(wire.url, timeout_s=60) as node:
        harming = asyncio.create_task(harm())
        workers = [asyncio.create_task(worker(node)) for _ in range(3)]
        await asyncio.gather(*(sender(node, name) for name in range(8)))
        sending = False
        wire.bytes_left = None
        await harming
        await asyncio.gather(*workers)
    await wire.close()
    assert wire.connections > 3
    # What was handed out on a connection that was cut comes again when its lease ends.
    await served.clock.advance(1001)
    queue = await served.node.queue("orders")
    while rest := await queue.receive(max=1000):
        for message in rest:
            done[message.body] += 1
        await rest.complete()
    stored = (await queue.counts()).pushed
    assert set(acked) <= set(done), "an acknowledged message is gone"
    assert set(done) <= set(acked) | set(unknown)
    assert not unknown, "with numbers every outcome is known"
    assert stored == len(acked) == len(set(acked)), "a message was stored twice"
    assert max(done.values()) == 1, "a completed message came back"
