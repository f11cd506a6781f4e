"""The facts table: what happened to all queues of a namespace, read through a facts tap. Numbers of facts stand where a tap of a queue has
sequences, so ranges, checkpoints, replays and releases are the same.
"""

from __future__ import annotations

import pyarrow as pa

from dovetail.doors.native.codec import Kind, answers, requests
from dovetail.errors import BadRequest, NoSuchTap
from dovetail.limits import FACTS_READ_MAX
from dovetail.spark import shape
from dovetail.spark.behind import Behind, confirm
from dovetail.spark.offsets import Range
from dovetail.spark.options import FACTS, FACTS_COLUMNS, Options
from dovetail.spark.survey import Stand, Survey

KINDS: dict[str, tuple[pa.DataType, str]] = {
    **dict.fromkeys(("number", "position", "queue_id", "sequence", "count"), (pa.int64(), "BIGINT")),
    **dict.fromkeys(("delivery", "duration_ms", "target_sequence", "producer_number", "batch"), (pa.int64(), "BIGINT")),
    **dict.fromkeys(("index", "receives", "bytes"), (pa.int32(), "INT")),
    **dict.fromkeys(("time", "due"), (pa.timestamp("us", tz="UTC"), "TIMESTAMP")),
    **dict.fromkeys(("kind", "outcome", "queue", "target", "owner"), (pa.string(), "STRING")),
    "producer": (pa.binary(), "BINARY"),
}
"""Column → its type in Arrow and in Spark, which has no unsigned numbers. All that count something here stay below 2^63."""
assert KINDS.keys() == set(FACTS_COLUMNS)


def ddl(options: Options) -> str:
    return ", ".join(f"`{name}` {KINDS[name][1]}" for name in options.columns)


def shaped(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """A node's batch of facts as Spark's."""
    made = [batch.column(name).cast(KINDS[name][0]) for name in columns]
    return pa.RecordBatch.from_arrays(made, schema=pa.schema([pa.field(name, KINDS[name][0]) for name in columns]))


def request(options: Options, start: int, most: int) -> requests.FactsRead:
    return requests.FactsRead(options.tap, start, most, options.namespace)


def told(answer: answers.Arrow, start: int, end: int) -> tuple[pa.RecordBatch, int]:
    """(facts, where reading on begins). An answer without a row is no end: what lies there may be of other namespaces."""
    if answer.next <= start:
        raise Behind(f"The facts end at {answer.end}, before {end}: the node is behind, or its data is older than what was to be read")
    with pa.ipc.open_stream(pa.py_buffer(answer.stream)) as stream:
        batches = list(stream)
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=stream.schema)
    return shape.below(batch, end, "number"), min(answer.next, end)


class FactsSurvey(Survey):
    """One place, without a queue behind it."""

    key = "number"
    what = "facts"

    def names(self) -> list[str]:
        return [FACTS]

    def _stand(self, name: str, *, sure: bool) -> Stand:
        if name != FACTS:
            raise BadRequest(f"the checkpoint belongs to the queue {name!r}: table=facts needs a new one")
        tap = self._facts_tap()
        if tap is not None and sure:
            confirm(self.reach, self.options, 0)
            tap = self._facts_tap()
        if tap is None:
            options = self.options
            start = self._tap_start(FACTS)
            opening = requests.FactsOpen(options.tap, start, options.tap_age_ms, options.tap_bytes, options.namespace)
            self.reach.line.ask(opening)
            tap = self._facts_tap()
            if tap is None:
                raise NoSuchTap(f"The facts tap {options.tap!r} was closed while it was opened")
        return Stand(0, tap.next, tap.end, tap.lost_count)

    def _facts_tap(self) -> answers.Tap | None:
        if not self.reach.line.welcome.features & answers.FACTS_FEATURE:
            raise BadRequest("The node keeps no facts, or has no pyarrow to tell them with.")
        taps: answers.Taps = self.reach.line.ask(requests.FactsAbout(Kind.FACTS_LIST, "", self.options.namespace))
        return next((tap for tap in taps.taps if tap.name == self.options.tap), None)

    def _sample(self, part: Range, most: int) -> pa.RecordBatch | None:
        at = part.start
        while at < part.end:
            answer = self.reach.line.ask(request(self.options, at, min(max(most, FACTS_READ_MAX // 8), part.end - at)))
            batch, at = told(answer, at, part.end)
            if batch.num_rows:
                return batch.slice(0, most)
        return None

    def _advance(self, name: str, queue: int, sequence: int) -> None:
        self.reach.line.ask(requests.FactsAdvance(self.options.tap, sequence, self.options.namespace))


def survey_of(options: Options) -> Survey:
    return FactsSurvey(options) if options.facts else Survey(options)
