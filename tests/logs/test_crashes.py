"""Every call to the disk is a place to die, to fail and to run out of space. The law holds at each of them, for many seeds.

A failing case names its script, point and seed, and the seed is the whole story. DOVETAIL_LIVES=20000 looks longer.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence

import pytest

from dovetail.errors import Damaged, FormatUnknown, StorageError, StorageFull
from dovetail.lab.loglaw import LawBroken, Ledger, Step, perform
from dovetail.lab.simdisk import SimCrash, SimDisk
from dovetail.logs.local import CommitLog

SEGMENT_BYTES = 4096
LIVES = int(os.environ.get("DOVETAIL_LIVES", "200"))

SCRIPTS: dict[str, list[Step]] = {
    "singles": [("append", 40), ("append", 700), ("mark",), ("append", 5), ("append", 300, 300), ("mark",), ("append", 1)],
    "riders": [("ride", 400, 90), ("ride", 400, 90), ("append", 400, 90), ("ride", 200), ("ride", 200), ("append", 200)],
    "segments": [*[("append", 900, 30)] * 9, ("ride", 1500), ("ride", 1500), ("append", 1500), ("mark",), ("append", 2000)],
    "trims": [*[("append", 1400)] * 8, ("trim", 2), ("append", 1400), ("append", 1400), ("append", 1400), ("trim", 1), ("append", 10)],
    "blobs": [("append", 100), ("blob", 1, 2000), ("append", 100), ("blob", 1, 900), ("blob", 2, 10), ("remove", 1), ("append", 3)],
}
AFTERWARDS: list[Step] = [("ride", 400, 90), ("append", 400, 90), ("vital", 50), ("append", 1700)]


def open_log(disk: SimDisk) -> CommitLog:
    """No threads and a clock that makes every retry due, so that a seed is a whole story."""
    ticks = iter(range(0, 1 << 30, 2))
    return CommitLog(disk, segment_bytes=SEGMENT_BYTES, sync="inline", background=False, monotonic=lambda: float(next(ticks)))


def live(disk: SimDisk, ledger: Ledger, script: Sequence[Step], *, close: bool = False) -> bool:
    """One life of a process: open, judge, perform. False when it died on the way."""
    try:
        log = open_log(disk)
        ledger.judge(log)
        perform(log, ledger, script)
        if close:
            log.close()
    except SimCrash:
        return False
    return True


def points_of(script: Sequence[Step]) -> int:
    disk = SimDisk()
    assert live(disk, Ledger(), script)
    return disk.points


def crash_story(script: Sequence[Step], point: int, seed: int) -> None:
    """Die at the point; die again while recovering; go on; lose power once more; everything is still lawful."""
    ledger = Ledger()
    disk = SimDisk(seed, crash_at=point)
    live(disk, ledger, script)
    for life in range(4):
        disk = disk.after_kill() if disk.chance.random() < 0.3 else disk.after_power_failure()
        disk.crash_at = disk.chance.randrange(1, 12) if life == 0 else disk.chance.randrange(5, 40) if life == 1 else None
        live(disk, ledger, AFTERWARDS if life else [], close=life == 3)
    disk = disk.after_power_failure()
    assert live(disk, ledger, [])


def each_story(script: Sequence[Step], seeds: range, story: Callable[[Sequence[Step], int, int], None]) -> None:
    for point in range(1, points_of(script) + 2):
        for seed in seeds:
            try:
                story(script, point, seed)
            except (LawBroken, StorageError) as broken:
                raise LawBroken(f"point {point}, seed {seed}: {broken}") from broken


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_acked_is_present_once_and_unacked_is_absent_or_whole_wherever_it_dies(name: str) -> None:
    each_story(SCRIPTS[name], range(12), crash_story)


def fault_story(code: int) -> Callable[[Sequence[Step], int, int], None]:
    def story(script: Sequence[Step], point: int, seed: int) -> None:
        ledger = Ledger()
        disk = SimDisk(seed, faults={point: code})
        try:
            live(disk, ledger, script)
        except (StorageError, StorageFull):
            pass  # The folder could not be opened; nothing was promised.
        for _ in range(2):
            disk = disk.after_kill() if seed % 2 else disk.after_power_failure()
            assert live(disk, ledger, AFTERWARDS)
        disk = disk.after_power_failure()
        assert live(disk, ledger, [])

    return story


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_law_holds_when_any_one_call_fails(name: str, code: int) -> None:
    each_story(SCRIPTS[name], range(6), fault_story(code))


def random_step(chance: random.Random) -> Step:
    kind = chance.choice(("append",) * 6 + ("ride",) * 5 + ("vital", "vital", "mark", "mark", "trim", "blob", "remove"))
    if kind in ("append", "ride", "vital"):
        return (kind, *(chance.choice((0, 8, 40, 90, 400, 504, 1000, -504, -40)) for _ in range(chance.randrange(4))))
    if kind == "blob":
        return (kind, chance.randrange(3), chance.choice((0, 600, 2500)))
    return ("mark",) if kind == "mark" else (kind, chance.randrange(1, 4))


def random_lives(seed: int) -> int:
    """Ten lives of one folder: scripts, deaths, failing calls and a disk that is sometimes too small, all from one seed."""
    chance = random.Random(seed)
    ledger = Ledger()
    disk = SimDisk(seed)
    for life in range(10):
        fate = chance.randrange(6)
        disk.crash_at = chance.randrange(1, 80) if fate < 3 else None
        disk.faults = {chance.randrange(1, 60): chance.choice((errno.EIO, errno.ENOSPC)) for _ in range(fate == 3 or fate == 4)}
        disk.capacity_bytes = disk.used_bytes + chance.randrange(4) * SEGMENT_BYTES if fate == 5 and life else None
        try:
            live(disk, ledger, [random_step(chance) for _ in range(chance.randrange(25))], close=chance.random() < 0.3)
        except Damaged:
            raise
        except (StorageError, StorageFull):
            assert disk.faults or disk.capacity_bytes is not None
        disk = disk.after_kill() if chance.random() < 0.4 else disk.after_power_failure()
    disk.capacity_bytes = None
    assert live(disk, ledger, [])
    return sum(sent.state == "acked" for sent in ledger.sent)


@pytest.mark.slow
def test_the_law_holds_through_ten_random_lives() -> None:
    acked = 0
    for seed in range(LIVES):
        try:
            acked += random_lives(seed)
        except (LawBroken, StorageError) as broken:
            raise LawBroken(f"seed {seed}: {broken}") from broken
    assert acked > 20 * LIVES, "lives in which nothing was acknowledged prove nothing"


def damaged_story(script: Sequence[Step], name: str, offset: int, bit: int) -> str:
    """Close cleanly, flip one bit at rest, look again: "found" when it was named, "harmless" when nothing of the law is touched."""
    ledger = Ledger()
    disk = SimDisk(1)
    assert live(disk, ledger, script, close=True)
    disk = disk.after_power_failure()
    disk.flip(name, offset, bit)
    try:
        live(disk, ledger, [])
    except (Damaged, FormatUnknown) as named:
        assert name in str(named), f"{named} does not name {name}"
        return "found"
    return "harmless"


def test_a_flipped_bit_in_durable_bytes_is_found_and_named_and_never_drops_an_entry() -> None:
    script: list[Step] = [*[("append", 300, 41)] * 14, ("ride", 100), ("append", 70)]
    disk = SimDisk(1)
    live(disk, Ledger(), script, close=True)
    outcomes: list[str] = []
    for name, size in disk.files():
        if name.endswith(".seg") or name == "FORMAT":
            for offset in range(0, size, 11):
                outcomes.append(damaged_story(script, name, offset, offset % 8))
    assert outcomes.count("found") > 400
    # Harmless are padding, the unused ends of segments, and the closing mark itself.
    assert outcomes.count("harmless") > 10


def test_a_full_disk_refuses_pushes_takes_vital_entries_and_recovers_by_itself() -> None:
    ledger = Ledger()
    disk = SimDisk(3, capacity_bytes=3 * SEGMENT_BYTES)
    log = open_log(disk)
    perform(log, ledger, [("append", 900)] * 20)
    refused = [sent.state for sent in ledger.sent].count("refused")
    assert refused > 5
    perform(log, ledger, [("vital", 100)] * 10)
    assert [sent.state for sent in ledger.sent[-10:]] == ["acked"] * 10
    perform(log, ledger, [("append", 10)])
    assert ledger.sent[-1].state == "refused", "a push must not eat the reserve"
    disk.capacity_bytes = None
    perform(log, ledger, [("append", 900)] * 10)
    assert [sent.state for sent in ledger.sent[-10:]] == ["acked"] * 10
    disk = disk.after_power_failure()
    assert live(disk, ledger, [])


def test_trimming_frees_what_pushes_need() -> None:
    ledger = Ledger()
    disk = SimDisk(4, capacity_bytes=5 * SEGMENT_BYTES)
    log = open_log(disk)
    for _ in range(6):
        perform(log, ledger, [("append", 900)] * 20)
        assert ledger.sent[-1].state == "refused"
        perform(log, ledger, [("vital", 900), ("trim", 1), ("append", 900)])
        assert ledger.sent[-1].state == "acked"
    disk = disk.after_power_failure()
    assert live(disk, ledger, [])


def test_a_reserve_that_is_used_up_refuses_vital_entries_too() -> None:
    ledger = Ledger()
    disk = SimDisk(5, capacity_bytes=3 * SEGMENT_BYTES)
    log = open_log(disk)
    perform(log, ledger, [("vital", 900)] * 40)
    assert ledger.sent[-1].state == "refused"
    assert [sent.state for sent in ledger.sent].count("acked") == 6
    disk = disk.after_power_failure()
    assert live(disk, ledger, [])
