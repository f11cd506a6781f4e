"""Files of a batch, published once: a plain Parquet folder in which every file is whole and every message is in one file, for readers that
know nothing of Spark. (Spark's own file sink keeps that promise only to readers of its `_spark_metadata`.) No Spark here, only files.

    target/_staged/…                          what Spark has written for the batch; nobody reads below an underscore
    target/_batches/archive/000000000012.json which files are batch 12's, and whether it is done
    target/queue=orders/hour=2026-05-01-12/archive-000000000012-00000.parquet

    before                      a crash here leaves                       the batch is run again and
    staging                     half of a staging folder                  stages anew
    the intent is written       staged files                              stages anew
    files are moved             some files of the batch, each whole       replaces them by name, and removes those that it has no more
    done is written             the whole batch                           finds it done and does nothing

A replay has the same rows under the same names, so what is replaced is replaced by the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.errors import Unavailable

STAGED, BATCHES = "_staged", "_batches"


class Published:
    """The batches of one archive: `name` keeps several in one folder apart."""

    def __init__(self, target: Path, name: str) -> None:
        self.target = target
        self.name = name

    @property
    def lock(self) -> Path:
        """Whoever must be alone under this name holds it."""
        return self.target / BATCHES / self.name / "lock"

    def staging(self, batch: int) -> Path:
        return self.target / STAGED / f"{self.name}-{batch:012d}"

    def done(self, batch: int) -> bool:
        return bool(self._read(batch).get("done"))

    def last(self) -> int:
        """The batch that was begun last; −1 where there is none."""
        return max((int(file.stem) for file in (self.target / BATCHES / self.name).glob("*.json")), default=-1)

    def begin(self, batch: int, told: Mapping[str, Any]) -> None:
        """Before anything is staged, for those who have no log of their own: what the batch is to hold."""
        self._write(batch, self.files(batch), done=False, told=told)

    def told(self, batch: int) -> Mapping[str, Any]:
        """What `begin` was told of the batch."""
        found: Mapping[str, Any] = self._read(batch).get("told", {})
        return found

    def publish(self, batch: int) -> Sequence[str]:
        """Move what was staged to where it is read. Returns the files, relative to the target."""
        if self.done(batch):
            self._unstage(batch)
            return self.files(batch)
        staged = staged_files(self.staging(batch))
        folders = [file.parent.relative_to(self.staging(batch)) for file in staged]
        files = [str(folder / f"{self.name}-{batch:012d}-{index:05d}.parquet") for index, folder in enumerate(folders)]
        before = self.files(batch)
        self._write(batch, sorted({*files, *before}), done=False)
        # What puts small files together changes folders: while it does, nothing is moved into one that is about to go.
        with held(moving(self.target), shared=True):
            for source, file in zip(staged, files, strict=True):
                move(source, self.target / file)
            for file in set(before) - set(files):
                (self.target / file).unlink(missing_ok=True)
        self._write(batch, files, done=True)
        self._unstage(batch)
        return files

    def files(self, batch: int) -> Sequence[str]:
        found: Sequence[str] = self._read(batch).get("files", ())
        return found

    def _unstage(self, batch: int) -> None:
        shutil.rmtree(self.staging(batch), ignore_errors=True)

    def _manifest(self, batch: int) -> Path:
        return self.target / BATCHES / self.name / f"{batch:012d}.json"

    def _read(self, batch: int) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads(self._manifest(batch).read_text())
        except FileNotFoundError:
            return {}
        return told

    def _write(self, batch: int, files: Sequence[str], *, done: bool, told: Mapping[str, Any] | None = None) -> None:
        manifest = self._manifest(batch)
        more = {"told": told} if told is not None else {name: value for name, value in self._read(batch).items() if name == "told"}
        manifest.parent.mkdir(parents=True, exist_ok=True)
        new = manifest.with_suffix(".new")
        new.write_text(json.dumps({"version": 1, "done": done, "files": list(files), **more}))
        move(new, manifest)


def moving(target: Path) -> Path:
    """The lock that is shared by all who move files into an archive."""
    return target / BATCHES / "lock"


@contextmanager
def held(path: Path, *, shared: bool = False, otherwise: str = "") -> Iterator[None]:
    """The lock of a file, which ends with the process. Where somebody else has it: waited for, or what `otherwise` says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError:
            raise Unavailable(otherwise) from None
        yield


def staged_files(folder: Path) -> list[Path]:
    """What Spark has committed there, in one order."""
    return sorted(
        file for file in folder.rglob("*.parquet") if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
    )


def move(source: Path, target: Path) -> None:
    """Durably and at once: whoever looks sees the old file or the new one, also after a power cut. The tap lets go of the messages next."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in (source, target.parent):
        sync(path)
    os.replace(source, target)
    sync(target.parent)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
