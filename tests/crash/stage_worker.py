"""A node with a sink, a job and a competitor, to be killed. Everything they ask for and are told goes to stdout, one JSON list a line.

    python tests/crash/stage_worker.py FOLDER SEED DOUBT      DOUBT: StageLedger.doubt() of the life before

The sink publishes batches of staged rows; the job reserves batches and settles them; the competitor receives and completes what it can get.
Lines: ["ready"] · ["publish?", batch, key…] · ["publish", batch] · ["reserve?", batch] · ["reserve", batch, key…] · ["settle?", batch] ·
["settle", batch] · ["got", key, receipt] · ["done?", key] · ["done", key].
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import dovetail
from dovetail import Node, Queue
from dovetail.stores.store import Outgoing
from tests.crash.stage_ledger import SINK
from tests.crash.worker import SETTINGS, say

OWNER = b"o" * 16
JOB = "job"


class Sink:
    def __init__(self, node: Node, queue: Queue, seed: int) -> None:
        self.node, self.queue = node, queue
        self.seed = seed
        self.chance = random.Random(seed)
        self.stages = 0

    def _stage(self) -> bytes:
        self.stages += 1
        return self.seed.to_bytes(8, "big") + self.stages.to_bytes(8, "big")

    async def _write(self, keys: list[str], *, dies: bool = False) -> bytes:
        """One attempt of one task, in one to three writes."""
        stage, store = self._stage(), self.node.store
        cut = self.chance.randrange(1, len(keys)) if dies and len(keys) > 1 else len(keys)
        step = max(1, cut // self.chance.choice((1, 1, 3)))
        for at in range(0, cut, step):
            rows = [Outgoing(key.encode() + b"|" + bytes(self.chance.choice((10, 100, 3000)))) for key in keys[at : min(at + step, cut)]]
            await store.stage(stage, [self.queue.lane.queue], rows)
        return stage

    async def publish(self, batch: int, keys: list[str]) -> None:
        parts = [part for part in (keys[0::3], keys[1::3], keys[2::3]) if part]
        given_up = [await self._write(part, dies=True) for part in parts if self.chance.random() < 0.3]
        stages = await asyncio.gather(*(self._write(self.chance.sample(part, len(part))) for part in parts))
        say("publish?", batch, *keys)
        await self.node.store.publish(stages, OWNER, batch)
        say("publish", batch)
        if self.chance.random() < 0.2:
            again = await self.node.store.publish([await self._write(keys)], OWNER, batch)
            assert again.before, "a batch was published twice"
        if given_up and self.chance.random() < 0.5:
            await self.node.store.unstage(given_up)

    async def run(self, doubt: list[Any] | None, first: int) -> None:
        if doubt is not None:
            await self.publish(*doubt)
        batch = first
        while True:
            count = self.chance.choice((1, 5, 30, 200))
            await self.publish(batch, [f"s{self.seed:06d}.{batch:06d}.{number:04d}" for number in range(count)])
            batch += 1
            await asyncio.sleep(self.chance.choice((0, 0, 0.01)))


async def job(queue: Queue, chance: random.Random, doubt: dict[str, Any]) -> None:
    lane = queue.lane
    epoch, _ = await lane.reserve_open(JOB)

    async def reserve(batch: int) -> None:
        say("reserve?", batch)
        got = await lane.reserve(JOB, epoch, batch, chance.choice((1, 10, 100)))
        say("reserve", batch, *(one.body.partition(b"|")[0].decode() for one in got))

    async def settle(batch: int) -> None:
        say("settle?", batch)
        await lane.reserve_settle(JOB, epoch, batch)
        say("settle", batch)

    if doubt["settle"] is not None:
        await settle(doubt["settle"])
    first, last = doubt["batches"]
    for batch in range(first, last + 1):
        await reserve(batch)
    batch = last
    while True:
        batch += 1
        await reserve(batch)
        if chance.random() < 0.1:
            await reserve(batch)
        if chance.random() < 0.4:
            await settle(batch - chance.choice((0, 0, 1)) if batch else batch)
        await asyncio.sleep(chance.choice((0, 0.002)))


async def compete(queue: Queue, chance: random.Random) -> None:
    while True:
        for message in await queue.receive(max=chance.randrange(1, 20), wait_s=1):
            key = message.body.partition(b"|")[0].decode()
            say("got", key, message.receipt)
            if chance.random() < 0.8:
                say("done?", key)
                if await message.complete():
                    say("done", key)
        await asyncio.sleep(0.002)


async def main(folder: str, seed: int, doubt: dict[str, Any]) -> None:
    chance = random.Random(seed)
    async with dovetail.open(f"local:{folder}", settings=SETTINGS) as node:
        queue = await node.queue(SINK, lease_s=3600)
        say("ready")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Sink(node, queue, seed).run(doubt["publish"], doubt["next"]))
            tasks.create_task(job(queue, chance, doubt))
            tasks.create_task(compete(queue, chance))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
