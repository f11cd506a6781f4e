"""The batch read: over a tap, everything from one place to another, as often as one likes; without a tap, a look at what waits now."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from dovetail.errors import BadRequest
from dovetail.spark import task
from dovetail.spark.facts import survey_of
from dovetail.spark.offsets import Range
from dovetail.spark.options import Options
from dovetail.spark.planning import shared
from dovetail.spark.reader import Part


class BatchReader(DataSourceReader):
    """A batch read releases nothing: a tap that only batches read is moved by `dovetail.spark.release`, or closed."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        if options.reservation:
            raise BadRequest(
                "mode=reserve takes messages for good when a batch is safe in its sink, and spark.read has no checkpoint that says so: use"
                " spark.readStream with trigger(availableNow=True), which takes what is there now and ends. (To look without taking, leave"
                " mode and reservation out)"
            )
        self.options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        survey = survey_of(self.options)
        ranges = []
        for name, stand in survey.stands().items():
            survey.acknowledge(name, stand)
            start = survey.place(name, stand, self.options.starting)
            ending = self.options.ending
            open_ended = ending == "latest" or (isinstance(ending, dict) and name not in ending)
            end = stand.end if open_ended else survey.place(name, stand, ending)
            if start < end:
                ranges.append(Range(name, stand.queue, start, end))
        addresses = tuple(survey.addresses())
        survey.reach.drop()
        # Spark makes one task of nothing where there is none: it gets a range without messages.
        parts: list[InputPartition] = [Part(one, addresses) for one in shared(ranges, self.options.partitions)]
        return parts or [Part(Range("", 0, 0, 0), addresses)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return task.read(self.options, self._schema, partition.range, partition.addresses)
