"""The source, with a crash where a test asks for one: each file `crash-POINT` in its folder is one crash at that point, and is gone
behind it.

A module of its own, because Spark's workers import it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from dovetail.spark.competing import CompetingReader
from dovetail.spark.options import Options, options_of
from dovetail.spark.reader import Reader
from dovetail.spark.shape import ddl
from dovetail.spark.source import DovetailSource
from dovetail.spark.stream import StreamReader


class Crashed(Exception):
    pass


def crash(folder: str, point: str) -> None:
    try:
        Path(folder, f"crash-{point}").unlink()
    except FileNotFoundError:
        return
    raise Crashed(point)


class Crashing(Reader):
    """Before one of our readers; `folder` is set behind its making."""

    folder: str

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            crash(self.folder, "before-wal")
        return end

    def commit(self, end: dict[str, Any]) -> None:
        crash(self.folder, "before-commit")
        super().commit(end)
        crash(self.folder, "after-commit")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        crash(self.folder, "after-wal")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(super().read(partition)):
            yield batch
            if not number:
                crash(self.folder, "in-task")


class CrashingTap(Crashing, StreamReader):
    pass


class CrashingReservation(Crashing, CompetingReader):
    pass


class CrashingSource(DovetailSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def schema(self) -> str:
        return ddl(self._own().columns)

    def _own(self) -> Options:
        return options_of({name: value for name, value in self.options.items() if name.lower() != "folder"})

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._own()
        reader: Crashing = (CrashingReservation if options.reservation else CrashingTap)(options, pa.schema([]))
        reader.folder = self.options["folder"]
        return reader
