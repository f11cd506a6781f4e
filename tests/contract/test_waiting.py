"""Long polling: woken by pushes and due times, first come first served, and a receiver that left takes no message with it."""

from __future__ import annotations

import asyncio
import random

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, Closed, LimitExceeded, NoSuchQueue
from dovetail.logs.shared.packet import SHIFT
from tests.contract.house import House, bodies, everything, soon, turns, waiting


async def test_a_waiting_receiver_is_woken_by_a_push(house: House) -> None:
    queue = await house.node.queue("orders")
    (task,) = await waiting(queue.receive(max=10, wait_s=20))
    assert not task.done()
    await queue.send_many([b"a", b"b"])
    assert bodies(await soon(task)) == [b"a", b"b"]


async def test_a_waiting_receiver_is_woken_when_a_message_is_due(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=5)
    await queue.send(b"delayed", delay_s=3)
    await queue.send(b"leased", delay_s=0)
    await queue.receive()
    one, two = await waiting(queue.receive(wait_s=20), queue.receive(wait_s=20))
    await house.pass_time(2.9)
    assert not one.done()
    await house.pass_time(0.2)
    assert bodies(await soon(one)) == [b"delayed"] and not two.done()
    await house.pass_time(2)
    assert bodies(await soon(two)) == [b"leased"]


@pytest.mark.parametrize("act", ["requeue", "release", "reclaim", "extend", "reschedule", "redrive", "dead letter", "send_to", "and_send"])
async def test_a_waiting_receiver_is_woken_by_whatever_makes_a_message_visible(house: House, act: str) -> None:
    if act in ("send_to", "and_send"):
        await house.needs("transactions")
    queue, source = await house.node.queue("orders"), await house.node.queue("source", max_receives=1, dead_letter=None)
    await source.configure(dead_letter="orders", max_receives=1)
    sent = await queue.send(b"a", delay_s=1000 if act == "reschedule" else 0)
    (message,) = await queue.receive() if act != "reschedule" else [None]
    await source.send(b"a")
    (task,) = await waiting(queue.receive(wait_s=20))
    assert not task.done()
    if act in ("requeue", "release", "extend"):
        assert message is not None
        await (message.release() if act == "release" else getattr(message, act)(0))
    elif act == "reclaim":
        await queue.reclaim(sent.id)
    elif act == "reschedule":
        await queue.reschedule(sent.id, 0)
    elif act == "redrive":
        await source.redrive(to=queue)
    elif act == "dead letter":
        (letter,) = await source.receive()
        await letter.requeue(0)
        assert await source.receive() == []
    elif act == "send_to":
        await house.node.send_to([source, queue], b"a")
    else:
        await (await source.receive())[0].complete_and_send(queue, b"a")
    await turns()
    assert task.done(), "a hint was missed: it would wait for the next sweep"
    assert bodies(await task) == [b"a"]


async def test_a_completed_message_frees_its_group_for_those_who_wait(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many([Outgoing(b"1", group="g"), Outgoing(b"2", group="g")])
    (first,) = await queue.receive()
    (task,) = await waiting(queue.receive(wait_s=20))
    await first.complete()
    await turns()
    assert task.done() and bodies(await task) == [b"2"]


async def test_first_come_first_served(house: House) -> None:
    queue = await house.node.queue("orders")
    tasks = await waiting(*(queue.receive(wait_s=20) for _ in range(10)))
    for number in range(10):
        await queue.send(b"%d" % number)
        await turns()
        assert [task.done() for task in tasks] == [True] * (number + 1) + [False] * (9 - number)
    assert [bodies(await task) for task in tasks] == [[b"%d" % number] for number in range(10)]


async def test_who_was_called_in_vain_keeps_the_place_before_newcomers(house: House) -> None:
    queue = await house.node.queue("orders")
    one, two = await waiting(queue.receive(wait_s=20), queue.receive(wait_s=20))
    await queue.send_many([b"a", Outgoing(b"later", delay_s=1000)])
    await turns()
    assert one.done() and not two.done()
    (three,) = await waiting(queue.receive(wait_s=20))
    await queue.send(b"b")
    await turns()
    assert (two.done(), three.done()) == (True, False)
    await queue.send(b"c")
    await turns()
    assert three.done()
    assert [bodies(await task) for task in (one, two, three)] == [[b"a"], [b"b"], [b"c"]]


async def test_a_wait_ends_at_its_deadline_with_nothing(house: House) -> None:
    queue = await house.node.queue("orders")
    (task,) = await waiting(queue.receive(wait_s=20))
    await house.pass_time(19.9, 1)
    assert not task.done()
    await house.pass_time(0.1)
    assert await soon(task) == []
    await queue.send(b"a")
    await turns()
    assert [one.state for one in await everything(queue)] == ["visible"]


async def test_a_message_that_comes_in_the_moment_of_the_deadline_is_received_or_left(house: House) -> None:
    queue = await house.node.queue("orders")
    (task,) = await waiting(queue.receive(wait_s=5))
    house.clock.advance(5)
    await queue.send(b"a")
    got = await soon(task)
    await turns()
    assert [one.state for one in await everything(queue)] == ["leased" if got else "visible"]


@pytest.mark.parametrize("delete", [False, True])
async def test_a_receiver_that_is_cancelled_in_the_moment_of_a_push_takes_no_message_with_it(house: House, delete: bool) -> None:
    for patience in range(12):
        queue = await house.node.queue(f"orders-{patience}")
        (task,) = await waiting(queue.receive(wait_s=20, delete=delete))
        sending = asyncio.ensure_future(queue.send(b"a"))
        await turns(patience)
        task.cancel()
        assert (await soon(sending)).repeat is False
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        await turns()
        left = await everything(queue)
        if not isinstance(answer, BaseException):
            assert bodies(answer) == [b"a"] and [one.state for one in left] == ([] if delete else ["leased"])
        elif left or not delete or (patience < 2 and house.near):
            # Receive-and-delete is at most once: what was in its hands when it left may be gone, what was only on its way may not.
            assert [(one.state, one.receives) for one in left] == [("visible", 0)], f"lost at turn {patience}"


async def test_receivers_that_leave_at_random_moments_lose_nothing(house: House) -> None:
    chance = random.Random(5)
    queue = await house.node.queue("orders", lease_s=100_000)
    got: list[bytes] = []
    tasks: list[asyncio.Task[object]] = []

    async def receive() -> None:
        messages = await queue.receive(max=chance.randrange(1, 4), wait_s=chance.choice((0, 0.5, 3)))
        got.extend(bodies(messages))

    sent = 0
    for _ in range(400):
        fate = chance.random()
        if fate < 0.4:
            tasks.append(asyncio.ensure_future(receive()))
        elif fate < 0.7:
            many = [b"%d" % (sent + item) for item in range(chance.randrange(1, 4))]
            sent += len(many)
            tasks.append(asyncio.ensure_future(queue.send_many(many) if len(many) > 1 else queue.send(many[0])))
        elif fate < 0.9:
            open_receives = [task for task in tasks if not task.done() and task.get_coro().__name__ == "receive"]  # type: ignore[union-attr]
            if open_receives:
                chance.choice(open_receives).cancel()
        else:
            house.clock.advance(chance.random())
        await turns(chance.randrange(4))
    await house.pass_time(4)
    for answer in await soon(asyncio.gather(*tasks, return_exceptions=True)):
        assert not isinstance(answer, BaseException) or isinstance(answer, asyncio.CancelledError), answer
    await turns()
    left = await everything(queue)
    assert sorted(got + [one.body for one in left if one.state == "visible"]) == sorted(b"%d" % number for number in range(sent))
    assert sum(one.state == "leased" for one in left) == len(got)
    assert all(one.receives == 0 for one in left if one.state == "visible")


async def test_a_cancelled_receiver_does_not_harm_the_sender_nor_those_behind_it(house: House) -> None:
    queue = await house.node.queue("orders")
    one, two = await waiting(queue.receive(wait_s=20), queue.receive(wait_s=20))
    one.cancel()
    await soon(queue.send(b"a"))
    await turns()
    assert two.done() and bodies(await two) == [b"a"]
    assert house.node.ready


@pytest.mark.parametrize("most", [0, -1, 10_001])
async def test_a_receiver_that_asks_for_nonsense_is_refused_at_once_and_harms_nobody(house: House, most: int) -> None:
    queue = await house.node.queue("orders")
    for wait_s in (0, 5):
        (task,) = await waiting(queue.receive(max=most, wait_s=wait_s))
        assert task.done()
        with pytest.raises(LimitExceeded):
            await task
    await soon(queue.send(b"a"))
    assert house.node.ready


@pytest.mark.parametrize("wait_s", [-1, 3600.001])
async def test_a_wait_beyond_its_limit_is_refused(house: House, wait_s: float) -> None:
    queue = await house.node.queue("orders")
    with pytest.raises(BadRequest):
        await queue.receive(wait_s=wait_s)


async def test_receivers_wait_while_as_many_messages_are_out_as_may_be(house: House) -> None:
    queue = await house.node.queue("orders", in_flight_max=1)
    one, two = await waiting(queue.receive(wait_s=20), queue.receive(wait_s=20))
    await queue.send_many([b"a", b"b"])
    await turns()
    (first,) = await soon(one)
    assert not two.done()
    await first.complete()
    await turns()
    assert two.done() and bodies(await two) == [b"b"]


async def test_waiting_receivers_are_told_when_their_queue_is_dropped(house: House) -> None:
    queue = await house.node.queue("orders")
    (task,) = await waiting(queue.receive(wait_s=20))
    await house.node.drop("orders")
    await turns()
    assert task.done()
    with pytest.raises(NoSuchQueue):
        await task


async def test_waiting_receivers_are_told_when_the_node_closes(house: House) -> None:
    queue = await house.node.queue("orders")
    (task,) = await waiting(queue.receive(wait_s=20))
    await house.node.close()
    await turns()
    assert task.done()
    with pytest.raises(Closed):
        await task


async def test_waiting_writes_nothing_but_a_sign_of_life_a_second_where_the_log_is_shared(house: House) -> None:
    queue = await house.node.queue("orders")
    tasks = await waiting(*(queue.receive(wait_s=60) for _ in range(5)))
    tail = house.node.store.log.tail
    await house.pass_time(30, 1)
    written = house.node.store.log.tail - tail
    if house.quiet:
        assert written == 0
    else:
        assert 30 <= written >> SHIFT <= 3 * 31
    for task in tasks:
        task.cancel()
    await turns()
