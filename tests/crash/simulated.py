"""A whole store on the simulated disk: one life of a node from opening to death, its ledger, and the story of several lives.

Snapshots run in this process (there is nothing to fork a simulated disk into); all else is as in a real node. Everything follows a seed.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dovetail import Message, Node, Outgoing, Queue
from dovetail.clock import ManualClock
from dovetail.errors import DovetailError, StorageError, StorageFull, Unknown
from dovetail.lab.simdisk import SimCrash, SimDisk
from dovetail.limits import ENTRY_BYTES_MIN
from dovetail.logs.local import CommitLog
from dovetail.stores.replayed import Replayed
from dovetail.stores.snapshots import Survey
from tests.crash.ledger import Ledger

T = TypeVar("T")
SEGMENT_BYTES = 8192


class Life:
    """One process on one disk. `tell` gives an answer, or SimCrash where the process died before it came."""

    def __init__(self, disk: SimDisk, ledger: Ledger, clock: ManualClock) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = clock
        self.receipts: dict[str, str] = {}

    async def open(self) -> Node:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # a dying process says nothing
        ticks = iter(range(0, 1 << 30, 2))
        log = CommitLog(self.disk, segment_bytes=SEGMENT_BYTES, sync="inline", background=False, monotonic=lambda: float(next(ticks)))
        # Small segments change often. The largest message does not fit into them, and none is sent here.
        log.entry_bytes_max = ENTRY_BYTES_MIN
        store = await self.tell(Replayed.open(log, self.clock, snapshot_bytes=1 << 40))

        async def in_this_process() -> Survey:
            return store.snapshots.write(store.state)

        store.chores._in_child = in_this_process  # type: ignore[method-assign]  # the seam between a child and a call
        self.node = Node(store, self.clock)
        return self.node

    async def tell(self, answer: Awaitable[T]) -> T:
        task = asyncio.ensure_future(answer)
        while not task.done():
            await asyncio.sleep(0)
            if self.disk.crash_at is not None and self.disk.points >= self.disk.crash_at:
                task.cancel()
                raise SimCrash
        return task.result()

    # What the node is asked for, with the ledger told before and after.

    async def send(self, queue: Queue, *keys: str, size: int = 300, group: str | None = None) -> None:
        self.ledger.hear("send?", queue.name, *keys)
        await self.tell(queue.send_many([Outgoing(key.encode() + b"|" + bytes(size), group=group) for key in keys]))
        self.ledger.hear("send", *keys)

    async def receive(self, queue: Queue, most: int = 1) -> list[Message]:
        got = await self.tell(queue.receive(max=most, lease_s=100_000))
        for message in got:
            self.ledger.hear("got", key_of(message.body), message.receipt)
        return got

    async def complete(self, message: Message) -> None:
        self.ledger.hear("done?", key_of(message.body))
        if await self.tell(message.complete()):
            self.ledger.hear("done", key_of(message.body))

    async def both(self, message: Message, target: Queue, key: str) -> None:
        self.ledger.hear("send?", target.name, key)
        self.ledger.hear("both?", key_of(message.body), key)
        await self.tell(message.complete_and_send(target, key.encode() + b"|"))
        self.ledger.hear("both", key_of(message.body), key)

    async def back(self, message: Message) -> None:
        if await self.tell(message.requeue(0)):
            self.ledger.hear("back", key_of(message.body), message.receipt)

    async def judge(self) -> None:
        found = {}
        for name in await self.node.queues():
            queue = await self.node.queue(name)
            found[name] = [key_of(one.body) for one in await queue.peek(max=10_000)]
        self.ledger.judge(found)
        for key, receipt in list(self.ledger.dead.items()):
            queue = await self.node.queue(self.ledger.asked[key])
            assert await self.tell(queue.complete([receipt])) == [False], f"the dead receipt of {key} was honoured"


def key_of(body: bytes) -> str:
    return body.partition(b"|")[0].decode()


Script = Callable[[Life], Awaitable[None]]


async def whole_script(life: Life) -> None:
    """Appends, changes of segment, three snapshots with trims, and a message at the very beginning that must be carried on."""
    node = life.node
    plain, target = await life.tell(node.queue("plain")), await life.tell(node.queue("target"))
    await life.send(plain, "p-pin", size=100)
    (pin,) = await life.receive(plain)
    for step in range(4):
        await life.send(plain, *(f"p{step}-{item}" for item in range(4)), size=1200)
        await life.send(plain, f"p{step}-x", size=500)
        got = await life.receive(plain, 4)
        for message in got[:2]:
            await life.complete(message)
        await life.both(got[2], target, f"t{step}")
        await life.back(got[3])
        if step:
            await life.tell(node.snapshot())
    await life.back(pin)
    await life.send(plain, "p-last")


async def short_script(life: Life) -> None:
    """What a node does that comes back after a death."""
    number = life.ledger.counts["send?"]
    plain = await life.tell(life.node.queue("plain"))
    await life.send(plain, f"p{number}-a", f"p{number}-b")
    for message in await life.receive(plain, 1):
        await life.complete(message)
    if number % 2:
        await life.tell(life.node.snapshot())


async def live(disk: SimDisk, ledger: Ledger, clock: ManualClock, script: Script | None, make: type[Life] = Life) -> bool:
    """Open, judge, go on. False where it died on the way. An error that a life raises by itself ends it too: nothing was promised by it."""
    life = make(disk, ledger, clock)
    try:
        await life.open()
        await life.judge()
        if script is not None:
            await script(life)
        return True
    except SimCrash:
        return False
    except (Unknown, StorageFull, StorageError):
        if not disk.faults:
            raise
        return False
    except DovetailError as error:
        if not disk.faults:
            raise
        assert not isinstance(error, AssertionError)
        return False


async def points_of(script: Script) -> int:
    disk = SimDisk()
    assert await live(disk, Ledger(), ManualClock(), script)
    return disk.points


async def crash_story(point: int, seed: int, script: Script = whole_script) -> Ledger:
    """Die at the point, perhaps again while recovering, go on, lose the power once more. The law holds at every opening."""
    ledger, clock, chance = Ledger(), ManualClock(), random.Random(seed * 7919 + point)
    disk = SimDisk(seed, crash_at=point)
    await live(disk, ledger, clock, script)
    disk = disk.after_kill() if chance.random() < 0.3 else disk.after_power_failure()
    disk.crash_at = chance.randrange(1, 12) if chance.random() < 0.5 else None
    await live(disk, ledger, clock, None)
    for _ in range(2):
        disk = disk.after_power_failure()
        assert await live(disk, ledger, clock, short_script)
    assert await live(disk.after_power_failure(), ledger, clock, None)
    return ledger


async def fault_story(point: int, seed: int, code: int = errno.EIO) -> Ledger:
    """One call fails. The node may stop or refuse; what it had acknowledged is there at the next start."""
    ledger, clock = Ledger(), ManualClock()
    disk = SimDisk(seed, faults={point: code})
    await live(disk, ledger, clock, whole_script)
    disk = disk.after_kill() if seed % 2 else disk.after_power_failure()
    assert await live(disk, ledger, clock, short_script)
    assert await live(disk.after_power_failure(), ledger, clock, None)
    return ledger
