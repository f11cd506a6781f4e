"""A trace: every operation on every message, in one Arrow schema, for ours and for peers.

    kind       sent (the call began) · acked (it was durable) · delivered · completed
    time_ns    the monotonic clock of the machine, so that processes on one machine agree
    queue      number of the queue in the workload
    sequence   the engine's place in the queue, 0 where it has none
    payload    the number in the body: which message it was
    worker     who did it
    phase      a word of the scenario: warm, before, during …
    due_ns     when it was to become visible (sent rows of delayed messages), else null

A batch is noted once and becomes a row per message only when the table is made, so that tracing costs a call and not a message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SENT, ACKED, DELIVERED, COMPLETED = "sent", "acked", "delivered", "completed"

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("queue", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("payload", pa.int64(), nullable=False),
        pa.field("worker", pa.int32(), nullable=False),
        pa.field("phase", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("due_ns", pa.int64(), nullable=True),
    ]
)
_KINDS = (SENT, ACKED, DELIVERED, COMPLETED)

now_ns = time.monotonic_ns

_Note = tuple[str, int, int, Sequence[int], Sequence[int], int, str, Sequence[int] | None]


class Trace:
    """Notes of one process. `phase` is what the next notes are marked with."""

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        self._notes: list[_Note] = []

    def note(
        self,
        kind: str,
        time_ns: int,
        queue: int,
        payloads: Sequence[int],
        worker: int,
        sequences: Sequence[int] = (),
        due_ns: Sequence[int] | None = None,
    ) -> None:
        """One call about these messages. `sequences` is empty or has one for each."""
        self._notes.append((kind, time_ns, queue, sequences, payloads, worker, self.phase, due_ns))

    def table(self) -> pa.Table:
        phases: dict[str, int] = {}
        kinds: list[int] = []
        times: list[int] = []
        queues: list[int] = []
        sequences: list[int] = []
        payloads: list[int] = []
        workers: list[int] = []
        marks: list[int] = []
        dues: list[int | None] = []
        for kind, time_ns, queue, given, numbers, worker, phase, due_ns in self._notes:
            count = len(numbers)
            kinds += [_KINDS.index(kind)] * count
            times += [time_ns] * count
            queues += [queue] * count
            sequences += given if given else [0] * count
            payloads += numbers
            workers += [worker] * count
            marks += [phases.setdefault(phase, len(phases))] * count
            dues += due_ns if due_ns is not None else [None] * count
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(kinds, pa.int8()), pa.array(_KINDS, pa.string())),
            pa.array(times, pa.int64()),
            pa.array(queues, pa.int32()),
            pa.array(sequences, pa.int64()),
            pa.array(payloads, pa.int64()),
            pa.array(workers, pa.int32()),
            pa.DictionaryArray.from_arrays(pa.array(marks, pa.int8()), pa.array(list(phases), pa.string())),
            pa.array(dues, pa.int64()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def read(path: Path) -> pa.Table:
    return pq.read_table(path, schema=SCHEMA)
