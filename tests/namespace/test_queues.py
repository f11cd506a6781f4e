"""Queues over several logs: where they lie, who replays what, and what one step refuses."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from dovetail.core.moves import log_of
from dovetail.errors import BadRequest, NoSuchQueue, StorageError
from dovetail.lab.simengine import SimEngine
from dovetail.node import join
from tests.namespace.spread import LOGS, SETTINGS, Spread, served, spread
from tests.shared.house import drained, until


async def test_queues_lie_in_the_logs_in_turn_and_all_of_them_work() -> None:
    async with spread() as made:
        (node,) = made.nodes
        names = [f"q{number}" for number in range(7)]
        queues = [await node.queue(name) for name in names]
        assert [log_of(queue.lane.queue, LOGS) for queue in queues] == [0, 1, 2, 0, 1, 2, 0]
        for queue in queues:
            await queue.send(queue.name.encode())
        assert [await drained(queue) for queue in queues] == [[name.encode()] for name in names]
        assert await node.queues() == names
        await node.drop("q1")
        with pytest.raises(NoSuchQueue):
            await queues[1].send(b"x")
        assert (await node.queue("q1")).lane.queue == 8 and await node.queues() == sorted(names)


async def test_a_queue_made_at_one_node_is_usable_at_every_node_at_once() -> None:
    async with spread(3) as made:
        one, two, three = made.nodes
        for name in ("a", "b", "c"):
            made_here = await one.queue(name)
            await made_here.send(b"1")
            (message,) = await (await two.queue(name)).receive(lease_s=60)
            assert await (await three.queue(name)).complete([message.receipt]) == [True]
            with pytest.raises(NoSuchQueue):
                await three.verbs.find("default", "nobody made it")


async def test_a_node_replays_the_logs_whose_queues_it_serves() -> None:
    async with spread(3) as made:
        one, two, three = made.nodes
        first = await one.queue("a")
        assert [served(node) for node in made.nodes] == [[0], [0], [0]]
        second, third = await two.queue("b"), await three.queue("c")
        assert [served(node) for node in made.nodes] == [[0], [0, 1], [0, 2]]
        for queue in (first, second, third):
            await queue.send_many([b"x"] * 50)
        assert [service.next > 3 for service in made.services] == [True] * 3
        assert one.store.lane(second.lane.queue) is None
        (message,) = await (await one.queue("b")).receive()
        assert (message.body, served(one)) == (b"x", [0, 1]), "joined when it was asked for, with all that is there"


async def test_a_node_starts_from_snapshots_of_its_logs() -> None:
    async with spread() as made:
        (one,) = made.nodes
        queues = [await one.queue(name) for name in "abc"]
        for queue in queues:
            await queue.send(b"before")
        await one.snapshot()
        for queue in queues:
            await queue.send(b"after")
        other = await made.join(0)
        assert [await drained(await other.queue(name)) for name in "abc"] == [[b"before", b"after"]] * 3
        assert other.store.salt == one.store.salt


async def test_another_number_of_logs_is_refused_by_name() -> None:
    async with spread() as made:
        assert (await made.join(0)).store.logs == LOGS, "who does not say is told"
        for wrong in (1, 2, 4):
            with pytest.raises(StorageError, match=f"made with logs={LOGS}"):
                await made.join(wrong)
    alone = Spread()
    first = await alone.join(1)
    await first.queue("a")
    with pytest.raises(StorageError, match="made with logs=1"):
        await alone.join(3)
    await alone.close()


async def test_one_log_holds_the_same_bytes_whether_it_was_said_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same as where nobody knows of namespaces."""
    kept = []
    for logs in (None, 0, 1):
        monkeypatch.setattr(os, "urandom", Random(1).randbytes)
        made = Spread()
        if logs is None:
            made.nodes = [await join(SimEngine(made.services[0]), settings=SETTINGS, clock=made.clock)]
        else:
            await made.join(logs)
        (node,) = made.nodes
        queue = await node.queue("a", max_receives=1, dead_letter=await node.queue("d"))
        await queue.send(b"x")
        for _ in range(2):
            for message in await queue.receive():
                await message.requeue(0)
        await node.snapshot()
        kept.append(made.services[0].records())
        await made.close()
    assert kept[0] == kept[1] == kept[2] and len(kept[0]) > 8


async def test_a_node_of_one_log_stops_when_the_namespace_is_divided_under_it() -> None:
    made = Spread()
    alone = await made.join(0)
    several = await made.join(3)
    await until(lambda: not alone.ready)
    assert "divided into 3 logs" in str(alone.store.failed)
    made.nodes.remove(alone)
    await alone.close()
    await (await several.queue("a")).send(b"x")
    await made.close()


async def test_what_would_be_one_step_in_two_logs_is_refused() -> None:
    async with spread() as made:
        (node,) = made.nodes
        a, b, _, d = [await node.queue(name) for name in "abcd"]
        await a.send(b"x")
        (message,) = await a.receive()
        with pytest.raises(BadRequest, match="several logs"):
            await node.send_to([a, b], b"both")
        with pytest.raises(BadRequest, match="several logs"):
            await message.complete_and_send(b, b"y")
        with pytest.raises(BadRequest, match="several logs"):
            await node.broker.stage(b"s" * 16, [a.lane, b.lane], [])
        with pytest.raises(BadRequest, match="numbers"):
            await node.producer("p")
        with pytest.raises(BadRequest, match="facts"):
            await node.facts("f")
        assert await drained(b) == []
        # Within one log it is as ever.
        await message.complete_and_send(d, b"y")
        await node.send_to([a, d], b"both")
        assert [await drained(queue) for queue in (a, d)] == [[b"both"], [b"y", b"both"]]


async def test_a_log_with_fewer_copies_than_answers_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with spread() as made:
        (node,) = made.nodes
        await node.queue("a")
        monkeypatch.setattr(SimEngine, "durability", "memory")
        with pytest.raises(StorageError, match="as many copies"):
            await node.queue("b")
        assert served(node) == [0] and node.ready
        monkeypatch.undo()
        await (await node.queue("b")).send(b"x")


async def test_one_log_that_cannot_be_reached_does_not_hold_up_the_others() -> None:
    async with spread() as made:
        (node,) = made.nodes
        a, b = await node.queue("a"), await node.queue("b")
        made.engines[node][1].cut()
        waiting = asyncio.ensure_future(b.send(b"later"))
        await a.send(b"x")
        assert await drained(a) == [b"x"] and not waiting.done()
        made.engines[node][1].cut(False)
        await asyncio.wait_for(waiting, 60)
        assert await drained(b) == [b"later"]
