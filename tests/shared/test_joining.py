"""Joining: the newest good snapshot, or the next older one, and the log behind it. Chores: one node does them for all."""

from __future__ import annotations

import pytest

from dovetail import Node
from dovetail.errors import StorageError
from tests.shared.house import World, drained, impatient, state_of, until, world

__all__ = ["impatient"]


async def wear(node: Node) -> None:
    """So much comes and goes that the log's beginning is not needed any more; with snapshots in between."""
    for _ in range(3):
        queue = await node.queue("filler")
        for _ in range(4):
            await queue.send(bytes(100_000))
        await drained(queue)
        await node.snapshot()


async def test_a_node_that_joins_a_trimmed_log_has_the_state_of_the_others(impatient: None) -> None:
    async with world(2) as made:
        one, other = made.nodes
        queue = await one.queue("orders")
        await queue.send(b"kept", delay_s=3600)
        await wear(one)
        await wear(other)
        await until(lambda: made.service.first > 1)
        joined = await made.join()
        await made.same()
        assert joined.store.replay.snapshot_position > 0
        assert len({state_of(node) for node in made.nodes}) == 1
        made.clock.advance(3600)
        assert await drained(await joined.queue("orders")) == [b"kept"]


async def test_a_damaged_snapshot_is_passed_over_for_the_one_before(impatient: None) -> None:
    async with world(1) as made:
        (node,) = made.nodes
        await (await node.queue("orders")).send(b"kept", delay_s=3600)
        await wear(node)
        blobs = made.service.blobs
        newest = max(name for name in blobs if name.startswith("snapshot"))
        blobs[newest] = blobs[newest][:-10]
        joined = await made.join()
        await made.same()
        assert 0 < joined.store.replay.snapshot_position < int(newest.partition("-")[2])
        assert state_of(joined) == state_of(node)


async def test_a_trimmed_log_without_a_usable_snapshot_is_refused(impatient: None) -> None:
    async with world(1) as made:
        await (await made.nodes[0].queue("orders")).send(b"kept", delay_s=3600)
        await wear(made.nodes[0])
        await until(lambda: made.service.first > 1)
        for name in list(made.service.blobs):
            made.service.blobs[name] = b"x"
        with pytest.raises(StorageError, match="no snapshot"):
            await made.join()


async def test_the_log_is_never_trimmed_past_the_older_of_two_snapshots(impatient: None) -> None:
    async with world(1) as made:
        (node,) = made.nodes
        for _ in range(4):
            await wear(node)
            await node.store.settled()
            positions = sorted(int(name.partition("-")[2]) for name in made.service.blobs if name.startswith("manifest"))
            assert len(positions) <= 2 and made.service.first <= positions[0] >> 16


async def test_one_node_makes_the_snapshots_and_another_one_when_it_is_gone(impatient: None) -> None:
    made = World()
    try:
        nodes = [await made.join(snapshot_bytes=1 << 20) for _ in range(3)]
        for node in nodes:
            await (await node.queue("orders")).send(b"here")
        await made.same()
        keepers = [node for node in nodes if node.store.chores.keeper()]
        assert len(keepers) == 1
        for node in nodes:
            await (await node.queue("filler")).send(bytes(500_000))
        await made.same()
        await (await nodes[0].queue("filler")).send(bytes(900_000))
        await until(lambda: keepers[0].store.chores.snapshots > 0)
        assert sum(node.store.chores.snapshots > 0 for node in nodes) == 1
        await keepers[0].close()
        rest = [node for node in nodes if node is not keepers[0]]
        for _ in range(4):
            made.clock.advance(1)
            for node in rest:
                await (await node.queue("orders")).send(b"on")
        await made.same()
        assert sum(node.store.chores.keeper() for node in rest) == 1
    finally:
        await made.close()


async def test_a_node_that_was_away_until_the_log_was_trimmed_stops_and_says_so(impatient: None) -> None:
    async with world(2) as made:
        away, other = made.nodes
        away.store.log.engine.cut()
        await wear(other)
        await until(lambda: made.service.first << 16 > away.store.state.position)
        away.store.log.engine.cut(False)
        await until(lambda: not away.ready)
        assert "Start it again" in str(away.store.failed)


async def test_a_receive_that_finds_nothing_does_not_rely_on_what_is_late(impatient: None) -> None:
    async with world(2) as made:
        here, there = made.nodes
        queue, late = await here.queue("orders"), await there.queue("orders")
        late.lane._store.fresh_s = -1.0
        for number in range(20):
            await queue.send(b"%d" % number)
            # No wait for the other node's replay: the receive itself finds out.
            assert [message.body for message in await late.receive()] == [b"%d" % number]
            await made.same()


async def test_a_name_whose_lane_is_gone_is_free_again(impatient: None) -> None:
    """A node that dropped the lane and died before it took the name away."""
    from dovetail.core import operation as op

    async with world(2) as made:
        one, other = made.nodes
        queue = await one.queue("orders")
        await one.store.committer.submit(op.Drop(queue.lane.queue))
        await made.same()
        again = await other.queue("orders")
        await again.send(b"a")
        assert again.lane.queue != queue.lane.queue and await drained(await one.queue("orders")) == [b"a"]
