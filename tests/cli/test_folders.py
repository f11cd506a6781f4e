"""inspect, backup and restore: what they say of a folder is true, also while a log is being written, and nothing is overwritten."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.clock import SystemClock
from dovetail.core.operation import Attributes
from dovetail.logs.local import CommitLog, inspect
from dovetail.logs.log import Entry
from dovetail.stores.replayed import Replayed
from dovetail.stores.store import Outgoing


async def fill(folder: Path, count: int) -> None:
    """A log of `count` entries, each of a head and one record."""
    log = CommitLog(folder, segment_bytes=2 << 20)
    delivered = asyncio.Event()
    seen = 0

    def deliver(entry: Entry) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            delivered.set()

    log.start(deliver, lambda error: delivered.set())
    for i in range(count):
        log.append([b"head", b"record %d " % i + bytes(1000)])
    async with asyncio.timeout(60):
        await delivered.wait()
    log.close()


async def command(*arguments: str) -> int:
    """The command in a thread, as far from the running store as another process would be."""
    return await asyncio.to_thread(main, list(arguments))


async def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert await command(*arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return answer


async def fill_queues(folder: Path) -> Replayed:
    """A store with two queues: 3000 messages, of which ten are leased, and one that waits for a day."""
    store = await Replayed.open(CommitLog(folder, segment_bytes=2 << 20), SystemClock(), snapshot_bytes=1 << 40)
    orders = store.lane(await store.create("default", "orders", Attributes()))
    later = store.lane(await store.create("eu", "later", Attributes()))
    assert orders is not None and later is not None
    for _ in range(30):
        await orders.push([Outgoing(bytes(1000))] * 100)
    assert len(await orders.pop(10, 60_000)) == 10
    await later.push([Outgoing(b"x", delay_ms=86_400_000)])
    return store


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
async def test_inspect_tells_what_is_there_and_what_is_alive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], running: bool, snapshot: bool
) -> None:
    store = await fill_queues(tmp_path / "data")
    if snapshot:
        await store.chores.snapshot()
    if not running:
        await store.close()
    before = sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "data").rglob("*"))
    report = await told(capsys, "inspect", str(tmp_path / "data"), "--json", "--verify")
    assert report["sound"] is True and len(report["segments"]) > 1  # type: ignore[arg-type]
    assert (report["replay"]["from"] > 0) is snapshot  # type: ignore[index]
    assert report["alive"]["messages"] == 3001  # type: ignore[index]
    queues = {(queue["namespace"], queue["name"]): queue for queue in report["queues"]}  # type: ignore[attr-defined]
    assert set(queues) == {("default", "orders"), ("eu", "later")}
    assert [queues["default", "orders"][key] for key in ("visible", "delayed", "leased", "pushed")] == [2990, 0, 10, 3000]
    assert [queues["eu", "later"][key] for key in ("visible", "delayed", "leased", "pushed")] == [0, 1, 0, 1]
    assert await command("inspect", f"local:{tmp_path / 'data'}") == 0
    text = capsys.readouterr().out
    assert "every checksum matches" in text and "3,001 messages alive" in text and "eu/later" in text
    if not running:
        assert sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "data").rglob("*")) == before
    else:
        await store.close()


async def test_inspect_names_the_damaged_place_and_fails_when_asked_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await fill(tmp_path / "data", 5000)
    first = min((tmp_path / "data" / "log").glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[5000] ^= 1
    first.write_bytes(data)
    assert await command("inspect", str(tmp_path / "data")) == 0
    assert f"{first.name} " in (text := capsys.readouterr().out) and "DAMAGED at offset" in text
    assert await command("inspect", str(tmp_path / "data"), "--verify") == 1
    assert await command("restore", str(tmp_path / "data"), str(tmp_path / "copy")) == 1
    assert str(first) in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("snapshot", [True, False])
async def test_a_backup_of_a_running_store_can_be_restored_and_holds_every_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: bool
) -> None:
    store = await fill_queues(tmp_path / "data")
    if snapshot:
        await store.chores.snapshot()
    try:
        assert await command("backup", "--from", str(tmp_path / "data"), str(tmp_path / "backup")) == 0
    finally:
        await store.close()
    assert capsys.readouterr().out.startswith("backed up and verified: 3,001 messages in 2 queues, ")
    assert await command("restore", str(tmp_path / "backup"), str(tmp_path / "again")) == 0
    assert capsys.readouterr().out.startswith("restored and verified: 3,001 messages in 2 queues, ")
    restored = await Replayed.open(CommitLog(tmp_path / "again", segment_bytes=2 << 20), SystemClock(), snapshot_bytes=1 << 40)
    lane = restored.lane(restored.find("default", "orders") or 0)
    assert lane is not None
    assert [delivery.sequence for delivery in await lane.pop(5000)] == list(range(11, 3001))
    await restored.close()


async def test_a_backup_taken_under_load_holds_all_that_was_acknowledged_before_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = await fill_queues(tmp_path / "data")
    lane = store.lane(store.find("default", "orders") or 0)
    assert lane is not None
    stop = False

    async def load() -> None:
        while not stop:
            await lane.push([Outgoing(bytes(1000))] * 20)

    loading = asyncio.create_task(load())
    try:
        for turn in range(3):
            await asyncio.sleep(0.05)
            acknowledged = lane.counts().pushed
            target = str(tmp_path / f"backup{turn}")
            assert await command("backup", "--from", str(tmp_path / "data"), target) == 0
            capsys.readouterr()
            report = await told(capsys, "inspect", target, "--json", "--verify")
            [orders] = [queue for queue in report["queues"] if queue["name"] == "orders"]  # type: ignore[attr-defined]
            assert orders["pushed"] >= acknowledged
    finally:
        stop = True
        await loading
        await store.close()


async def test_neither_backup_nor_restore_overwrites_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await fill(tmp_path / "data", 10)
    await fill(tmp_path / "other", 20)
    assert await command("backup", "--from", str(tmp_path / "data"), str(tmp_path / "other")) == 2
    assert await command("restore", str(tmp_path / "data"), str(tmp_path / "other")) == 2
    assert await command("backup", "--from", str(tmp_path / "data"), str(tmp_path / "data" / "inside")) == 2
    assert "the copy cannot lie inside what is copied" in capsys.readouterr().err
    assert [report.entries for report in inspect(tmp_path / "other")] == [20]


@pytest.mark.parametrize("line", [["inspect", "X"], ["backup", "--from", "X", "Y"], ["restore", "X", "Y"]])
def test_a_folder_that_is_not_ours_is_refused_and_not_touched(line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "X").mkdir()
    arguments = [str(tmp_path / part) if part in "XY" else part for part in line]
    assert main(arguments) == 1
    assert "data folder" in capsys.readouterr().err
    assert list((tmp_path / "X").iterdir()) == [] and not (tmp_path / "Y").exists()
