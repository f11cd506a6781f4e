"""A store that is restarted and snapshotted at random, with stages and reservations among everything else, answers every call as one that
never was: two houses, one random life, as in test_restarts.py.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from dovetail import Queue
from dovetail.stores.entrytime import EntryTime
from dovetail.stores.store import Outgoing
from tests.contract.house import STORES, turns
from tests.contract.seam import SeamHouse
from tests.contract.test_restarts import ACTS, KEPT, LIVES, NAMES, STEPS, Actor

STAGES = tuple(bytes([number]) * 16 for number in range(4))
OWNERS = (b"o" * 16, b"p" * 16)


class Job(Actor):
    """Stages, publishes and reserves beside what an actor does; a lost outcome is asked for again under the same batch."""

    house: SeamHouse

    def __init__(self, house: SeamHouse) -> None:
        super().__init__(house)
        self.batches: dict[bytes, int] = {}
        self.epochs: dict[str, int] = {}
        self.reserved: dict[str, int] = {}

    async def stage(self, chance: random.Random, queue: Queue, name: str) -> Any:
        lanes = [(await self.queue(one)).lane for one in chance.sample([*NAMES], chance.choice((1, 1, 2)))]
        messages = [
            Outgoing(b"%d" % chance.randrange(1 << 30), delay_ms=chance.choice((-1, 0, 3000)), group=chance.choice((b"", b"a", b"b")))
            for _ in range(chance.choice((1, 2, 7)))
        ]
        return await self.house.node.store.stage(chance.choice(STAGES), [lane.queue for lane in lanes], messages)

    async def publish(self, chance: random.Random, queue: Queue, name: str) -> Any:
        store, owner = self.house.node.store, chance.choice(OWNERS)
        stages = chance.choice(([one.stage for one in store.stages()], chance.sample(STAGES, 2)))
        batch = self.batches.get(owner, -1) + chance.choice((1, 1, 1, 0))
        published = await store.publish(stages, owner, max(batch, 0))
        self.batches[owner] = max(batch, 0)
        return published

    async def unstage(self, chance: random.Random, queue: Queue, name: str) -> Any:
        store = self.house.node.store
        return await (store.chores.expire_stages() if chance.random() < 0.5 else store.unstage([chance.choice(STAGES)]))

    async def reserve(self, chance: random.Random, queue: Queue, name: str) -> Any:
        lane = queue.lane
        if name not in self.epochs or chance.random() < 0.1:
            self.epochs[name], last = await lane.reserve_open("job")
            self.reserved[name] = last
        batch = max(self.reserved[name] + chance.choice((1, 1, 1, 0, 0, -1)), 0)
        got = await lane.reserve("job", self.epochs[name], batch, chance.choice((1, 3, 50)))
        self.reserved[name] = max(self.reserved[name], batch)
        return got

    async def end(self, chance: random.Random, queue: Queue, name: str) -> Any:
        lane, epoch = queue.lane, self.epochs.get(name, 0)
        fate = chance.random()
        if fate < 0.7:
            return await lane.reserve_settle("job", epoch, max(self.reserved.get(name, 0) - chance.choice((0, 0, 1)), 0))
        return await (lane.reserve_release("job") if fate < 0.9 else lane.reserve_close("job"))


MORE_ACTS = [*ACTS, *("stage stage stage publish publish unstage reserve reserve reserve reserve end end".split())]


async def life(seed: int, steady: Job, restarted: Job) -> None:
    chance = random.Random(seed)
    jobs = (steady, restarted)
    try:
        for job in jobs:
            await job.open()
        for step in range(STEPS):
            if chance.random() < 0.15:
                seconds = chance.choice((0.5, 3, 20, 70, 90_000))
                for job in jobs:
                    job.house.clock.advance(seconds)
            if chance.random() < 0.1:
                snapshot = chance.random() < 0.6
                for job in jobs:
                    await job.house.again(snapshot=snapshot)
            act, choice = chance.choice(MORE_ACTS), chance.randrange(1 << 40)
            answers = [await job.do(act, choice) for job in jobs]
            assert answers[0] == answers[1], f"seed {seed}, step {step}: {act}"
        await turns()
        seen = [await job.house.facts() for job in jobs]
        assert seen[0] == seen[1], f"seed {seed}"
    finally:
        for job in jobs:
            await job.house.close()


@pytest.mark.parametrize("kind", KEPT, ids=[kind.name for kind in KEPT])
@pytest.mark.parametrize("seed", range(LIVES))
@pytest.mark.slow
async def test_a_store_with_stages_and_reservations_that_is_restarted_answers_as_one_that_never_was(
    kind: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both houses draw the same key, so that ids and receipts can be compared too.
    monkeypatch.setattr(os, "urandom", lambda count: b"k" * count)
    # After a restart the clocks are on probation again, so only what is told to expire does.
    monkeypatch.setattr(EntryTime, "trusted", lambda self: False)
    await life(seed, Job(SeamHouse(STORES[0], tmp_path / "steady")), Job(SeamHouse(kind, tmp_path / "restarted")))
