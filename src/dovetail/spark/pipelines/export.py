"""A tap, or what waits now, to Parquet without Spark: for Spark below 4.2, and for people who have none. It needs pyarrow alone.

    target/_batches/NAME/000000000012.json     batch 12: from where to where it reads, its files, and whether it is done
    target/queue=orders/hour=2026-05-01-12/NAME-000000000012-00000.parquet      as the archive has them; replay and Spark read both

Exactly once: where a batch begins and ends is on the disk before anything of it is read, and what it reads is let go of after it is done.
So an export that died reads the same range of sequences again and puts the same files under the same names.

What waits is looked at and left where it is. Messages come and go meanwhile, so this is no snapshot; but none is exported twice, and an
export that is run again goes on behind the last one that it has seen.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import BadRequest
from dovetail.spark import fetch
from dovetail.spark.offsets import Offsets, Place, Range
from dovetail.spark.options import Options, options_of, seconds
from dovetail.spark.pipelines import SOURCE, Pipeline, Say, Setting, Settings, number_of, source_of
from dovetail.spark.pipelines.archived import folder_of, hour_of
from dovetail.spark.pipelines.published import Published, held
from dovetail.spark.pipelines.rowgroups import RowGroups
from dovetail.spark.planning import limited
from dovetail.spark.survey import Survey

SETTINGS = {
    **SOURCE,
    "tap": Setting("export", "the tap that is read: it keeps what is not exported yet; one for each export"),
    "waiting": Setting("", "what waits now in place of a tap", truth=True),
    "target": Setting(None, "the folder to write to"),
    "every": Setting("", "how often, like 10s; without it once over what is there now"),
    "rows": Setting("1000000", "rows of one batch, at most"),
    "starting": Setting("earliest", "where a new tap begins: earliest, latest, a time"),
    "gaps": Setting("", "go on behind messages that are gone", truth=True),
}


def run(settings: Settings, say: Say) -> None:
    rows_max = number_of(settings, "rows")
    pause_s = seconds("every", settings["every"]) if settings["every"] else None
    export = Export(options_for(settings), Path(settings["target"]), rows_max, say)
    with held(export.published.lock, otherwise="another export writes here under this name"):
        export.resume()
        while True:
            export.catch_up()
            if pause_s is None:
                break
            time.sleep(pause_s)
    say(f"{export.rows:,} messages were exported")


def options_for(settings: Settings) -> Options:
    said = {**source_of(settings), "startingOffsets": settings["starting"]}
    said["failOnDataLoss"] = "false" if settings["gaps"] == "true" else "true"
    if settings["waiting"] != "true":
        if not settings["tap"]:
            raise BadRequest("tap: a name; or --waiting for what waits now")
        said["tap"] = settings["tap"]
    return options_of(said)


class Export:
    def __init__(self, options: Options, target: Path, rows_max: int, say: Say) -> None:
        self.options = options
        self.published = Published(target.absolute(), options.tap or "waiting")
        self.rows = 0
        self._rows_max = rows_max
        self._say = say
        self._survey = Survey(options)

    def resume(self) -> None:
        """Finish what was begun and is not done, and let go of what is done."""
        last = self.published.last()
        if last < 0:
            return
        start, end = self._told(last)
        if not self.published.done(last):
            self._batch(last, start, end)
        self._release(end)

    def catch_up(self) -> None:
        """Batches until what is there at the beginning is exported."""
        until = {name: stand.end for name, stand in self._survey.stands().items()}
        while True:
            batch = self.published.last() + 1
            before = self._told(batch - 1)[1] if batch else Offsets(self._survey.origin, self.options.tap, {})
            start, end, left = self._next(before, until)
            if not start.ranges_to(end):
                return
            began = time.monotonic()
            self.published.begin(batch, {"start": start.told(), "end": end.told()})
            rows = self._batch(batch, start, end)
            self._release(end)
            self._say(f"batch {batch}: {rows:,} rows, {rows / max(1e-3, time.monotonic() - began):,.0f}/s, {left:,} wait")

    def _release(self, end: Offsets) -> None:
        if self.options.tap:
            self._survey.release(end)

    def _told(self, batch: int) -> tuple[Offsets, Offsets]:
        told = self.published.told(batch)
        start, end = Offsets.of(told.get("start")), Offsets.of(told.get("end"))
        if end.origin != self._survey.origin or end.tap != self.options.tap:
            raise BadRequest(f"{self.published.target} holds an export of another node's queues, or of another tap: use another folder")
        return start, end

    def _next(self, before: Offsets, until: Mapping[str, int]) -> tuple[Offsets, Offsets, int]:
        """(where the next batch begins, where it ends, about how many messages are left then)"""
        starts: dict[str, Place] = {}
        ends: dict[str, Place] = {}
        for name, end in until.items():
            start = self._start(name, before.places.get(name))
            starts[name] = start
            ends[name] = start._replace(next=max(start.next, end))
        ranges = before.at(starts).ranges_to(before.at(ends))
        taken = {one.name: one.end for one in limited(ranges, self._rows_max)}
        chosen = {name: start._replace(next=taken.get(name, start.next)) for name, start in starts.items()}
        left = sum(one.rows for one in ranges) - sum(chosen[name].next - starts[name].next for name in starts)
        return before.at({**before.places, **starts}), before.at({**before.places, **chosen}), left

    def _start(self, name: str, known: Place | None) -> Place:
        survey = self._survey
        stand = survey.stand(name, sure=True)
        if known is None:
            survey.acknowledge(name, stand)
            first = survey.place(name, stand, self.options.starting) if self.options.tap else stand.next
            return Place(stand.queue, first, first)
        if self.options.tap:
            return survey.checked(name, stand, known)
        if known.queue != stand.queue:
            return Place(stand.queue, stand.next, stand.next)
        return known._replace(next=max(known.next, min(stand.next, stand.end)))

    def _batch(self, batch: int, start: Offsets, end: Offsets) -> int:
        folder = self.published.staging(batch)
        shutil.rmtree(folder, ignore_errors=True)
        rows = 0
        for part in start.ranges_to(end):
            files = Files(folder, part.name)
            for found in fetch.read(self._survey.reach, self.options, self._checked(part)):
                rows += found.num_rows
                files.add(found)
            files.close()
        folder.mkdir(parents=True, exist_ok=True)
        self.published.publish(batch)
        self.rows += rows
        return rows

    def _checked(self, part: Range) -> Range:
        """A batch that is done again may have lost its beginning meanwhile."""
        if not self.options.tap:
            return part
        place = self._survey.checked(part.name, self._survey.stand(part.name), Place(part.queue, part.start, part.start))
        return part._replace(start=min(part.end, place.next)) if place.queue == part.queue else part._replace(start=part.end)


class Files:
    """The rows of one queue, a file for each hour; several where rows of an earlier hour come behind (dead letters keep their times)."""

    def __init__(self, folder: Path, queue: str) -> None:
        self._folder = folder
        self._queue = queue
        self._hour = ""
        self._files = 0
        self._file: RowGroups | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        rows = pa.Table.from_batches([batch.drop_columns(["queue"])])
        hours = pc.floor_temporal(rows["time"], unit="hour")
        for when in pc.unique(hours):
            hour = hour_of(when.as_py())
            if self._file is None or hour != self._hour:
                self.close()
                self._hour = hour
                self._file = RowGroups(self._folder / folder_of(self._queue, hour) / f"part-{self._files:05d}.parquet")
                self._files += 1
            self._file.add(rows.filter(pc.equal(hours, when)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


PIPELINE = Pipeline(SETTINGS, run)
