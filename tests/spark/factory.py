"""Facts of queues that somebody uses, made up: the columns of `option("table", "facts")`, and what is true of them. No node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dovetail.spark.pipelines.facts import COLUMNS

TIME = pa.timestamp("us", "UTC")
TYPES = {
    **dict.fromkeys(("number", "queue_id", "sequence", "target_sequence"), pa.int64()),
    **dict.fromkeys(("count", "receives", "bytes"), pa.int32()),
    **dict.fromkeys(("time", "due"), TIME),
    **dict.fromkeys(("kind", "outcome", "queue", "target"), pa.string()),
}
SCHEMA = pa.schema([(name, TYPES[name]) for name in COLUMNS])


class Used:
    """Queues by name, each pushed to, read, and now and then mistreated."""

    def __init__(self, seed: int, start_ms: int = 1_700_000_000_000) -> None:
        self.chance = random.Random(seed)
        self.now_ms = start_ms
        self.rows: list[dict[str, Any]] = []
        self.ids: dict[str, int] = {}
        self.next: dict[str, int] = {}
        self.waiting: dict[str, dict[int, int]] = {}
        """Of each queue: sequence → how often it was received."""
        self.due: dict[tuple[str, int], int] = {}

    def table(self, first: int = 0, end: int | None = None) -> pa.Table:
        return pa.Table.from_pylist(self.rows[first:end], SCHEMA)

    def fact(self, kind: str, queue: str, sequence: int | None, **more: Any) -> None:
        due = more.pop("due_ms", None)
        self.rows.append(
            {
                "number": len(self.rows) + 1,
                "time": self.now_ms * 1000,
                "kind": kind,
                "outcome": "done",
                "queue": queue,
                "queue_id": self.ids[queue],
                "sequence": sequence,
                "count": 1,
                "due": None if due is None else due * 1000,
                **more,
            }
        )

    def create(self, queue: str) -> None:
        self.ids[queue] = max(self.ids.values(), default=0) + 1
        self.next[queue], self.waiting[queue] = 1, {}
        self.fact("create", queue, None)

    def push(self, queue: str, size: int = 100, delay_ms: int = 0) -> int:
        sequence = self.next[queue]
        self.next[queue] += 1
        self.waiting[queue][sequence] = 0
        self.due[queue, sequence] = self.now_ms + delay_ms
        self.fact("push", queue, sequence, bytes=size, **({"due_ms": self.now_ms + delay_ms} if delay_ms else {}))
        return sequence

    def deliver(self, queue: str, sequence: int) -> None:
        self.waiting[queue][sequence] += 1
        self.fact("delivery", queue, sequence, receives=self.waiting[queue][sequence])

    def gone(self, kind: str, queue: str, sequence: int, **more: Any) -> None:
        del self.waiting[queue][sequence]
        self.fact(kind, queue, sequence, **more)

    def purge(self, queue: str) -> None:
        self.fact("purge", queue, self.next[queue] - 1, count=len(self.waiting[queue]))
        self.waiting[queue].clear()

    def bury(self, queue: str, sequence: int, target: str) -> None:
        arrived = self.next[target]
        self.next[target] += 1
        self.waiting[target][arrived] = 0
        self.gone("dead-letter", queue, sequence, target=target, target_sequence=arrived)

    def drop(self, queue: str) -> None:
        self.fact("drop", queue, None, count=len(self.waiting[queue]))
        del self.waiting[queue]

    def live(self, steps: int, queues: Sequence[str] = ("a", "b")) -> Used:
        chance = self.chance
        """More of it; queues that are not there are made."""
        for queue in queues:
            if queue not in self.waiting:
                self.create(queue)
        for _ in range(steps):
            self.now_ms += chance.choice([0, 0, 1, 7, 400, 9_000])
            queue = chance.choice(queues)
            waiting = sorted(one for one in self.waiting[queue] if self.due.get((queue, one), 0) <= self.now_ms)
            if not waiting or chance.random() < 0.4:
                self.push(queue, chance.randrange(1, 500), chance.choice([0, 0, 0, 2_000]))
                continue
            one = waiting[min(len(waiting) - 1, int(chance.expovariate(0.8)))]
            match chance.random():
                case share if share < 0.6:
                    self.deliver(queue, one)
                case share if share < 0.9:
                    if self.waiting[queue][one]:
                        self.gone("complete", queue, one)
                case share if share < 0.93:
                    self.gone("cancel", queue, one)
                case share if share < 0.95 and queue != queues[-1]:
                    self.bury(queue, one, queues[-1])
                case share if share < 0.96:
                    self.fact("push", queue, None, outcome="refused")
                case share if share < 0.97:
                    self.purge(queue)
                case _:
                    count = 1
                    while one + count in self.waiting[queue] and count < 3:
                        count += 1
                    for sequence in range(one, one + count):
                        del self.waiting[queue][sequence]
                    self.fact("expire", queue, one, count=count)
        return self
