"""Twins: each takes one safeguard away and shows that the law's judge notices. A check that cannot fail is not a check."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator

import pytest
from crc32c import crc32c

from dovetail.errors import StorageError
from dovetail.lab.loglaw import LawBroken, Ledger, Step, perform
from dovetail.lab.simdisk import SimCrash, SimDisk, SimFile
from dovetail.logs import frame
from dovetail.logs.local import CommitLog, commitlog, recovery
from dovetail.logs.local.space import Space
from dovetail.logs.local.syncer import Syncer

SEGMENT_BYTES = 4096


def open_log(disk: SimDisk) -> CommitLog:
    ticks = iter(range(0, 1 << 30, 2))
    return CommitLog(disk, segment_bytes=SEGMENT_BYTES, sync="inline", background=False, monotonic=lambda: float(next(ticks)))


def live(disk: SimDisk, ledger: Ledger, script: list[Step], *, close: bool = False) -> None:
    try:
        log = open_log(disk)
        ledger.judge(log)
        perform(log, ledger, script)
        if close:
            log.close()
    except SimCrash:
        pass


def laws_broken(story: Callable[[int], None], seeds: int) -> list[str]:
    """What the judge said about each seed that broke the law. An error that the log raises by itself is not silence, and not counted."""
    broken: list[str] = []
    for seed in range(seeds):
        try:
            story(seed)
        except LawBroken as law:
            broken.append(str(law))
        except StorageError:
            pass
    return broken


def crashes(script: list[Step], again: list[Step]) -> Callable[[int], None]:
    """Die somewhere, go on, die again, look."""

    def story(seed: int) -> None:
        chance = random.Random(seed)
        ledger = Ledger()
        disk = SimDisk(seed, crash_at=chance.randrange(12, 60))
        live(disk, ledger, script)
        for _ in range(2):
            disk = disk.after_power_failure()
            disk.crash_at = chance.randrange(8, 40)
            live(disk, ledger, again)
        live(disk.after_power_failure(), ledger, [])

    return story


RIDERS: list[Step] = [("ride", 400, 90), ("ride", 400, 90), ("append", 400, 90)] * 2


@pytest.fixture(autouse=True)
def _with_every_safeguard_the_same_story_is_lawful(request: pytest.FixtureRequest) -> Iterator[None]:
    """The stories below run first with all safeguards in place: a twin proves something only where its brother passes."""
    for story, seeds in STORIES.get(request.node.originalname, []):
        assert laws_broken(story, seeds) == []
    yield


def test_without_the_sync_before_delivery_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []

    def run(self: Syncer, sync: Callable[[], None], done: Callable[[BaseException | None], None], *_: int) -> None:
        if late:
            late.pop()()
        late.append(sync)
        done(None)

    monkeypatch.setattr(Syncer, "run", run)
    assert any("is lost" in law for law in laws_broken(crashes(RIDERS, RIDERS), 60))


def flips(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    disk = SimDisk(seed)
    live(disk, ledger, [("append", 300)] * 6, close=True)
    disk = disk.after_power_failure()
    disk.flip("log/0000000000000000.seg", chance.randrange(512, 2500), chance.randrange(8))
    live(disk, ledger, [])


def test_without_the_checksum_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "crc32c", lambda data, value=0: 0)
    assert any("is not what was sent" in law for law in laws_broken(flips, 40))


def test_without_the_synced_marks_damage_is_taken_for_a_torn_tail_and_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "highest_synced", lambda *_: -1)
    monkeypatch.setattr(recovery, "find_tail", _find_tail_checking_everything)
    assert any("is lost" in law for law in laws_broken(flips, 40))


def _find_tail_checking_everything(segment: recovery.Segment, salt: int) -> tuple[int, int]:
    position = segment.start
    try:
        while True:
            position += frame.decode(segment.view, segment.offset(position), position, salt)[0] >> 3
    except frame.CodecError:
        return position, segment.start


def ghosts(seed: int, *, scrub_is_lost: bool = False) -> None:
    """A tail of three entries is torn so that a later one survives behind the cut, and the next entry ends exactly where that one begins.

    All of them begin at sectors. Where the scrub is lost, its sync (the sixth call of that start) fails and calls clean what it has not
    written; the start after it sees zeros that are not there.
    """
    ledger = Ledger()
    disk = SimDisk(seed)
    log = open_log(disk)
    perform(log, ledger, [("append", 424)])
    disk.crash_at = disk.points + 4
    try:
        perform(log, ledger, [("ride", 360, 88), ("ride", 360, 88), ("append", 360, 88)])
    except SimCrash:
        pass
    disk = disk.after_power_failure()
    if scrub_is_lost:
        disk.faults = {6: errno.EIO}
        try:
            live(disk, ledger, [])
        except StorageError:
            pass
        disk = disk.after_kill()
    live(disk, ledger, [("append", 424)])
    live(disk.after_power_failure(), ledger, [])


def lost_scrubs(seed: int) -> None:
    ghosts(seed, scrub_is_lost=True)


def test_without_the_scrub_after_a_cut_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "is_ghost", lambda synced, highest: False)
    monkeypatch.setattr(recovery, "scrub", lambda segment, offset, torn_bytes: None)
    assert any("was dead and is there" in law for law in laws_broken(ghosts, 200))


def test_without_the_order_of_marks_a_lost_scrub_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "is_ghost", lambda synced, highest: False)
    assert any("was dead and is there" in law or "never sent" in law for law in laws_broken(lost_scrubs, 200))


def refused_then_torn(seed: int) -> None:
    """A push is refused halfway through its write; the next one of the same shape is torn so that records of the first show through.

    The shape puts each record into a sector of its own. The write fails (its first call), and so does the new segment (its fifth).
    """
    shape: Step = ("append", 264, 504, 504)
    ledger = Ledger()
    disk = SimDisk(seed)
    log = open_log(disk)
    perform(log, ledger, [("append", 100)])
    disk.faults = {disk.points + 1: errno.ENOSPC, disk.points + 5: errno.ENOSPC}
    perform(log, ledger, [shape])
    assert ledger.sent[-1].state == "refused"
    disk.crash_at = disk.points + 2
    try:
        perform(log, ledger, [shape])
    except SimCrash:
        pass
    live(disk.after_power_failure(), ledger, [])


def test_without_the_chain_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    # The chain is the only checksum that is not seeded.
    monkeypatch.setattr(frame, "crc32c", lambda data, *seed: crc32c(data, *seed) if seed else 0)
    assert any("is not what was sent" in law for law in laws_broken(refused_then_torn, 400))


def blobs(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    disk = SimDisk(seed)
    live(disk, ledger, [("blob", 1, 3000)])
    disk = disk.after_power_failure()
    disk.crash_at = chance.randrange(8, 24)
    live(disk, ledger, [("blob", 1, 2000), ("blob", 2, 1500)])
    live(disk.after_power_failure(), ledger, [])


def test_without_the_sync_before_a_blobs_rename_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimFile.sync

    def sync(self: SimFile) -> None:
        if self._name.startswith("blobs/"):
            return
        whole(self)

    monkeypatch.setattr(SimFile, "sync", sync)
    assert any("neither the old nor the new" in law for law in laws_broken(blobs, 100))


def full(seed: int) -> None:
    ledger = Ledger()
    log = open_log(SimDisk(seed, capacity_bytes=3 * SEGMENT_BYTES))
    perform(log, ledger, [("append", 900)] * 20)
    perform(log, ledger, [("vital", 100)] * 5)
    if ledger.vital_refused:
        raise LawBroken(f"{ledger.vital_refused} vital entries were refused on a full disk")


def test_without_the_reserve_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Space.take
    monkeypatch.setattr(Space, "take", lambda self, *, vital: take(self, vital=False))
    assert any("vital entries were refused" in law for law in laws_broken(full, 1))


def failed_sync(seed: int) -> None:
    """A sync fails and its pages are called clean; the process starts again and reads them; then the power goes."""
    ledger = Ledger()
    disk = SimDisk(seed)
    log = open_log(disk)
    perform(log, ledger, [("append", 400)] * 2)
    disk.faults = {disk.points + 2: errno.EIO}
    perform(log, ledger, [("append", 900)])
    disk = disk.after_kill()
    live(disk, ledger, [("append", 100)])
    live(disk.after_power_failure(), ledger, [])


def test_without_writing_again_what_no_mark_vouches_for_the_law_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def mend(disk: SimDisk, segment: recovery.Segment, size_bytes: int, salt: int) -> tuple[int, None]:
        segment.file.sync()
        return recovery.find_tail(segment, salt)[0], None

    monkeypatch.setattr(commitlog, "mend", mend)
    broken: list[str] = []
    for seed in range(20):
        try:
            failed_sync(seed)
        except (LawBroken, StorageError) as law:
            broken.append(str(law))
    assert broken


def killed_after_rename(seed: int, *, sync_at_open: bool = True) -> None:
    """The process dies between a new segment's name and the sync of its folder; the next one appends there; then the power goes."""
    ledger = Ledger()
    disk = SimDisk(seed)
    log = open_log(disk)
    perform(log, ledger, [("append", 900)] * 3)
    disk.crash_at = disk.points + 8
    try:
        perform(log, ledger, [("append", 900)])
    except SimCrash:
        pass
    assert disk.trace[-1] == "sync-folder log"
    disk = disk.after_kill()
    if not sync_at_open:
        setattr(disk, "sync_folder", lambda folder: None)  # noqa: B010
    live(disk, ledger, [("append", 100)])
    live(disk.after_power_failure(), ledger, [])


def test_without_the_folders_sync_at_open_the_law_breaks() -> None:
    broken = laws_broken(lambda seed: killed_after_rename(seed, sync_at_open=False), 30)
    assert any("is lost" in law for law in broken)


STORIES: dict[str, list[tuple[Callable[[int], None], int]]] = {
    "test_without_the_sync_before_delivery_the_law_breaks": [(crashes(RIDERS, RIDERS), 60)],
    "test_without_the_checksum_the_law_breaks": [(flips, 40)],
    "test_without_the_synced_marks_damage_is_taken_for_a_torn_tail_and_the_law_breaks": [(flips, 40)],
    "test_without_the_scrub_after_a_cut_the_law_breaks": [(ghosts, 200)],
    "test_without_the_order_of_marks_a_lost_scrub_breaks_the_law": [(lost_scrubs, 200)],
    "test_without_the_chain_the_law_breaks": [(refused_then_torn, 400)],
    "test_without_the_sync_before_a_blobs_rename_the_law_breaks": [(blobs, 100)],
    "test_without_the_reserve_the_law_breaks": [(full, 1)],
    "test_without_writing_again_what_no_mark_vouches_for_the_law_breaks": [(failed_sync, 20)],
    "test_without_the_folders_sync_at_open_the_law_breaks": [(killed_after_rename, 30)],
}
