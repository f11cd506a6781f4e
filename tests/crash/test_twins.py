"""Twins: each takes one safeguard of the store away and shows that the judge notices.

The twins of the log alone (checksum, marks, chain, scrub …) are in tests/logs/test_twins.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dovetail.clock import ManualClock
from dovetail.core import pushing, settling
from dovetail.core.chunk import HELD, LEASED, MASK, READY, SHIFT
from dovetail.core.state import State
from dovetail.errors import StorageError
from dovetail.lab.simdisk import SimDisk
from dovetail.logs.local.blobs import LocalBlobs
from dovetail.logs.local.space import Space
from dovetail.logs.local.syncer import Syncer
from dovetail.stores.snapshots import Snapshots
from tests.crash.ledger import LawBroken, Ledger
from tests.crash.simulated import Life, crash_story, live, whole_script
from tests.crash.test_full_disk import full_story

Story = Callable[[int], Awaitable[object]]


def broken_laws(story: Story, seeds: int) -> list[str]:
    broken = []
    for seed in range(seeds):
        try:
            asyncio.run(story(seed))  # type: ignore[arg-type]  # every story is a coroutine
        except (AssertionError, StorageError) as law:
            broken.append(f"{type(law).__name__}: {law}")
    return broken


async def deaths(seed: int) -> None:
    await crash_story(random.Random(seed).randrange(20, 170), seed)


async def quiet_deaths(seed: int) -> None:
    """A mere death never makes a snapshot look damaged: whoever reads the node's log must be able to believe that line."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("dovetail.stores")
    logger.addHandler(handler)
    try:
        await deaths(seed)
    finally:
        logger.removeHandler(handler)
    alarms = [line for line in said if "passed over" in line]
    if alarms:
        raise LawBroken(f"false alarm: {alarms[0]}")


async def damaged_snapshot(seed: int) -> None:
    """The newest snapshot rots at rest; the older one and the log behind it tell the same."""
    disk, ledger, clock = SimDisk(seed), Ledger(), ManualClock()
    life = Life(disk, ledger, clock)
    await life.open()
    await whole_script(life)
    await life.node.close()
    newest = max(name for name, _ in disk.files() if name.startswith("blobs/snapshot"))
    disk = disk.after_power_failure()
    disk.flip(newest, 100 + seed)
    assert await live(disk, ledger, clock, None)


async def stale(seed: int) -> None:
    """Deliveries are given back and handed out again; the judge tries every old receipt."""
    disk, ledger = SimDisk(seed), Ledger()
    life = Life(disk, ledger, ManualClock())
    node = await life.open()
    queue = await life.tell(node.queue("plain"))
    await life.send(queue, "p1", "p2")
    for message in await life.receive(queue, 2):
        await life.back(message)
    await life.receive(queue, 2)
    await life.judge()


async def resent(seed: int) -> None:
    """A numbered send whose answer was lost is sent again."""
    disk, ledger = SimDisk(seed), Ledger()
    life = Life(disk, ledger, ManualClock())
    node = await life.open()
    queue = await life.tell(node.queue("plain"))
    producer = await life.tell(node.producer("billing"))
    ledger.hear("send?", "plain", "n1")
    for _ in range(2):
        await life.tell(producer.send(queue, b"n1|", number=1))
    await life.judge()


async def full(seed: int) -> None:
    await full_story()


@pytest.fixture(autouse=True)
def _with_every_safeguard_the_same_story_is_lawful(request: pytest.FixtureRequest) -> Iterator[None]:
    """A twin proves something only where its brother passes."""
    mark = request.node.get_closest_marker("parametrize")
    assert mark is None
    story, seeds = STORIES[request.node.originalname]
    assert broken_laws(story, seeds) == []
    yield


@pytest.mark.slow
def test_without_the_sync_before_the_answer_an_acknowledged_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Syncer, "run", lambda self, sync, done, *_: done(None))
    assert any("acknowledged and is lost" in law for law in broken_laws(deaths, 30))


def test_without_the_fence_a_dead_receipt_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def delivered(lane: Any, sequence: int, delivery: int) -> Any:
        chunk, at = lane.chunks.get(sequence >> SHIFT), sequence & MASK
        return (chunk, at) if chunk is not None and chunk.states[at] in (LEASED, READY, HELD) else None

    monkeypatch.setattr(settling, "_delivered", delivered)
    assert any("dead receipt" in law for law in broken_laws(stale, 1))


def test_without_the_numbers_a_resent_message_is_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "push_numbered", lambda state, o, numbered, address: pushing.push_items(state, o, address, 0))
    assert any("is there 2 times" in law for law in broken_laws(resent, 1))


@pytest.mark.slow
def test_without_the_manifest_written_last_a_mere_death_looks_like_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    write, put = Snapshots.write, LocalBlobs.put

    def manifest_first(self: Snapshots, state: State, **rest: Any) -> Any:
        held: dict[str, list[Any]] = {}

        def hold(blobs: LocalBlobs, name: str, chunks: Iterator[Any]) -> int:
            held[name] = list(chunks)
            if name.startswith("manifest"):
                for first in sorted(held):
                    put(blobs, first, iter(held[first]))
            return sum(map(len, held[name]))

        monkeypatch.setattr(LocalBlobs, "put", hold)
        try:
            return write(self, state, **rest)
        finally:
            monkeypatch.setattr(LocalBlobs, "put", put)

    monkeypatch.setattr(Snapshots, "write", manifest_first)
    assert any("false alarm" in law for law in broken_laws(quiet_deaths, 60))


def test_without_the_older_snapshot_a_damaged_one_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Snapshots.done

    def keep_one(self: Snapshots, state: State, made: Any) -> None:
        done(self, state, made)
        for gone in self.positions[:-1]:
            self._log.blobs.remove(f"manifest-{gone:020d}")
        self.positions = self.positions[-1:] * 2

    monkeypatch.setattr(Snapshots, "done", keep_one)
    assert broken_laws(damaged_snapshot, 3)


def test_without_the_reserve_a_full_disk_refuses_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Space.take
    monkeypatch.setattr(Space, "take", lambda self, *, vital: take(self, vital=False))
    assert any("refused on a full disk" in law for law in broken_laws(full, 1))


STORIES: dict[str, tuple[Story, int]] = {
    "test_without_the_sync_before_the_answer_an_acknowledged_message_is_lost": (deaths, 30),
    "test_without_the_fence_a_dead_receipt_is_honoured": (stale, 1),
    "test_without_the_numbers_a_resent_message_is_stored_twice": (resent, 1),
    "test_without_the_manifest_written_last_a_mere_death_looks_like_damage": (quiet_deaths, 60),
    "test_without_the_older_snapshot_a_damaged_one_is_the_end": (damaged_snapshot, 3),
    "test_without_the_reserve_a_full_disk_refuses_completes": (full, 1),
}
