"""Stages and reservations where the store dies: what was published is there once and whole or not at all; a batch stays what it was."""

from __future__ import annotations

import asyncio
import os

import pytest

from dovetail.clock import ManualClock
from dovetail.core import reserving
from dovetail.core.lane import Lane
from dovetail.core.operation import Reserve, Reserved
from dovetail.core.reservations import Reservation
from dovetail.core.stages import Stages
from dovetail.errors import StorageError, StorageFull
from dovetail.lab.simdisk import SimDisk
from dovetail.stores.store import Outgoing
from tests.crash.ledger import LawBroken
from tests.crash.simulated import SEGMENT_BYTES
from tests.crash.stage_ledger import StageLedger
from tests.crash.staged import OWNER, StagedLife, awaited, points_of_script, staged_story

SEEDS = int(os.environ.get("DOVETAIL_CRASH_SEEDS", "20"))


async def each(seeds: range, step: int = 1) -> tuple[int, int]:
    published = settled = 0
    for point in range(1, await points_of_script() + 1, step):
        for seed in seeds:
            try:
                ledger = await staged_story(point, seed)
            except (AssertionError, StorageError) as broken:
                raise LawBroken(f"point {point}, seed {seed}: {broken!r}") from broken
            published, settled = published + ledger.published, settled + ledger.settled
    return published, settled


@pytest.mark.slow
def test_what_was_published_and_what_was_reserved_holds_wherever_the_store_dies() -> None:
    published, settled = asyncio.run(each(range(1)))
    assert published > 300 and settled > 300


@pytest.mark.soak
def test_what_was_published_and_what_was_reserved_holds_for_many_seeds() -> None:
    asyncio.run(each(range(1, 1 + SEEDS)))


@pytest.mark.slow
def test_without_the_last_batch_of_the_owner_a_publish_that_is_repeated_is_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stages, "last", lambda self, owner: -1)
    with pytest.raises(LawBroken, match="is there 2 times"):
        asyncio.run(each(range(1)))


@pytest.mark.slow
def test_without_its_memory_a_batch_is_given_out_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is asked for again takes what is visible now."""

    def anew(lane: Lane, known: Reservation, o: Reserve) -> Reserved:
        batch = known.batches[o.batch] = reserving._take(lane, o.max)
        known.last = max(known.last, o.batch)
        return Reserved(lane.queue, list(reserving.taken(lane, batch)))

    monkeypatch.setattr(reserving, "_reserve", anew)
    with pytest.raises(LawBroken, match="batch"):
        asyncio.run(each(range(1)))


async def full_story() -> None:
    """Stages fill the disk and are refused; what was staged before can be published, and emptying the queue makes room again."""
    disk = SimDisk(3, capacity_bytes=5 * SEGMENT_BYTES)
    life = StagedLife(disk, StageLedger(), ManualClock())
    node = await life.open()
    queue = await life.sink()
    staged: list[bytes] = []
    for number in range(1000):
        try:
            await life.tell(node.store.stage(number.to_bytes(16, "big"), [queue.lane.queue], [Outgoing(bytes(700))]))
        except StorageFull:
            break
        staged.append(number.to_bytes(16, "big"))
    assert 5 < len(staged) < 1000
    published = await life.tell(node.store.publish(staged, OWNER, 0))
    assert (published.joined[0].messages, node.ready) == (len(staged), True)
    epoch, _ = await life.tell(queue.lane.reserve_open("job"))
    assert len(await life.tell(awaited(queue.lane.reserve("job", epoch, 0, 1000)))) == len(staged)
    assert await life.tell(queue.lane.reserve_settle("job", epoch, 0)) == len(staged)
    disk.capacity_bytes = None
    assert await life.tell(node.store.stage(b"s" * 16, [queue.lane.queue], [Outgoing(b"after")])) == 1


def test_on_a_full_disk_stages_are_refused_and_what_was_staged_is_published_and_settled() -> None:
    asyncio.run(full_story())
