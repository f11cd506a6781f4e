"""Queues as a sink: whatever dies, and whenever, each row is there once. Spark's order of steps is played without a JVM (engine.py); what
Spark itself does is in test_session.py.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dovetail.doors.native.codec import AccessDenied, requests
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, NoSuchStage
from dovetail.spark import sink, staging
from dovetail.spark.sink import BatchWriter, Staged, StreamWriter, Writer, owner_of
from dovetail.spark.sinkoptions import sink_options_of
from tests.spark.engine import POINTS, Crash, Engine
from tests.spark.house import Node, bodies

MESSAGES = 500
SCHEMA = pa.schema([("body", pa.binary())])
SINK_POINTS = ["in a staging", "before publish", "after publish"]


def batch_of(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=SCHEMA)


def writer_of(node: Node, queue: str, **more: Any) -> Writer:
    return Writer(sink_options_of({"endpoint": node.endpoint, "queue": queue, "timeout": "60", **more}), SCHEMA, overwrite=False)


def stages(node: Node) -> set[bytes]:
    return {one.stage for one in node.line.ask(requests.Stages()).stages}


class QueueSink:
    """What Spark does with our writer: tasks stage, each in a process of its own, and the driver commits."""

    def __init__(self, node: Node, queue: str) -> None:
        node.declare(queue)
        self.writer = writer_of(node, queue)
        self.owner: Callable[[], bytes] = lambda: owner_of(queue)
        self.crash_at = ""
        self.in_batch = -1

    def add(self, batch: int, rows: pa.Table) -> None:
        def point(name: str) -> None:
            if self.crash_at == name and self.in_batch in (-1, batch):
                raise Crash(f"{name} of {batch}")

        values = rows.column("body").to_pylist() if rows.num_rows else []
        # A batch that is run again has its rows in another order, and in other tasks.
        random.shuffle(values)
        cut = random.randrange(len(values) + 1)
        staged = []
        for part in (values[:cut], values[cut:]):
            task = pickle.loads(pickle.dumps(self.writer))
            staged.append(pickle.loads(pickle.dumps(task.stage(iter([batch_of(part)])))))
            point("in a staging")
        point("before publish")
        self.writer.publish(staged, self.owner(), batch)
        point("after publish")


def engine_of(node: Node, queue: str, folder: Path) -> tuple[Engine, QueueSink]:
    made = QueueSink(node, f"{queue}-out")
    said = {"endpoint": node.endpoint, "queue": queue, "tap": "t", "maxRowsPerTrigger": 100, "partitions": 3}
    return Engine(folder, said, made), made


@pytest.mark.slow
@pytest.mark.parametrize("batch", [0, 2, 4])
@pytest.mark.parametrize("point", POINTS + SINK_POINTS)
def test_from_queue_to_queue_nothing_is_lost_or_doubled_whenever_it_dies(
    node: Node, queue: str, tmp_path: Path, point: str, batch: int
) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine, target = engine_of(node, queue, tmp_path)
    target.in_batch = batch
    for _ in range(3):
        target.crash_at = point if point in SINK_POINTS else ""
        with pytest.raises(Crash):
            engine.run("" if point in SINK_POINTS else point, batch)
        if point == "after commits/N":
            break  # The batch is done: it is not run again.
    target.crash_at = ""
    engine.run()
    node.push(queue, bodies(MESSAGES, MESSAGES + 50))
    engine.run()
    assert sorted(node.waiting(f"{queue}-out")) == sorted(bodies(0, MESSAGES + 50))


@pytest.mark.slow
def test_a_commit_log_that_lost_its_last_batch_publishes_it_once(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine, _ = engine_of(node, queue, tmp_path)
    for _ in range(3):
        engine.run()
        engine.lose_last_commit()
    engine.run()
    assert sorted(node.waiting(f"{queue}-out")) == sorted(bodies(0, MESSAGES))


@pytest.mark.slow
def test_twin_without_one_owner_a_batch_that_is_run_again_is_there_twice(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 100))
    engine, target = engine_of(node, queue, tmp_path)
    target.owner = lambda: os.urandom(16)
    target.crash_at = "after publish"
    with pytest.raises(Crash):
        engine.run()
    target.crash_at = ""
    engine.run()
    assert sorted(node.waiting(f"{queue}-out")) == sorted(bodies(0, 100) * 2)


def test_a_task_that_is_tried_again_counts_once_in_whatever_order_its_rows_come(node: Node, queue: str) -> None:
    node.declare(queue)
    before = stages(node)
    writer = writer_of(node, queue)
    rows = bodies(0, 3000)

    def dies() -> Any:
        yield batch_of(rows[:2000])
        raise RuntimeError("the executor is gone")

    with pytest.raises(RuntimeError, match="gone"):
        writer.stage(dies())
    twice = [writer.stage(iter([batch_of(rows[::-1])])), writer.stage(iter([batch_of(rows)]))]
    writer.publish(twice[:1], owner_of(queue), 0)
    writer.give_up(twice[1:])
    assert sorted(node.waiting(queue)) == sorted(rows)
    assert stages(node) == before


def test_what_is_staged_is_seen_by_nobody_and_goes_when_the_job_fails(node: Node, queue: str) -> None:
    node.declare(queue)
    writer = writer_of(node, queue)
    staged = writer.stage(iter([batch_of(bodies(0, 100))]))
    assert (staged.rows, node.waiting(queue)) == (100, [])
    writer.give_up([None, staged])
    with pytest.raises(NoSuchStage):
        writer.publish([staged], owner_of(queue), 0)
    assert node.waiting(queue) == []


def test_a_task_without_rows_stages_nothing_and_the_batch_counts_all_the_same(node: Node, queue: str) -> None:
    node.declare(queue)
    writer = writer_of(node, queue)
    empty = writer.stage(iter([batch_of([])]))
    assert (empty.stage, empty.rows) == (b"", 0)
    writer.publish([empty, None], owner_of(queue), 3)
    late = writer.stage(iter([batch_of([b"late"])]))
    writer.publish([late], owner_of(queue), 3)
    assert node.waiting(queue) == []


def test_rows_say_where_they_go_and_what_they_are(node: Node, queue: str) -> None:
    names = [f"{queue}-a", f"{queue}-b"]
    fields = [("body", pa.string()), ("queue", pa.string()), ("group", pa.string()), ("attributes", pa.map_(pa.string(), pa.string()))]
    values = [["1", "2", "3"], [names[0], names[1], names[0]], ["g", None, None], [[("n", "7")], None, None]]
    schema = pa.schema(fields)
    batch = pa.RecordBatch.from_arrays([pa.array(one, field[1]) for one, field in zip(values, fields, strict=True)], schema=schema)
    writer = Writer(sink_options_of({"endpoint": node.endpoint, "create": "true"}), schema, overwrite=False)
    writer.publish([writer.stage(iter([batch]))], owner_of(queue), 0)
    assert [node.waiting(name) for name in names] == [[b"1", b"3"], [b"2"]]
    look = node.line.ask(requests.Peek(node.declare(names[0]), 10))
    assert (bytes(look.groups[0]), bytes(look.groups[1]), bytes(look.attributes[1])) == (b"g", b"", b"")


def test_a_queue_that_is_not_there_is_named_and_nothing_is_left(node: Node, queue: str) -> None:
    before = stages(node)
    with pytest.raises(NoSuchQueue):
        writer_of(node, queue).stage(iter([batch_of([b"a"])]))
    assert stages(node) == before


def test_a_row_that_cannot_be_leaves_nothing_behind(node: Node, queue: str) -> None:
    node.declare(queue)
    before = stages(node)
    with pytest.raises(LimitExceeded, match="a body has"):
        writer_of(node, queue).stage(iter([batch_of([b"a"]), batch_of([bytes(2 << 20)])]))
    assert stages(node) == before


def test_a_line_that_breaks_while_rows_are_staged_costs_none_and_doubles_none(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few frames the connection is cut, before an answer is read or after a frame was sent."""
    node.declare(queue)
    chance = random.Random(5)

    class Cut(staging.Staging):
        def _receive(self) -> None:
            if chance.random() < 0.3:
                self._reach.line._socket.shutdown(2)
            super()._receive()

        def _send(self, number: int) -> None:
            super()._send(number)
            if chance.random() < 0.1:
                self._reach.line._socket.shutdown(2)

    monkeypatch.setattr(sink, "Staging", Cut)
    monkeypatch.setattr(staging.rows, "ENTRY_BYTES_TARGET", 2000)
    writer = writer_of(node, queue)
    staged = writer.stage(batch_of(bodies(at, at + 1000)) for at in range(0, 5000, 1000))
    writer.publish([staged], owner_of(queue), 0)
    assert node.waiting(queue) == bodies(0, 5000)


def test_twin_without_numbers_what_was_cut_off_is_there_twice(node: Node, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare(queue)
    losses = [1]

    class Cut(staging.Staging):
        def _receive(self) -> None:
            if losses:
                losses.pop()
                self._reach.line.receive()  # It is durable, and the answer is lost.
                self._reach.line._socket.shutdown(2)
            super()._receive()

    monkeypatch.setattr(sink, "Staging", Cut)
    monkeypatch.setattr(staging.requests, "Stage", lambda stage, record, number: requests_stage(stage, record))
    writer = writer_of(node, queue)
    writer.publish([writer.stage(iter([batch_of([b"a"])]))], owner_of(queue), 0)
    assert node.waiting(queue) == [b"a", b"a"]


requests_stage = requests.Stage


@pytest.mark.slow
def test_a_node_that_dies_while_rows_are_staged_is_waited_for(local_node: Node, queue: str) -> None:
    local_node.declare(queue)

    def rows() -> Any:
        for at in range(0, 40_000, 10_000):
            yield batch_of(bodies(at, at + 10_000))
            local_node.kill()
            local_node.start()

    writer = writer_of(local_node, queue)
    staged = writer.stage(rows())
    local_node.kill()
    local_node.start()
    writer.publish([staged], owner_of(queue), 0)
    local_node.kill()
    local_node.start()
    writer.publish([staged], owner_of(queue), 0)
    assert local_node.waiting(queue) == bodies(0, 40_000)


def test_a_write_of_a_batch_is_all_or_nothing_and_repeats_by_owner_and_batch(node: Node, queue: str) -> None:
    node.declare(queue)
    options = sink_options_of({"endpoint": node.endpoint, "queue": queue, "owner": queue, "batch": "7"})
    for _ in range(2):
        made = pickle.loads(pickle.dumps(BatchWriter(options, SCHEMA, False)))
        made.commit([made.write(iter([batch_of(bodies(0, 10))]))])
    assert node.waiting(queue) == bodies(0, 10)
    plain = sink_options_of({"endpoint": node.endpoint, "queue": queue})
    for _ in range(2):
        made = BatchWriter(plain, SCHEMA, False)
        made.commit([made.write(iter([batch_of([b"x"])]))])
    assert node.waiting(queue) == [*bodies(0, 10), b"x", b"x"]


def test_a_stream_asks_spark_which_query_it_is(node: Node, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare(queue)
    made = StreamWriter(sink_options_of({"endpoint": node.endpoint, "queue": queue}), SCHEMA, False)
    with pytest.raises(BadRequest, match="which query this is"):
        made.write(iter([]))
    monkeypatch.setattr(StreamWriter, "query", staticmethod(lambda: queue))
    for _ in range(2):
        made.commit([made.write(iter([batch_of([b"a"])])), None], 4)
    assert node.waiting(queue) == [b"a"]
    made.commit([], 5)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"tap": "t"}, "there is no option 'tap' of a write"),
        ({"queue": "a*"}, "option queue: one name"),
        ({"queue": "a,b"}, "option queue: one name"),
        ({"extraColumns": "drop"}, "extraColumns: refuse or ignore"),
        ({"owner": "a"}, "owner and batch: both or neither"),
        ({"owner": "a", "batch": "-1"}, "option batch: a whole number"),
        ({"create": "yes"}, "option create: true or false"),
        ({"endpoint": "http://x"}, "dovetail://"),
    ],
)
def test_an_option_that_cannot_be_is_refused(told: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        sink_options_of(told, {})


def test_no_text_of_a_sink_shows_a_secret(node: Node) -> None:
    options = sink_options_of({"queue": "q", "key": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI"}, {})
    assert "wJalr" not in repr(options) + repr(BatchWriter(options, SCHEMA, False)) + repr(Staged(b"", 0))


def test_overwriting_and_named_batches_of_streams_are_refused(node: Node, queue: str) -> None:
    options = sink_options_of({"queue": queue})
    with pytest.raises(BadRequest, match="mode append"):
        BatchWriter(options, SCHEMA, True)
    with pytest.raises(BadRequest, match="a stream knows both"):
        StreamWriter(sink_options_of({"queue": queue, "owner": "a", "batch": "1"}), SCHEMA, False)


def test_who_may_not_send_is_told_so(tmp_path: Path, queue: str) -> None:
    from dovetail.client.address import Credentials

    node = Node("memory:", "--auth", "signed", credentials=Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG")).start()
    try:
        node.declare(queue)
        with pytest.raises(AccessDenied):
            writer_of(node, queue, key="AKIDEXAMPLE", secret="wrong").stage(iter([batch_of([b"a"])]))
        writer = writer_of(node, queue, key="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG")
        writer.publish([writer.stage(iter([batch_of([b"a"])]))], owner_of(queue), 0)
        assert node.waiting(queue) == [b"a"]
    finally:
        node.stop()
