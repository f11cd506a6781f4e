"""A store that is restarted and snapshotted at random answers every call as one that never was: two houses, one random life."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import Message, Messages, Outgoing, Queue, Sent
from dovetail.errors import DovetailError
from dovetail.stores import store as seam
from dovetail.stores.entrytime import EntryTime
from tests.contract.house import STORES, House, turns

LIVES = int(os.environ.get("DOVETAIL_LIVES", "8"))
STEPS = 120
KEPT = [kind for kind in STORES if kind.persists]
NAMES = {
    "dead": {},
    "plain": {"max_receives": 3, "dead_letter": "dead", "lease_s": 20, "backoff_s": 2, "retention_s": 500},
    "grouped": {"groups": True, "lease_s": 15, "max_receives": 4, "dead_letter": "dead-groups"},
    "once": {"deduplication_s": 60, "in_flight_max": 4, "delay_s": 1},
}


class Actor:
    """One house and what its caller holds in hand: deliveries and ids, by the order in which they came."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.receipts: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str]] = []

    async def open(self) -> None:
        await self.house.open()
        await self.house.node.queue("dead-groups", groups=True)
        for name, rules in NAMES.items():
            await self.house.node.queue(name, **rules)  # type: ignore[arg-type]  # rules of several types

    async def queue(self, name: str) -> Queue:
        return await self.house.node.queue(name)

    async def do(self, act: str, seed: int) -> Any:
        """One act, the same for both houses: whatever is chosen is chosen by the seed."""
        chance = random.Random(seed)
        name = chance.choice([*NAMES])
        try:
            return _plain(await getattr(self, act)(chance, await self.queue(name), name))
        except DovetailError as error:
            return type(error).__name__, str(error)

    def _outgoing(self, chance: random.Random) -> Outgoing:
        return Outgoing(
            b"%d" % chance.randrange(1 << 30),
            delay_s=chance.choice((None, None, None, 0, 3, 30, 4_000_000)),
            group=chance.choice((None, "a", "b", "c")),
            deduplication=chance.choice((None, None, "x", "y", "z")),
            attributes=chance.choice((None, {"n": 1})),
            id=chance.choice((None, None, None, f"00000000-0000-0000-0000-{chance.randrange(10**12):012d}")),
        )

    async def send(self, chance: random.Random, queue: Queue, name: str) -> Any:
        sent = await queue.send_many([self._outgoing(chance) for _ in range(chance.choice((1, 1, 2, 5)))])
        self.sent += [(name, one.id) for one in sent]
        return sent

    async def send_to(self, chance: random.Random, queue: Queue, name: str) -> Any:
        return await self.house.node.send_to(chance.sample([*NAMES], 2), self._outgoing(chance))

    async def receive(self, chance: random.Random, queue: Queue, name: str) -> Any:
        most, lease_s, attempt = chance.randrange(1, 6), chance.choice((None, None, 0, 5, 200)), chance.choice(("", "", "", "t1", "t2"))
        got = await queue.receive(max=most, lease_s=lease_s, attempt=attempt, delete=not attempt and chance.random() < 0.1)
        self.receipts += [(name, message.receipt) for message in got if message.receipt]
        return got

    async def settle(self, chance: random.Random, queue: Queue, name: str) -> Any:
        if not self.receipts:
            return None
        name, _ = self.receipts[chance.randrange(max(0, len(self.receipts) - 12), len(self.receipts))]
        texts = [receipt for owner, receipt in self.receipts[-12:] if owner == name][: chance.randrange(1, 4)]
        if not texts:
            return None
        queue = await self.queue(name)
        fate = chance.randrange(6)
        if fate < 2:
            return await queue.complete(texts)
        if fate == 2:
            return await queue.requeue(texts, chance.choice((None, 0, 7)))
        if fate == 3:
            return await queue.extend(texts, chance.choice((None, 0, 50)))
        if fate == 4:
            return await queue.release(texts)
        target = await self.queue(chance.choice([*NAMES]))
        return await self.house.node.broker.complete_and_push(queue.lane, texts, [target.lane], [seam.Outgoing(b"x")])

    async def by_id(self, chance: random.Random, queue: Queue, name: str) -> Any:
        if not self.sent:
            return None
        name, identity = chance.choice(self.sent[-30:])
        queue = await self.queue(name)
        fate = chance.randrange(3)
        return await (queue.cancel(identity) if fate == 0 else queue.reclaim(identity) if fate == 1 else queue.reschedule(identity, 9))

    async def tap(self, chance: random.Random, queue: Queue, name: str) -> Any:
        tap = await queue.tap(chance.choice(("t", "u")), start=chance.choice(("earliest", "latest", 5)), age_s=chance.choice((100, 1e6)))
        fate = chance.randrange(4)
        if fate == 0:
            return await tap.close()
        batch = await tap.read(max=chance.choice((3, 1000)))
        return (batch, await tap.advance(batch.next)) if fate == 1 else batch

    async def number(self, chance: random.Random, queue: Queue, name: str) -> Any:
        producer = await self.house.node.producer(chance.choice(("p", "q")))
        if chance.random() < 0.2:
            return await producer.skip(producer.last + 1)
        return await producer.send(queue, self._outgoing(chance), number=max(1, producer.last + chance.choice((1, 1, 1, 0, -1, 2))))

    async def redrive(self, chance: random.Random, queue: Queue, name: str) -> Any:
        dead = await self.queue(chance.choice(("dead", "dead-groups")))
        return await dead.lane.move(
            chance.choice((0, queue.lane.queue if queue.lane.queue != dead.lane.queue else 0)), chance.randrange(1, 5)
        )

    async def rule(self, chance: random.Random, queue: Queue, name: str) -> Any:
        fate = chance.randrange(6)
        if fate == 0:
            return await queue.purge()
        if fate == 1:
            return await self.house.node.store.chores.expire()
        return await queue.configure(
            lease_s=chance.choice((5, 20)), deduplication_s=chance.choice((0, 60)), retention_s=chance.choice((50, 500))
        )

    async def drop(self, chance: random.Random, queue: Queue, name: str) -> Any:
        if name == "dead" or chance.random() < 0.7:
            return None
        await self.house.node.drop(name)
        await self.house.node.queue(name, **NAMES[name])  # type: ignore[arg-type]  # rules of several types
        return None


ACTS = (
    "send send send send_to receive receive receive receive settle settle settle settle by_id tap tap number number redrive rule drop"
).split()


def _plain(answer: Any) -> Any:
    """An answer without what must differ: the durability."""
    match answer:
        case Message():
            facts = (answer.id, answer.sequence, answer.body, answer.group, answer.receives, answer.sent_at_ms, answer.source)
            return (*facts, answer.first_received_ms, answer.lease_until_ms, answer.attributes, answer.receipt)
        case Sent():
            return answer.id, answer.sequence, answer.repeat
        case list() | tuple() | Messages() if type(answer) in (list, tuple, Messages):
            return [_plain(one) for one in answer]
    return answer


async def life(seed: int, make: Callable[[str], House]) -> None:
    chance = random.Random(seed)
    steady, restarted = Actor(make("steady")), Actor(make("restarted"))
    try:
        for actor in (steady, restarted):
            await actor.open()
        for step in range(STEPS):
            if chance.random() < 0.15:
                seconds = chance.choice((0.5, 3, 20, 70, 3_000_000))
                for actor in (steady, restarted):
                    actor.house.clock.advance(seconds)
            if chance.random() < 0.08:
                # Both make a snapshot, for it also cuts taps that fell behind; only one has to live on what it wrote.
                snapshot = chance.random() < 0.6
                for actor in (steady, restarted):
                    await actor.house.again(snapshot=snapshot)
            act, choice = chance.choice(ACTS), chance.randrange(1 << 40)
            answers = [await actor.do(act, choice) for actor in (steady, restarted)]
            assert answers[0] == answers[1], f"seed {seed}, step {step}: {act}"
        await turns()
        assert await steady.house.facts() == await restarted.house.facts(), f"seed {seed}"
    finally:
        for actor in (steady, restarted):
            await actor.house.close()


@pytest.mark.parametrize("kind", KEPT, ids=[kind.name for kind in KEPT])
@pytest.mark.parametrize("seed", range(LIVES))
@pytest.mark.slow
async def test_a_store_that_is_restarted_at_random_answers_as_one_that_never_was(
    kind: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both houses draw the same key, so that ids and receipts can be compared too.
    monkeypatch.setattr(os, "urandom", lambda count: b"k" * count)
    # After a restart the clocks are on probation again, so only what is told to expire does.
    monkeypatch.setattr(EntryTime, "trusted", lambda self: False)
    await life(seed, lambda name: House(kind if name == "restarted" else STORES[0], tmp_path / name))
