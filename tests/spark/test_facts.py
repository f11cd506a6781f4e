"""The facts table: what happened on a node, as Spark reads it; most of it without a JVM."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.operation import Push
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest
from dovetail.spark import facts, fetch
from dovetail.spark.batch import BatchReader
from dovetail.spark.following import release
from dovetail.spark.options import FACTS_COLUMNS, options_of
from dovetail.spark.source import DovetailSource
from dovetail.spark.stream import StreamReader
from dovetail.spark.survey import DataLost
from tests.spark.house import Node

pytestmark = pytest.mark.slow

NONE = pa.schema([])
SCHEMA = pa.schema([pa.field(name, facts.KINDS[name][0]) for name in FACTS_COLUMNS])


def told(node: Node, tap: str, **more: Any) -> dict[str, Any]:
    return {"endpoint": node.endpoint, "table": "facts", "tap": tap, "timeout": "120s", **more}


def lives(node: Node, name: str, count: int) -> None:
    """Messages that are pushed and received, and done with."""
    queue = node.declare(name)
    node.push(name, [b"%d" % number for number in range(count)])
    left = count
    while left:
        left -= sum(run.length for run in node.line.ask(requests.Pull(queue, min(left, 1000), delete=True)).runs)


def rows(reader: BatchReader | StreamReader, parts: list[Any]) -> pa.Table:
    task = pickle.loads(pickle.dumps(reader))
    return pa.Table.from_batches([batch for part in parts for batch in task.read(pickle.loads(pickle.dumps(part)))], SCHEMA)


def all_of(node: Node, tap: str, **more: Any) -> pa.Table:
    reader = BatchReader(options_of(told(node, tap, **more)), NONE)
    return rows(reader, reader.partitions())


def close(node: Node, tap: str) -> None:
    node.line.ask(requests.FactsAbout(Kind.FACTS_CLOSE, tap))


def test_batches_have_the_schema_that_spark_makes_of_ours() -> None:
    made = {"BIGINT": LongType(), "INT": IntegerType(), "TIMESTAMP": TimestampType(), "STRING": StringType(), "BINARY": BinaryType()}
    columns = str(DovetailSource({"table": "facts", "tap": "t"}).schema()).replace("`", "").split(", ")
    spark = StructType([StructField(name, made[kind]) for name, kind in (column.split() for column in columns)])
    assert to_arrow_schema(spark, timezone="UTC").equals(SCHEMA)


def test_a_batch_reads_every_fact_once_whatever_its_parts(local_node: Node, queue: str) -> None:
    node = local_node
    assert all_of(node, "t").num_rows == 0, "the first facts tap begins with what happens next"
    lives(node, queue, 20_000)
    whole = all_of(node, "t")
    assert Counter(whole["kind"].to_pylist()) == {"create": 1, "push": 20_000, "delivery": 20_000, "complete": 20_000}
    assert whole["number"].to_pylist() == list(range(1, 60_002))
    assert set(whole["queue"].to_pylist()) == {queue}
    parted = all_of(node, "t", partitions="7")
    assert parted.equals(whole)
    some = all_of(node, "t", startingOffsets='{"facts": 9000}', endingOffsets='{"facts": 30000}')
    assert some.equals(whole.slice(8999, 21_000))
    times = whole["time"].to_pylist()
    later = all_of(node, "t", startingOffsets=times[20_000].isoformat())
    assert later["number"][0].as_py() == times.index(times[20_000]) + 1


def test_a_batch_of_a_stream_is_read_again_the_same_also_after_a_kill(local_node: Node, queue: str) -> None:
    node = local_node
    reader = StreamReader(options_of(told(node, "t")), NONE)
    start = reader.initialOffset()
    lives(node, queue, 300)
    end = reader.latestOffset(start, ReadAllAvailable())
    first = rows(reader, reader.partitions(start, end))
    assert first.num_rows == 901
    node.kill()
    node.start()
    again = StreamReader(options_of(told(node, "t")), NONE)
    assert rows(again, again.partitions(start, end)).equals(first)
    again.commit(end)
    assert next(one.next for one in node.line.ask(requests.FactsAbout(Kind.FACTS_LIST)).taps) == 902
    with pytest.raises(DataLost, match="facts 1 to 901"):
        again.partitions(start, end)
    lives(node, queue, 10)
    later = again.latestOffset(end, ReadAllAvailable())
    assert rows(again, again.partitions(end, later)).num_rows == 30
    again.stop()


def test_facts_of_other_namespaces_leave_holes_and_no_gap(local_node: Node) -> None:
    node = local_node
    all_of(node, "t")
    for number in range(3):
        for namespace in ("theirs", ""):
            queue = int(node.line.ask(requests.Declare(f"q{number}", {}, namespace)).queue)
            lives_in(node, queue, 9_000 if namespace else 10)
    table = all_of(node, "t")
    assert Counter(table["kind"].to_pylist()) == {"create": 3, "push": 30}
    later = all_of(node, "t", startingOffsets='{"facts": 9005}')
    assert later["number"].to_pylist() == [one for one in table["number"].to_pylist() if one >= 9005]
    assert all_of(node, "t2", namespace="theirs").num_rows == 27_003, "a later facts tap may begin with what another keeps"


def lives_in(node: Node, queue: int, count: int) -> None:
    for at in range(0, count, 3_000):
        some = Column.of([b"x"] * min(3_000, count - at))
        node.line.ask(requests.Push(codec.encode_push(Push((queue,), some))))


def test_options_that_make_no_sense_with_facts_are_refused() -> None:
    for more in ({"queue": "orders"}, {"mode": "reserve", "reservation": "r"}, {"bodyFormat": "json"}, {"table": "rows"}, {"tap": ""}):
        with pytest.raises(BadRequest):
            options_of({"table": "facts", "tap": "t", **more})
    assert options_of({"queue": "orders", "table": "messages"}).facts is False


def test_spark_reads_facts_as_a_batch_and_as_a_stream(local_node: Node, queue: str, spark: Any, tmp_path: Path) -> None:
    options = told(local_node, "audit")
    frame = spark.read.format("dovetail").options(**options).load
    assert frame().count() == 0
    lives(local_node, queue, 500)
    counted = {row["kind"]: row["count"] for row in frame().groupBy("kind").count().collect()}
    assert counted == {"create": 1, "push": 500, "delivery": 500, "complete": 500}
    out = str(tmp_path / "out")
    stream = spark.readStream.format("dovetail").options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", out).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    release(query.lastProgress, **options)
    assert [row["number"] for row in spark.read.parquet(out).select("number").orderBy("number").collect()] == list(range(1, 1502))
    taps = local_node.line.ask(requests.FactsAbout(Kind.FACTS_LIST)).taps
    assert [(one.name, one.next, one.end) for one in taps] == [("audit", 1502, 1502)]


def test_a_node_with_older_data_than_the_checkpoint_is_not_read_for_ever(node: Node) -> None:
    reach = options_of(told(node, "older", timeout="0s")).reach()
    with pytest.raises(Exception, match="older"):
        part = fetch.Range(facts.FACTS, 0, 5_000_000, 5_000_010)
        BatchReader(options_of(told(node, "older", timeout="0s")), NONE).partitions()
        list(fetch.read(reach, options_of(told(node, "older", timeout="0s")), part))
    reach.drop()
    close(node, "older")
