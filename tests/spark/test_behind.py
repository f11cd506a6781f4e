"""Nodes that share a log are not all equally far. Spark's driver asks one of them, its tasks another, and nothing is lost, doubled or
refused for it. Here one node plays both: what it "has not replayed yet" is done in the moment in which it would be. (Real ones:
test_shared.py.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dovetail.client.address import Credentials, Target
from dovetail.errors import BatchRefused, Unavailable
from dovetail.spark import fetch, reach, survey
from dovetail.spark.competing import CompetingReader
from dovetail.spark.offsets import Range
from dovetail.spark.options import options_of
from dovetail.spark.reach import Reach
from dovetail.spark.reader import Part
from dovetail.spark.stream import StreamReader
from dovetail.spark.survey import DataLost
from tests.spark.house import MODES, Node, bodies

pytestmark = pytest.mark.slow

NONE = pa.schema([])


def said(node: Node, queue: str, mode: str, **more: Any) -> Any:
    return options_of({"endpoint": node.endpoint, "queue": queue, **MODES[mode], **more})


def planned(node: Node, queue: str) -> tuple[StreamReader, Part, Any]:
    """A part of 100 messages and the offset behind it, of which the node has 60."""
    node.push(queue, bodies(0, 60))
    reader = StreamReader(said(node, queue, "tap"), NONE)
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert isinstance(part, Part)
    end = {**start, "queues": {queue: {"id": part.range.queue, "lanes": {"0": {"first": 1, "next": 101}}}}}
    return reader, Part(part.range._replace(end=101), part.addresses), end


def test_a_task_waits_until_its_node_has_come_as_far_as_its_range(node: Node, queue: str) -> None:
    reader, part, _ = planned(node, queue)
    reading = reader.read(part)
    got = [next(reading)]
    node.push(queue, bodies(60, 100))
    got += list(reading)
    assert pa.Table.from_batches(got)["body"].to_pylist() == bodies(0, 100)


def test_twin_a_task_that_takes_what_is_not_there_for_settled_loses_it(node: Node, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, part, _ = planned(node, queue)
    real: Callable[..., Any] = fetch._read
    monkeypatch.setattr(fetch, "_read", lambda answer, part, end: real(answer._replace(end=end), part, end))
    assert sum(batch.num_rows for batch in reader.read(part)) == 60


def test_a_task_whose_node_never_comes_so_far_says_so(node: Node, queue: str) -> None:
    _, part, _ = planned(node, queue)
    reader = StreamReader(said(node, queue, "tap", timeout="0s"), NONE)
    with pytest.raises(Unavailable, match=f"'{queue}' ends at 61, before 101: the node is behind, or its data is older"):
        list(reader.read(part))


def test_a_driver_takes_nothing_for_lost_before_its_node_has_come_as_far_as_there_is(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, _, end = planned(node, queue)
    with pytest.raises(DataLost, match="the node's data is older than the checkpoint"):
        reader.latestOffset(end, ReadAllAvailable())
    confirmed: Callable[..., None] = survey.confirm

    def replay(*told: Any) -> None:
        node.push(queue, bodies(60, 110))
        confirmed(*told)

    monkeypatch.setattr(survey, "confirm", replay)
    found = reader.latestOffset(end, ReadAllAvailable())
    assert found["queues"][queue]["lanes"]["0"]["next"] == 101
    monkeypatch.undo()
    assert reader.latestOffset(end, ReadAllAvailable())["queues"][queue]["lanes"]["0"]["next"] == 111


def test_a_task_whose_node_does_not_know_the_batch_yet_reads_it_all_the_same(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.push(queue, bodies(0, 60))
    reader = CompetingReader(said(node, queue, "reserve", partitions=1), NONE)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    part = Part(Range(queue, node.declare(queue), 0, 60, 0), ())
    with pytest.raises(BatchRefused, match="released by an operator, or settled"):
        list(reader.read(part))
    confirmed: Callable[..., None] = fetch.confirm

    def replay(*told: Any) -> None:
        reader.partitions(start, end)
        confirmed(*told)

    monkeypatch.setattr(fetch, "confirm", replay)
    assert pa.Table.from_batches(list(reader.read(part)))["body"].to_pylist() == bodies(0, 60)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The ports that are dialled; every one takes a connection."""
    ports: list[int] = []

    class Taken:
        def __init__(self, target: Target, *_: Any) -> None:
            self.port = target.port
            ports.append(target.port)

        def close(self) -> None:
            pass

    monkeypatch.setattr(reach, "Line", Taken)
    monkeypatch.setattr(reach, "PAUSE_S", 0.0)
    yield ports


def test_a_node_that_takes_connections_and_cannot_work_is_tried_last_from_then_on(dialled: list[int]) -> None:
    there = Reach("dovetail://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", Credentials(), 60, 60)
    cut_off = {1, 2}

    def work() -> int:
        port: int = there.line.port  # type: ignore[attr-defined]  # what stands in for a line here
        if port in cut_off:
            raise Unavailable("this node is cut off from its log")
        return port

    assert there.patiently(work) == 3
    assert dialled == [1, 2, 3]
    there.drop()
    assert there.patiently(work) == 3, "a line that was only let go of is made again with the same node"
    cut_off.add(3)
    cut_off.remove(1)
    assert there.patiently(work) == 1
    assert dialled == [1, 2, 3, 3, 1]
