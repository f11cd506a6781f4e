"""What both streams have in common, over a tap and over a reservation: when a batch is worth making, and what a task does with its part.

One instance lives on the driver, in a process of its own, for as long as the query; tasks get another one, pickled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from dovetail.errors import BadRequest
from dovetail.spark import task
from dovetail.spark.facts import survey_of
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options
from dovetail.spark.survey import Survey


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads. Its credentials are in no text of it."""

    range: Range
    addresses: tuple[str, ...]


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.options = options
        self._schema = schema
        self._survey: Survey | None = None
        self._waited_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_survey": None}

    @property
    def survey(self) -> Survey:
        if self._survey is None:
            self._survey = survey_of(self.options)
        return self._survey

    def getDefaultReadLimit(self) -> ReadLimit:
        """One limit is all that Spark can carry; ours are all in the options. What it is told makes it known that there are some: for a
        single batch of everything (`trigger(once=True)`) it says ReadAllAvailable all the same."""
        if self.options.rows_min:
            return ReadMinRows(self.options.rows_min)
        if self.options.rows_max or self.options.bytes_max:
            return ReadMaxRows(self.options.rows_max or 1 << 62)
        return ReadAllAvailable()

    def check_origin(self, origin: str) -> None:
        if origin != self.survey.origin:
            raise BadRequest(
                "the checkpoint belongs to another node's queues (or to a memory: node before it was started again): its sequences"
                " mean nothing here. Use a new checkpoint"
            )

    def short(self, rows: int) -> bool:
        """Fewer wait than are worth a batch, and they have not waited for too long."""
        if not self.options.rows_min:
            return False
        now = time.monotonic()
        if not rows:
            self._waited_since = None
            return True
        if self._waited_since is None:
            self._waited_since = now
        if rows < self.options.rows_min and now - self._waited_since < self.options.delay_max_s:
            return True
        self._waited_since = None
        return False

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return task.read(self.options, self._schema, partition.range, partition.addresses)

    def stop(self) -> None:
        if self._survey is not None:
            self._survey.reach.drop()
