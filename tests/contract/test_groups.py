"""Groups: in order within a group, in parallel between them."""

from __future__ import annotations

import asyncio
import random

from dovetail import Outgoing
from tests.contract.house import House, bodies, everything, turns, waiting


def of(group: str, *names: str, delay_s: float | None = None) -> list[bytes | Outgoing]:
    return [Outgoing(name.encode(), group=group, delay_s=delay_s) for name in names]


async def test_a_group_gives_nothing_while_one_of_its_messages_is_out_and_other_groups_go_on(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many([*of("a", "a1", "a2"), *of("b", "b1", "b2"), b"alone", b"alone too"])
    (a1,) = await queue.receive()
    (b1,) = await queue.receive()
    assert bodies([a1, b1, *await queue.receive(max=10)]) == [b"a1", b"b1", b"alone", b"alone too"]
    await house.again()
    queue = await house.node.queue("orders")
    assert await queue.receive(max=10) == []
    assert await queue.complete([b1.receipt]) == [True]
    assert bodies(await queue.receive(max=10)) == [b"b2"]


async def test_one_receive_may_take_several_of_a_group_in_order(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many([*of("a", "a1"), *of("b", "b1"), *of("a", "a2", "a3"), *of("b", "b2")])
    got = await queue.receive(max=4)
    assert [body for body in bodies(got) if body[:1] == b"a"] == [b"a1", b"a2", b"a3"]
    assert len(got) == 4 and got[-1].body == b"b1"
    assert await queue.receive() == []
    await queue.complete([got[0].receipt, got[1].receipt])
    assert await queue.receive() == [], "the third is still out"
    await got[2].requeue(0)
    assert bodies(await queue.receive(max=9)) == [b"a3"]


async def test_receivers_at_the_same_moment_never_share_a_group(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many(of("a", "a1", "a2", "a3"))
    got = await asyncio.gather(*(queue.receive() for _ in range(3)))
    assert list(map(bodies, got)) == [[b"a1"], [], []]
    await got[0][0].complete()
    tasks = await waiting(*(queue.receive(wait_s=20) for _ in range(3)))
    await queue.send_many([*of("a", "a4"), *of("b", "b1", "b2")])
    await turns()
    taken = [bodies(await task) for task in tasks if task.done()]
    assert taken == [[b"a2"], [b"b1"]]
    for task in tasks:
        task.cancel()
    await turns()


async def test_a_group_waits_behind_its_lowest_message_that_is_not_visible(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many([*of("a", "a1"), *of("a", "a2", delay_s=10), *of("a", "a3")])
    (a1,) = await queue.receive(max=10)
    assert a1.body == b"a1"
    await a1.requeue(delay_s=5)
    house.clock.advance(4)
    assert await queue.receive() == []
    house.clock.advance(1)
    assert bodies(await queue.receive(max=10)) == [b"a1"]
    house.clock.advance(31)
    assert bodies(await queue.receive(max=10)) == [b"a1", b"a2", b"a3"]


async def test_a_lapsed_message_of_a_group_returns_first_and_its_old_receipt_is_dead(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True, lease_s=10)
    await queue.send_many(of("a", "a1", "a2"))
    (old,) = await queue.receive()
    house.clock.advance(10)
    assert await old.complete() is False, "in a queue with groups not even complete is honoured after the lease"
    assert bodies(await queue.receive(max=1)) == [b"a1"]


async def test_cancelling_inside_a_group_keeps_the_order_of_the_rest(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders", groups=True)
    sent = await queue.send_many(of("a", "a1", "a2", "a3", "a4"))
    assert await queue.cancel(sent[1].id) and await queue.cancel(sent[0].id)
    await house.again(snapshot=True)
    queue = await house.node.queue("orders")
    (a3,) = await queue.receive()
    assert a3.body == b"a3" and await queue.receive() == []
    await a3.complete()
    assert bodies(await queue.receive()) == [b"a4"]


async def test_a_dead_letter_keeps_its_group_on_the_way_there_and_back(house: House) -> None:
    await house.needs("groups", groups=True)
    await house.node.queue("dead", groups=True)
    queue = await house.node.queue("orders", groups=True, max_receives=1, dead_letter="dead")
    await queue.send_many(of("a", "a1", "a2"))
    for message in await queue.receive(max=2):
        await message.requeue(0)
    assert await queue.receive(max=2) == []
    dead = await house.node.queue("dead")
    task = await dead.redrive()
    await house.pass_time(1)
    assert (task.status, task.moved) == ("completed", 2)
    (a1,) = await queue.receive()
    assert (a1.body, a1.group) == (b"a1", "a")
    assert await queue.receive() == [], "the group is busy"
    await a1.complete()
    assert bodies(await queue.receive()) == [b"a2"]


async def test_a_group_is_kept_through_a_dead_letter_queue_without_groups_or_such_a_pair_is_refused(house: House) -> None:
    from dovetail.errors import BadRequest

    await house.needs("groups", groups=True)
    dead = await house.node.queue("dead")
    try:
        queue = await house.node.queue("orders", groups=True, max_receives=1, dead_letter="dead")
    except BadRequest:
        return
    await queue.send_many(of("a", "a1", "a2"))
    for message in await queue.receive(max=2):
        await message.requeue(0)
    assert await queue.receive(max=2) == []
    await dead.redrive()
    await house.pass_time(1)
    assert bodies(await queue.receive()) == [b"a1"]
    assert await queue.receive() == [], "the group is busy"


async def test_the_order_of_every_group_holds_through_a_random_life(house: House) -> None:
    """Whatever is taken, given back, left to lapse or restarted: what completes of a group completes in order."""
    await house.needs("groups", groups=True)
    chance = random.Random(3)
    queue = await house.node.queue("orders", groups=True, lease_s=10)
    sent, done = 0, {name: [] for name in "abcde"}  # type: dict[str, list[int]]
    for _ in range(250):
        fate = chance.random()
        if fate < 0.4 and sent < 300:
            many = [Outgoing(b"%d" % (sent + item), group=chance.choice("abcde")) for item in range(chance.randrange(1, 6))]
            sent += len(many)
            await queue.send_many(many)
        elif fate < 0.9:
            for message in await queue.receive(max=chance.randrange(1, 5)):
                assert message.group is not None
                act = chance.random()
                if act < 0.6:
                    if await message.complete():
                        done[message.group].append(int(message.body))
                elif act < 0.8:
                    await message.requeue(chance.choice((0, 0, 3)))
                    break
                else:
                    break
        elif fate < 0.97:
            house.clock.advance(chance.choice((1, 5, 10)))
        else:
            await house.again(snapshot=chance.random() < 0.5)
            queue = await house.node.queue("orders")
    house.clock.advance(20)
    while got := await queue.receive(max=10):
        for message in got:
            assert await message.complete() and message.group
            done[message.group].append(int(message.body))
    assert all(numbers == sorted(numbers) for numbers in done.values())
    assert sum(map(len, done.values())) == sent
    assert await everything(queue) == []
