"""A stream that takes messages from a queue beside other consumers: what it takes, what it gives up, when it refuses to go on. No JVM."""

from __future__ import annotations

import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import dovetail.spark
from dovetail.core.message import Attribute
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest, BatchRefused, Fenced, NoSuchQueue
from dovetail.spark import competing, shape
from dovetail.spark.batch import BatchReader
from dovetail.spark.competing import CompetingReader
from dovetail.spark.following import released
from dovetail.spark.options import RESERVED_COLUMNS, options_of
from dovetail.spark.shares import Shares
from dovetail.spark.stream import StreamReader
from dovetail.spark.survey import DataLost, Survey
from tests.spark.engine import Crash, Engine, Remembered
from tests.spark.house import Node, bodies
from tests.spark.test_sink import QueueSink

pytestmark = pytest.mark.slow

Offset = dict[str, Any]


def said(node: Node, queue: str, **more: Any) -> dict[str, Any]:
    return {"endpoint": node.endpoint, "queue": queue, "mode": "reserve", "reservation": "r", "timeout": "120s", **more}


def reader_of(node: Node, queue: str, **more: Any) -> CompetingReader:
    return CompetingReader(options_of(said(node, queue, **more)), pa.schema([]))


def planned(reader: CompetingReader, start: Offset | None = None) -> tuple[Offset, Offset]:
    start = reader.initialOffset() if start is None else start
    return start, reader.latestOffset(start, reader.getDefaultReadLimit())


def read(reader: CompetingReader, start: Offset, end: Offset) -> pa.Table:
    task = pickle.loads(pickle.dumps(reader))
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions(start, end)]
    return pa.Table.from_batches([batch for part in parts for batch in task.read(part)], shape.schema(reader.options.columns))


def taken(reader: CompetingReader, start: Offset | None = None) -> tuple[Offset, list[bytes]]:
    """A micro-batch as far as its tasks: the offset at its end, and what it has."""
    start, end = planned(reader, start)
    return end, list(read(reader, start, end)["body"].to_pylist())


def share_of(offset: Offset, queue: str) -> dict[str, int]:
    found: dict[str, int] = offset["queues"][queue]["lanes"]["0"]
    return found


def engine_of(node: Node, queue: str, folder: Path, **more: Any) -> Engine:
    return Engine(folder, said(node, queue, maxRowsPerTrigger=100, partitions=3, **more), Remembered())


def sunk(engine: Engine) -> list[bytes]:
    assert isinstance(engine.sink, Remembered)
    return engine.sink.bodies()


# What it takes


def test_a_batch_has_each_message_once_with_all_that_it_carries_and_nobody_else_gets_it(node: Node, queue: str) -> None:
    groups = [b"g%d" % (n % 3) for n in range(2500)]
    node.push(queue, bodies(0, 2500), {"trace": Attribute("String", b"x")}, groups)
    pull = node.line.ask(requests.Pull(node.declare(queue), most=1, lease_ms=1))
    assert len(pull.bodies) == 1
    time.sleep(0.05)  # Its lease is over, and it was received once.
    reader = reader_of(node, queue, partitions=3)
    start, end = planned(reader)
    assert node.receive(queue, 1) == [b"0"], "a plan takes nothing from anybody"
    rows = read(reader, start, end)
    assert rows["body"].to_pylist() == bodies(1, 2500) and rows["sequence"].to_pylist() == list(range(2, 2501))
    assert rows.schema.names == list(RESERVED_COLUMNS) and set(rows["receives"].to_pylist()) == {0}
    assert rows["group"].to_pylist()[:3] == ["g1", "g2", "g0"] and dict(rows["attributes"][0].as_py())["trace"]["value"] == b"x"
    assert node.receive(queue) == []
    assert read(reader, start, end).equals(rows), "a replay is the same"
    assert len(reader.partitions(start, end)) >= 3
    assert reader.partitions(end, end) == [], "a batch of nothing new is empty"


def test_how_often_others_had_received_a_message_is_told(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 3))
    node.line.ask(requests.Pull(node.declare(queue), most=2, lease_ms=1))
    time.sleep(0.05)
    reader = reader_of(node, queue, columns="receives,sequence")
    rows = read(reader, *planned(reader))
    assert rows.to_pylist() == [{"sequence": n, "receives": times} for n, times in ((1, 1), (2, 1), (3, 0))]


def test_a_batch_larger_than_a_reservation_holds_is_several_and_one_of_several_queues_is_shared(node: Node, queue: str) -> None:
    one, two = f"{queue}-a", f"{queue}-b"
    node.push(one, bodies(0, 230_000))
    node.push(two, bodies(0, 1000))
    reader = reader_of(node, f"{queue}-*", maxRowsPerTrigger=220_000, columns="queue,body")
    start, end = planned(reader)
    assert share_of(end, one)["next"] - share_of(end, one)["first"] == 3
    rows = read(reader, start, end)
    assert rows.num_rows == 220_000 and set(rows["queue"].to_pylist()) == {one, two}, "none stands still behind a large one"
    assert dovetail.spark.lag({"sources": [{"endOffset": end, "latestOffset": reader.reportLatestOffset()}]}) == {
        one: 230_000 - share_of(end, one)["rows"],
        two: 1000 - share_of(end, two)["rows"],
    }
    following, rest = taken(reader, end)
    assert len(rest) == 11_000
    assert planned(reader, following)[1] == following
    assert node.counts(one).reserved == node.counts(two).reserved == 0


def test_without_a_limit_it_leaves_something_to_others(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 100_010))
    reader = reader_of(node, queue, columns="sequence")
    _, end = planned(reader)
    assert share_of(end, queue)["rows"] == 100_000
    assert share_of(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()), queue)["rows"] == 100_010, "trigger(once=True)"


def test_limits_in_bytes_and_few_rows_are_as_those_of_a_tap(node: Node, queue: str) -> None:
    node.push(queue, [bytes(1000)] * 5000)
    _, end = planned(reader_of(node, queue, maxBytesPerTrigger=1_000_000))
    assert share_of(end, queue)["rows"] == 1000
    few = reader_of(node, queue, minRowsPerTrigger=10_000, maxTriggerDelay="200ms")
    start, end = planned(few)
    assert end == start
    time.sleep(0.25)
    assert planned(few, start)[1] != start


def test_available_now_takes_what_was_there_and_ends_though_more_comes(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 250))
    reader = reader_of(node, queue, maxRowsPerTrigger=100, minRowsPerTrigger=1000)
    reader.prepareForTriggerAvailableNow()
    end, found = taken(reader)
    got = found
    while True:
        node.push(queue, bodies(1000, 1100))
        start, end = planned(reader, end)
        if start == end:
            break
        got += read(reader, start, end)["body"].to_pylist()
    assert got == bodies(0, 250)
    assert node.counts(queue).reserved == 0, "the last batch is settled too: Spark asks once more where to go on"


def test_a_batch_that_others_were_quicker_for_is_empty_and_stays_so(node: Node, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node.push(queue, bodies(0, 10))
    reader = reader_of(node, queue)
    start, end = planned(reader)
    assert len(node.receive(queue)) == 10
    assert read(reader, start, end).num_rows == 0
    node.push(queue, bodies(10, 20))
    assert read(reader, start, end).num_rows == 0, "it is the same whenever it is run"
    assert planned(reader, end)[1] == end, "the next try is not at once"
    monkeypatch.setattr(reader, "_pause_until", 0.0)
    assert taken(reader, end)[1] == bodies(10, 20)


def test_a_queue_that_comes_later_is_found_and_one_that_goes_is_a_loss(node: Node, queue: str) -> None:
    node.push(f"{queue}-a", bodies(0, 10))
    reader = reader_of(node, f"{queue}-*")
    end, _ = taken(reader)
    node.push(f"{queue}-b", bodies(10, 15))
    start = end
    end, found = taken(reader, start)
    assert found == bodies(10, 15)
    node.drop(f"{queue}-a")
    with pytest.raises(DataLost, match=f"'{queue}-a' is gone"):
        planned(reader, end)
    node.push(f"{queue}-a", bodies(50, 60))
    with pytest.raises(DataLost, match="made again"):
        planned(reader, end)
    with pytest.raises(DataLost, match="made again"):
        reader_of(node, f"{queue}-*").partitions(
            start, {**end, "queues": {f"{queue}-a": {"id": 1, "lanes": {"0": share_of(end, f"{queue}-b")}}}}
        )
    tolerant = reader_of(node, f"{queue}-*", failOnDataLoss="false")
    assert taken(tolerant, end)[1] == bodies(50, 60)
    with pytest.raises(NoSuchQueue):
        reader_of(node, f"{queue}-not-there").initialOffset()


# Beside others


def test_beside_an_ordinary_consumer_each_message_is_with_exactly_one_wherever_the_stream_dies(
    node: Node, queue: str, tmp_path: Path
) -> None:
    others: list[bytes] = []
    engine = engine_of(node, queue, tmp_path)
    pushed = 0
    for point in ("before WAL", "after WAL", "in a task", "before sink", "after sink", "after commits/N"):
        node.push(queue, bodies(pushed, pushed + 300))
        pushed += 300
        with pytest.raises(Crash):
            engine.run(point)
        others += node.receive(queue, 70)
    engine.run()
    others += node.receive(queue)
    assert len(others) >= 5 * 70
    assert sorted(sunk(engine) + others) == sorted(bodies(0, pushed))


def test_twin_who_leases_and_acknowledges_doubles_without_any_failure(node: Node, queue: str) -> None:
    """What a source does that has nothing but leases: receive in `partitions`, acknowledge in `commit`, which lags one batch. It is stopped
    behind a whole batch, and started again."""
    node.push(queue, bodies(0, 20))
    known, sink = node.declare(queue), list[bytes]()
    for _ in range(2):
        pull = node.line.ask(requests.Pull(known, most=10, lease_ms=50))
        sink += map(bytes, pull.bodies)  # The sink's commit; Spark's commit of the source would come with the next batch.
        time.sleep(0.1)
    assert len(sink) == 20 and len(set(sink)) == 10


def test_what_a_query_has_is_not_given_up_while_it_is_away(local_node: Node, queue: str, tmp_path: Path) -> None:
    """Killed with all that it had set aside, and the node with it."""
    local_node.push(queue, bodies(0, 300))
    engine = engine_of(local_node, queue, tmp_path / "checkpoint")
    for point in ("in a task", "after sink"):
        with pytest.raises(Crash):
            engine.run(point, 1)
        local_node.kill()
        local_node.start()
        assert local_node.counts(queue).reserved == 100
    assert len(local_node.receive(queue, 30)) == 30
    engine.run()
    assert sorted(sunk(engine)) == sorted([*bodies(0, 200), *bodies(230, 300)])


def test_a_node_that_is_killed_within_a_batch_is_waited_for(local_node: Node, queue: str) -> None:
    local_node.push(queue, bodies(0, 50_000))
    reader = reader_of(local_node, queue, partitions=1)
    start, end = planned(reader)
    local_node.kill()
    local_node.start()
    (part,) = reader.partitions(start, end)
    reading = reader.read(part)
    got = [next(reading)]
    local_node.kill()
    local_node.start()
    got += list(reading)
    assert pa.Table.from_batches(got)["body"].to_pylist() == bodies(0, 50_000)
    assert planned(reader, end)[1] == end
    assert local_node.counts(queue).reserved == 0


# Settling


def test_a_batch_is_settled_when_spark_asks_where_to_go_on_and_not_before(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 300))
    engine = engine_of(node, queue, tmp_path)
    for batch in range(3):
        with pytest.raises(Crash):
            engine.run("after sink", batch)
        assert node.counts(queue).reserved == 100, "in the sink, but not in Spark's commit log"
        assert engine.run(batches_max=1) == 1
        assert node.reservation(queue, "r").settled == batch - 1
    engine.run()
    assert node.reservation(queue, "r").settled == 2 and node.counts(queue).reserved == 0


def test_twin_what_is_settled_before_the_sink_has_it_is_lost_and_the_query_says_so(
    node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.push(queue, bodies(0, 300))
    engine = engine_of(node, queue, tmp_path)
    real = CompetingReader.partitions

    def hasty(self: CompetingReader, start: Offset, end: Offset) -> Any:
        parts = real(self, start, end)
        self.owner.settle(queue, Shares.of(end).shares[queue])
        return parts

    with monkeypatch.context() as patch:
        patch.setattr(CompetingReader, "partitions", hasty)
        with pytest.raises(BatchRefused, match="settled by another driver"):
            engine.run()
    with pytest.raises(DataLost, match="batch 0 is to be read again and was settled"):
        engine.run()
    assert sunk(engine) == [] and node.counts(queue).visible == 200, "100 are gone"


def test_a_listener_settles_sooner_under_the_epoch_of_the_batch(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 250))
    engine = engine_of(node, queue, tmp_path)
    engine.after_progress = partial(released, Survey(options_of(engine.options)))
    assert engine.run(batches_max=2) == 2
    assert node.reservation(queue, "r").settled == 1 and node.counts(queue).reserved == 0
    with pytest.raises(Crash):
        engine.run("in a task")
    # It is run again by a driver of another epoch: the listener's settle is refused, which is no error, and the driver does it.
    assert engine.run(batches_max=1) == 1
    assert node.reservation(queue, "r").settled == 1
    engine.run()
    assert node.reservation(queue, "r").settled == 2
    assert sunk(engine) == bodies(0, 250)


def test_a_batch_that_spark_finishes_without_reading_it_is_taken_by_nobody(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 10))
    reader = reader_of(node, queue)
    _, end = planned(reader)
    start, following = planned(reader, end)  # Its partitions were never asked for.
    assert read(reader, start, following)["body"].to_pylist() == bodies(0, 10)
    again = reader_of(node, queue)
    assert planned(again, following)[1] == following and node.counts(queue).reserved == 0


# Owners


def test_of_two_drivers_the_older_one_ends_and_says_why(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 100))
    older, newer = reader_of(node, queue, maxRowsPerTrigger=10), reader_of(node, queue, maxRowsPerTrigger=10)
    start, end = planned(older)
    rows = read(older, start, end)
    assert read(newer, newer.initialOffset(), end).equals(rows), "the newer one runs the same batch again"
    with pytest.raises(Fenced, match="was opened by another query or driver, so this one ends"):
        planned(older, end)
    following, found = taken(newer, end)
    assert found == bodies(10, 20)
    with pytest.raises(Fenced):
        older.partitions(end, following)
    assert planned(newer, following)[1] != following


def test_a_query_without_the_checkpoint_is_refused_and_leaves_the_owner_alone(node: Node, queue: str) -> None:
    """Its checkpoint was lost, or it is another query that was given the same name."""
    node.push(queue, bodies(0, 30))
    owner = reader_of(node, queue, maxRowsPerTrigger=10)
    end, _ = taken(owner)
    stranger = reader_of(node, queue, maxRowsPerTrigger=10)
    with pytest.raises(DataLost, match=f"belong to another checkpoint.*10 messages are set aside.*dovetail queue release {queue} r"):
        planned(stranger)
    following, found = taken(owner, end)
    assert found == bodies(10, 20), "nobody has taken it from its owner"
    tolerant = reader_of(node, queue, maxRowsPerTrigger=10, failOnDataLoss="false")
    at, found = taken(tolerant)
    assert found == bodies(10, 20), "it goes on with what was set aside, which the sink may have"
    assert taken(tolerant, at)[1] == bodies(20, 30)
    with pytest.raises(Fenced):
        planned(owner, following)


def test_a_new_checkpoint_goes_on_where_everything_is_settled(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 20))
    first = reader_of(node, queue, maxRowsPerTrigger=10)
    end, _ = taken(first)
    end, _ = taken(first, end)
    assert planned(first, end)[1] == end
    node.push(queue, bodies(20, 25))
    assert taken(reader_of(node, queue))[1] == bodies(20, 25)


def test_an_older_copy_of_a_checkpoint_is_refused(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 30))
    reader = reader_of(node, queue, maxRowsPerTrigger=10)
    start, end = planned(reader)
    read(reader, start, end)
    taken(reader, taken(reader, end)[0])
    with pytest.raises(DataLost, match="or this one is an older copy"):
        planned(reader_of(node, queue), end)
    with pytest.raises(DataLost, match="batch 0 is to be read again and was settled"):
        reader_of(node, queue).partitions(start, end)
    assert reader_of(node, queue, failOnDataLoss="false").partitions(start, end) == []


def test_a_reservation_that_was_closed_and_made_again_is_refused(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 30))
    reader = reader_of(node, queue, maxRowsPerTrigger=10)
    end, _ = taken(reader)
    end, _ = taken(reader, end)
    node.line.ask(requests.Reservation(Kind.RESERVE_CLOSE, node.declare(queue), "r"))
    with pytest.raises(Fenced):
        planned(reader, end)
    with pytest.raises(DataLost, match="was closed and begun anew"):
        planned(reader_of(node, queue), end)


# An operator


def test_what_an_operator_releases_goes_to_others_and_the_query_ends_loudly(
    node: Node, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(competing, "EMPTY_PAUSE_S", 0.0)
    node.push(queue, bodies(0, 30))
    reader = reader_of(node, queue, maxRowsPerTrigger=10, partitions=1)
    start, end = planned(reader)
    (part,) = reader.partitions(start, end)
    assert node.release(queue, "r") == 10
    with pytest.raises(BatchRefused, match="released by an operator"):
        list(reader.read(part))
    with pytest.raises(Fenced, match="was released by an operator, so this query ends"):
        planned(reader, end)
    again = reader_of(node, queue, maxRowsPerTrigger=10)
    with pytest.raises(DataLost, match="batch 0 was released before it was settled"):
        again.partitions(start, end)
    with pytest.raises(DataLost, match="batch 0 was released before it was settled"):
        planned(again, end)
    assert node.receive(queue, 5) == bodies(0, 5)
    tolerant = reader_of(node, queue, maxRowsPerTrigger=10, failOnDataLoss="false")
    assert tolerant.partitions(start, end) == []
    assert taken(tolerant, end)[1] == bodies(5, 15)


# What cannot be


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"reservation": ""}, "a name of 1 to 128 bytes"),
        ({"mode": "lease"}, "tap or reserve, not 'lease'"),
        ({"mode": "tap", "reservation": ""}, "option mode: tap needs the option tap"),
        ({"mode": ""}, "option reservation: it goes with mode=reserve"),
        ({"tap": "t"}, "option tap: not with mode=reserve"),
        ({"startingOffsets": "latest"}, "option startingOffsets: not with mode=reserve"),
        ({"columns": "state"}, "there is no column 'state'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(told: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        options_of({"queue": "q", "mode": "reserve", "reservation": "r", **told})


def test_a_batch_read_is_refused_and_says_what_to_do(node: Node, queue: str) -> None:
    with pytest.raises(BadRequest, match=r"spark\.readStream with trigger\(availableNow=True\)"):
        BatchReader(options_of(said(node, queue)), pa.schema([]))


def test_a_checkpoint_of_a_tap_another_reservation_or_another_node_is_refused(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 10))
    start = reader_of(node, queue).initialOffset()
    tap = StreamReader(options_of({"endpoint": node.endpoint, "queue": queue, "tap": "t"}), pa.schema([]))
    with pytest.raises(BadRequest, match="belongs to the tap 't'"):
        planned(reader_of(node, queue), tap.initialOffset())
    with pytest.raises(BadRequest, match="belongs to the reservation 'r': a tap needs a new one"):
        tap.latestOffset(start, ReadAllAvailable())
    with pytest.raises(BadRequest, match="reservation 'r', and option reservation says 's'"):
        planned(reader_of(node, queue, reservation="s"), start)
    with pytest.raises(BadRequest, match="another node"):
        planned(reader_of(node, queue), {**start, "origin": "00"})


def test_from_queue_to_queue_beside_a_consumer_each_message_is_somewhere_once(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 300))
    engine = engine_of(node, queue, tmp_path)
    engine.sink = target = QueueSink(node, f"{queue}-out")
    target.crash_at, target.in_batch = "after publish", 1
    with pytest.raises(Crash):
        engine.run()
    others = node.receive(queue, 40)
    target.crash_at = ""
    engine.run()
    assert sorted(node.waiting(f"{queue}-out") + others) == sorted(bodies(0, 300))


def test_a_batch_that_waits_for_nothing_costs_spark_no_batch(node: Node, queue: str) -> None:
    node.declare(queue)
    reader = reader_of(node, queue)
    start, end = planned(reader)
    assert start == end
    assert node.reservation(queue, "r").last == -1
