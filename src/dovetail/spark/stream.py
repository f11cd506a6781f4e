"""The stream: Spark's micro-batches over a tap.

Spark's order for a batch is: latestOffset → its write-ahead log → commit of the batch *before* → partitions → tasks → the sink's commit →
its commit log. After a crash it runs the last batch of the write-ahead log again, under the same number and offsets. So here offsets are
sequences, a range read again gives the same messages, and nothing is let go of before Spark has it in its commit log.
"""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from dovetail.errors import BadRequest, DovetailError, NoSuchQueue
from dovetail.spark.offsets import Offsets, Place, Range
from dovetail.spark.options import Options
from dovetail.spark.planning import limited, shared
from dovetail.spark.reader import Part, Reader
from dovetail.spark.survey import Stand

log = logging.getLogger("dovetail.spark")


class StreamReader(Reader):
    def __init__(self, options: Options, schema: pa.Schema) -> None:
        if not options.tap:
            raise BadRequest(
                "a stream needs a tap: option tap, a name of your own, one for each query (a tap keeps what the query has not read); or"
                " mode=reserve with a reservation, which takes messages from the queue as its consumers do"
            )
        if options.ending != "latest":
            raise BadRequest(
                "option endingOffsets: not of a stream, which has no end (trigger(availableNow=True) ends with what is there now)"
            )
        super().__init__(options, schema)
        self._known: Offsets | None = None
        self._until: dict[str, Stand] | None = None

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        survey = self.survey
        places = {}
        for name, stand in survey.stands().items():
            survey.acknowledge(name, stand)
            start = survey.place(name, stand, self.options.starting)
            places[name] = Place(stand.queue, start, start)
        return Offsets(survey.origin, self.options.tap, places).told()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = self._offsets(start)
        stands = self._stands(before)
        ends = self._places(before, stands)
        # `before` may lie in a gap by now: what is limited is what can be read.
        ranges = before.at({**before.places, **self._starts(before, ends)}).ranges_to(before.at(ends))
        self._known = before.at(ends)
        if not isinstance(limit, ReadAllAvailable):
            if self._until is None and self.short(sum(one.rows for one in ranges)):
                return start
            taken = {one.name: one.end for one in self._limited(ranges)}
            ends = {name: place._replace(next=taken.get(name, self._starts(before, ends)[name].next)) for name, place in ends.items()}
        return before.at(ends).told()

    def _offsets(self, told: dict[str, Any]) -> Offsets:
        offsets = Offsets.of(told)
        if offsets.tap != self.options.tap:
            raise BadRequest(
                f"the checkpoint belongs to the tap {offsets.tap!r}, and option tap says {self.options.tap!r}: a new tap needs a new one"
            )
        self.check_origin(offsets.origin)
        return offsets

    def _stands(self, before: Offsets) -> dict[str, Stand]:
        found = dict(self._until or {})
        names = set() if self._until is not None else set(self.survey.names())
        for name in sorted((names | set(before.places)) - set(found)):
            try:
                found[name] = self.survey.stand(name)
            except NoSuchQueue as error:
                if name not in before.places:
                    raise  # It never was there: a name that is spelled wrongly is no loss.
                self.survey.vanished(name, error)
        return found

    def _places(self, before: Offsets, stands: dict[str, Stand]) -> dict[str, Place]:
        """Where everything that is there would be read. A queue that was not known before is read from its tap's position on."""
        places = {}
        for name, stand in stands.items():
            known = before.places.get(name)
            place = Place(stand.queue, stand.next, stand.next) if known is None else self.survey.checked(name, stand, known)
            places[name] = place._replace(next=max(place.next, stand.end))
        return places

    @staticmethod
    def _starts(before: Offsets, ends: dict[str, Place]) -> dict[str, Place]:
        starts = {}
        for name, end in ends.items():
            known = before.places.get(name)
            starts[name] = known if known is not None and known.queue == end.queue else end._replace(next=end.first)
        return starts

    def _limited(self, ranges: list[Range]) -> list[Range]:
        rows = self.options.rows_max or sum(one.rows for one in ranges)
        if self.options.bytes_max and ranges:
            rows = min(rows, max(1, int(self.options.bytes_max / self.survey.message_bytes(ranges))))
        return limited(ranges, rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the queues go: what lies between it and a batch's end is the lag."""
        return None if self._known is None else self._known.told()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = None
        self._until = self.survey.stands()

    # A batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = self._offsets(start).ranges_to(self._offsets(end))
        for index, one in enumerate(ranges):
            stand = self.survey.stand(one.name)
            place = self.survey.checked(one.name, stand, Place(one.queue, one.start, one.start))
            ranges[index] = one._replace(start=min(place.next, one.end)) if place.queue == one.queue else one._replace(start=one.end)
        addresses = tuple(self.survey.addresses())
        return [Part(one, addresses) for one in shared([one for one in ranges if one.rows], self.options.partitions)]

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ended there is in Spark's commit log. What could not be released now is released with the next one: no reason for
        a query to fail."""
        try:
            self.survey.release(Offsets.of(end))
        except DovetailError as error:
            log.warning("what was read could not be released yet: %s", error)
