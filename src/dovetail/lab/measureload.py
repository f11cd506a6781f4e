"""A trace of many queues, made up so that what it holds is known, and the pipeline `measure` over it, in a process of its own.

Of each message there are four operations: sent, acked, delivered, completed. Deliveries are a little out of order; of every thousand
messages of a queue one is lost, and two are delivered twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.spark.pipelines import measure, measures
from dovetail.spark.pipelines.consistency import Consistency, Event

from .sparkload import session
from .trace import ACKED, COMPLETED, DELIVERED, SENT

OPERATIONS = 4
FILES = 8
STEP_NS = 20_000
"""Between two sends of a queue: 50,000 a second."""
JITTER_NS = 200_000
LOST, TWICE = 500, (100, 700)
"""Of each thousand, by their numbers in it."""


def made(folder: Path, operations: int, queues: int) -> int:
    """Files of a trace; returns how many operations they hold."""
    messages = operations // OPERATIONS // queues
    folder.mkdir(parents=True)
    rows = 0
    for file in range(FILES):
        tables = [_queue(number, messages) for number in range(file, queues, FILES)]
        table = pa.concat_tables(tables).sort_by("time_ns")
        pq.write_table(table, folder / f"{file}.parquet")
        rows += table.num_rows
    return rows


def _queue(number: int, messages: int) -> pa.Table:
    chance = np.random.default_rng(number)
    payload = np.arange(messages, dtype=np.int64)
    sent = payload * STEP_NS
    came = sent + 1_000_000 + chance.integers(0, JITTER_NS, messages)
    kept = payload % 1000 != LOST
    again = np.isin(payload % 1000, TWICE)
    parts = [
        (SENT, payload, sent),
        (ACKED, payload, sent + 500_000),
        (DELIVERED, payload[kept], came[kept]),
        (DELIVERED, payload[again], came[again] + 30_000_000),
        (COMPLETED, payload[kept], came[kept] + 100_000),
    ]
    columns = {
        "queue": np.full(sum(len(numbers) for _, numbers, _ in parts), number, np.int32),
        "kind": np.repeat([kind for kind, _, _ in parts], [len(numbers) for _, numbers, _ in parts]),
        "time_ns": np.concatenate([times for _, _, times in parts]),
        "payload": np.concatenate([numbers for _, numbers, _ in parts]),
    }
    table = pa.table(columns)
    return table.set_column(1, "kind", table["kind"].cast(pa.string()).dictionary_encode())


def play(folder: str, operations: int, queues: int, rounds: int) -> dict[str, Any]:
    """In a child: operations a second of the pipeline over the whole trace, behind a round that starts the workers."""
    seconds: list[float] = []
    with session() as spark:
        for _ in range(1 + rounds):
            begun = time.perf_counter()
            found = measure.over_spark(spark, folder)
            seconds.append(time.perf_counter() - begun)
    _checked(found, operations // OPERATIONS // queues, queues)
    plain = _plain(Path(folder))
    return {
        "operations_per_s": operations / median(seconds[1:]),
        "seconds": median(seconds[1:]),
        **plain,
        **_kept_up(min(operations, 400_000)),
    }


def _checked(found: pa.Table, messages: int, queues: int) -> None:
    lost = sum(1 for number in range(messages) if number % 1000 == LOST)
    doubled = sum(1 for number in range(messages) if number % 1000 in TWICE)
    for row in found.to_pylist():
        told = (row["acked"], row["lost"], row["doubled"])
        if told != (messages, lost, doubled):
            raise AssertionError(f"queue {row['queue']}: {told} in place of {(messages, lost, doubled)}")
    if found.num_rows != queues:
        raise AssertionError(f"{found.num_rows} queues in place of {queues}")


def _plain(folder: Path) -> dict[str, float]:
    """The same functions without Spark, on one of the files."""
    table = pq.read_table(folder / "0.parquet")
    begun = time.perf_counter()
    measures.reports(table)
    return {"without_spark_per_s": table.num_rows / (time.perf_counter() - begun)}


def _kept_up(operations: int) -> dict[str, float]:
    """One queue's report that is kept up, on one core, in the order of a queue that is used."""
    consistency = Consistency()
    begun = time.perf_counter()
    consistency.fold(_used(operations // 3))
    return {"kept_up_per_s": operations / (time.perf_counter() - begun)}


def _used(messages: int) -> Iterator[Event]:
    for number in range(1, messages + 1):
        yield Event("push", number, number)
        yield Event("delivery", number + 5, number)
        yield Event("complete", number + 9, number)
