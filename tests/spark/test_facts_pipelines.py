"""The pipelines that read facts, over the facts of a real node that is used: with Spark's steps played (engine.py), and in Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dovetail.blocking
from dovetail.spark.pipelines import find, hours, measure, measures, usage
from dovetail.spark.pipelines.states import States
from tests.spark.engine import POINTS, Crash, Engine
from tests.spark.house import Node, bodies


def work_off(node: Node, queue: str, count: int) -> None:
    with dovetail.blocking.connect(node.endpoint) as connection:
        for message in connection.queue(queue).receive(max=count, wait_s=5):
            message.complete()


class Both:
    """The report and the usage over the same batches, tasks played here."""

    def __init__(self, target: Path) -> None:
        self.measuring, self.counting = Played(target / "report"), usage.Step(target / "usage", "acme", "csv", None, 5, lambda line: None)

    def add(self, batch: int, rows: pa.Table) -> None:
        if rows.num_rows:
            self.measuring(rows, batch)
            self.counting(rows, batch)

    def told(self, queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
        (kept,) = (row for row in json.loads((self.measuring.target / "report.json").read_text())["queues"] if row["queue"] == queue)
        now = hours.stand(States(self.counting.target / "_states").before(1 << 40))
        (counted,) = (row for row in hours.told(now, "acme", 0).to_pylist() if row["queue"] == queue)
        return kept, counted


class Played(measure.Step):
    def __init__(self, target: Path) -> None:
        super().__init__(target, lambda line: None, whole=True)

    def folded(self, rows: pa.Table, states: Any) -> dict[str, bytes]:
        events = measure.event_table(rows.select(measure.facts.COLUMNS))
        made = {}
        for queue in set(events["queue"].to_pylist()):
            made[queue] = measure.folded(states, events.filter(pc.equal(events["queue"], queue)))["state"][0].as_py()
        return made


@pytest.mark.parametrize("point", POINTS)
def test_what_a_node_did_is_measured_and_counted_whenever_it_dies(local_node: Node, tmp_path: Path, point: str) -> None:
    node = local_node
    node.declare("orders")
    said = measure.options_for(find("measure").checked({"endpoint": node.endpoint, "tap": "t", "rows": "150"}))
    engine = Engine(tmp_path / "checkpoint", said, Both(tmp_path))
    # The first run opens the tap: facts are kept from then on.
    engine.run()
    node.push("orders", bodies(0, 120))
    work_off(node, "orders", 100)
    for batch in (0, 1):
        engine.sink = Both(tmp_path)
        with pytest.raises(Crash):
            engine.run(point, batch)
    engine.sink = Both(tmp_path)
    engine.run()
    node.push("orders", bodies(120, 150))
    work_off(node, "orders", 30)
    engine.run()
    kept, counted = Both(tmp_path).told("orders")
    assert {name: kept[name] for name in ("sent", "delivered", "completed", "depth", "doubled", "out_of_order", "exact")} == {
        **dict.fromkeys(("delivered", "completed"), 130),
        "sent": 150,
        "depth": 20,
        "doubled": 0,
        "out_of_order": 0,
        "exact": True,
    }
    assert {name: counted[name] for name in ("pushed", "delivered", "completed", "depth", "unsized")} == {
        "pushed": 150,
        "delivered": 130,
        "completed": 130,
        "depth": 20,
        "unsized": 0,
    }
    assert counted["bytes_in"] == sum(map(len, bodies(0, 150))) and counted["bytes_out"] == sum(map(len, bodies(0, 130)))


@pytest.mark.slow
def test_in_spark_what_a_node_did_is_measured_and_counted_and_kept_up(spark: Any, local_node: Node, tmp_path: Path) -> None:
    node, queue = local_node, "orders"
    node.declare(queue)
    report = find("measure").checked({"endpoint": node.endpoint, "tap": "report", "target": str(tmp_path / "report")})
    used = find("usage").checked({"endpoint": node.endpoint, "target": str(tmp_path / "usage"), "account": "acme"})
    lines: list[str] = []

    def run() -> tuple[dict[str, Any], dict[str, Any]]:
        step = measure.Step(tmp_path / "report", lines.append, whole=True)
        measure.start(spark, report, step).awaitTermination()
        counting = usage.step_of(used, lines.append)
        usage.start(spark, used, counting).awaitTermination()
        told = json.loads((tmp_path / "report" / "report.json").read_text())["queues"] if (tmp_path / "report").exists() else []
        found = {row["queue"]: row for row in told}
        now = hours.stand(States(tmp_path / "usage" / "_states").before(1 << 40))
        rows = {row["queue"]: row for row in hours.told(now, "acme", 0).to_pylist()} if now.hour is not None else {}
        return found.get(queue, {}), rows.get(queue, {})

    # The first run opens the taps: facts are kept from then on.
    run()
    node.push(queue, bodies(0, 120))
    work_off(node, queue, 100)
    kept, counted = run()
    assert (kept["sent"], kept["delivered"], kept["completed"], kept["depth"], kept["exact"]) == (120, 100, 100, 20, True)
    assert (counted["pushed"], counted["delivered"], counted["completed"], counted["depth"]) == (120, 100, 100, 20)
    assert counted["bytes_in"] == sum(map(len, bodies(0, 120))) and counted["bytes_out"] == sum(map(len, bodies(0, 100)))
    node.push(queue, bodies(120, 150))
    work_off(node, queue, 30)
    kept, counted = run()
    assert (kept["sent"], kept["delivered"], kept["depth"], kept["out_of_order"]) == (150, 130, 20, 0)
    assert (counted["pushed"], counted["delivered"], counted["depth"]) == (150, 130, 20)
    assert any(line.startswith("orders: 130 of 150 delivered") for line in lines)
    # Over all that another tap holds, without a state; it may begin with what the others still keep.
    said = measure.options_for(find("measure").checked({"endpoint": node.endpoint, "tap": "whole"}))

    def whole() -> dict[str, Any]:
        rows = measure.grouped(measure.happened(spark, said), measures.report, measures.REPORT).to_pylist()
        return next(iter(rows), dict.fromkeys(("sent", "delivered", "waiting", "lost"), 0))

    before = whole()
    node.push(queue, bodies(150, 160))
    after = whole()
    assert {name: after[name] - before[name] for name in ("sent", "delivered", "waiting", "lost")} == {
        "sent": 10,
        "delivered": 0,
        "waiting": 10,
        "lost": 0,
    }
