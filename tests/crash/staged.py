"""A store with stages and reservations on the simulated disk. Whoever comes back after a death asks for what is in doubt once more: the
same publish with its rows in another order, and every batch that was not settled.
"""

from __future__ import annotations

import random
from typing import Any

from dovetail import Queue
from dovetail.clock import ManualClock
from dovetail.lab.simdisk import SimDisk
from dovetail.stores.store import Outgoing
from tests.crash.simulated import Life, key_of, live
from tests.crash.stage_ledger import SINK, StageLedger

OWNER = b"o" * 16
JOB = "job"


class StagedLife(Life):
    ledger: StageLedger
    attempts = 0

    async def sink(self) -> Queue:
        return await self.tell(self.node.queue(SINK))

    async def publish(self, batch: int, keys: list[str]) -> None:
        """Two tasks, one of which died in its first attempt."""
        store, queue = self.node.store, await self.sink()
        StagedLife.attempts += 1
        first, second, dead = (StagedLife.attempts.to_bytes(15, "big") + bytes([task]) for task in range(3))

        async def stage(name: bytes, *bodies: str) -> None:
            await self.tell(store.stage(name, [queue.lane.queue], [Outgoing(body.encode() + b"|" + bytes(400)) for body in bodies]))

        half = len(keys) // 2
        await stage(dead, f"abandoned{batch}")
        await stage(first, *keys[:half])
        await stage(second, *keys[half:-1])
        await stage(second, keys[-1])
        self.ledger.hear("publish?", batch, *keys)
        published = await self.tell(store.publish([first, second], OWNER, batch))
        self.ledger.hear("publish", batch)
        assert published.before or published.joined[0].messages == len(keys)
        await self.tell(store.unstage([dead]))

    async def reserve(self, epoch: int, batch: int, most: int) -> None:
        self.ledger.hear("reserve?", batch)
        got = await self.tell(awaited((await self.sink()).lane.reserve(JOB, epoch, batch, most)))
        self.ledger.hear("reserve", batch, *(key_of(one.body) for one in got))

    async def settle(self, epoch: int, batch: int) -> None:
        self.ledger.hear("settle?", batch)
        await self.tell((await self.sink()).lane.reserve_settle(JOB, epoch, batch))
        self.ledger.hear("settle", batch)

    async def resume(self) -> int:
        """What is in doubt is asked for again; answers the new epoch."""
        doubt = self.ledger.doubt()
        if doubt["publish"] is not None:
            batch, keys = doubt["publish"]
            await self.publish(batch, sorted(keys, reverse=True))
            self.ledger.publishes[batch] = keys
        epoch, _ = await self.tell((await self.sink()).lane.reserve_open(JOB))
        if doubt["settle"] is not None:
            await self.settle(epoch, doubt["settle"])
        first, last = doubt["batches"]
        for batch in range(first, last + 1):
            await self.reserve(epoch, batch, 3)
        return epoch


async def awaited(reserving: Any) -> Any:
    return await reserving


async def whole_script(life: Life) -> None:
    """Publishes, batches that are settled and batches that stay open, competitors, three snapshots with trims and carries."""
    assert isinstance(life, StagedLife)
    epoch = await life.resume()
    queue = await life.sink()
    base, at = max(life.ledger.publishes, default=-1) + 1, life.ledger.asked_batch + 1
    await life.tell(life.node.store.stage(b"pin" + bytes(13), [queue.lane.queue], [Outgoing(b"abandoned|")]))
    for step in range(3):
        await life.publish(base + step, [f"b{base + step}-{item}" for item in range(6)])
        await life.reserve(epoch, at, 2)
        for message in await life.receive(queue, 1):
            await life.complete(message)
        await life.reserve(epoch, at + 1, 2)
        await life.settle(epoch, at)
        await life.send(queue, f"p{base + step}", size=1500)
        await life.tell(life.node.snapshot())
        at += 2


async def short_script(life: Life) -> None:
    assert isinstance(life, StagedLife)
    epoch = await life.resume()
    batch = max(life.ledger.publishes, default=-1) + 1
    await life.publish(batch, [f"b{batch}-{item}" for item in range(3)])
    await life.reserve(epoch, life.ledger.asked_batch + 1, 4)
    await life.settle(epoch, life.ledger.asked_batch)


async def points_of_script() -> int:
    disk = SimDisk()
    assert await live(disk, StageLedger(), ManualClock(), whole_script, StagedLife)
    return disk.points


async def staged_story(point: int, seed: int) -> StageLedger:
    """Die at the point, perhaps again while recovering, go on, lose the power once more. The law holds at every opening."""
    ledger, clock, chance = StageLedger(), ManualClock(), random.Random(seed * 7919 + point)
    disk = SimDisk(seed, crash_at=point)
    await live(disk, ledger, clock, whole_script, StagedLife)
    disk = disk.after_kill() if chance.random() < 0.3 else disk.after_power_failure()
    disk.crash_at = chance.randrange(1, 30) if chance.random() < 0.5 else None
    await live(disk, ledger, clock, short_script, StagedLife)
    for _ in range(2):
        disk = disk.after_power_failure()
        assert await live(disk, ledger, clock, short_script, StagedLife)
    assert await live(disk.after_power_failure(), ledger, clock, None, StagedLife)
    return ledger
