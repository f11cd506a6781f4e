"""What only Spark itself can show, in one session: it finds the source, shows no secret, replays what it must, releases what it may."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr

import dovetail.spark
from dovetail.core.message import decode_attributes
from dovetail.doors.native.codec import requests
from dovetail.spark.options import COLUMNS
from dovetail.spark.pipelines import find
from dovetail.spark.pipelines.archive import Step, start
from dovetail.spark.pipelines.published import Published
from dovetail.spark.pipelines.replay import replay
from dovetail.spark.sessions import MANAGER, QUICK
from tests.spark.crashing import CrashingSource, crash
from tests.spark.house import MODES, Node, bodies
from tests.spark.streams import started

pytestmark = pytest.mark.slow

POINTS = ["before-wal", "after-wal", "in-task", "before-sink", "after-sink", "before-commit", "after-commit"]


def until(true: Callable[[], bool], otherwise: str) -> None:
    """However long it takes on this machine."""
    deadline = time.monotonic() + 600
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def options_of(node: Node, queue: str, **more: Any) -> dict[str, Any]:
    return {"endpoint": node.endpoint, "queue": queue, "tap": "t", **more}


def test_a_batch_read_finds_the_source_and_shows_no_secret(spark: Any, node: Node, queue: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert spark.conf.get(MANAGER) == QUICK, "Spark has it under another name now"
    node.push(queue, bodies(0, 1000))
    said = options_of(node, queue, key="AKIDEXAMPLE", secret="wJalrXUtnFEMI", partitions=2)
    rows = spark.read.format("dovetail").options(**said).load()
    found = rows.selectExpr("count(*)", "count(distinct id)", "min(sequence)", "max(sequence)").first()
    assert tuple(found) == (1000, 1000, 1, 1000)
    rows.explain(True)
    spark.sql("SET").count()
    shown = capfd.readouterr()
    assert "wJalr" not in shown.out + shown.err
    said.pop("tap")
    waiting = spark.read.format("dovetail").options(**said).load()
    assert {(row.state, row["count"]) for row in waiting.groupBy("state").count().collect()} == {("visible", 1000)}
    with pytest.raises(PySparkException, match="there is no option 'maxrowpertrigger'"):
        spark.read.format("dovetail").options(**said, maxRowPerTrigger=5).load()


def query_of(spark: Any, said: dict[str, Any], target: Path, folder: Path, sink: Step | None) -> Any:
    """A stream into Spark's own file sink, or into an archive."""
    stream = spark.readStream.format("crashing").options(**said, folder=str(folder)).load().select("sequence", "queue", "time", "body")
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    if sink is None:
        return started(writer.format("parquet").option("path", str(target)))

    def step(rows: Any, batch: int) -> None:
        crash(str(folder), "before-sink")
        sink(rows, batch)
        crash(str(folder), "after-sink")

    return started(writer.foreachBatch(step))


@pytest.mark.parametrize(("kind", "mode"), [("file sink", "tap"), ("archive", "tap"), ("archive", "reserve")])
def test_a_query_that_dies_at_every_point_loses_and_doubles_nothing(
    spark: Any, node: Node, queue: str, tmp_path: Path, kind: str, mode: str
) -> None:
    spark.dataSource.register(CrashingSource)
    said = {"endpoint": node.endpoint, "queue": queue, "maxRowsPerTrigger": 500, "partitions": 2, **MODES[mode]}
    target = tmp_path / "target"
    sink = Step(Published(target, "t")) if kind == "archive" else None
    pushed = died = 0
    points = POINTS if sink else [point for point in POINTS if "sink" not in point]
    if mode == "reserve":
        points = ["before-wal", "after-wal", "in-task", "after-sink"]  # All of them without a JVM: test_table.py.
    for point in points:
        node.push(queue, bodies(pushed, pushed + 1000))
        pushed += 1000
        (tmp_path / f"crash-{point}").touch()
        try:
            query_of(spark, said, target, tmp_path, sink).awaitTermination()
        except PySparkException as error:
            assert point in str(error)
            died += 1
        # The state that a driver leaves which dies between the sink's commit and its own commit log.
        commits = sorted((int(file.name) for file in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")), reverse=True)
        if commits and point in ("in-task", "before-commit"):
            for file in (tmp_path / "checkpoint" / "commits").glob(f"*{commits[0]}*"):
                file.unlink()
    assert died >= (3 if mode == "reserve" else 4)
    for point in POINTS:
        (tmp_path / f"crash-{point}").unlink(missing_ok=True)
    query_of(spark, said, target, tmp_path, sink).awaitTermination()
    read = spark.read.parquet(str(target)) if sink is None else None
    found = (
        [row.body for row in read.collect()] if read is not None else ds.dataset(target, partitioning="hive").to_table()["body"].to_pylist()
    )
    assert sorted(map(bytes, found)) == sorted(bodies(0, pushed))
    if mode == "reserve":
        counts = node.counts(queue)
        assert (counts.visible, counts.reserved) == (0, 0), "also the last batch is settled, though nobody followed"


def test_the_archive_pipeline_releases_all_that_it_has_archived_and_shows_its_lag(
    spark: Any, node: Node, queue: str, tmp_path: Path
) -> None:
    node.push(queue, bodies(0, 2500))
    told = find("archive").checked({"endpoint": node.endpoint, "queue": queue, "tap": "t", "target": str(tmp_path), "rows": "1000"})
    query = start(spark, told)
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert [(one["numInputRows"], dovetail.spark.lag(one)) for one in progress] == [
        (1000, {queue: 1500}),
        (1000, {queue: 500}),
        (500, {queue: 0}),
    ]
    until(lambda: node.tap(queue, "t").next == 2501, "the last batch is not released")
    assert sorted(map(int, ds.dataset(tmp_path, partitioning="hive").to_table()["body"].to_pylist())) == list(range(2500))
    # Other readers of Parquet take the times for what they are, and a replay chooses by them.
    archived = next(tmp_path.glob("queue=*/hour=*/*.parquet"))
    assert pq.read_schema(archived).field("time").type == pa.timestamp("us", tz="UTC")
    node.declare(f"{queue}-again")
    chosen = {"endpoint": node.endpoint, "queue": f"{queue}-again", "archive": str(tmp_path), "source": queue, "since": "2020-01-01"}
    assert replay(find("replay").checked(chosen)) == 2500
    again = start(spark, told)
    again.awaitTermination()
    assert not [one for one in again.recentProgress if one["numInputRows"]]


def test_pipelines_take_messages_beside_others_and_give_the_same_columns(spark: Any, node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 1500))
    assert node.receive(queue, 100) == bodies(0, 100)
    said = {"endpoint": node.endpoint, "queue": queue, "target": str(tmp_path), "rows": "1000", "mode": "reserve", "reservation": "r"}
    query = start(spark, find("archive").checked(said))
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert [(one["numInputRows"], dovetail.spark.lag(one)) for one in progress] == [(1000, {queue: 400}), (400, {queue: 0})]
    kept = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(map(int, kept["body"].to_pylist())) == list(range(100, 1500)) and set(kept.column_names) == {*COLUMNS, "hour"}
    counts = node.counts(queue)
    assert (counts.visible, counts.leased, counts.reserved) == (0, 0, 0)


def test_a_node_that_is_killed_under_a_stream_is_waited_for(spark: Any, local_node: Node, queue: str, tmp_path: Path) -> None:
    local_node.push(queue, bodies(0, 3000))
    said = options_of(local_node, queue, maxRowsPerTrigger=1000, key="AKIDEXAMPLE", secret="wJalrXUtnFEMI")
    dovetail.spark.follow(spark, **said)
    stream = spark.readStream.format("dovetail").options(**said).load()
    writer = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = started(writer)

    def at_work(batch: int) -> bool:
        assert query.isActive, query.exception()
        return query.lastProgress is not None and query.lastProgress["batchId"] >= batch

    try:
        pushed = 3000
        for batch in range(2):
            until(partial(at_work, batch), "no batch is done")
            local_node.kill()
            local_node.start()
            local_node.push(queue, bodies(pushed, pushed + 1000))
            pushed += 1000
        until(lambda: at_work(0) and local_node.tap(queue, "t").next > pushed, "not all is read and released")
    finally:
        query.stop()
    found = [row.body for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(map(bytes, found)) == sorted(bodies(0, pushed))
    for file in (tmp_path / "checkpoint").rglob("*"):
        assert file.is_dir() or b"wJalr" not in file.read_bytes()


def test_measures_over_spark_are_the_measures(spark: Any, tmp_path: Path) -> None:
    from dovetail.spark.pipelines.measure import over_spark
    from dovetail.spark.pipelines.measures import reports

    rows = [
        {"queue": n % 5, "kind": kind, "time_ns": 1000 * n + late, "payload": n}
        for n in range(500)
        for kind, late in (("sent", 0), ("delivered", 7000 * (n % 3)))
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "trace.parquet")
    assert over_spark(spark, str(tmp_path / "trace.parquet")).equals(reports(table))


def test_bodies_become_columns_and_what_does_not_fit_is_kept(spark: Any, node: Node, queue: str, tmp_path: Path) -> None:
    from tests.spark import test_avro, test_protobuf

    (tmp_path / "shop.pb").write_bytes(test_protobuf.described())
    told = {"avro": {"bodySchema": test_avro.TEXT}, "protobuf": {"bodySchema": str(tmp_path / "shop.pb"), "bodyMessage": "shop.Order"}}
    node.push(f"{queue}-avro", [*(test_avro.written(test_avro.order(number)) for number in range(50)), b"no"])
    node.push(f"{queue}-protobuf", [*(test_protobuf.order(number)[0].SerializeToString() for number in range(50)), b"\xff"])
    for kind, said in told.items():
        rows = spark.read.format("dovetail").options(**options_of(node, f"{queue}-{kind}", bodyFormat=kind, **said)).load()
        found = rows.selectExpr("count(body.n)", "sum(body.n)", "max(body.`to`.x)", "max(body.at)", "max(_corrupt)").first()
        assert tuple(found)[:3] == (50, sum(range(50)), 1 << 40 if kind == "avro" else 48)
        assert tuple(found)[3].minute == 49 and bytes(found[4]) == (b"no" if kind == "avro" else b"\xff")


def test_a_batch_writes_to_the_queues_that_its_rows_name_and_a_bad_row_is_named(spark: Any, node: Node, queue: str) -> None:
    said = {"endpoint": node.endpoint, "create": "true"}
    rows = spark.range(0, 300, 1, 3).selectExpr(
        "cast(id AS STRING) AS body",
        f"concat('{queue}-', if(id % 3 = 0, 'a', 'b')) AS queue",
        "concat('g', id % 2) AS group",
        "map('n', cast(id AS STRING)) AS attributes",
        "if(id = 0, make_dt_interval(1), NULL) AS delay",
    )
    rows.write.format("dovetail").options(**said).mode("append").save()
    for name, third in (("a", True), ("b", False)):
        assert sorted(node.waiting(f"{queue}-{name}")) == sorted(b"%d" % n for n in range(300) if (n % 3 == 0) is third)
    pull = node.line.ask(requests.Pull(node.declare(f"{queue}-a"), most=1))
    number = int(bytes(pull.bodies[0]))
    assert (bytes(pull.groups[0]), number) != (b"g0", 0), "0 waits for a day"
    assert bytes(pull.groups[0]) == b"g%d" % (number % 2)
    assert decode_attributes(bytes(pull.attributes[0]))["n"].value == b"%d" % number
    before = len(node.waiting(f"{queue}-b"))
    with pytest.raises(PySparkException, match=r"partition 2, row 50 \(queue '[a-z0-9-]+', group 'g0'\): no body"):
        rows.withColumn("body", expr("nullif(body, '250')")).write.format("dovetail").options(**said).mode("append").save()
    assert len(node.waiting(f"{queue}-b")) == before, "all of it or nothing"


def test_a_stream_from_queue_to_queue_writes_once_though_its_commit_log_is_lost(spark: Any, node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 900))
    for _ in range(2):
        stream = spark.readStream.format("dovetail").options(**options_of(node, queue, maxRowsPerTrigger=300, partitions=2)).load()
        writer = stream.select("body").writeStream.format("dovetail").option("checkpointLocation", str(tmp_path))
        target = {"endpoint": node.endpoint, "queue": f"{queue}-out", "create": "true"}
        started(writer.options(**target).trigger(availableNow=True)).awaitTermination()
        for file in (tmp_path / "commits").glob("*2*"):
            file.unlink()
        assert sorted(node.waiting(f"{queue}-out")) == sorted(bodies(0, 900))
