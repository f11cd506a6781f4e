"""The whole store dies at every call to the disk: acked is present once, unacked is absent or whole, damage is found and named."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable

import pytest

from dovetail.clock import ManualClock
from dovetail.errors import StorageError
from dovetail.lab.simdisk import SimDisk
from tests.crash.ledger import LawBroken, Ledger
from tests.crash.simulated import Life, crash_story, fault_story, live, points_of, whole_script

SEEDS = int(os.environ.get("DOVETAIL_CRASH_SEEDS", "20"))


async def each(story: Callable[[int, int], Awaitable[Ledger]], seeds: range) -> int:
    acked = 0
    for point in range(1, await points_of(whole_script) + 1):
        for seed in seeds:
            try:
                acked += len((await story(point, seed)).acked)
            except (AssertionError, StorageError) as broken:
                raise LawBroken(f"point {point}, seed {seed}: {broken!r}") from broken
    return acked


@pytest.mark.slow
def test_the_law_holds_wherever_the_store_dies() -> None:
    assert asyncio.run(each(crash_story, range(1))) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_the_law_holds_when_any_one_call_fails(code: int) -> None:
    assert asyncio.run(each(lambda point, seed: fault_story(point, seed, code), range(1))) > 1000


@pytest.mark.soak
def test_the_law_holds_wherever_the_store_dies_for_many_seeds() -> None:
    asyncio.run(each(crash_story, range(1, 1 + SEEDS)))


async def failed_sync() -> None:
    disk = SimDisk(1)
    life = Life(disk, Ledger(), ManualClock())
    node = await life.open()
    queue = await life.tell(node.queue("plain"))
    await life.send(queue, "p1")
    disk.faults = {disk.points + 2: errno.EIO}
    assert disk.trace[-1].startswith("sync")
    with pytest.raises(StorageError) as stopped:
        try:
            await life.send(queue, "p2")
        except Exception as error:
            raise StorageError(str(error)) from error
    assert "simulated" in str(stopped.value)
    assert not node.ready
    before = disk.points
    with pytest.raises(StorageError):
        await life.send(queue, "p3")
    assert disk.points == before, "a failed sync is never tried again"


def test_a_failed_sync_stops_the_node_and_is_never_tried_again() -> None:
    asyncio.run(failed_sync())


async def damaged(name: str, offset: int) -> str:
    """Flip one bit of a file at rest: "found" when opening names it, "harmless" when everything is as the ledger says all the same."""
    ledger, clock = Ledger(), ManualClock()
    disk = SimDisk(1)
    life = Life(disk, ledger, clock)
    await life.open()
    await whole_script(life)
    await life.node.close()
    disk = disk.after_power_failure()
    disk.flip(name, offset, offset % 8)
    try:
        assert await live(disk, ledger, clock, None)
    except StorageError as found:
        assert str(found)
        return "found"
    return "harmless"


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_the_older_snapshot_tells_the_same() -> None:
    async def files() -> list[tuple[str, int]]:
        disk = SimDisk(1)
        life = Life(disk, Ledger(), ManualClock())
        await life.open()
        await whole_script(life)
        await life.node.close()
        return list(disk.files())

    outcomes = []
    for name, size in asyncio.run(files()):
        if size and (name.startswith("blobs/") or name.endswith(".seg")):
            for offset in range(3, size, max(1, size // 12)):
                outcomes.append((asyncio.run(damaged(name, offset)), name))
    assert sum(outcome == "found" for outcome, _ in outcomes) > 10
    assert all(outcome == "harmless" for outcome, name in outcomes if name.startswith("blobs/")), "there are two snapshots: one is enough"
