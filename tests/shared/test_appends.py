"""Appends of unknown outcome take effect once, whatever an engine does with them; a writer that is given up achieves nothing."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Node
from dovetail.core.outcome import Fate
from dovetail.core.writers import Writers
from dovetail.errors import StorageError, Unavailable, Unknown
from dovetail.lab.simengine import Faults
from dovetail.logs.shared.packet import encode
from tests.shared.cluster import Load
from tests.shared.house import World, drained, impatient, state_of, until, world

__all__ = ["impatient"]
BAD = Faults(lose=0.1, double=0.2, delay=0.2)
SENDS = 60


async def send_all(nodes: list[Node]) -> None:
    for round_ in range(4):
        sends = []
        for at, node in enumerate(nodes):
            queue = await node.queue("orders")
            sends += [queue.send(b"%d %d %d" % (round_, at, number)) for number in range(SENDS // 4)]
        await asyncio.gather(*sends)


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_lost_doubled_and_reordered_is_stored_once(seed: int, impatient: None) -> None:
    async with world(3, seed=seed, faults=BAD) as made:
        await send_all(made.nodes)
        await made.same()
        found = await drained(await made.nodes[seed % 3].queue("orders"))
        assert sorted(found) == sorted(
            b"%d %d %d" % (round_, at, number) for round_ in range(4) for at in range(3) for number in range(SENDS // 4)
        )
        await made.same()
        assert len({state_of(node) for node in made.nodes}) == 1
        assert sum(node.store.log.resent for node in made.nodes) > 0, "nothing was lost: this shows nothing"


async def test_without_the_numbers_a_copy_is_stored_again(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: every copy counts."""

    def always(self: Writers, identity: bytes, number: int) -> Fate:
        writer = self.by_id.get(identity)
        if writer is None:
            return Fate.VOID
        writer.last = max(writer.last, number)
        return Fate.TAKEN

    monkeypatch.setattr(Writers, "judge", always)
    async with world(1, faults=Faults(double=0.5)) as made:
        (node,) = made.nodes
        queue = await node.queue("orders")
        for number in range(20):
            await queue.send(b"%d" % number)
        await until(lambda: made.service.next << 16 == node.store.state.position)
        assert (await queue.counts()).visible > 20


async def test_a_process_that_was_cloned_stops(impatient: None) -> None:
    async with world(2) as made:
        one, other = made.nodes
        queue = await one.queue("orders")
        await queue.send(b"mine")
        records = made.service.records()[-1]
        head = bytearray(records[0])
        at = records[0].index(one.store.committer.writer) + 16
        head[at : at + 8] = (int.from_bytes(head[at : at + 8], "little") + 1).to_bytes(8, "little")
        made.service.store(encode([bytes(head), *records[1:]]))
        await until(lambda: not one.ready)
        assert other.ready and "cloned" in str(one.store.failed)
        await made.same()
        with pytest.raises(StorageError):
            await queue.send(b"never")
        assert sorted(await drained(await other.queue("orders"))) == [b"mine", b"mine"]


async def test_an_idle_node_that_was_closed_by_an_hour_of_silence_goes_on_under_another_name(impatient: None) -> None:
    async with world(2) as made:
        idle, busy = made.nodes
        queue = await idle.queue("orders")
        before = idle.store.committer.writer
        made.clock.advance(3700)
        await (await busy.queue("orders")).send(b"other")
        await made.same()
        assert before in idle.store.state.writers.closed
        await asyncio.gather(*[queue.send(b"%d" % number) for number in range(50)])
        assert idle.store.committer.writer != before
        assert sorted(await drained(queue)) == sorted([b"other", *(b"%d" % number for number in range(50))])


async def test_a_node_that_is_cut_off_says_so_and_comes_back_by_itself(impatient: None) -> None:
    async with world(2) as made:
        cut, other = made.nodes
        for node in made.nodes:
            node.store.log._patience_s = 0.2
        queue, there = await cut.queue("orders"), await other.queue("orders")
        await queue.send(b"before")
        await made.same()
        waiting = asyncio.ensure_future((await cut.queue("other")).receive(wait_s=3600))
        await asyncio.sleep(0.01)
        cut.store.log.engine.cut()
        with pytest.raises(Unknown):
            await queue.send(b"unknown")
        assert cut.ready and not cut.reachable and other.reachable
        for refused in (queue.send(b"refused"), queue.receive(), queue.peek(), waiting):
            with pytest.raises(Unavailable, match="cut off"):
                await refused
        await there.send(b"meanwhile")
        cut.store.log.engine.cut(False)
        await until(lambda: cut.reachable)
        await queue.send(b"after")
        await made.same()
        # What was unknown is refused now, for good: the writer that said it is closed.
        assert await drained(queue) == [b"before", b"meanwhile", b"after"]


async def test_what_was_handed_out_to_a_cut_off_node_after_all_goes_back(impatient: None) -> None:
    """The pop arrives, its answer does not: nobody has the message, and nobody waits for its lease."""
    async with world(2) as made:
        cut, other = made.nodes
        cut.store.log._patience_s = 0.1
        queue = await cut.queue("orders", lease_s=3600)
        await queue.send(b"a")
        await made.same()
        engine, stored = cut.store.log.engine, made.service.next
        engine.deaf = True
        taking = asyncio.ensure_future(queue.receive())
        await until(lambda: made.service.next > stored)
        engine.cut()
        with pytest.raises(Unknown):
            await taking
        engine.deaf = False
        engine.cut(False)
        await until(lambda: cut.reachable)
        await made.same()
        (message,) = await (await other.queue("orders")).receive(wait_s=1)
        assert message.receives == 1, "as if it had never been delivered"


@pytest.mark.parametrize(("harm", "words"), [("a hole", "hole"), ("damage", "damaged"), ("another end", "lost its end")])
async def test_a_log_that_is_not_what_it_was_stops_the_node_and_is_named(harm: str, words: str, impatient: None) -> None:
    async with world(1) as made:
        (node,) = made.nodes
        await (await node.queue("orders")).send(b"a")
        due, (stamp, last) = made.service.next, made.service.packets[-1]
        given = {
            "a hole": (due + 1, stamp, last),
            "damage": (due, stamp, last[:-1] + bytes([last[-1] ^ 1])),
            # After a cut the last entry is asked for once more, and is another one: the engine has forgotten what it had acknowledged.
            "another end": (due - 1, stamp, made.service.packets[0][1]),
        }
        with pytest.raises(StorageError, match=words):
            node.store.log._take(*given[harm])
        assert not node.ready and words in str(node.store.failed)


@pytest.mark.parametrize(("harm", "words"), [("none", ""), ("purge", "lost"), ("copies", "stored twice")])
async def test_the_ledger_of_a_load_finds_what_it_must(harm: str, words: str, impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge of test_real.py, held to account: it accepts what is right and names what is not."""
    async with world(2) as made:
        for node in made.nodes:
            await node.queue("orders", lease_s=3)
        load = Load()
        load.start(made.nodes)
        await load.progress(100, 50)
        load.stop()
        made.clock.advance(1)
        await load.finish()
        queue = await made.nodes[0].queue("orders")
        body = b"never taken"
        load.asked.add(body)
        load.acked.add(body)
        for _ in range(2 if harm == "copies" else 1):
            await queue.send(body)
        if harm == "purge":
            await queue.purge()
        made.clock.advance(3)
        ending = asyncio.ensure_future(load.judge(made.nodes[1]))
        while not ending.done():
            made.clock.advance(0.5)
            await asyncio.sleep(0.001)
        if not words:
            await ending
        else:
            with pytest.raises(AssertionError, match=words):
                await ending


async def test_nodes_whose_states_differ_stop_and_say_so(impatient: None) -> None:
    made = World()
    try:
        one, other = await made.join(), await made.join()
        await (await one.queue("orders")).send(b"a")
        await made.same()
        other.store.state.lanes[1].next += 1
        await (await other.queue("orders")).send(b"b")
        await (await one.queue("orders")).send(b"c")
        with pytest.raises(StorageError):
            for _ in range(2):
                await (await other.queue("orders")).send(b"d")
                await (await one.queue("orders")).send(b"e")
        assert "one of the two states is wrong" in f"{one.store.failed} {other.store.failed}"
    finally:
        await made.close()
