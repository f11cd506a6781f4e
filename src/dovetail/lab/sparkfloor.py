"""The floor under every source that is written in Python: the same rows from memory. What Spark itself costs is in it, and no node.

A module of its own, because Spark's workers import it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dovetail.spark.fetch import READ_MESSAGES
from dovetail.spark.options import COLUMNS
from dovetail.spark.shape import ddl, schema


class FloorReader(DataSourceReader):
    def __init__(self, columns: list[str], rows: int, tasks: int) -> None:
        self.columns = columns
        self.rows = rows
        self.tasks = tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows * (task + 1) // self.tasks - self.rows * task // self.tasks) for task in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        row = {"queue": "one", "sequence": 1, "time": 0, "id": bytes(16), "group": None, "attributes": None, "body": b"x" * 100}
        columns = schema(self.columns)
        made = pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(row[field.name], field.type), READ_MESSAGES) for field in columns], schema=columns
        )
        left = partition.value
        while left > 0:
            yield made.slice(0, min(left, READ_MESSAGES))
            left -= READ_MESSAGES


class FloorSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return ddl(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(self._columns(), int(self.options["rows"]), int(self.options["tasks"]))

    def _columns(self) -> list[str]:
        return self.options.get("columns", ",".join(COLUMNS)).split(",")
