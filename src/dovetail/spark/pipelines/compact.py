"""The small files of an archive put together into larger ones, beside whoever writes and whoever reads it. No Spark.

A Delta table does that by itself, in one transaction: readers keep the version that they began with, and appends do not mind.

Among plain Parquet files nothing says which are to be read but the folder itself. So a folder is made a second time, beside, with the large
files in it and links to all that stays; then the two change places in one step (exchange.py). Whoever lists the folder sees the files from
before or from after. Whoever has listed it before and opens a file that is gone by then gets an error and never other rows: a large file
has a name that nothing had before.

    what is put together      files of batches that are done: those of a batch that is under way are replaced by name when it is run again
    neighbours only           in the order of sequences, so that files still hold one stretch each
    the lock of moving        a file that is published while folders change places would go with the old one
    a crash before the step   leaves a folder below _staged;   behind it: the old one there. Both go when this is run again
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.errors import BadRequest
from dovetail.spark.options import seconds
from dovetail.spark.pipelines import Pipeline, Say, Setting, Settings, number_of
from dovetail.spark.pipelines.archived import Stretch, clusters, rows_of, stretch_of
from dovetail.spark.pipelines.exchange import exchange
from dovetail.spark.pipelines.published import BATCHES, STAGED, Published, held, moving, sync
from dovetail.spark.pipelines.rowgroups import RowGroups

SETTINGS = {
    "target": Setting(None, "the folder of an archive, Parquet or Delta"),
    "size": Setting("128", "megabytes that a file should have, about"),
    "older": Setting("15m", "leave folders alone to which something was added in this time"),
    "every": Setting("", "how often, like 1h; without it once"),
    "keep": Setting("7d", "of Delta: how long files stay that newer ones have replaced, for readers of older versions"),
}
_BATCH = re.compile(r"(?P<name>.+)-(?P<batch>\d{12})-\d{5}\.parquet")
_LARGE = re.compile(r"(?P<name>.+)-large-[0-9a-f]{32}\.parquet")
PREFIX = "compact-"


class File(NamedTuple):
    stretch: Stretch
    size: int
    schema: pa.Schema
    stays: bool
    """It parts its neighbours."""


def run(settings: Settings, say: Say) -> None:
    target = Path(settings["target"]).absolute()
    if not target.is_dir():
        raise BadRequest(f"target: there is no folder {target}")
    size, older_s = number_of(settings, "size") << 20, seconds("older", settings["older"])
    keep_s = seconds("keep", settings["keep"])
    pause_s = seconds("every", settings["every"]) if settings["every"] else None
    while True:
        if (target / "_delta_log").is_dir():
            delta(target, size, timedelta(seconds=keep_s), say)
        else:
            parquet(target, size, older_s, say)
        if pause_s is None:
            return
        time.sleep(pause_s)


def delta(target: Path, size: int, keep: timedelta, say: Say) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(target)
    done = table.optimize.compact(target_size=size)
    say(f"{done['numFilesRemoved']:,} files became {done['numFilesAdded']:,}")
    gone = table.vacuum(int(keep.total_seconds() // 3600), dry_run=False, enforce_retention_duration=False)
    say(f"{len(gone):,} files that were replaced more than {keep} ago are removed")


def parquet(target: Path, size: int, older_s: float, say: Say) -> None:
    before = after = 0
    with held(target / BATCHES / "compact", otherwise="another one puts files together here"):
        for left in (target / STAGED).glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        for folder in folders(target):
            if time.time() - newest(folder) < older_s:
                continue
            put = compacted(target, folder, size)
            if put:
                before, after = before + sum(map(len, put)), after + len(put)
                say(f"{folder.relative_to(target)}: {sum(map(len, put)):,} files became {len(put):,}")
    say(f"{before:,} files became {after:,}")


def folders(target: Path) -> Iterator[Path]:
    """Those with files that somebody reads."""
    for path, names, files in os.walk(target):
        names[:] = sorted(name for name in names if not name.startswith(("_", ".")))
        if any(name.endswith(".parquet") for name in files):
            yield Path(path)


def newest(folder: Path) -> float:
    return max(entry.stat().st_mtime for entry in os.scandir(folder))


def compacted(target: Path, folder: Path, size: int) -> list[list[Path]]:
    """Which files of the folder became one each."""
    put = {name: list(runs(files, size)) for name, files in neighbours(target, folder).items()}
    gone = [[file.stretch.path for file in run] for found in put.values() for run in found]
    if not gone:
        return []
    made = target / STAGED / f"{PREFIX}{uuid.uuid4().hex}"
    made.mkdir(parents=True)
    for name, found in put.items():
        for run in found:
            merge(run, made / f"{name}-large-{uuid.uuid4().hex}.parquet")
    if not _replaced(folder, made, {path.name for paths in gone for path in paths}):
        gone = []
    shutil.rmtree(made)
    return gone


def _replaced(folder: Path, made: Path, gone: set[str]) -> bool:
    """Whether the folder that was made took the place of the other, with links to all that stays."""
    with held(moving(made.parent.parent)):
        there = {entry.name: entry.is_dir() for entry in os.scandir(folder)}
        if not gone <= there.keys() or any(there.values()):
            return False
        for name in there.keys() - gone:
            os.link(folder / name, made / name)
        made.chmod(stat.S_IMODE(folder.stat().st_mode))
        sync(made)
        exchange(made, folder)
        for path in (made.parent, folder.parent):
            sync(path)
    return True


def neighbours(target: Path, folder: Path) -> dict[str, list[File]]:
    """The files of each archive in the folder, in the order of sequences. Files that are nobody's are left out, and stay."""
    found: dict[str, list[File]] = {}
    for stretch in ordered(sorted(folder.glob("*.parquet"))):
        matched = _BATCH.fullmatch(stretch.path.name)
        large = _LARGE.fullmatch(stretch.path.name)
        if matched is not None or large is not None:
            name = (matched or large)["name"]  # type: ignore[index]  # one of them is there
            stays = matched is not None and not Published(target, name).done(int(matched["batch"]))
            schema = pq.read_schema(stretch.path).remove_metadata()
            found.setdefault(name, []).append(File(stretch, stretch.path.stat().st_size, schema, stays))
    return found


def ordered(paths: Sequence[Path]) -> list[Stretch]:
    """Where the rows have no sequence it is the order of names."""
    found = []
    for index, path in enumerate(paths):
        stretch = stretch_of(path) if "sequence" in pq.read_schema(path).names else Stretch(index, index, path)
        if stretch is not None:
            found.append(stretch)
    return sorted(found)


def runs(files: Sequence[File], size: int) -> Iterator[list[File]]:
    """Neighbours of one schema that together have about the size that a file should have."""
    run: list[File] = []
    for file in files:
        if run and (file.stays or file.schema != run[0].schema or sum(one.size for one in run) + file.size > size):
            if len(run) > 1:
                yield run
            run = []
        if not file.stays:
            run.append(file)
    if len(run) > 1:
        yield run


def merge(run: Sequence[File], target: Path) -> None:
    """Their rows in one file, in the order of sequences."""
    columns = run[0].schema.names
    file = RowGroups(target)
    for together in clusters([one.stretch for one in run]):
        rows = pa.concat_tables([rows_of(one.path, columns) for one in together])
        file.add(rows.sort_by("sequence") if "sequence" in columns else rows)
    file.close()
    sync(target)


PIPELINE = Pipeline(SETTINGS, run)
