"""Usage by the hour is what counting fact after fact comes to, however the facts are cut into batches and whatever dies. No JVM."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dovetail.errors import BadRequest
from dovetail.spark.pipelines import find, hours, usage
from dovetail.spark.pipelines.hours import ALL, COUNTS, HOUR_MS, Stand, stand, told
from dovetail.spark.pipelines.usage import Step, size, verdict
from tests.spark.factory import Used

DISCARDING = ("cancel", "expire", "purge", "drop")


def used(seed: int) -> Used:
    """A day or so of two queues; the clock jumps."""
    made = Used(seed)
    for queue in ("a", "b"):
        made.create(queue)
    for _ in range(random.Random(seed).randrange(2, 9)):
        made.now_ms += made.chance.choice([60_000, 1_500_000, 3_600_000, 8_000_000])
        made.live(made.chance.randrange(1, 60))
    return made


class Counter:
    """Fact after fact, with a dictionary."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.closed: dict[tuple[int, str], dict[str, Any]] = {}
        self.live: dict[str, dict[int, tuple[int, int | None]]] = {"a": {}, "b": {}}
        self.sums: dict[str, dict[str, int]] = {}
        self.minutes: dict[tuple[str, int], int] = {}
        self.hour: int | None = None
        for row in rows:
            hour = row["time"] // 1000 // HOUR_MS
            while self.hour is not None and self.hour < hour:
                self.close()
            self.hour = hour
            if row["outcome"] == "done":
                self.count(row)
                for name, live in self.live.items():
                    self.of(name)["depth_peak"] = max(self.of(name)["depth_peak"], len(live))

    def of(self, queue: str) -> dict[str, int]:
        return self.sums.setdefault(queue, {**dict.fromkeys(COUNTS, 0), "depth_peak": len(self.live[queue])})

    def count(self, row: dict[str, Any]) -> None:
        queue, live, sums = row["queue"], self.live[row["queue"]], self.of(row["queue"])
        sequence, now = row["sequence"], row["time"] // 1000
        match row["kind"]:
            case "push":
                live[sequence] = (now, row["bytes"])
                sums["pushed"] += 1
                sums["bytes_in"] += row["bytes"]
                self.busy(queue, now)
            case "delivery":
                sums["delivered"] += 1
                sums["again"] += row["receives"] > 1
                sums["bytes_out"] += live[sequence][1] or 0
                self.busy(queue, now)
            case "complete":
                sums["completed"] += 1
                del live[sequence]
            case "dead-letter":
                sums["moved"] += 1
                del live[sequence]
                target = row["target"]
                self.live[target][row["target_sequence"]] = (now, row.get("bytes"))
                self.of(target)["pushed"] += 1
                self.of(target)["unsized"] += 1
                self.busy(target, now)
            case "cancel" | "expire":
                for one in range(sequence, sequence + row["count"]):
                    sums["discarded"] += 1
                    del live[one]
            case "purge":
                sums["discarded"] += len(live)
                live.clear()

    def busy(self, queue: str, now: int) -> None:
        self.minutes[queue, now // 60_000] = self.minutes.get((queue, now // 60_000), 0) + 1

    def close(self) -> None:
        assert self.hour is not None
        end = (self.hour + 1) * HOUR_MS
        for queue, live in self.live.items():
            if queue in self.sums or live:
                busy = max((count for (one, _), count in self.minutes.items() if one == queue), default=0)
                oldest = (end - min(pushed for pushed, _ in live.values())) / 1000 if live else 0.0
                self.closed[self.hour, queue] = {**self.of(queue), "depth": len(live), "oldest_s": oldest, "busiest_per_s": busy / 60}
        self.hour += 1
        self.sums, self.minutes = {}, {}


def rows_of(tables: list[pa.Table]) -> dict[tuple[int, str], dict[str, Any]]:
    rows = [row for table in tables for row in table.to_pylist()]
    made = {(int(row.pop("hour").timestamp() * 1000) // HOUR_MS, row.pop("queue")): row for row in rows}
    assert len(made) == len(rows), "an hour is told of twice"
    return made


@pytest.mark.parametrize("seed", range(40))
def test_an_hour_is_what_counting_fact_after_fact_comes_to_however_batches_are_cut(seed: int) -> None:
    facts, chance = used(seed), random.Random(seed)
    cuts = sorted(chance.sample(range(len(facts.rows)), min(len(facts.rows), chance.randrange(5))))
    now, closed = stand({}), list[pa.Table]()
    for first, end in zip([0, *cuts], [*cuts, len(facts.rows)], strict=True):
        now, more = hours.after(stand(now.tables()), facts.table(first, end), "acme")
        closed += more
    by_hand = Counter(facts.rows)
    found = rows_of(closed)
    together = {key: row for key, row in found.items() if key[1] == ALL}
    assert {key[0] for key in found} == set(range(facts.rows[0]["time"] // 1000 // HOUR_MS, now.hour or 0))
    for (hour, queue), row in by_hand.closed.items():
        if not any(row[name] for name in (*COUNTS, "depth")):
            continue
        made = found[hour, queue]
        assert made.pop("account") == "acme"
        assert made == {name: pytest.approx(value) for name, value in row.items()}, (hour, queue)
    for (hour, _), row in together.items():
        of_queues = [one for (at, name), one in found.items() if at == hour and name != ALL]
        assert all(row[name] == sum(one[name] for one in of_queues) for name in (*COUNTS, "depth"))
    by_hand.close()
    open_now = rows_of([told(now, "acme", ((now.hour or 0) + 1) * HOUR_MS)])
    for (hour, queue), row in by_hand.closed.items():
        if hour == now.hour and any(row[name] for name in (*COUNTS, "depth")):
            made = open_now[hour, queue]
            assert {name: made[name] for name in row} == {name: pytest.approx(value) for name, value in row.items()}


class Died(Exception):
    pass


def test_each_hour_is_written_once_whenever_it_dies_and_a_run_that_begins_anew_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = used(5)
    parts = [facts.table(at, at + 25) for at in range(0, len(facts.rows), 25)]
    whole = Step(tmp_path / "whole", "acme", "csv", None, 5, lambda line: None)
    for batch, part in enumerate(parts):
        whole(part, batch)
    write = usage.States.write

    def dying(states: usage.States, batch: int, tables: Any) -> None:
        if states.folder not in died:
            died.add(states.folder)
            raise Died
        died.clear()
        write(states, batch, tables)

    died: set[Path] = set()
    monkeypatch.setattr(usage.States, "write", dying)
    step = Step(tmp_path / "dying", "acme", "csv", None, 5, lambda line: None)
    for batch, part in enumerate(parts):
        with pytest.raises(Died):
            step(part, batch)
        step = Step(tmp_path / "dying", "acme", "csv", None, 5, lambda line: None)
        step(part, batch)
    files = sorted(file.name for file in (tmp_path / "whole").glob("usage-*.csv"))
    assert files and files == sorted(file.name for file in (tmp_path / "dying").glob("usage-*"))
    for name in files:
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "dying" / name).read_text()
    assert pyarrow.csv.read_csv(tmp_path / "whole" / files[0])["queue"].to_pylist()[-1] == ALL


def test_what_is_shown_is_a_table_with_a_verdict(tmp_path: Path) -> None:
    facts, lines = Used(0), list[str]()
    facts.create("orders")
    for _ in range(120):
        facts.push("orders", 1_000)
    facts.now_ms += HOUR_MS
    facts.deliver("orders", 1)
    step = Step(tmp_path, "acme", "parquet", 3, 5, lines.append)
    step(facts.table(), 0)
    assert lines[0].endswith(":00, account acme")
    assert lines[2].split() == ["orders", "120", "0", "0", "120.0", "KB", "0", "B", "120", "120", lines[2].split()[-3], "s", "2.0/s"]
    assert "67% of the capacity: nodes are enough; 120 more came than left" in lines[4]
    lines.clear()
    step.show()
    assert lines[0].endswith("so far") and lines[2].split()[:4] == ["orders", "0", "1", "0"]
    (file,) = tmp_path.glob("usage-*.parquet")
    assert pq.read_table(file, partitioning=None).num_rows == 2


def test_a_dropped_queue_and_the_next_of_its_name_are_told_apart() -> None:
    facts = Used(0)
    facts.create("a")
    for _ in range(3):
        facts.push("a")
    facts.drop("a")
    facts.create("a")
    facts.push("a")
    now, _ = hours.after(stand({}), facts.table(), "")
    first, second, _ = told(now, "", 0).to_pylist()
    assert [(row["queue"], row["pushed"], row["discarded"], row["depth"], row["depth_peak"]) for row in (first, second)] == [
        ("a", 3, 3, 0, 3),
        ("a", 1, 0, 1, 1),
    ]


@pytest.mark.parametrize(("rate", "said"), [(80, "add nodes"), (50, "nodes are enough"), (10, "fewer nodes will do")])
def test_the_busiest_minute_says_when_to_add_or_remove_nodes(rate: float, said: str) -> None:
    row = {**dict.fromkeys((*COUNTS, "depth", "depth_peak"), 0), "busiest_per_s": rate, "oldest_s": 0.0}
    assert verdict(row, 100).endswith(said)


def test_sizes_are_short() -> None:
    assert [size(count) for count in (0, 999, 1000, 123_456_789, 10**16)] == ["0 B", "999 B", "1.0 KB", "123.5 MB", "10,000.0 TB"]


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(BadRequest, match="format: parquet or csv"):
        usage.step_of(find("usage").checked({"target": "t", "format": "xls"}), print)
    assert isinstance(stand({}), Stand)
