"""The table of crash points: every point where a query may die × where its rows go × how it reads. 0 lost, 0 doubled, for readers that know
nothing of Spark. Spark's order of steps is played without a JVM (engine.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dovetail.spark.pipelines.delta import DeltaPublished
from dovetail.spark.pipelines.published import Published
from tests.spark.engine import POINTS, Crash, Engine
from tests.spark.house import MODES, Node, bodies
from tests.spark.test_archive import delta_bodies, parquet_bodies
from tests.spark.test_sink import QueueSink

pytestmark = pytest.mark.slow

MESSAGES = 300


class Archive:
    """What the archive's step does, with the files that Spark would stage: under other names each time."""

    def __init__(self, published: Published | DeltaPublished) -> None:
        self.published = published

    def add(self, batch: int, rows: pa.Table) -> None:
        if self.published.done(batch):
            return
        if rows.num_rows:
            hours = rows.append_column("hour", pc.strftime(rows["time"], format="%Y-%m-%d-%H"))
            names = f"part-{os.urandom(4).hex()}-{{i}}.parquet"
            pq.write_to_dataset(hours, self.published.staging(batch), partition_cols=["queue", "hour"], basename_template=names)
        self.published.publish(batch)


def sink_of(kind: str, node: Node, queue: str, target: Path) -> Any:
    match kind:
        case "parquet":
            return Archive(Published(target, "t"))
        case "delta":
            pytest.importorskip("deltalake")
            return Archive(DeltaPublished(target, "t"))
        case _:
            return QueueSink(node, f"{queue}-out")


def found(kind: str, node: Node, queue: str, target: Path) -> list[int]:
    match kind:
        case "parquet":
            return parquet_bodies(target)
        case "delta":
            return delta_bodies(target)
        case _:
            return sorted(map(int, node.waiting(f"{queue}-out")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["parquet", "delta", "queue"])
@pytest.mark.parametrize("point", [*POINTS, "lost commit log"])
def test_every_message_is_in_the_sink_once_whenever_the_query_dies(
    node: Node, queue: str, tmp_path: Path, point: str, kind: str, mode: str
) -> None:
    node.push(queue, bodies(0, MESSAGES))
    target = tmp_path / "target"
    said = {"endpoint": node.endpoint, "queue": queue, "maxRowsPerTrigger": 100, "partitions": 3, **MODES[mode]}
    for batch in range(3):  # In each of its batches in turn, and started again each time.
        engine = Engine(tmp_path / "checkpoint", said, sink_of(kind, node, queue, target))
        if point == "lost commit log":
            # The state that a driver leaves which dies behind the sink's commit. It has not asked where to go on.
            assert engine.run(batches_max=1) == 1
            engine.lose_last_commit()
        else:
            with pytest.raises(Crash):
                engine.run(point, batch)
    engine = Engine(tmp_path / "checkpoint", said, sink_of(kind, node, queue, target))
    engine.run()
    node.push(queue, bodies(MESSAGES, MESSAGES + 50))
    engine.run()
    assert found(kind, node, queue, target) == list(range(MESSAGES + 50))
    if mode == "reserve":
        counts = node.counts(queue)
        assert (counts.visible, counts.leased, counts.reserved) == (0, 0, 0), "and all of it has left the queue"
