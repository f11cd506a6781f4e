"""Automatic batching: what is asked for together travels together, in its order, and nothing waits for a timer."""

from __future__ import annotations

import asyncio

import dovetail
from dovetail import Outgoing
from dovetail.client.pushes import FRAMES_MAX
from tests.client.house import Wire, pushes, until


async def test_the_sends_of_many_tasks_ride_one_frame_in_their_order(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    sent = await asyncio.gather(*(queue.send(b"%d" % number) for number in range(500)))
    assert [one.sequence for one in sent] == list(range(1, 501))
    assert pushes(wire) == [500]
    assert [message.body for message in await queue.receive(max=500)] == [b"%d" % number for number in range(500)]


async def test_plain_messages_and_others_keep_their_order(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await asyncio.gather(
        queue.send(b"0"),
        queue.send(b"1", attributes={"a": "b"}),
        queue.send_many([b"2", Outgoing(b"3", group="g")]),
        queue.send_many([b"4", b"5"]),
        queue.send(b"6", group="h"),
        queue.send(b"7"),
    )
    assert pushes(wire) == [8]
    seen = await queue.peek(max=20)
    assert [one.body for one in seen] == [b"%d" % number for number in range(8)]
    assert [one.group for one in seen] == [None, None, None, "g", None, None, "h", None]
    assert seen[1].attributes["a"].value == b"b"


async def test_a_batch_that_is_too_large_for_a_frame_is_cut_and_keeps_its_order(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    bodies = [b"%06d" % number + bytes(1000) for number in range(1000)]
    first, second = await asyncio.gather(queue.send_many(bodies), queue.send(b"last"))
    assert [one.sequence for one in first] == list(range(1, 1001)) and second.sequence == 1001
    assert len(pushes(wire)) > 1 and sum(pushes(wire)) == 1001
    assert [one.body for one in await queue.peek(max=1000)] == bodies


async def test_what_is_sent_while_enough_is_under_way_rides_the_next_frame_and_waits_no_longer(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send(b"opens the first producer")
    wire.payloads.clear()
    wire.flowing.clear()
    sending = []
    for number in range(40):
        sending.append(asyncio.create_task(queue.send(b"%d" % number)))
        await asyncio.sleep(0.005)
    # One frame went at once. The others wait for a second producer, whose answer is held back as well.
    assert pushes(wire) == [1]
    wire.flowing.set()
    sent = await asyncio.gather(*sending)
    assert [one.sequence for one in sent] == list(range(2, 42))
    assert len(pushes(wire)) <= 1 + FRAMES_MAX and sum(pushes(wire)) == 40


async def test_a_send_with_nothing_under_way_leaves_in_its_own_turn(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send(b"opens the producer")
    link = node._session.link
    assert link is not None
    before = link._number
    sending = asyncio.create_task(queue.send(b"a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert link._number == before + 1 and not link._out, "it left"
    await sending


async def test_frames_of_one_queue_are_answered_to_whoever_sent_them(node: dovetail.Client, wire: Wire) -> None:
    one, two = await node.queue("one"), await node.queue("two")
    sent = await asyncio.gather(*((one if number % 2 else two).send(b"%d" % number) for number in range(100)))
    for queue, parity in ((one, 1), (two, 0)):
        got = {message.id: message.body for message in await queue.receive(max=100)}
        assert [got[answer.id] for answer in sent[parity::2]] == [b"%d" % number for number in range(parity, 100, 2)]


async def test_the_receives_of_many_tasks_ride_one_pull_and_each_gets_its_own(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"%d" % number for number in range(100)])
    got = await asyncio.gather(*(queue.receive(max=1 + number % 3, wait_s=60) for number in range(50)))
    assert wire.asked["PULL"] == 1
    assert [len(messages) for messages in got] == [1 + number % 3 for number in range(50)]
    assert [message.body for messages in got for message in messages] == [b"%d" % number for number in range(99)]


async def test_receivers_that_wait_are_served_as_messages_come(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    receiving = [asyncio.create_task(queue.receive(wait_s=60)) for _ in range(10)]
    await until(lambda: wire.asked["PULL"] == 1)
    for number in range(10):
        await queue.send(b"%d" % number)
        await until(lambda: sum(task.done() for task in receiving) == number + 1)  # noqa: B023  # awaited at once
    assert [task.result()[0].body for task in receiving] == [b"%d" % number for number in range(10)]


async def test_receivers_of_a_queue_with_groups_never_share_a_pull(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders", groups=True)
    await queue.send_many([Outgoing(b"%d" % number, group="g") for number in range(4)])
    got = await asyncio.gather(*(queue.receive() for _ in range(4)))
    assert [len(messages) for messages in got] == [1, 0, 0, 0]


async def test_the_completes_of_many_tasks_ride_one_frame_whatever_order_they_end_in(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"x"] * 100)
    messages = list(await queue.receive(max=100))
    await messages[50].complete()
    wire.payloads.clear()
    done = await asyncio.gather(*(message.complete() for message in reversed(messages)))
    assert done == [message is not messages[50] for message in reversed(messages)]
    settled = [payload for name, payload in wire.payloads if name == "COMPLETE"]
    assert len(settled) == 1 and len(settled[0]) == 16 + 40, "one part of one run"
    assert (await queue.counts()).leased == 0


async def test_one_is_completed_and_the_next_one_taken_in_one_round_trip(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b"])
    (message,) = await queue.receive()
    link = node._session.link
    assert link is not None
    writes: list[int] = []
    write = link.write
    link.write = lambda: (writes.append(len(link._out) // 2), write())[1]  # type: ignore[method-assign,func-returns-value]
    done, (following,) = await asyncio.gather(message.complete(), queue.receive())
    assert (done, following.body) == (True, b"b")
    assert [frames for frames in writes if frames] == [2], "both left in one write"


async def test_a_batch_is_settled_as_it_came_without_naming_each(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"x"] * 300)
    batch = await queue.receive(max=300)
    assert await batch.complete() == [True] * 300
    assert [len(payload) for name, payload in wire.payloads if name == "COMPLETE"] == [16 + 40]


async def test_a_sender_that_left_before_its_turn_sends_nothing(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    tasks = [asyncio.create_task(queue.send(b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [one.body for one in await queue.peek()] == [b"0", b"2"]


async def test_one_receipt_that_is_none_does_not_refuse_those_that_travel_with_it(node: dovetail.Client, wire: Wire) -> None:
    queue = await node.queue("orders")
    await queue.send_many([b"a", b"b"])
    a, b = await queue.receive(max=2)
    good = a.receipt
    bad = good[:20] + ("A" if good[20] != "A" else "B") + good[21:]
    answers = await asyncio.gather(queue.complete([bad]), b.complete(), queue.complete([good]), return_exceptions=True)
    assert isinstance(answers[0], dovetail.errors.ReceiptInvalid)
    assert answers[1:] == [True, [True]]
