"""The commit log on real files: the lock, the two ways to sync, segments that are missing or strange, a disk that is really full."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.errors import Damaged, FolderLocked, FormatUnknown, StorageError, StorageFull
from dovetail.logs.local import CommitLog, Recovered, export, inspect, platform
from dovetail.logs.local.kernelsync import KernelSync
from dovetail.logs.local.segment import encode_header
from dovetail.logs.local.syncer import WINDOW_SYNCS, Syncer, SyncMode
from dovetail.logs.log import Entry

SEGMENT_BYTES = 64 * 1024


def never(error: BaseException) -> None:
    raise AssertionError(f"the log failed: {error}")


def open_log(folder: Path, sync: SyncMode = "inline") -> CommitLog:
    return CommitLog(folder, segment_bytes=SEGMENT_BYTES, sync=sync)


def fill(folder: Path, count: int, record_bytes: int = 1000) -> list[Entry]:
    log = open_log(folder)
    got: list[Entry] = []
    log.start(got.append, never)
    for number in range(count):
        log.append([b"%08d" % number, b"x" * record_bytes])
    log.close()
    return got


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("*.seg"))


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def numbers(log: CommitLog) -> list[int]:
    return [int(bytes(entry.records[0])) for entry in log.read(log.first)]


# -- the folder -------------------------------------------------------------------------------------------------------------------


def test_a_second_process_is_told_who_has_the_folder(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    code = "import sys; from dovetail.logs.local import CommitLog; CommitLog(sys.argv[1])"
    answer = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "FolderLocked" in answer.stderr and f"pid {os.getpid()}" in answer.stderr
    with pytest.raises(FolderLocked):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).close()


def test_a_newer_format_is_refused_with_the_file(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    text = (tmp_path / "FORMAT").read_text()
    (tmp_path / "FORMAT").write_text(text.replace("format 1", "format 2"))
    with pytest.raises(FormatUnknown, match=r"FORMAT: format 2 is newer"):
        open_log(tmp_path)
    (tmp_path / "FORMAT").write_text(text)
    header = bytearray(segments(tmp_path)[0].read_bytes())
    header[8] = 9
    segments(tmp_path)[0].write_bytes(header)
    with pytest.raises(FormatUnknown, match=r"0000\.seg: format 9 is newer"):
        open_log(tmp_path)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("hello\n")
    with pytest.raises(FormatUnknown, match="not a data folder"):
        open_log(tmp_path)


def test_segments_without_their_format_file_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / "FORMAT").unlink()
    with pytest.raises(FormatUnknown, match="missing"):
        open_log(tmp_path)


def test_a_folder_that_lost_all_segments_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    segments(tmp_path)[0].unlink()
    with pytest.raises(Damaged, match="not one segment left"):
        open_log(tmp_path)


def test_a_missing_segment_in_the_middle_is_named(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    middle = segments(tmp_path)[1]
    middle.unlink()
    with pytest.raises(Damaged, match=middle.name):
        open_log(tmp_path)


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    file = segments(tmp_path)[0]
    file.write_bytes(encode_header(b"another log 1234", 0, 0) + file.read_bytes()[512:])
    with pytest.raises(Damaged, match="another log"):
        open_log(tmp_path)


# -- the tail ---------------------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_and_reported(tmp_path: Path) -> None:
    got = fill(tmp_path, 10)
    file = segments(tmp_path)[0]
    last = 512 + got[-1].position * 8
    os.truncate(file, last + 100)
    log = open_log(tmp_path)
    assert log.recovered == Recovered(torn_bytes=100, at=got[-1].position, file=str(file), offset=last)
    assert numbers(log) == list(range(9))
    assert log.tail == got[-1].position + 4, "the mark of this start"
    log.start(got.append, never)
    log.append([b"00000009", b"again"])
    log.close()
    log = open_log(tmp_path)
    assert log.recovered is None
    assert numbers(log) == list(range(10))
    log.close()


def test_damage_in_the_last_segment_is_refused_with_its_exact_place(tmp_path: Path) -> None:
    got = fill(tmp_path, 10)
    offset = 512 + got[4].position * 8
    flip(segments(tmp_path)[0], offset + 3)
    with pytest.raises(Damaged, match=rf"0000\.seg: damaged at offset {offset} \(position {got[4].position}\)"):
        open_log(tmp_path)
    assert [report.ok for report in inspect(tmp_path)] == [False]


def test_damage_in_an_older_segment_is_named_when_it_is_read_and_when_it_is_fetched(tmp_path: Path) -> None:
    got = fill(tmp_path, 200)
    offset = 512 + got[4].addresses[1] * 8
    flip(segments(tmp_path)[0], offset + 500)
    log = open_log(tmp_path)
    with pytest.raises(Damaged, match=f"position {got[4].position}"):
        numbers(log)
    with pytest.raises(Damaged, match=f"offset {offset} .address {got[4].addresses[1]}"):
        log.fetch(got[4].addresses[1])
    assert log.fetch(got[5].addresses[1]) == b"x" * 1000
    assert [int(bytes(e.records[0])) for e in log.read(got[5].position)] == list(range(5, 200))
    log.close()
    reports = list(inspect(tmp_path))
    assert [report.ok for report in reports] == [False] + [True] * (len(reports) - 1)
    assert f"position {got[4].position}" in (reports[0].damage or "")


def test_inspection_counts_what_is_there_beside_a_live_log(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    log = open_log(tmp_path)
    reports = list(inspect(tmp_path))
    assert sum(report.entries for report in reports) == 200
    assert sum(report.records for report in reports) == 400
    assert reports[0].start == 0 and reports[-1].end == log.tail
    assert all(report.ok and not report.torn_bytes for report in reports)
    log.close()


# -- syncing ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["inline", "thread", "kernel", "auto"])
async def test_entries_are_delivered_in_order_wherever_the_sync_runs(tmp_path: Path, sync: SyncMode) -> None:
    log = open_log(tmp_path, sync)
    got: list[int] = []
    arrived = asyncio.Event()

    def deliver(entry: Entry) -> None:
        got.append(int(entry.records[0]))
        if len(got) == 300:
            arrived.set()

    log.start(deliver, never)
    for number in range(300):
        log.append([b"%08d" % number, b"x" * 1000], callers=number % 20)
        if sync in ("thread", "kernel") and number == 0:
            assert log.busy and got == []
        if number % 7 == 0:
            await asyncio.sleep(0)
    await asyncio.wait_for(arrived.wait(), 60)
    assert got == list(range(300))
    assert len(log.segments) > 3
    log.close()
    log = open_log(tmp_path)
    assert numbers(log) == got
    log.close()


@pytest.mark.parametrize("sync", ["thread", "kernel"])
async def test_closing_waits_for_the_sync_under_way_and_delivers_it(tmp_path: Path, sync: SyncMode) -> None:
    log = open_log(tmp_path, sync)
    got: list[Entry] = []
    log.start(got.append, never)
    log.append([b"00000000"])
    log.append([b"00000001"])
    log.close()
    assert [bytes(entry.records[0]) for entry in got] == [b"00000000", b"00000001"]
    await asyncio.sleep(0.01)
    assert len(got) == 2


def test_slow_syncs_go_to_the_thread_and_fast_ones_come_back() -> None:
    async def story() -> None:
        syncer = Syncer("auto")
        syncer.start(asyncio.get_running_loop())
        syncer.average_s = 0.0012
        done: list[BaseException | None] = []
        syncer.run(lambda: None, done.append)
        assert syncer.slow and done == [None]
        for _ in range(WINDOW_SYNCS):
            syncer.run(lambda: None, done.append)
            while syncer.running:
                await asyncio.sleep(0.001)
        assert not syncer.slow
        syncer.close()

    asyncio.run(story())


@pytest.mark.parametrize("sync", ["inline", "thread"])
async def test_a_failed_sync_stops_the_log_and_is_never_retried(tmp_path: Path, sync: SyncMode, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, sync)
    got: list[Entry] = []
    failures: list[BaseException] = []
    log.start(got.append, failures.append)
    calls: list[int] = []

    def broken(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "no more")

    monkeypatch.setattr("dovetail.logs.local.disk.sync_data", broken)
    log.append([b"lost"])
    for _ in range(6000):
        if failures:
            break
        await asyncio.sleep(0.01)
    assert [type(error) for error in failures] == [StorageError]
    with pytest.raises(StorageError):
        log.append([b"later"])
    log.close()
    assert (got, len(failures), len(calls)) == ([], 1, 1)


async def test_a_sync_that_failed_in_the_kernel_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, "kernel")
    got: list[Entry] = []
    failures: list[BaseException] = []
    log.start(got.append, failures.append)
    if log.syncer._kernel is None:
        pytest.skip("this kernel does not sync by itself")
    # As the kernel says it: the number of the error below zero, read as an unsigned one.
    ended = KernelSync._ended
    monkeypatch.setattr(KernelSync, "_ended", lambda self, result: ended(self, (1 << 64) - errno.EIO))
    log.append([b"lost"])
    while log.busy:
        await asyncio.sleep(0.001)
    assert got == [] and [type(error) for error in failures] == [StorageError] and os.strerror(errno.EIO) in str(failures[0])
    with pytest.raises(StorageError):
        log.append([b"later"])
    log.close()


async def test_where_the_kernel_does_not_take_a_sync_it_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, "kernel")
    got: list[Entry] = []
    log.start(got.append, never)
    asked: list[int] = []
    monkeypatch.setattr(KernelSync, "begin", lambda self, file, done: bool(asked.append(file)))
    log.append([b"00000000"])
    log.append([b"00000001"])
    assert len(got) == 2 and len(asked) <= 1
    log.close()


async def test_an_idle_log_writes_one_mark_and_then_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    got: list[Entry] = []
    log.start(got.append, never)
    log.append([b"00000000"])
    before = log.tail
    await asyncio.sleep(0.2)
    after = log.tail
    assert after - before == 4
    await asyncio.sleep(0.15)
    assert log.tail == after
    log.append([b"00000001"])
    assert got[1].position == after
    log.close()
    log = open_log(tmp_path)
    assert numbers(log) == [0, 1]
    assert [e.position for e in log.read(got[0].after)] == [after]
    log.close()


# -- space and copies -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "tmpfs", str(place)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("a tmpfs cannot be mounted here: " + made.stderr.decode().strip())
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_really_full_refuses_pushes_and_takes_completes_until_space_returns(small_disk: Path) -> None:
    now = 0.0
    ballast = small_disk / "ballast"
    log = CommitLog(small_disk / "data", segment_bytes=SEGMENT_BYTES, sync="inline", monotonic=lambda: now)
    got: list[Entry] = []
    log.start(got.append, never)
    ballast.write_bytes(bytes(200_000))
    with pytest.raises(StorageFull):
        for _ in range(1000):
            log.append([b"push", bytes(1000)])
    pushed = len(got)
    for _ in range(100):
        log.append([b"complete"], vital=True)
    with pytest.raises(StorageFull):
        log.append([b"push", bytes(2000)])
    ballast.unlink()
    now += 2
    log.append([b"push", bytes(2000)])
    log.close()
    log = CommitLog(small_disk / "data", segment_bytes=SEGMENT_BYTES)
    found = [bytes(entry.records[0]) for entry in log.read(log.first)]
    assert found == [b"push"] * pushed + [b"complete"] * 100 + [b"push"]
    log.close()


def test_a_copy_of_a_running_log_opens_like_any_other(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    got: list[Entry] = []
    log.start(got.append, never)
    for number in range(150):
        log.append([b"%08d" % number, b"x" * 1000])
    log.trim(got[80].position)
    first = log.first
    log.blobs.put("snapshot-1", iter([b"state"]))
    end = export(log, tmp_path / "copy")
    log.append([b"00000150"])
    log.close()
    copy = open_log(tmp_path / "copy")
    assert (copy.first, copy.tail, copy.recovered) == (first, end + 4, None)
    assert numbers(copy)[-1] == 149
    assert bytes(copy.blobs.get("snapshot-1")) == b"state"
    copy.start(got.append, never)
    copy.append([b"00000151"])
    copy.close()
    assert all(report.ok for report in inspect(tmp_path / "copy"))


async def test_a_copy_made_while_entries_come_and_segments_go_is_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data", "inline")
    got: list[Entry] = []
    log.start(got.append, never)
    for number in range(100):
        log.append([b"%08d" % number, b"x" * 1000])
    log.blobs.put("snapshot-1", iter([b"s" * 3_000_000]))
    copying = asyncio.get_running_loop().run_in_executor(None, export, log, tmp_path / "copy")
    number = 100
    while not copying.done():
        log.append([b"%08d" % number, b"x" * 1000])
        number += 1
        log.trim(got[-20].position)
        await asyncio.sleep(0)
    end = await copying
    log.close()
    copy = open_log(tmp_path / "copy")
    found = numbers(copy)
    assert found == list(range(found[0], found[-1] + 1))
    assert [entry.after for entry in got if int(entry.records[0]) == found[-1]] == [end]
    assert found[-1] >= 99 and copy.recovered is None
    copy.close()


def test_a_blob_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.blobs.put("snapshot", iter([b"old"]))

    def broken() -> Iterator[bytes]:
        yield b"new"
        raise ValueError("the state could not be written")

    with pytest.raises(ValueError, match="could not"):
        log.blobs.put("snapshot", broken())
    assert bytes(log.blobs.get("snapshot")) == b"old"
    assert os.listdir(tmp_path / "blobs") == ["snapshot"]
    log.close()


def test_the_platforms_file_gives_the_three_verbs_everywhere() -> None:
    assert {"sync_data", "sync_all", "allocate"} <= set(vars(platform))
