"""A full disk: pushes are refused in so many words, receives and completes go on, and pushes come back with the space."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail
from dovetail import Queue
from dovetail.clock import ManualClock
from dovetail.errors import FolderLocked, StorageFull
from dovetail.lab.simdisk import SimDisk
from dovetail.settings import Local, Settings
from dovetail.stores.chores import Chores
from tests.crash.ledger import LawBroken, Ledger
from tests.crash.simulated import SEGMENT_BYTES, Life, key_of, live

SETTINGS = Settings(local=Local(segment_bytes=2 << 20, snapshot_bytes=1 << 40))


async def full_story() -> None:
    """On the simulated disk: fill it, empty the queue in the reserve, make room, go on."""
    disk, ledger = SimDisk(3, capacity_bytes=5 * SEGMENT_BYTES), Ledger()
    life = Life(disk, ledger, ManualClock())
    node = await life.open()
    queue = await life.tell(node.queue("plain"))
    for number in range(1000):
        try:
            await life.send(queue, f"p{number}", size=700)
        except StorageFull:
            break
    try:
        for message in await life.receive(queue, 20):
            await life.complete(message)
    except StorageFull:
        raise LawBroken("a receive or complete was refused on a full disk") from None
    if node.ready is not True:
        raise LawBroken("a full disk stopped the node")
    disk.capacity_bytes = None
    await life.send(queue, "p-after")
    await life.judge()
    assert await live(disk.after_power_failure(), ledger, life.clock, None)


async def emptied_story() -> None:
    """On the simulated disk: fill it, empty the queue, and wait. Nobody gives the disk more room."""
    disk, ledger = SimDisk(3, capacity_bytes=6 * SEGMENT_BYTES), Ledger()
    life = Life(disk, ledger, ManualClock())
    node = await life.open()
    queue = await life.tell(node.queue("plain"))
    for number in range(1000):
        try:
            await life.send(queue, f"p{number}", size=700)
        except StorageFull:
            break
    while got := await life.receive(queue, 100):
        for message in got:
            ledger.hear("done?", key_of(message.body))
        done = await life.tell(queue.complete([message.receipt for message in got]))
        assert all(done)
        for message in got:
            ledger.hear("done", key_of(message.body))
    for _ in range(5):
        life.clock.advance(60)
        for _ in range(200):
            await asyncio.sleep(0)
    try:
        await life.send(queue, "p-after")
    except StorageFull:
        raise LawBroken("the queue is empty, and the disk stays full") from None
    await life.judge()
    assert await live(disk.after_power_failure(), ledger, life.clock, None)


def test_a_full_disk_whose_queues_were_emptied_takes_messages_again_without_more_room() -> None:
    asyncio.run(emptied_story())


def test_twin_without_rounds_by_time_an_emptied_disk_stays_full_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chores, "_full", lambda self: None)
    with pytest.raises(LawBroken, match="stays full"):
        asyncio.run(emptied_story())


def test_on_a_full_disk_receives_and_completes_go_on_and_pushes_come_back_with_the_space() -> None:
    asyncio.run(full_story())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of our own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def fill(queue: Queue) -> int:
    for sent in range(10_000):
        try:
            await queue.send(bytes(20_000))
        except StorageFull as full:
            assert "full" in str(full)
            return sent
    raise AssertionError("the disk is never full")


async def really_full(folder: Path) -> None:
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    async with dovetail.open(f"local:{folder / 'data'}", settings=SETTINGS) as node:
        queue = await node.queue("orders")
        sent = await fill(queue)
        assert sent > 100
        got = await queue.receive(max=sent // 2)
        assert all([await message.complete() for message in got])
        with pytest.raises(StorageFull):
            await queue.send(b"x")
        assert node.ready
    async with dovetail.open(f"local:{folder / 'data'}", settings=SETTINGS) as node:
        queue = await node.queue("orders")
        assert (await queue.counts()).visible == sent - len(got)
        ballast.unlink()
        for _ in range(40):
            try:
                await queue.send(b"after")
                break
            except StorageFull:
                await asyncio.sleep(0.1)
        assert (await queue.counts()).visible == sent - len(got) + 1
        while batch := await queue.receive(max=100, lease_s=100):
            await queue.complete([message.receipt for message in batch])
        await node.snapshot()
        await queue.send(b"y")
        await node.snapshot()
        assert await fill(queue) > 100, "what was completed and trimmed is room again"


@pytest.mark.slow
def test_a_file_system_that_is_really_full_refuses_pushes_and_recovers(small_disk: Path) -> None:
    asyncio.run(really_full(small_disk))


async def two_nodes(folder: Path) -> None:
    async with dovetail.open(f"local:{folder}") as first:
        queue = await first.queue("orders")
        with pytest.raises(FolderLocked):
            async with dovetail.open(f"local:{folder}"):
                pass
        await queue.send(b"the first goes on")
    async with dovetail.open(f"local:{folder}") as second:
        assert (await (await second.queue("orders")).counts()).visible == 1


def test_one_folder_has_one_node(tmp_path: Path) -> None:
    asyncio.run(two_nodes(tmp_path / "data"))
