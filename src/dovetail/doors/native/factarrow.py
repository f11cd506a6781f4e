"""Facts as Arrow: columns of a page become columns of a record batch. What a step says once is repeated by Arrow for its rows.

The same facts give the same bytes, however often they are read and wherever their pages were cut. Loaded with arrow.py, and like it only
when somebody asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core.chronicle import COUNTED, DELIVERED, DONE, MOVED, NONE, OUTCOMES, RESERVING, UNKNOWN, WORDS, Fact, Page
from dovetail.service.broker import FactsRead

TIME = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("index", pa.uint32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("queue", pa.string()),
        pa.field("queue_id", pa.uint64(), nullable=False),
        pa.field("sequence", pa.uint64()),
        pa.field("count", pa.uint32(), nullable=False),
        pa.field("delivery", pa.uint64()),
        pa.field("receives", pa.uint32()),
        pa.field("duration_ms", pa.int64()),
        pa.field("due", TIME),
        pa.field("bytes", pa.uint32()),
        pa.field("target", pa.string()),
        pa.field("target_sequence", pa.uint64()),
        pa.field("producer", pa.binary(16)),
        pa.field("producer_number", pa.uint64()),
        pa.field("owner", pa.string()),
        pa.field("batch", pa.int64()),
    ]
)
_SETTING = (Fact.PUSH, Fact.DELIVERY, Fact.REQUEUE, Fact.EXTEND, Fact.RESCHEDULE)
_RECEIVED = (Fact.DELIVERY, Fact.TAKE)
_ARROW = {"Q": pa.uint64(), "q": pa.int64(), "I": pa.uint32(), "B": pa.uint8()}
_WORDS, _OUTCOMES = pa.array(WORDS, pa.string()), pa.array(OUTCOMES, pa.string())


def stream(read: FactsRead) -> Any:
    """The schema and one batch of everything that was read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        if len(read.page):
            writer.write_batch(batch(read.page, read.names))
    return sink.getvalue()


def batch(page: Page, names: Mapping[int, str]) -> pa.RecordBatch:
    ends = pc.cumulative_sum(_plain(page.counts)).cast(pa.int32())

    def spread(values: pa.Array) -> pa.Array:
        """What stands with a step, for each of its rows."""
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))

    count = len(page)
    rows = pa.array(range(count), pa.int64())
    begins = pc.subtract(ends, _plain(page.counts).cast(pa.int32())).cast(pa.int64())
    """At which row each step begins."""
    kinds, times, durations, marks = spread(_plain(page.kinds)), spread(_plain(page.times)), _plain(page.durations), _plain(page.marks)
    firsts, seconds, thirds, outcomes = map(_plain, page.rows())

    def of(wanted: Collection[Fact]) -> pa.Array:
        """Which rows are of these kinds."""
        return spread(pc.is_in(_plain(page.kinds), pa.array([int(kind) for kind in wanted], pa.uint8())))

    def only(mask: pa.Array, values: pa.Array) -> pa.Array:
        return pc.if_else(mask, values, pa.scalar(None, values.type))

    sets = pc.and_(of(_SETTING), spread(pc.not_equal(durations, NONE)))
    durations = spread(durations)
    took = pc.or_(pc.equal(outcomes, DONE), of((Fact.DELIVERY,)))
    labelled = spread(pc.not_equal(_plain(page.step_labels), 0))
    pushed, reserving = pc.and_(of((Fact.PUSH,)), labelled), pc.and_(of(RESERVING), labelled)
    offsets = pc.subtract(rows, spread(begins))
    queues, targets = _named(page.queues, names), _named(page.targets, names)
    columns = [
        pc.add(spread(_plain(page.starts)), offsets.cast(pa.uint64())),
        spread(_plain(page.positions)),
        spread(_plain(page.indexes)),
        times.cast(pa.int64()).cast(TIME),
        _WORDS.take(kinds),
        _OUTCOMES.take(outcomes),
        spread(queues),
        spread(_plain(page.queues)),
        only(pc.not_equal(firsts, 0), firsts),
        pc.if_else(of(COUNTED), thirds, pa.scalar(1, pa.uint32())),
        only(of(DELIVERED), seconds),
        only(of(_RECEIVED), thirds),
        only(sets, durations),
        only(pc.and_(sets, took), pc.add(times.cast(pa.int64()), durations)).cast(TIME),
        only(pc.and_(of((Fact.PUSH,)), pc.not_equal(thirds, UNKNOWN)), thirds),
        only(of(MOVED), spread(targets)),
        only(of(MOVED), seconds),
        only(pushed, spread(_labels(page, (Fact.PUSH,), pa.binary(16)))),
        # A producer numbers its messages one behind the other; the mark is the number of the first.
        only(pushed, pc.add(spread(marks), offsets)).cast(pa.uint64()),
        only(reserving, spread(_labels(page, RESERVING, pa.string()))),
        only(reserving, spread(marks)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _plain(column: array[int]) -> pa.Array:
    return pa.Array.from_buffers(_ARROW[column.typecode], len(column), [None, pa.py_buffer(column)])


def _named(column: array[int], names: Mapping[int, str]) -> pa.Array:
    known = sorted(names)
    found = pc.index_in(_plain(column), pa.array(known, pa.uint64()))
    return pa.array([names[queue] for queue in known], pa.string()).take(found)


def _labels(page: Page, kinds: Collection[Fact], made: pa.DataType) -> pa.Array:
    """The labels of steps of these kinds: those of others are something else."""
    if not any(page.step_labels):
        return pa.nulls(len(page.starts), made)
    labels, steps = page.labels, zip(page.step_labels, page.kinds, strict=True)
    return pa.array([labels[label] if label and kind in kinds else None for label, kind in steps], made)
