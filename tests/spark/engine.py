"""What Spark's MicroBatchExecution does with a source and a sink, in a hundred lines and without a JVM, so that every crash point can be
tried in milliseconds. The order of its steps is Spark's:

    latestOffset → offsets/N → commit(end of N − 1) → partitions → tasks → the sink's commit → commits/N → progress

A crash is an exception at one of the points; the next `run` begins with a new reader and what lies in the folder, as Spark does.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dovetail.spark.options import options_of
from dovetail.spark.source import stream_reader

POINTS = ["before WAL", "after WAL", "after commit", "in a task", "before sink", "after sink", "after commits/N"]


class Crash(Exception):
    pass


class Sink(Protocol):
    def add(self, batch: int, rows: pa.Table) -> None:
        """Idempotent by the number of the batch."""


class Engine:
    def __init__(
        self, folder: Path, options: dict[str, Any], sink: Sink, after_progress: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.folder = folder
        self.options = options
        self.sink = sink
        self.after_progress = after_progress
        self.commits_early = False
        """The twin: release a batch when it is planned, not when it is done."""
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def run(self, crash_at: str = "", in_batch: int = -1, batches_max: int = 1000) -> int:
        """Batches until nothing is left to read, as availableNow does; returns how many were run."""

        def point(name: str, batch: int) -> None:
            if name == crash_at and in_batch in (-1, batch):
                raise Crash(f"{name} of {batch}")

        reader = stream_reader(options_of(self.options), pa.schema([]))
        planned, done = self._last("offsets"), self._last("commits")
        for count in range(batches_max):
            batch = done + 1
            # Spark keeps no beginning: of batch 0 it is asked for anew, also when that batch is run again.
            start = self._offsets(batch - 1) if batch else reader.initialOffset()
            if batch > planned:
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                if json.dumps(end) == json.dumps(start):
                    return count
                point("before WAL", batch)
                self._write("offsets", batch, end)
                planned = batch
            else:
                end = self._offsets(batch)
            point("after WAL", batch)
            if self.commits_early:
                reader.commit(end)
            elif batch:
                reader.commit(start)
            point("after commit", batch)
            parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions(start, end)]
            task = pickle.loads(pickle.dumps(reader))
            rows = []
            for number, part in enumerate(parts):
                rows += list(task.read(part))
                if number == len(parts) // 2:
                    point("in a task", batch)
            point("before sink", batch)
            self.sink.add(batch, pa.Table.from_batches(rows) if rows else pa.table({}))
            point("after sink", batch)
            self._write("commits", batch, {})
            done = batch
            point("after commits/N", batch)
            if self.after_progress is not None:
                self.after_progress({"sources": [{"endOffset": json.dumps(end), "latestOffset": json.dumps(reader.reportLatestOffset())}]})
        return batches_max

    def lose_last_commit(self) -> None:
        (self.folder / "commits" / str(self._last("commits"))).unlink()

    def _offsets(self, batch: int) -> Any:
        return json.loads((self.folder / "offsets" / str(batch)).read_text())

    def _last(self, name: str) -> int:
        return max((int(file.name) for file in (self.folder / name).iterdir()), default=-1)

    def _write(self, name: str, batch: int, told: Any) -> None:
        (self.folder / name / str(batch)).write_text(json.dumps(told))


class Remembered:
    """A sink that keeps each batch under its number, and notices when a replay is not what the batch was."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def add(self, batch: int, rows: pa.Table) -> None:
        known = self.batches.get(batch)
        assert known is None or known.equals(rows), f"batch {batch} was replayed as something else"
        self.batches[batch] = rows

    def bodies(self) -> list[bytes]:
        return [body for _, rows in sorted(self.batches.items()) if rows.num_rows for body in rows.column("body").to_pylist()]
