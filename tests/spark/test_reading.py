"""The source without Spark: its reader's own methods against a real node. No JVM."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from dovetail.client.address import Credentials
from dovetail.core.message import Attribute
from dovetail.doors.native import codec
from dovetail.doors.native.codec import AccessDenied, Code, answers
from dovetail.errors import BadRequest, FormatUnknown, NoSuchQueue, Unavailable
from dovetail.spark import fetch, shape
from dovetail.spark.batch import BatchReader
from dovetail.spark.options import COLUMNS, options_of
from dovetail.spark.stream import StreamReader
from dovetail.spark.survey import DataLost
from tests.spark.house import Node, bodies

pytestmark = pytest.mark.slow

NONE = pa.schema([])


def reader_of(node: Node, queue: str, **more: Any) -> StreamReader:
    return StreamReader(options_of({"endpoint": node.endpoint, "queue": queue, "tap": "t", "timeout": "120s", **more}), NONE)


def batch_of(reader: StreamReader, start: Any, end: Any) -> pa.Table:
    task = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in reader.partitions(start, end) for batch in task.read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(batches, shape.schema(reader.options.columns))


def all_of(node: Node, queue: str, **more: Any) -> pa.Table:
    options = options_of({"endpoint": node.endpoint, "queue": queue, **more})
    reader = BatchReader(options, NONE)
    return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)], shape.schema(options.columns))


def next_of(offset: dict[str, Any], queue: str) -> int:
    return int(offset["queues"][queue]["lanes"]["0"]["next"])


def test_batches_have_the_schema_that_spark_makes_of_ours() -> None:
    attribute = StructType([StructField("type", StringType()), StructField("value", BinaryType())])
    types = [StringType(), LongType(), TimestampType(), BinaryType(), StringType(), MapType(StringType(), attribute), BinaryType()]
    spark = StructType([StructField(name, kind) for name, kind in zip(COLUMNS, types, strict=True)])
    assert to_arrow_schema(spark, timezone="UTC").equals(shape.schema(COLUMNS))


def test_a_range_gives_every_message_once_with_all_that_it_carries(node: Node, queue: str) -> None:
    reader = reader_of(node, queue, partitions=3)
    node.push(
        queue,
        bodies(0, 2500),
        {"trace": Attribute("String", "é".encode()), "n": Attribute("Number", b"7")},
        [b"g%d" % (n % 3) for n in range(2500)],
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(reader.partitions(start, end)) == 3
    rows = batch_of(reader, start, end)
    assert rows["body"].to_pylist() == bodies(0, 2500)
    assert rows["sequence"].to_pylist() == list(range(1, 2501))
    assert set(rows["queue"].to_pylist()) == {queue}
    assert rows["group"].to_pylist()[:4] == ["g0", "g1", "g2", "g0"]
    assert dict(rows["attributes"][0].as_py()) == {
        "trace": {"type": "String", "value": "é".encode()},
        "n": {"type": "Number", "value": b"7"},
    }
    assert len(set(rows["id"].to_pylist())) == 2500
    assert abs(rows["time"][0].as_py() - datetime.now(UTC)).total_seconds() < 60
    assert batch_of(reader, start, end).equals(rows), "a replay is the same"
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_large_messages_come_whole_and_in_order(node: Node, queue: str) -> None:
    reader = reader_of(node, queue, columns="body,sequence", partitions=2)
    large = [bytes([65 + number % 26]) * 900_000 for number in range(30)]
    for body in large:
        node.push(queue, [body])
    node.push(queue, bodies(0, 20_000))
    start = reader.initialOffset()
    rows = batch_of(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    assert rows.column_names == ["sequence", "body"]
    assert rows["body"].to_pylist() == large + bodies(0, 20_000)


def test_who_stops_reading_in_the_middle_leaves_nothing_behind_on_the_line(node: Node, queue: str) -> None:
    reader = reader_of(node, queue)
    node.push(queue, bodies(0, 60_000))
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    reach = reader.options.reach()
    some = fetch.read(reach, reader.options, part.range)  # type: ignore[attr-defined]
    next(some)
    some.close()
    assert sum(batch.num_rows for batch in fetch.read(reach, reader.options, part.range)) == 60_000  # type: ignore[attr-defined]


def test_without_a_tap_a_read_shows_what_waits_and_takes_nothing(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 12_000))
    rows = all_of(node, queue, partitions=2)
    assert rows["body"].to_pylist() == bodies(0, 12_000)
    assert set(rows["state"].to_pylist()) == {"visible"} and set(rows["receives"].to_pylist()) == {0}
    tapped = all_of(node, queue, tap="t")
    assert rows["id"].to_pylist() == tapped["id"].to_pylist(), "an id is the same however it is read"
    assert all_of(node, queue, columns="body")["body"].to_pylist() == bodies(0, 12_000)
    node.drop(queue)
    node.declare(queue)
    assert all_of(node, queue).num_rows == 0


def test_limits_share_a_batch_among_queues_by_what_waits(node: Node, queue: str) -> None:
    one, two = f"{queue}-a", f"{queue}-b"
    node.push(one, bodies(0, 9000))
    node.push(two, bodies(0, 1000))
    reader = reader_of(node, f"{two}, {one}", maxRowsPerTrigger=1000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert (next_of(end, one), next_of(end, two)) == (901, 101)
    assert next_of(reader.reportLatestOffset() or {}, one) == 9001, "the lag is seen"
    everything = reader.latestOffset(start, ReadAllAvailable())
    assert (next_of(everything, one), next_of(everything, two)) == (9001, 1001), "trigger(once=True) knows no limits"


def test_a_limit_in_bytes_holds_about(node: Node, queue: str) -> None:
    node.push(queue, [bytes(1000)] * 5000)
    reader = reader_of(node, queue, maxBytesPerTrigger=1_000_000)
    start = reader.initialOffset()
    assert 700 < next_of(reader.latestOffset(start, reader.getDefaultReadLimit()), queue) < 1100


def test_few_rows_wait_for_more_but_not_for_ever(node: Node, queue: str) -> None:
    reader = reader_of(node, queue, minRowsPerTrigger=100, maxTriggerDelay="300ms")
    node.push(queue, bodies(0, 10))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start
    node.push(queue, bodies(10, 200))
    end = reader.latestOffset(start, limit)
    assert next_of(end, queue) == 201
    node.push(queue, bodies(200, 210))
    assert reader.latestOffset(end, limit) == end
    time.sleep(0.35)
    assert next_of(reader.latestOffset(end, limit), queue) == 211


def test_available_now_ends_where_it_began_to_look(node: Node, queue: str) -> None:
    reader = reader_of(node, queue, maxRowsPerTrigger=60, minRowsPerTrigger=1000)
    node.push(queue, bodies(0, 100))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    node.push(queue, bodies(100, 300))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    last = reader.latestOffset(first, limit)
    assert (next_of(first, queue), next_of(last, queue)) == (61, 101)
    assert reader.latestOffset(last, limit) == last


def test_where_reading_starts(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 100))
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    node.push(queue, bodies(100, 150))

    def first(tap: str, said: str) -> int:
        return next_of(reader_of(node, queue, tap=tap, startingOffsets=said).initialOffset(), queue)

    assert first("one", "earliest") == 1
    assert first("two", "latest") == 151
    node.push(queue, bodies(150, 160))
    assert first("two", "latest") == 151, "a tap that is there goes on where it is: a query that died before its first batch loses nothing"
    assert first("three", json.dumps({queue: 42})) == 42
    assert first("four", between.isoformat()) == 101
    assert first("four", "2099-01-01") == 161
    assert all_of(node, queue, tap="one", startingOffsets=json.dumps({queue: 11}), endingOffsets=between.isoformat()).num_rows == 90


def test_a_query_that_starts_at_the_latest_in_a_pattern_reads_new_queues_from_their_beginning(node: Node, queue: str) -> None:
    node.push(f"{queue}-a", bodies(0, 10))
    reader = reader_of(node, f"{queue}-*")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    node.push(f"{queue}-b", bodies(10, 15))
    node.push("another", bodies(0, 3))
    second = reader.latestOffset(first, ReadAllAvailable())
    assert sorted(second["queues"]) == [f"{queue}-a", f"{queue}-b"]
    rows = batch_of(reader, first, second)
    assert rows["body"].to_pylist() == bodies(10, 15)
    node.push(f"{queue}-b", bodies(15, 20))
    assert batch_of(reader, first, second).equals(rows)


def test_what_is_committed_is_released_and_nothing_else(node: Node, queue: str) -> None:
    reader = reader_of(node, queue, maxRowsPerTrigger=30)
    node.push(queue, bodies(0, 100))
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.latestOffset(first, reader.getDefaultReadLimit())
    assert node.tap(queue, "t").next == 1
    reader.commit(first)
    reader.commit(first)
    reader.commit(start)
    assert node.tap(queue, "t").next == 31


def test_a_queue_that_was_made_again_fails_loudly(node: Node, queue: str) -> None:
    reader = reader_of(node, queue)
    node.push(queue, bodies(0, 10))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    node.drop(queue)
    with pytest.raises(DataLost, match="is gone"):
        reader.latestOffset(end, ReadAllAvailable())
    node.push(queue, bodies(50, 60))
    with pytest.raises(DataLost, match="dropped and made again"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises((DataLost, NoSuchQueue), match="made again"):
        batch_of(reader, start, end)
    tolerant = reader_of(node, queue, failOnDataLoss="false")
    again = tolerant.latestOffset(end, ReadAllAvailable())
    assert batch_of(tolerant, end, again)["body"].to_pylist() == bodies(50, 60)


def test_a_queue_of_a_pattern_that_vanished_is_a_loss_also_for_available_now(node: Node, queue: str) -> None:
    for name in ("a", "b"):
        node.push(f"{queue}-{name}", bodies(0, 10))
    reader = reader_of(node, f"{queue}-*")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    node.drop(f"{queue}-a")
    reader.commit(end)
    assert node.tap(f"{queue}-b", "t").next == 11, "the others are released all the same"
    again = reader_of(node, f"{queue}-*")
    again.prepareForTriggerAvailableNow()
    with pytest.raises(DataLost, match=f"The queue '{queue}-a' is gone"):
        again.latestOffset(end, ReadAllAvailable())
    tolerant = reader_of(node, f"{queue}-*", failOnDataLoss="false")
    tolerant.prepareForTriggerAvailableNow()
    assert list(tolerant.latestOffset(end, ReadAllAvailable())["queues"]) == [f"{queue}-b"]


def test_a_gap_is_named(node: Node, queue: str) -> None:
    reader = reader_of(node, queue)
    node.push(queue, bodies(0, 100))
    start = reader.initialOffset()
    node.advance(queue, "t", 41)
    with pytest.raises(DataLost, match=r"messages 1 to 40 of .* are gone"):
        reader.latestOffset(start, ReadAllAvailable())
    tolerant = reader_of(node, queue, failOnDataLoss="false")
    end = tolerant.latestOffset(start, ReadAllAvailable())
    assert batch_of(tolerant, start, end)["body"].to_pylist() == bodies(40, 100)


def test_offsets_of_another_tap_node_or_version_are_refused(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 10))
    start = reader_of(node, queue).initialOffset()
    with pytest.raises(BadRequest, match="tap 't', and option tap says 'u'"):
        reader_of(node, queue, tap="u").latestOffset(start, ReadAllAvailable())
    with pytest.raises(BadRequest, match="another node"):
        reader_of(node, queue).latestOffset({**start, "origin": "00"}, ReadAllAvailable())
    with pytest.raises(FormatUnknown, match="newer"):
        reader_of(node, queue).latestOffset({**start, "version": 2}, ReadAllAvailable())
    with pytest.raises(BadRequest, match="no offsets of Dovetail"):
        reader_of(node, queue).latestOffset({"0": 5}, ReadAllAvailable())


def test_a_node_that_is_killed_and_comes_back_is_waited_for(local_node: Node, queue: str) -> None:
    local_node.push(queue, bodies(0, 50_000))
    reader = reader_of(local_node, queue, partitions=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (part,) = reader.partitions(start, end)
    reading = reader.read(part)
    got = [next(reading)]
    local_node.kill()
    local_node.start()
    got += list(reading)
    assert pa.Table.from_batches(got)["body"].to_pylist() == bodies(0, 50_000)
    assert reader.latestOffset(start, ReadAllAvailable()) == end


def test_a_line_that_was_silent_for_too_long_is_made_again(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 10))
    reader = reader_of(node, queue)
    start = reader.initialOffset()
    # What a node says before it closes a connection on which nothing came for two minutes.
    said = answers.encode(answers.Error(Code.PROTOCOL, "nothing came for 120 seconds"), 0)
    (frame,) = codec.Reader().feed(said)
    assert isinstance(frame, codec.Frame)
    reader.survey.reach.line._frames.append(frame)
    assert next_of(reader.latestOffset(start, ReadAllAvailable()), queue) == 11


def test_another_address_is_taken_where_one_does_not_answer(node: Node, queue: str) -> None:
    node.push(queue, bodies(0, 10))
    assert all_of(node, queue, endpoint=f"dovetail://127.0.0.1:1,127.0.0.1:{node.port}").num_rows == 10
    with pytest.raises(Unavailable, match=r"no node can be reached at 127\.0\.0\.1:1"):
        all_of(node, queue, endpoint="dovetail://127.0.0.1:1", timeout="0s")


def test_a_key_is_proved_and_shown_nowhere(tmp_path: Path) -> None:
    node = Node(f"local:{tmp_path / 'data'}", "--auth", "signed", credentials=Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI-secret")).start()
    try:
        node.push("orders", bodies(0, 10))
        said = {
            "endpoint": node.endpoint,
            "queue": "orders",
            "tap": "t",
            "key": "AKIDEXAMPLE",
            "secret": "wJalrXUtnFEMI-secret",
            "timeout": "0s",
        }
        reader = StreamReader(options_of(said), NONE)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert batch_of(reader, start, end).num_rows == 10
        for shown in (repr(reader.options), repr(reader.partitions(start, end)), json.dumps(end), repr(reader.survey.reach), repr(reader)):
            assert "secret" not in shown and "AKID" not in shown
        with pytest.raises(AccessDenied):
            StreamReader(options_of({**said, "secret": "wrong"}), NONE).initialOffset()
        with pytest.raises(AccessDenied, match="set the options key and secret"):
            StreamReader(options_of({**said, "key": "", "secret": ""}, {}), NONE).initialOffset()
    finally:
        node.stop()
