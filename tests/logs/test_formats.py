"""Data folders of every format that was ever written stay readable. One small folder of each is kept beside this file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dovetail.logs.local import CommitLog, inspect
from dovetail.logs.local.segment import FORMAT_VERSION
from dovetail.logs.log import Entry

HERE = Path(__file__).parent
FOLDERS = sorted(HERE.glob("format-*"), key=lambda folder: int(folder.name.removeprefix("format-")))


def body(number: int) -> bytes:
    return (b"body %d " % number) * (number * 2) if number < 40 else b""


@pytest.mark.parametrize("kept", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_of_every_format_can_be_read_and_written_on(kept: Path, tmp_path: Path) -> None:
    """Entries 0 to 41: a number, a body, an empty record; three segments, a mark, two that share a sync, and one blob."""
    folder = tmp_path / "data"
    shutil.copytree(kept, folder)
    assert all(report.ok for report in inspect(folder))
    log = CommitLog(folder, segment_bytes=8192)
    expected = [[b"%08d" % number, body(number), b""] for number in range(42)]
    assert [[bytes(record) for record in entry.records] for entry in log.read(log.first)] == expected
    assert bytes(log.blobs.get("snapshot-1")) == b"a small state"
    assert log.recovered is None
    got: list[Entry] = []
    log.start(got.append, lambda error: pytest.fail(str(error)))
    log.append([b"more"])
    log.close()
    log = CommitLog(folder, segment_bytes=8192)
    assert [bytes(entry.records[0]) for entry in log.read(log.first)][-1] == b"more"
    log.close()


def test_there_is_a_folder_of_the_present_format() -> None:
    assert FOLDERS[-1].name == f"format-{FORMAT_VERSION}"
