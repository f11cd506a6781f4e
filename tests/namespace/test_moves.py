"""Dead letters and redrive between logs are moves: exact, whoever dies at whatever step, and whoever carries them on.

Each safeguard has a twin without it, in which a message is lost, doubled, or on its way for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Node, Outgoing, Queue
from dovetail.core import crossing, moves, state
from dovetail.core import operation as op
from dovetail.core.operation import Outcome
from dovetail.core.state import State
from dovetail.errors import Unavailable
from dovetail.lab.simengine import Faults
from dovetail.stores.namespace import carrier
from dovetail.stores.namespace.carrier import Carrier
from tests.namespace.spread import Spread, log, spread, under_way
from tests.shared.house import drained, impatient, until

__all__ = ["impatient"]

STEPS = (op.Arrive, op.MoveSettle, op.Forget)


async def queues(node: Node, **rules: Any) -> tuple[Queue, Queue]:
    """`dead` lies in log 0, `orders` in log 1."""
    dead = await node.queue("dead", **{name: value for name, value in rules.items() if name == "groups"})
    return await node.queue("orders", max_receives=1, dead_letter=dead, **rules), dead


async def bury(orders: Queue, *bodies: bytes | Outgoing) -> None:
    """Received once and given back, they are dead letters when they are asked for again."""
    await orders.send_many(list(bodies))
    for message in await orders.receive(max=len(bodies)):
        await message.requeue(0)
    assert await orders.receive(max=len(bodies)) == []


async def settled(made: Spread) -> None:
    """Moves are over. Time passes, as it does."""

    def over() -> bool:
        made.clock.advance(0.05)
        return not under_way(*made.nodes)

    await until(over)


async def test_a_dead_letter_goes_into_another_log_with_all_that_it_had() -> None:
    async with spread(2) as made:
        one, two = made.nodes
        orders, dead = await queues(one, groups=True)
        await bury(orders, Outgoing(b"letter", group="g", attributes={"colour": "blue"}), Outgoing(b"next", group="h"))
        await settled(made)
        (letter, _) = await (await two.queue("dead")).receive(max=10)
        assert (letter.body, letter.group, letter.attributes["colour"].value, letter.receives) == (b"letter", "g", b"blue", 1)
        assert letter.source == "orders" and letter.queue.lane.queue == dead.lane.queue
        counts = await orders.counts()
        assert (counts.visible, counts.leased, counts.reserved, counts.dead_lettered) == (0, 0, 0, 2)
        assert await orders.receive() == []


async def test_a_message_keeps_its_id_and_its_time_on_every_way() -> None:
    async with spread() as made:
        (node,) = made.nodes
        orders, dead = await queues(node)
        sent = await orders.send(b"x")
        (there,) = await orders.peek()
        made.clock.advance(5)
        for _ in range(2):
            for message in await orders.receive():
                await message.requeue(0)
        await settled(made)
        (letter,) = await dead.receive(lease_s=0)
        assert (letter.id, letter.sent_at_ms) == (sent.id, there.sent_at_ms)
        task = await dead.redrive()
        await task.wait()
        assert task.moved == 1
        (again,) = await orders.receive()
        assert (again.id, again.sent_at_ms, again.receives, again.source) == (sent.id, letter.sent_at_ms, 1, "dead")


async def test_redrive_brings_each_letter_back_to_its_own_queue_wherever_that_is() -> None:
    async with spread() as made:
        (node,) = made.nodes
        dead = await node.queue("dead")
        sources = [await node.queue(name, max_receives=1, dead_letter=dead) for name in ("b", "c", "a", "b2")]
        for queue in sources:
            await bury(queue, *[b"%s%d" % (queue.name.encode(), number) for number in range(5)])
        await settled(made)
        assert (await dead.counts()).visible == 20
        task = await dead.redrive(rate_per_s=1000)
        await task.wait()
        assert (task.status, task.moved) == ("completed", 20)
        for queue in sources:
            assert await drained(queue) == [b"%s%d" % (queue.name.encode(), number) for number in range(5)]


async def test_redrive_to_a_queue_that_is_named_and_lies_elsewhere() -> None:
    async with spread() as made:
        (node,) = made.nodes
        orders, dead = await queues(node)
        await node.queue("third")
        fourth = await node.queue("fifth")
        await bury(orders, b"1", b"2")
        await settled(made)
        task = await dead.redrive(to=fourth)
        await task.wait()
        assert task.moved == 2 and await drained(fourth) == [b"1", b"2"]


async def test_a_dead_letter_queue_that_is_gone_leaves_the_message_where_it_is() -> None:
    async with spread() as made:
        (node,) = made.nodes
        orders, _ = await queues(node)
        await node.drop("dead")
        await bury(orders, b"x")
        await settled(made)
        (again,) = await orders.receive()
        assert (again.body, again.receives) == (b"x", 2)
        counts = await orders.counts()
        assert (counts.stranded, counts.dead_lettered, counts.reserved) == (1, 0, 0), "and nothing sets out for it any more"


async def test_purge_spares_what_is_on_its_way_and_a_drop_takes_it_along() -> None:
    async with spread() as made:
        (node,) = made.nodes
        orders, dead = await queues(node)
        made.engines[node][0].deaf = True
        await bury(orders, b"x")
        assert await orders.purge() == 0 and under_way(node)
        made.engines[node][0].deaf = False
        made.services[0].wake()
        await settled(made)
        assert await drained(dead) == [b"x"]


# Who carries, and who dies


def stopping(monkeypatch: pytest.MonkeyPatch, kind: type[Any], *, behind: bool) -> list[str]:
    """The first node that says a step of this kind stops carrying: before it is said, or once it has been applied everywhere."""
    stopped: list[str] = []
    carry_some, forget = Carrier._carry_some, Carrier._forget

    async def dies(self: Carrier, act: Callable[..., Any], *args: Any) -> Any:
        if self in dead:
            raise Unavailable("this node carries nothing any more")
        if stopped:
            return await act(self, *args)
        store, there = args[:2]
        target = store if kind is op.MoveSettle else there
        submit = target.committer.submit

        async def last(operation: op.Operation) -> Outcome:
            if not isinstance(operation, kind) or (stopped and self not in dead):
                return await submit(operation)
            dead.add(self)
            stopped.append(kind.__name__)
            if behind:
                await submit(operation)
            raise Unavailable("it dies here")

        monkeypatch.setattr(target.committer, "submit", lambda operation: asyncio.ensure_future(last(operation)))
        try:
            return await act(self, *args)
        finally:
            monkeypatch.setattr(target.committer, "submit", submit)

    dead: set[Carrier] = set()
    monkeypatch.setattr(Carrier, "_carry_some", lambda self, *args: dies(self, carry_some, *args))
    monkeypatch.setattr(Carrier, "_forget", lambda self, *args: dies(self, forget, *args))
    return stopped


@pytest.mark.parametrize("behind", [False, True], ids=["before it was said", "after it took effect"])
@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
async def test_a_move_whose_carrier_dies_is_carried_on_by_another_node(
    kind: type[Any], behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spread(3) as made:
        stopped = stopping(monkeypatch, kind, behind=behind)
        orders, dead = await queues(made.nodes[0])
        for node in made.nodes:
            await node.queue("orders")
        await bury(orders, b"1", b"2", b"3")
        await settled(made)
        assert set(stopped) == {kind.__name__}
        assert await drained(dead) == [b"1", b"2", b"3"] and (await orders.counts()).dead_lettered == 3
        for place in (0, 1):
            assert log(made.nodes[0], place).failed is None


async def test_nodes_are_killed_while_letters_are_on_their_way_and_none_is_lost_or_doubled(impatient: None) -> None:
    """Every node carries, at once: steps are said twice, three times, and late."""
    async with spread(3, faults=Faults(lose=0.1, double=0.1, delay=0.2)) as made:
        orders, dead = await queues(made.nodes[0])
        sent = [b"%d" % number for number in range(300)]
        for number in range(0, 300, 50):
            node = made.nodes[number // 50 % len(made.nodes)]
            here = await node.queue("orders")
            await bury(here, *sent[number : number + 50])
            if number in (100, 200):
                await made.kill(node)
                await made.join()
        survivor = made.nodes[0]
        await survivor.queue("orders")
        await settled(made)
        found = await drained(await survivor.queue("dead"))
        assert sorted(found, key=int) == sent
        assert await drained(await survivor.queue("orders")) == []


@pytest.fixture
def everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes carry everything at the same time, and a target remembers for long."""
    monkeypatch.setattr(carrier, "PATIENCE_MS", 0)


async def test_all_nodes_carry_at_once_and_each_letter_arrives_once(everybody: None) -> None:
    async with spread(3, faults=Faults(delay=0.5)) as made:
        orders, dead = await queues(made.nodes[0])
        for node in made.nodes:
            await node.queue("orders")
        await bury(orders, *[b"%d" % number for number in range(100)])
        await settled(made)
        assert sorted(await drained(dead), key=int) == [b"%d" % number for number in range(100)]
        arrivals = [entry for entry in made.services[0].records() if any(record[0] == op.Kind.ARRIVE for record in entry[1:])]
        assert len(arrivals) > 1, "several said it"


async def test_without_the_judgements_a_letter_arrives_as_often_as_it_is_said(everybody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of *low and the set above it*: the target takes whatever comes."""
    arrive = crossing.arrive

    def forgetful(log: State, o: Any, address: int) -> Outcome:
        known = log.arrivals.get((o.source, o.push.queues[0]))
        if known is not None:
            known.judged.pop(o.number, None)
            known.low = 0
        return arrive(log, o, address)

    monkeypatch.setitem(state._HANDLERS, moves.Arrive, forgetful)
    with pytest.raises(AssertionError):
        await test_all_nodes_carry_at_once_and_each_letter_arrives_once(everybody)


async def test_without_a_second_carrier_a_letter_is_on_its_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of PATIENCE_MS: only the keeper carries, and it has stopped in the middle of it."""
    monkeypatch.setattr(carrier, "PATIENCE_MS", 1 << 60)
    async with spread(3) as made:
        stopping(monkeypatch, op.Arrive, behind=True)
        orders, _ = await queues(made.nodes[0])
        for node in made.nodes:
            await node.queue("orders")
        await bury(orders, b"1")
        for _ in range(100):
            made.clock.advance(0.05)
            await asyncio.sleep(0.001)
        assert under_way(*made.nodes)
