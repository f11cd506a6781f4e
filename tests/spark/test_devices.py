"""Telemetry: every reading is in one window or set apart, whatever dies; silence is found, and a wrong clock harms only itself.
Spark's order of steps is played without a JVM (engine.py)."""

from __future__ import annotations

import json
import os
import pickle
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dovetail.core.message import Attribute
from dovetail.errors import BadRequest
from dovetail.spark import shape
from dovetail.spark.options import COLUMNS
from dovetail.spark.pipelines import devices, find, published
from dovetail.spark.pipelines.devices import Rules, Step
from dovetail.spark.pipelines.telemetry import PART, Fields, Reader
from dovetail.spark.pipelines.windows import known, silent, summed, usual_of
from tests.spark.engine import POINTS, Crash, Engine
from tests.spark.house import Node

SAID = {"queue": "meters", "device": "body.device", "at": "body.at", "clock": "s", "values": "body.power", "window": "10s", "late": "5s"}
STEPS = ["in the outcome", "behind the outcome", "behind the states", "between the tables", "after the tables"]


def rules(**more: str) -> Rules:
    return Rules(find("devices").checked({"target": "unused", **SAID, **more}))


class Played(Step):
    """The steps that Spark takes in tasks, taken here."""

    def __init__(self, target: Path, how: str = "parquet", **more: str) -> None:
        self.said: list[str] = []
        super().__init__(target, "t", rules(**more), how, self.said.append)
        self.crash_at = ""
        write, publish = self._states.write, self._windows.publish
        self._states.write = lambda batch, tables: (write(batch, tables), self.point("behind the states"))[0]  # type: ignore[method-assign]
        self._windows.publish = lambda batch: (self.point("between the tables"), publish(batch))[1]  # type: ignore[method-assign]

    def point(self, name: str) -> None:
        if self.crash_at == name:
            raise Crash(name)

    def add(self, batch: int, rows: pa.Table) -> None:
        if rows.num_rows:
            self(rows, batch)
        self.point("after the tables")

    def read(self, rows: pa.Table, reader: Reader, outcome: Path) -> None:
        published.shutil.rmtree(outcome, ignore_errors=True)
        for at in range(0, rows.num_rows, 40):
            task = pickle.loads(pickle.dumps(reader))
            made = pa.Table.from_batches(list(task(iter(rows.slice(at, 40).to_batches()))))
            hour = pc.strftime(pc.coalesce(made["time"], made["heard"]), format="%Y-%m-%d-%H")
            made = made.append_column("hour", hour).append_column("apart", pc.cast(pc.is_valid(made["why"]), pa.string()))
            names = f"part-{os.urandom(4).hex()}-{{i}}.parquet"
            pq.write_to_dataset(made, outcome, partition_cols=["apart", "queue", "hour"], basename_template=names)
            self.point("in the outcome")
        self.point("behind the outcome")


def read(folder: Path) -> list[dict[str, Any]]:
    if (folder / "_delta_log").exists():
        from deltalake import DeltaTable

        return [dict(row) for row in DeltaTable(folder).to_pyarrow_table().to_pylist()]
    return [row for file in folder.glob("queue=*/hour=*/*.parquet") for row in pq.read_table(file, partitioning=None).to_pylist()]


def reading(device: str, at: float, power: float = 1.0) -> bytes:
    return json.dumps({"device": device, "at": at, "power": power}).encode()


def telemetry(chance: random.Random, count: int) -> list[bytes]:
    """Of some devices for some minutes: mostly in order, some late, some no reading at all."""
    return [
        b"no reading"
        if chance.random() < 0.02
        else reading(f"d{chance.randrange(5)}", 1000 + number / 5 - chance.choice([0, 0, 0, 1, 3, 12, 40]), chance.randrange(100))
        for number in range(count)
    ]


def oracle(messages: list[bytes], batch: int) -> tuple[dict[tuple[str, int], list[float]], dict[int, str], int]:
    """(windows that are closed, the places of what is set apart, readings in windows that are open): counted by hand, batch after batch."""
    opened: dict[tuple[str, int], list[float]] = {}
    closed: dict[tuple[str, int], list[float]] = {}
    apart: dict[int, str] = {}
    watermark = float("-inf")
    for start in range(0, len(messages), batch):
        latest = float("-inf")
        for place, text in enumerate(messages[start : start + batch], start):
            try:
                told = json.loads(text)
            except ValueError:
                apart[place] = "unreadable"
                continue
            window = int(told["at"] // 10 * 10)
            if window + 10 <= watermark:
                apart[place] = "late"
                continue
            opened.setdefault((told["device"], window), []).append(told["power"])
            latest = max(latest, told["at"])
        watermark = max(watermark, latest - 5)
        for key in [key for key in opened if key[1] + 10 <= watermark]:
            closed[key] = opened.pop(key)
    return closed, apart, sum(map(len, opened.values()))


CASES = [(point, how) for point in STEPS for how in ("parquet", "delta")] + [(point, "parquet") for point in POINTS]


@pytest.mark.parametrize(("point", "how"), CASES)
def test_every_reading_is_in_one_window_or_set_apart_whenever_it_dies(node: Node, queue: str, tmp_path: Path, point: str, how: str) -> None:
    messages = telemetry(random.Random(point), 400)
    node.push(queue, messages)
    step = Played(tmp_path / "target", how)
    engine = Engine(tmp_path, {"endpoint": node.endpoint, "queue": queue, "tap": "t", "maxRowsPerTrigger": 100}, step)
    for batch in (0, 2):
        step = engine.sink = Played(tmp_path / "target", how)
        step.crash_at = point if point in STEPS else ""
        with pytest.raises(Crash):
            engine.run(point, batch)
    engine.sink = Played(tmp_path / "target", how)
    engine.run()
    closed, apart, left = oracle(messages, 100)
    windows = read(tmp_path / "target" / "windows")
    found = {(row["device"], int(row["window"].timestamp())): row for row in windows}
    assert len(found) == len(windows) and set(found) == set(closed)
    for key, values in closed.items():
        assert (found[key]["readings"], found[key]["least"], found[key]["most"]) == (len(values), min(values), max(values))
        assert found[key]["mean"] == pytest.approx(sum(values) / len(values))
    rows = read(tmp_path / "target" / "apart")
    assert {row["sequence"] - 1: row["why"] for row in rows} == apart and len(rows) == len(apart)
    assert {messages[row["sequence"] - 1] for row in rows} == {row["body"] for row in rows}
    assert sum(map(len, closed.values())) + len(apart) + left == len(messages) and {"late", "unreadable"} <= set(apart.values())


def rows_of(messages: list[tuple[float, bytes]], first: int = 1, **more: Any) -> pa.Table:
    """Messages of the queue `meters`: (pushed at, body)."""
    rows = [
        {
            "queue": "meters",
            "sequence": first + number,
            "time": datetime.fromtimestamp(pushed, UTC),
            "id": bytes(16),
            "group": None,
            "attributes": [],
            "body": body,
            **more,
        }
        for number, (pushed, body) in enumerate(messages)
    ]
    return pa.Table.from_pylist(rows, shape.schema(COLUMNS))


def test_a_clock_that_runs_ahead_is_set_apart_and_makes_nobody_late(tmp_path: Path) -> None:
    step = Played(tmp_path)
    step.add(0, rows_of([(1000, reading("a", 1000)), (1001, reading("mad", 9_000_000))]))
    step.add(1, rows_of([(1002, reading("a", 1002)), (1030, reading("a", 1030))], first=3))
    assert [(row["why"], row["sequence"]) for row in read(tmp_path / "apart")] == [("ahead", 2)]
    assert [row["readings"] for row in read(tmp_path / "windows")] == [2]


def test_twin_without_a_bound_one_mad_clock_makes_everybody_late(tmp_path: Path) -> None:
    step = Played(tmp_path, ahead="1000d")
    step.add(0, rows_of([(1000, reading("a", 1000)), (1001, reading("mad", 9_000_000))]))
    step.add(1, rows_of([(1002, reading("a", 1002)), (1030, reading("a", 1030))], first=3))
    assert [row["why"] for row in read(tmp_path / "apart")] == ["late", "late"]


def test_who_should_have_spoken_and_did_not_is_found_and_who_speaks_again_is_not(tmp_path: Path) -> None:
    (tmp_path / "expected.csv").write_text("device,period_s\na,\nnever,20\n")
    step = Played(tmp_path, expected=str(tmp_path / "expected.csv"))
    pushed = [(1000.0 + 10 * turn, reading(name, 1000 + 10 * turn)) for turn in range(12) for name in "ab" if name == "b" or turn < 5]
    step.add(0, rows_of([*pushed, (1111.0, reading("once", 1111))]))
    told = json.loads((tmp_path / "silent.json").read_text())
    assert [(row["device"], row["period_s"], row["silent_s"]) for row in told["silent"]] == [("never", 20, 111), ("a", 10, 71)]
    assert told["devices"] == 3
    step.add(1, rows_of([(1112.0, reading("a", 1112)), (1112.0, reading("never", 1112))], first=len(pushed) + 2))
    assert json.loads((tmp_path / "silent.json").read_text())["silent"] == []
    assert step.said == ["silent: never (meters) for 111 s, a (meters) for 71 s", "heard again: never (meters), a (meters)"]
    # Nothing comes any more, so no batch does; the node was asked, and had nothing.
    step.idle({"numInputRows": 0, "timestamp": "1970-01-01T00:20:00.000Z"})
    assert {row["device"] for row in json.loads((tmp_path / "silent.json").read_text())["silent"]} == {"a", "b", "never"}
    step.idle({"numInputRows": 7, "timestamp": "1970-01-01T00:50:00.000Z"})
    assert len(json.loads((tmp_path / "silent.json").read_text())["silent"]) == 3


def test_a_device_that_is_gone_for_good_is_forgotten_and_one_that_is_expected_is_not(tmp_path: Path) -> None:
    (tmp_path / "expected.csv").write_text("device,period_s\nb,10\n")
    step = Played(tmp_path, period="10s", forget="1h", expected=str(tmp_path / "expected.csv"))
    step.add(0, rows_of([(1000, reading("a", 1000)), (1000, reading("b", 1000)), (1900, reading("c", 1900))]))
    assert [row["device"] for row in json.loads((tmp_path / "silent.json").read_text())["silent"]] == ["a", "b"]
    step.add(1, rows_of([(9000, reading("c", 9000))], first=4))
    told = json.loads((tmp_path / "silent.json").read_text())
    assert [row["device"] for row in told["silent"]] == ["b"] and told["devices"] == 1


def test_a_device_that_is_late_or_has_a_wrong_clock_was_heard(tmp_path: Path) -> None:
    step = Played(tmp_path, period="10s")
    step.add(0, rows_of([(1000, reading("a", 1000)), (1000, reading("b", 1000)), (1050, reading("b", 1050))]))
    step.add(1, rows_of([(1051, reading("a", 1000)), (1052, reading("c", 99_999))], first=4))
    assert [row["why"] for row in read(tmp_path / "apart")] == ["late", "ahead"]
    assert json.loads((tmp_path / "silent.json").read_text())["silent"] == []


@pytest.mark.parametrize(
    ("clock", "text"),
    [("iso", b"2026-05-01T12:00:00Z"), ("iso", b"2026-05-01 14:00:00+02:00"), ("iso", b"2026-05-01T12:00"), ("ms", b"1777636800000")],
)
def test_fields_are_found_in_attributes_groups_and_below_bodies(clock: str, text: bytes) -> None:
    fields = Fields("group", "attribute.at", ("attribute.power", "body.room.heat"), clock).checked()
    attributes = [("at", {"type": "String", "value": text}), ("power", {"type": "Number", "value": b" 2.5 "})]
    rows = rows_of([(0, b'{"room": {"heat": 20}}'), (0, b'{"room": {}}'), (0, b"\xff{")], group="d", attributes=attributes)
    device, at, (power, heat) = fields.read(rows.combine_chunks().to_batches()[0])
    assert device.to_pylist() == ["d"] * 3
    assert at.to_pylist() == [datetime(2026, 5, 1, 12, tzinfo=UTC)] * 3
    assert power.to_pylist() == [2.5] * 3 and heat.to_pylist() == [20.0, None, None]


@pytest.mark.parametrize("text", ["soon", "", "9999999999999999999", "nan", "1e999", "-", "2026-13-01", "\x00"])
@pytest.mark.parametrize("clock", ["iso", "s", "ms"])
def test_what_is_no_time_is_none(clock: str, text: str) -> None:
    fields = Fields("queue", "attribute.at", ("attribute.at",), clock).checked()
    rows = rows_of([(0, b"")], attributes=[("at", {"type": "String", "value": text.encode()})])
    _, at, (value,) = fields.read(rows.combine_chunks().to_batches()[0])
    assert at.to_pylist() == [None]
    assert value.to_pylist()[0] is None or value.to_pylist()[0] > 1e17


def part(device: str, values: list[float], window: int = 0) -> dict[str, Any]:
    when = datetime.fromtimestamp(window, UTC)
    return {
        "queue": "meters",
        "device": device,
        "measure": "m",
        "window": when,
        "readings": len(values),
        "total": sum(values),
        "squares": sum(value * value for value in values),
        "least": min(values),
        "most": max(values),
        **dict.fromkeys(("first_at", "last_at", "heard"), when),
    }


def test_a_window_says_what_is_usual_and_whether_it_is_not() -> None:
    history = usual_of(pa.Table.from_pylist([part("a", [9.0, 11.0]), part("a", [10.0, 10.0], 60), part("b", [5.0])], PART))
    assert {row["device"]: (row["usual"], row["usual_spread"]) for row in history.to_pylist()} == {
        "a": (10.0, pytest.approx(0.5**0.5)),
        "b": (5.0, 0.0),
    }
    now = summed(pa.Table.from_pylist([part("a", [12.0]), part("b", [6.0]), part("c", [1.0])], PART), history)
    assert {row["device"]: row["unusual"] for row in now.to_pylist()} == {"a": False, "b": True, "c": None}


def test_a_device_needs_three_readings_for_a_rhythm() -> None:
    assert silent(known({}), 10**12, 3.0).num_rows == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"device": "colour"}, "is no field"),
        ({"values": "group"}, "a value is a number"),
        ({"values": "body.device.x"}, "is a value and holds others"),
        ({"clock": "sundial"}, "clock: iso, s, ms"),
        ({"window": "0s"}, "window: longer than nothing"),
        ({"missed": "-1"}, "missed: a number above 0"),
        ({"expected": "none.csv"}, "expected: "),
        ({"format": "csv"}, "format: parquet or delta"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(said: dict[str, str], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        rules(**said)


@pytest.mark.slow
def test_in_spark_devices_and_their_history_come_together(spark: Any, node: Node, queue: str, tmp_path: Path) -> None:
    archive = find("archive").checked({"queue": queue, "endpoint": node.endpoint, "tap": "archive", "target": str(tmp_path / "archive")})
    messages = [reading(name, 1000 + turn, power) for turn in range(60) for name, power in (("a", 10 + turn % 2), ("b", 50))]
    node.push(queue, [*messages, b"broken"], attributes={"k": Attribute("String", b"v")})
    from dovetail.spark.pipelines import archive as archiving

    query = archiving.start(spark, archive)
    query.awaitTermination()
    said = find("devices").checked(
        {**SAID, "queue": queue, "endpoint": node.endpoint, "history": str(tmp_path / "archive"), "target": str(tmp_path / "out")}
    )
    step = devices.step_of(said, print)
    query = devices.start(spark, said, step)
    query.awaitTermination()
    windows = read(tmp_path / "out" / "windows")
    assert sorted({(row["device"], row["readings"], row["usual"], row["unusual"]) for row in windows}) == [
        ("a", 10, 10.5, False),
        ("b", 10, 50.0, False),
    ]
    (apart,) = read(tmp_path / "out" / "apart")
    assert (apart["body"], apart["why"]) == (b"broken", "unreadable") and dict(apart["attributes"])["k"]["value"] == b"v"
    assert "windows closed, 1 set apart, 0 silent" in step.told()
