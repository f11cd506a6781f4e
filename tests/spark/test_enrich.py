"""From a queue through a function into a queue and a table: whatever dies, and whenever, each message is in both once, and both hold the
same. Spark's order of steps is played without a JVM (engine.py); what Spark itself does is at the end, in one session."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dovetail.core.message import decode_attributes
from dovetail.doors.native.codec import requests
from dovetail.errors import BadRequest, DovetailError, NoSuchQueue, Refused
from dovetail.spark import shape
from dovetail.spark.options import COLUMNS
from dovetail.spark.pipelines import delta, enrich, find, published, running
from dovetail.spark.pipelines.enrich import Counted, Sent, Step, table_of
from dovetail.spark.pipelines.transform import FAILED, Transform
from dovetail.spark.sink import Writer, owner_of
from dovetail.spark.sinkoptions import sink_options_of
from tests.spark.engine import POINTS, Crash, Engine
from tests.spark.house import Node, bodies

MESSAGES = 300
SCHEMA = pa.schema([*shape.schema(COLUMNS), pa.field("token", pa.binary()), pa.field(FAILED, pa.bool_())])
STEPS = ["in the function", "in the outcome", "behind the outcome", "before publish", "after publish", "in the table", "after the table"]

CASES = [(point, "parquet") for point in POINTS]
CASES += [(point, how) for point in STEPS for how in ("parquet", "delta", "none") if (point, how) != ("in the table", "none")]


def tokened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every third fails; the others get a token that is another one each time."""
    texts = batch["body"].to_pylist()
    if any(int(text) % 3 == 0 for text in texts):
        raise ValueError("a multiple of three")
    made = [b"%s %s" % (text, os.urandom(6).hex().encode()) for text in texts]
    at = batch.schema.get_field_index("body")
    return batch.set_column(at, "body", pa.array(made, pa.binary())).append_column("token", pa.array(made, pa.binary()))


class Played(Step):
    """The steps that Spark takes in tasks, taken here: another order of rows and other tasks each time."""

    def __init__(self, node: Node, queue: str, target: Path, how: str) -> None:
        transform = Transform("tests:tokened", tokened, SCHEMA, apart=True, failures_max=1000)
        sent = Sent(node.endpoint, "", "", f"{queue}-out", f"{queue}-dead")
        super().__init__(
            target, "t", transform, columns=None, sent=sent, table=table_of(how, target, "t", SCHEMA), checkpoint=target, counted=Counted()
        )  # type: ignore[arg-type]
        self.owner = owner_of(queue)
        self.crash_at, self.batch = "", -1

    def point(self, name: str) -> None:
        if self.crash_at == name:
            raise Crash(name)

    def add(self, batch: int, rows: pa.Table) -> None:
        if rows.num_rows:
            self(rows, batch)
        self.point("after the table")

    def transform(self, rows: pa.Table, outcome: Path) -> None:
        published.shutil.rmtree(outcome, ignore_errors=True)
        self.point("in the function")
        tasks = [pickle.loads(pickle.dumps(self._transform)) for _ in range(2)]
        parts = [list(task(iter(rows.slice(at, 60).to_batches()))) for task, at in zip(tasks, (0, 60), strict=True)]
        random.shuffle(parts)
        for part in parts:
            made = pa.Table.from_batches(part, SCHEMA)
            made = made.append_column("hour", pc.strftime(made["time"], format="%Y-%m-%d-%H"))
            names = f"part-{os.urandom(4).hex()}-{{i}}.parquet"
            pq.write_to_dataset(made, outcome, partition_cols=[FAILED, "queue", "hour"], basename_template=names)
            self.point("in the outcome")
        self.point("behind the outcome")

    def send(self, rows: Any, outcome: Path, batch: int) -> None:
        self.point("before publish")
        made = ds.dataset(outcome, partitioning="hive").to_table().sort_by("token")
        failed = made[FAILED].cast(pa.string())
        queues = pc.if_else(pc.equal(failed, "true"), self._sent.dead, self._sent.to)
        made = made.select(["body", "attributes"]).append_column("queue", queues)
        writer = Writer(sink_options_of({**self._sent.options(), "timeout": "60"}), made.schema, overwrite=False)
        half = made.num_rows // 2
        staged = [writer.stage(iter(one.to_batches())) for one in (made.slice(half), made.slice(0, half))]
        writer.publish(staged, self.owner, batch)
        self.point("after publish")


def engine_of(node: Node, queue: str, folder: Path, how: str) -> tuple[Engine, Played]:
    for name in (queue, f"{queue}-out", f"{queue}-dead"):
        node.declare(name)
    step = Played(node, queue, folder / "target", how)
    return Engine(folder, {"endpoint": node.endpoint, "queue": queue, "tap": "t", "maxRowsPerTrigger": 100}, step), step


def table(target: Path, how: str) -> list[bytes]:
    if how == "delta":
        from deltalake import DeltaTable

        return (
            [bytes(body) for body in DeltaTable(target).to_pyarrow_table()["body"].to_pylist()] if (target / "_delta_log").exists() else []
        )
    return [
        bytes(body)
        for file in target.glob("queue=*/hour=*/*.parquet")
        for body in pq.read_table(file, partitioning=None)["body"].to_pylist()
    ]


def check(node: Node, queue: str, target: Path, how: str, count: int) -> None:
    sent, kept = node.waiting(f"{queue}-out"), table(target, how)
    assert sorted(int(body.split()[0]) for body in sent) == [number for number in range(count) if number % 3]
    if how != "none":
        assert sorted(sent) == sorted(kept), "queue and table hold the same, though the function never gives the same twice"
    assert sorted(map(int, node.waiting(f"{queue}-dead"))) == list(range(0, count, 3))
    assert not list((target / "_staged").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("point", "how"), CASES)
def test_queue_and_table_hold_each_message_once_whenever_it_dies(
    node: Node, queue: str, tmp_path: Path, point: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.push(queue, bodies(0, MESSAGES))
    engine, step = engine_of(node, queue, tmp_path, how)
    for time in range(3):
        step.crash_at = point if point in STEPS else ""
        with monkeypatch.context() as patch:
            if point == "in the table":
                dying_in_a_move(patch, time % 2)
            with pytest.raises(Crash):
                engine.run("" if point in STEPS else point, 1 if point in POINTS else -1)
        if point == "after commits/N":
            break  # The batch is done: it is not run again.
    step.crash_at = ""
    engine.run()
    node.push(queue, bodies(MESSAGES, MESSAGES + 50))
    engine.run()
    check(node, queue, tmp_path / "target", how, MESSAGES + 50)


def dying_in_a_move(patch: pytest.MonkeyPatch, moves: int) -> None:
    """Behind so many files of the table (and not in a manifest)."""
    left = [moves]

    for module in (published, delta):
        real = module.move

        def dying(source: Path, target: Path, real: Any = real) -> None:
            if source.suffix == ".parquet":
                if not left[0]:
                    raise Crash("in the table")
                left[0] -= 1
            real(source, target)

        patch.setattr(module, "move", dying)


@pytest.mark.slow
def test_twin_without_the_mark_queue_and_table_differ(node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function runs again behind the publish: the table gets what the queue has not."""
    node.push(queue, bodies(0, 100))
    engine, step = engine_of(node, queue, tmp_path, "parquet")
    monkeypatch.setattr(enrich, "whole", lambda outcome: None)
    step.crash_at = "after publish"
    with pytest.raises(Crash):
        engine.run()
    step.crash_at = ""
    engine.run()
    sent, kept = node.waiting(f"{queue}-out"), table(tmp_path / "target", "parquet")
    assert {body.split()[0] for body in sent} == {body.split()[0] for body in kept}
    assert sorted(sent) != sorted(kept)


@pytest.mark.slow
def test_twin_a_table_that_takes_the_outcome_itself_loses_what_it_had_moved(
    node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.push(queue, bodies(0, 100))
    engine, _ = engine_of(node, queue, tmp_path, "parquet")

    def moved(folder: Path, staging: Path) -> None:
        for file in published.staged_files(folder):
            (staging / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            file.rename(staging / file.relative_to(folder))
        published.shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr(enrich, "linked", moved)
    with monkeypatch.context() as patch:
        dying_in_a_move(patch, 1)
        with pytest.raises(Crash):
            engine.run()
    engine.run()
    assert len(table(tmp_path / "target", "parquet")) < len(node.waiting(f"{queue}-out"))


def test_the_last_batch_is_told_in_numbers(node: Node, queue: str, tmp_path: Path) -> None:
    node.push(queue, bodies(0, 100))
    engine, step = engine_of(node, queue, tmp_path, "parquet")
    engine.run()
    assert step._counted.told() == "66 given, 34 failed"


def settings_of(node: Node, queue: str, target: Path, **more: str) -> dict[str, str]:
    said = {"endpoint": node.endpoint, "queue": queue, "function": "shop_for_tests:priced", "to": f"{queue}-out", "target": str(target)}
    return find("enrich").checked({**said, "dead": f"{queue}-dead", **more})


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"format": "csv"}, BadRequest, "format: parquet, delta or none"),
        ({"to": "QUEUE"}, BadRequest, "never ends"),
        ({"to": "not-there"}, NoSuchQueue, "not-there"),
        ({"dead": "not-there"}, NoSuchQueue, "not-there"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_read(
    node: Node, queue: str, tmp_path: Path, more: dict[str, str], error: type[DovetailError], words: str
) -> None:
    for name in (queue, f"{queue}-out", f"{queue}-dead"):
        node.declare(name)
    with pytest.raises(error, match=words):
        enrich.checked(settings_of(node, queue, tmp_path, **{name: value.replace("QUEUE", queue) for name, value in more.items()}))


SHOP = """\
import pyarrow as pa, pyarrow.compute as pc
RATE = 2.0
def priced(rows):
    amounts = rows["body"].cast(pa.string()).cast(pa.float64())
    to = pa.array([None if amount < 300 else QUEUE for amount in amounts.to_pylist()], pa.string())
    return rows.append_column("amount", pc.multiply(amounts, RATE)).append_column("to", to)
"""


@pytest.mark.slow
def test_in_spark_a_pipeline_that_dies_between_its_sinks_ends_with_the_same_in_both(
    spark: Any, node: Node, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (queue, f"{queue}-out", f"{queue}-large", f"{queue}-dead"):
        node.declare(name)
    (tmp_path / "shop_for_tests.py").write_text(SHOP.replace("QUEUE", repr(f"{queue}-large")))
    monkeypatch.chdir(tmp_path)
    node.push(queue, [*bodies(0, 400), b"none", b"never"])
    target = tmp_path / "target"
    settings = settings_of(node, queue, target, columns="amount DOUBLE, to STRING", rows="201")
    with pytest.raises(
        Refused, match=r"^shop_for_tests:priced fails on message 40[12] of queue-\d+: ArrowInvalid: .* With a queue for dead letters"
    ):
        running.watch(enrich.start(spark, {**settings, "dead": "", "rows": "500"}), print)
    published.shutil.rmtree(target)
    for place, name in {"before publish": "send", "in the table": "linked"}.items():
        with monkeypatch.context() as patch:
            owner = Step if name == "send" else enrich
            real = getattr(owner, name)

            def dying(*given: Any, real: Any = real, place: str = place) -> None:
                if place != "before publish":
                    real(*given)
                raise Crash(place)

            patch.setattr(owner, name, dying)
            with pytest.raises(Exception, match=place):
                enrich.start(spark, settings).awaitTermination()
    counted = Counted()
    query = enrich.start(spark, settings, counted)
    query.awaitTermination()
    assert counted.told() == "199 given, 2 failed"
    assert sorted(map(int, node.waiting(f"{queue}-out"))) == list(range(300))
    assert sorted(map(int, node.waiting(f"{queue}-large"))) == list(range(300, 400))
    kept = ds.dataset(target, partitioning="hive").to_table()
    assert sorted(zip(map(int, kept["body"].to_pylist()), kept["amount"].to_pylist(), strict=True)) == [(n, 2.0 * n) for n in range(400)]
    dead = node.line.ask(requests.Peek(node.declare(f"{queue}-dead"), 10))
    assert sorted(map(bytes, dead.bodies)) == [b"never", b"none"]
    assert all(decode_attributes(bytes(one))["error"].value.startswith(b"ArrowInvalid: Failed to parse") for one in dead.attributes)
    assert running.owner_of("enrich", target / "_checkpoint-enrich") == f"enrich {query.id}"
