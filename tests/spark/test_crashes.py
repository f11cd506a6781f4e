"""Exactly once, at every point where a query may die. Spark's order of steps is played without a JVM (engine.py), so all of it is tried;
what Spark itself does at a few of these points is in test_session.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dovetail.spark.following import released
from dovetail.spark.options import options_of
from dovetail.spark.survey import DataLost, Survey
from tests.spark.engine import POINTS, Crash, Engine, Remembered
from tests.spark.house import Node, bodies

pytestmark = pytest.mark.slow

MESSAGES = 500


def engine_of(node: Node, queue: str, folder: Path, followed: bool, **more: Any) -> Engine:
    said = {"endpoint": node.endpoint, "queue": queue, "tap": "t", "maxRowsPerTrigger": 100, "partitions": 3, **more}
    return Engine(folder, said, Remembered(), partial(released, Survey(options_of(said))) if followed else None)


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "commit alone"])
@pytest.mark.parametrize("batch", [0, 1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_or_doubled_whenever_it_dies(
    node: Node, queue: str, tmp_path: Path, point: str, batch: int, followed: bool
) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine = engine_of(node, queue, tmp_path, followed)
    for _ in range(3):
        with pytest.raises(Crash):
            engine.run(point, batch)
        if point == "after commits/N":
            break  # The batch is done: it is not run again.
    engine.run()
    node.push(queue, bodies(MESSAGES, MESSAGES + 50))
    engine.run()
    assert isinstance(engine.sink, Remembered)
    assert engine.sink.bodies() == bodies(0, MESSAGES + 50)
    if followed:
        assert node.tap(queue, "t").next == MESSAGES + 51, "the last batch is released, too"


def test_a_commit_log_that_lost_its_last_batch_replays_it(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine = engine_of(node, queue, tmp_path, followed=False)
    engine.run()
    engine.lose_last_commit()
    engine.run()
    node.push(queue, bodies(MESSAGES, MESSAGES + 50))
    engine.run()
    assert isinstance(engine.sink, Remembered)
    assert engine.sink.bodies() == bodies(0, MESSAGES + 50)


def test_the_tap_never_moves_past_what_is_committed(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine = engine_of(node, queue, tmp_path, followed=True)
    for batch in range(5):
        with pytest.raises(Crash):
            engine.run("before sink", batch)
        assert node.tap(queue, "t").next == 1 + 100 * batch


def test_twin_a_tap_that_is_released_when_a_batch_is_planned_loses_it_and_says_so(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine = engine_of(node, queue, tmp_path, followed=False)
    engine.commits_early = True
    with pytest.raises(DataLost, match="messages 1 to 100"):
        engine.run()


def test_a_node_that_dies_between_batches_is_no_crash_of_the_query(local_node: Node, queue: str, tmp_path: Path) -> None:
    local_node.push(queue, bodies(0, MESSAGES))
    engine = engine_of(local_node, queue, tmp_path / "checkpoint", followed=True)
    for _ in range(3):
        assert engine.run(batches_max=1) == 1
        local_node.kill()
        local_node.start()
    engine.run()
    assert isinstance(engine.sink, Remembered)
    assert engine.sink.bodies() == bodies(0, MESSAGES)
