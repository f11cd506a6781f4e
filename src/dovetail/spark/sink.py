"""`df.write` and `writeStream` to queues: tasks stage their rows, the driver publishes what Spark names, once for each batch.

    task        stage rows under a name of its own   ─┐   nobody sees them
    task        …                                     ├─► driver: commit(stages, batch N) ──► PUBLISH (owner, N): all join their queues, or,
    task again  under another name                   ─┘                                       where N was published before, none does

Spark's order is: tasks → the sink's commit → its commit log. A driver that dies behind the commit runs the batch again, and its tasks stage
once more; the second publish has no effect. A task that runs twice has staged twice; Spark names one of them. (Numbering rows was refused:
a task that is tried again sees its rows in another order. SEMANTICS of stages: docs/decisions/0008.)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from dovetail.errors import BadRequest, DovetailError
from dovetail.spark import rows, staging
from dovetail.spark.sinkoptions import SinkOptions
from dovetail.spark.staging import NAME_BYTES, Staging

log = logging.getLogger("dovetail.spark")

_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one attempt has put by."""

    stage: bytes
    """Empty: it had no rows."""
    rows: int
    query: str = ""
    """The query it belongs to: the driver's side of a sink is not told."""


class Writer:
    """What both kinds of writes have in common."""

    def __init__(self, options: SinkOptions, schema: pa.Schema, *, overwrite: bool) -> None:
        if overwrite:
            raise BadRequest("a queue is written to with mode append: what is in it belongs to its consumers")
        self.options = options
        self.columns = rows.checked(schema, ignore=options.ignore, queue=bool(options.queue))

    def stage(self, batches: Iterator[pa.RecordBatch], query: str = "") -> Staged:
        """In a task."""
        reach = self.options.reach()
        staged = Staging(self.options, reach)
        context, seen = TaskContext.get(), 0
        partition = context.partitionId() if context is not None else 0
        try:
            for batch in batches:
                if batch.num_rows:
                    for queue, messages in rows.by_queue(batch, self.columns, self.options.queue, rows.Place(partition, seen)):
                        staged.add(queue, messages)
                    seen += batch.num_rows
            staged.finish()
        except BaseException:
            staged.give_up()
            raise
        finally:
            reach.drop()
        return Staged(staged.stage if staged.rows else b"", staged.rows, query)

    def publish(self, messages: Sequence[Any], owner: bytes, batch: int) -> None:
        """On the driver."""
        reach = self.options.reach()
        try:
            published = staging.publish(reach, stages_of(messages), owner, batch)
        finally:
            reach.drop()
        if published.before:
            log.info("batch %d was published before: nothing was written twice", batch)

    def give_up(self, messages: Sequence[Any]) -> None:
        """On the driver, when the job has failed. What cannot be given up now is given up by the node a day later."""
        reach = self.options.reach()
        try:
            staging.unstage(reach, stages_of(messages))
        except DovetailError as error:
            log.warning("what was staged could not be given up: %s", error)
        finally:
            reach.drop()


def stages_of(messages: Sequence[Any]) -> list[bytes]:
    """A task that failed has None for a message."""
    return [one.stage for one in messages if isinstance(one, Staged) and one.stage]


def owner_of(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=NAME_BYTES, person=b"dovetail-spark").digest()


class BatchWriter(DataSourceArrowWriter):
    """Once, as a whole: all rows are there or none. With the options owner and batch once for all repeats, too (foreachBatch)."""

    def __init__(self, options: SinkOptions, schema: pa.Schema, overwrite: bool) -> None:
        self.writer = Writer(options, schema, overwrite=overwrite)
        # Drawn on the driver and pickled with us: the commit and what it repeats after a lost answer are of one owner.
        self.owner = owner_of(f"named {options.owner}") if options.owner else os.urandom(NAME_BYTES)
        self.batch = max(0, options.batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writer.stage(iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        self.writer.publish(messages, self.owner, self.batch)

    def abort(self, messages: Sequence[Any]) -> None:
        self.writer.give_up(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Exactly once: the owner is the query, which has the same id for as long as it has its checkpoint."""

    def __init__(self, options: SinkOptions, schema: pa.Schema, overwrite: bool) -> None:
        if options.owner:
            raise BadRequest("options owner and batch are for df.write, in foreachBatch say: a stream knows both by itself")
        self.writer = Writer(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writer.stage(iterator, self.query())

    @staticmethod
    def query() -> str:
        context = TaskContext.get()
        found = context.getLocalProperty(_QUERY) if context is not None else None
        if not found:
            raise BadRequest(f"Spark does not say which query this is ({_QUERY}): without it a batch cannot be told from its repeat")
        return found

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        query = next((one.query for one in messages if isinstance(one, Staged)), "")
        if query:
            self.writer.publish(messages, owner_of(f"query {query}"), batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        self.writer.give_up(messages)
