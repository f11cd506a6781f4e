"""A scenario: one declared object in one small file, and the list of all of them.

It has a name, one line that says what it shows, its bars as data, and `run`, which measures and returns figures. It knows nothing of
how results are printed. The list is explicit and by name: a file is imported only when its scenario is asked for, so that
`dovetail lab list` needs neither Arrow nor Redis.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ..errors import BadRequest

Figures = dict[str, Any]
"""What was measured: name → number, text, or a table of the same."""

SCENARIOS: Mapping[str, str] = {
    "lane-cost": "push, pop and complete cost the same with 1 thousand as with 10 million messages waiting",
    "waiting-memory": "memory of a waiting message: plain, over 1,000 queues, delayed, in groups, leased",
    "recovery": "10 million waiting, kill -9 at the longest tail, page cache dropped: how soon it serves again",
    "snapshot-stall": "what a snapshot of 10 million and a carry do to the p99 of sends",
    "commit-log": "durable pushes beside a bare write+fdatasync loop, SQLite and Redis Streams",
    "delays": "10 million pending, 10,000 due each second: lateness, and cancel against push, beside a Redis sorted set",
    "sqs-load": "the SQS door, durable, beside ElasticMQ in memory; signed, over 10,000 queues, with 1 million waiting",
    "idle-polls": "10,000 idle long polls: processor and memory of the node, and how soon a send reaches one that waits",
    "fifo-backlog": "FIFO with 216,000 waiting, in one group and in 10,000, against an empty queue, beside ElasticMQ",
    "fair-queues": "how long a quiet tenant's messages wait while a noisy one has 100,000 waiting, with and without groups",
    "rdsq-figure-2": "one at a time through the native door, durable, 1 to 64 clients, beside RabbitMQ's classic and quorum queues",
    "cluster-load": "nodes on a log that they share, JetStream and Kafka, three copies, beside raw publishers and RabbitMQ",
    "node-kill": "three nodes on a shared log, one is killed under load: what requests to the others notice",
    "leader-kill": "the NATS server that leads the log is killed under load: the gap, and a ledger of what was acknowledged",
    "node-join": "a node joins a namespace with 10 million waiting: how soon it serves",
    "fabric-kvs": "push, receive and complete on one connection, 0.1 to 20 KB, 1 to 8 queues, in memory, beside memcached",
    "bulk": "frames of a hundred messages, durable: pushes, and whole cycles, beside a bare file",
    "tap-read": "10 million messages through a tap as Arrow: of one queue, and of a hundred interleaved ones",
    "tap-follow": "what a tap that is followed costs those who send 20,000 messages a second",
    "native-memory": "memory of a node with 1,000 native connections and 1 million waiting",
    "spark-batch": "10 million messages through a tap into Spark, as one batch",
    "spark-sink": "rows from Spark into a queue, durable, all of them visible at once",
    "spark-stream": "micro-batches of 400,000 into Spark, to nowhere and to Parquet; and the delay of 10,000 a second",
    "measure": "10 million operations on 64 queues through the pipeline that measures consistency and speed",
}
"""Name → what it shows, in the order in which `make bench` runs them. The file of `lane-cost` is scenarios/lane_cost.py."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must not be above (`most`) or below (`least`) a number."""

    name: str
    figure: str
    """Which figure it holds; a dot goes down into a table."""
    most: float | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        assert (self.most is None) != (self.least is None), "a bar has one side"

    @property
    def bound(self) -> float:
        return self.most if self.most is not None else self.least if self.least is not None else 0.0

    @property
    def side(self) -> Literal["≤", "≥"]:
        return "≤" if self.most is not None else "≥"

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """What was measured, or None where it could not be (a peer that is not installed)."""
        found: Any = figures
        for part in self.figure.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def ok(self, figures: Mapping[str, Any]) -> bool:
        """What was not measured is not kept."""
        value = self.value(figures)
        return value is not None and (value <= self.bound if self.most is not None else value >= self.bound)


@dataclass(slots=True)
class Lab:
    """What a scenario is given: how large it shall be, a folder that goes away after it, somebody to tell."""

    folder: Path
    quick: bool = False
    peers: dict[str, str] = field(default_factory=dict)
    """Peer → version, filled in by whoever starts one."""
    began: float = field(default_factory=time.monotonic)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """A line of progress, on stderr: stdout belongs to the result."""
        print(f"  {time.monotonic() - self.began:6.1f} s  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    doc: str
    bars: Sequence[Bar]
    run: Callable[[Lab], Coroutine[Any, Any, Figures]]


def find(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise BadRequest(f"there is no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    module = import_module(f"{__package__}.scenarios.{name.replace('-', '_')}")
    made: Scenario = module.SCENARIO
    return made
