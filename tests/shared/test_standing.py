"""SEMANTICS §6 on nodes that share a log: receivers stand in the line of their lane, and whatever makes a message visible hands it over,
in the same entry, at whatever node. Each safeguard has a twin that leaves it out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from dovetail import Message, Node, Outgoing, Queue
from dovetail.core import codec
from dovetail.core import operation as op
from dovetail.core.versions import APPLY_VERSION, WAITING_VERSION
from dovetail.errors import StorageError
from dovetail.stores.shared import waits
from dovetail.stores.shared.chores import SharedChores
from dovetail.stores.shared.waits import Line, Wait, Waits
from tests.shared.house import World, impatient, until, world

__all__ = ["impatient"]


def in_line(node: Node, queue: Queue) -> int:
    return len(node.store.state.lanes[queue.lane.queue].waiters.line)


async def stands(made: World, queue: Queue, receive: Awaitable[list[Message]]) -> asyncio.Task[list[Message]]:
    """A receiver that has come and that every node knows to stand in line."""
    before = in_line(made.nodes[0], queue)
    task = asyncio.ensure_future(receive)
    await until(lambda: all(in_line(node, queue) == before + 1 for node in made.nodes))
    return task  # type: ignore[return-value]  # ensure_future of a coroutine is a task


def written(made: World, since: int) -> list[list[str]]:
    """The operations of each entry from there on."""
    entries = made.service.records()[since - made.service.first :]
    return [[type(codec.decode(record)).__name__ for record in records[1:]] for records in entries]


async def pass_time(made: World, seconds: float, step_s: float = 0.5) -> None:
    """So that what is written in each step is replayed everywhere before the next."""
    for _ in range(round(seconds / step_s)):
        made.clock.advance(step_s)
        for _ in range(5):
            await asyncio.sleep(0)
        await made.same()


async def bodies(task: asyncio.Task[list[Message]]) -> list[bytes]:
    return [message.body for message in await asyncio.wait_for(task, 60)]


async def counts(queue: Queue) -> tuple[int, int]:
    seen = await queue.counts()
    return seen.visible, seen.leased


async def test_a_push_at_one_node_hands_its_message_to_a_receiver_at_another_in_one_entry(impatient: None) -> None:
    async with world(3) as made:
        queues = [await node.queue("orders") for node in made.nodes]
        tasks = [await stands(made, queue, queue.receive(wait_s=600)) for queue in queues[1:]]
        tail = made.service.next
        await queues[0].send(b"a")
        assert await bodies(tasks[0]) == [b"a"] and not tasks[1].done()
        await made.same()
        assert written(made, tail) == [["Push"]]
        assert await counts(queues[0]) == (0, 1)
        await queues[2].send(b"b")
        assert await bodies(tasks[1]) == [b"b"]


async def test_receivers_are_served_in_the_order_in_which_they_came_whatever_their_node(impatient: None) -> None:
    async with world(3) as made:
        queues = [await node.queue("orders") for node in made.nodes]
        tasks = [await stands(made, queues[at], queues[at].receive(wait_s=600)) for at in (2, 0, 1, 0)]
        for number, task in enumerate(tasks):
            await queues[number % 3].send(b"%d" % number)
            assert await bodies(task) == [b"%d" % number]
            assert sum(one.done() for one in tasks) == number + 1


async def test_whoever_takes_once_leaves_nothing_behind_that_takes_more(impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        task = await stands(made, there, there.receive(max=10, wait_s=600))
        await here.send(b"a")
        assert await bodies(task) == [b"a"]
        tail = made.service.next
        await here.send(b"b")
        await made.same()
        assert written(made, tail) == [["Push"]] and await counts(there) == (1, 1)


async def test_a_pop_with_count_left_would_be_handed_what_nobody_takes(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of taking once."""
    monkeypatch.setattr("dovetail.core.state.WAITING_VERSION", APPLY_VERSION + 1)
    with pytest.raises(AssertionError):
        await test_whoever_takes_once_leaves_nothing_behind_that_takes_more(impatient)


async def test_a_receiver_that_leaves_is_withdrawn_and_the_next_in_line_is_served_at_once(impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        leaving = await stands(made, there, there.receive(wait_s=600))
        staying = await stands(made, here, here.receive(wait_s=600))
        tail = made.service.next
        leaving.cancel()
        await until(lambda: all(in_line(node, here) == 1 for node in made.nodes))
        await here.send(b"a")
        assert await bodies(staying) == [b"a"]
        await made.same()
        assert written(made, tail) == [["Withdraw"], ["Push"]]


async def test_without_withdrawing_a_message_is_handed_to_the_one_who_left(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "leave", Line.left)
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        leaving = await stands(made, there, there.receive(wait_s=600))
        staying = await stands(made, here, here.receive(wait_s=600))
        tail = made.service.next
        leaving.cancel()
        await asyncio.sleep(0)
        await here.send(b"a")
        # It comes back, for what is handed to nobody is released: one entry later.
        assert await bodies(staying) == [b"a"]
        await made.same()
        assert written(made, tail) == [["Push"], ["Release"]]


@pytest.mark.parametrize("turns", range(8))
async def test_what_is_handed_to_a_receiver_in_the_moment_in_which_it_leaves_is_back_at_once(turns: int, impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders", lease_s=3600) for node in made.nodes]
        task = await stands(made, there, there.receive(max=3, wait_s=600))
        sending = asyncio.ensure_future(here.send(b"a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await sending
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(answer, BaseException):
            await until(lambda: here.lane.counts().visible == 1)
            (message,) = await here.receive()
            assert message.receives == 1, "as if it had never been handed out"
        else:
            assert [message.body for message in answer] == [b"a"]


async def test_a_thousand_receivers_that_leave_together_are_one_operation(impatient: None) -> None:
    async with world(1) as made:
        queue = await made.nodes[0].queue("orders")
        tasks = [asyncio.ensure_future(queue.receive(wait_s=600)) for _ in range(1000)]
        await until(lambda: in_line(made.nodes[0], queue) == 1000)
        tail = made.service.next
        for task in tasks:
            task.cancel()
        await until(lambda: in_line(made.nodes[0], queue) == 0)
        assert written(made, tail) == [["Withdraw"]]


async def test_whoever_waits_lives_by_an_entry_a_second_and_is_served_a_minute_later(impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        task = await stands(made, there, there.receive(wait_s=3600))
        tail = made.service.next
        await pass_time(made, 60)
        await made.same()
        ticks = written(made, tail)
        assert ticks == [["Tick"]] * len(ticks) and 58 <= len(ticks) <= 62
        await here.send(b"a")
        assert await bodies(task) == [b"a"]


async def _silent_for_five_seconds(made: World, here: Queue, there: Queue) -> asyncio.Task[list[Message]]:
    """A receiver waits at a node that says nothing for longer than the others are patient, and is not known to it."""
    task = await stands(made, there, there.receive(wait_s=3600))
    engine = made.nodes[1].store.log.engine
    engine.deaf, publish = True, engine.publish
    engine.publish = lambda packet: None
    for _ in range(5):
        made.clock.advance(1)
        await made.nodes[0].store.committer.submit(op.Tick())
    assert in_line(made.nodes[0], here) == 0, "it was not silent: this shows nothing"
    engine.deaf, engine.publish = False, publish
    made.service.wake()
    return task


async def test_a_node_that_was_taken_for_dead_lets_its_receivers_stand_again(impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        task = await _silent_for_five_seconds(made, here, there)
        await until(lambda: in_line(made.nodes[0], here) == 1)
        await here.send(b"a")
        assert await bodies(task) == [b"a"]


async def test_without_standing_again_its_receivers_wait_in_vain(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waits, "_stand_again", lambda self: None)
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        task = await _silent_for_five_seconds(made, here, there)
        await here.send(b"a")
        await made.same()
        await asyncio.sleep(0.01)
        assert not task.done() and await counts(here) == (1, 0)
        task.cancel()


async def _handed_to_a_paused_node(made: World, here: Queue, there: Queue) -> asyncio.Task[list[Message]]:
    """What is handed over to a node that stands still goes back, and the node finds both when it goes on."""
    task = await stands(made, there, there.receive(wait_s=3600))
    engine = made.nodes[1].store.log.engine
    engine.deaf, publish = True, engine.publish
    engine.publish = lambda packet: None
    await here.send(b"a")
    assert await counts(here) == (0, 1)
    for _ in range(4):
        made.clock.advance(1)
        await made.nodes[0].store.committer.submit(op.Tick())
    assert await counts(here) == (1, 0), "long before its lease of an hour"
    engine.deaf, engine.publish = False, publish
    made.service.wake()
    return task


async def test_what_was_handed_to_a_paused_node_goes_to_another_and_not_to_its_receiver(impatient: None) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders", lease_s=3600) for node in made.nodes]
        task = await _handed_to_a_paused_node(made, here, there)
        (message,) = await here.receive()
        assert message.receives == 1
        await until(lambda: in_line(made.nodes[0], here) == 1)
        assert not task.done()
        assert await message.complete()
        await here.send(b"b")
        assert await bodies(task) == [b"b"]


async def test_without_a_second_look_a_paused_node_answers_with_what_is_not_its_own(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wait, "_alive", lambda self, popped: popped)
    async with world(2) as made:
        here, there = [await node.queue("orders", lease_s=3600) for node in made.nodes]
        task = await _handed_to_a_paused_node(made, here, there)
        (message,) = await asyncio.wait_for(task, 60)
        assert message.body == b"a" and not await message.complete(), "a receipt that was dead before it was answered"


@pytest.mark.parametrize("alive", [True, False])
async def test_what_becomes_visible_by_time_alone_is_handed_over_and_by_another_node_where_the_first_is_dead(
    alive: bool, impatient: None
) -> None:
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        first = await stands(made, there, there.receive(wait_s=3600))
        second = await stands(made, here, here.receive(wait_s=3600))
        await here.send_many([Outgoing(b"a", delay_s=1.5), Outgoing(b"b", delay_s=1.5)])
        await made.same()
        engine = made.nodes[1].store.log.engine
        publish = engine.publish
        if not alive:
            engine.publish = lambda packet: None
        await pass_time(made, 1.4, 0.1)
        assert not first.done() and not second.done()
        await pass_time(made, 0.1 if alive else 0.3, 0.1)
        got = await asyncio.gather(bodies(first), bodies(second))
        assert got == [[b"a"], [b"b"]]
        engine.publish = publish


async def test_without_an_entry_when_something_is_due_nobody_gets_it(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "_sleep", lambda self, until: None)
    monkeypatch.setattr(waits, "SPEAK_MS", 1 << 40)
    async with world(1) as made:
        queue = await made.nodes[0].queue("orders")
        task = await stands(made, queue, queue.receive(wait_s=3600))
        await queue.send(b"a", delay_s=1)
        await pass_time(made, 5)
        assert not task.done()
        task.cancel()


async def test_a_log_that_older_nodes_read_too_has_receivers_that_wait_at_their_node(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stay(self: SharedChores) -> None:
        if self._store.state.version < WAITING_VERSION - 1:
            await self._store.committer.submit(op.Upgrade(WAITING_VERSION - 1))

    monkeypatch.setattr(SharedChores, "upgrade", stay)
    async with world(2) as made:
        here, there = [await node.queue("orders") for node in made.nodes]
        task = asyncio.ensure_future(there.receive(wait_s=600))
        await asyncio.sleep(0.01)
        tail = made.service.next
        await here.send(b"a")
        assert await bodies(task) == [b"a"]
        assert written(made, tail) == [["Push"], ["Pop"]]


async def test_who_has_left_twice_leaves_those_who_came_after(impatient: None) -> None:
    """It was handed a message, another receiver came, and then its connection died."""
    async with world(1) as made:
        (node,) = made.nodes
        queue = await node.queue("orders")
        store = node.store
        first = store.waits.join(store.lane(queue.lane.queue), 1, 30_000, 600_000)
        await until(lambda: in_line(node, queue) == 1)
        await queue.send(b"a")
        assert not store.waits.lines
        second = await stands(made, queue, queue.receive(wait_s=600))
        first.abandon()
        assert list(store.waits.lines) == [queue.lane.queue]
        await until(lambda: second.done())
        assert await bodies(second) == [b"a"]


async def test_receivers_are_told_when_their_node_cannot_go_on(impatient: None) -> None:
    async with world(1) as made:
        (node,) = made.nodes
        queue = await node.queue("orders")
        task = await stands(made, queue, queue.receive(wait_s=600))
        node.store._fail(StorageError("a hole in the log"))
        with pytest.raises(StorageError, match="a hole"):
            await asyncio.wait_for(task, 60)
