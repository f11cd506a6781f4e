"""Measures against brute force: on small random traces every one says what counting by hand says."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.lab import measure, trace
from dovetail.lab.trace import ACKED, COMPLETED, DELIVERED, SENT, Trace

Row = tuple[str, int, int, int, str, int | None]
"""(kind, time, queue, payload, phase, due)"""


def random_rows(chance: random.Random) -> list[Row]:
    """Messages that are lost, doubled, never acked, delivered early: whatever a bad queue might do."""
    rows: list[Row] = []
    for payload in range(chance.randint(0, 30)):
        queue, sent, phase = chance.randrange(3), chance.randrange(10_000), chance.choice(["warm", "measured"])
        rows.append((SENT, sent, queue, payload, phase, sent + chance.randrange(500) if chance.random() < 0.5 else None))
        if chance.random() < 0.8:
            rows.append((ACKED, sent + chance.randrange(1, 1000), queue, payload, phase, None))
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
            rows.append((DELIVERED, sent + chance.randrange(1, 3000), queue, payload, phase, None))
    chance.shuffle(rows)
    return rows


def table_of(rows: list[Row]) -> pa.Table:
    made = Trace()
    for kind, time, queue, payload, phase, due in rows:
        made.phase = phase
        made.note(kind, time, queue, [payload], 0, (), None if due is None else [due])
    return made.table()


@pytest.mark.parametrize("seed", range(40))
def test_every_measure_agrees_with_counting_by_hand(seed: int) -> None:
    rows = random_rows(random.Random(seed))
    table = table_of(rows)
    times: dict[tuple[str, int, int], list[int]] = {}
    for kind, time, queue, payload, _, _ in rows:
        times.setdefault((kind, queue, payload), []).append(time)
    keys = {(queue, payload) for _, _, queue, payload, _, _ in rows}
    assert measure.loss(table) == sum((ACKED, *key) in times and (DELIVERED, *key) not in times for key in keys)
    assert measure.duplicates(table) == sum(max(0, len(times.get((DELIVERED, *key), ())) - 1) for key in keys)
    for start, end in ((SENT, ACKED), (SENT, DELIVERED), (ACKED, DELIVERED)):
        expected = [min(times[end, *key]) - min(times[start, *key]) for key in keys if (start, *key) in times and (end, *key) in times]
        assert sorted(measure.latency_ns(table, start, end).to_pylist()) == sorted(expected)
    dues = {(queue, payload): due for _, _, queue, payload, _, due in rows if due is not None}
    late = [min(times[DELIVERED, *key]) - due for key, due in dues.items() if (DELIVERED, *key) in times]
    assert sorted(measure.lateness_ns(table).to_pylist()) == sorted(late)
    delivered = sorted(time for kind, time, *_ in rows if kind == DELIVERED)
    if len(delivered) > 1 and delivered[-1] > delivered[0]:
        assert measure.rate_per_s(table, DELIVERED) == pytest.approx(len(delivered) / ((delivered[-1] - delivered[0]) / 1e9))


@pytest.mark.parametrize("seed", range(20))
def test_a_percentile_is_a_value_that_was_seen_and_enough_lie_below_it(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted(chance.randrange(1000) for _ in range(chance.randint(1, 200)))
    for percent in (0, 1, 50, 90, 99, 100):
        found = measure.percentile(pa.chunked_array([values]), percent)
        assert found == values[math.ceil((len(values) - 1) * percent / 100)]


def test_of_nothing_there_is_no_percentile_no_loss_and_no_rate() -> None:
    table = table_of([])
    assert measure.percentile(measure.latency_ns(table), 99) is None
    assert (measure.loss(table), measure.duplicates(table), measure.rate_per_s(table, ACKED)) == (0, 0, 0.0)


def test_latency_of_a_phase_is_that_of_calls_that_began_in_it() -> None:
    rows: list[Row] = [(SENT, 0, 0, 1, "warm", None), (ACKED, 90, 0, 1, "measured", None)]
    rows += [(SENT, 10, 0, 2, "measured", None), (ACKED, 15, 0, 2, "after", None)]
    assert measure.latency_ns(table_of(rows), phase="measured").to_pylist() == [5]


def test_the_ratio_of_interleaved_rounds_is_the_median_of_their_ratios() -> None:
    assert measure.median_ratio([2, 30, 9], [1, 10, 3]) == 3


def test_a_batch_is_noted_once_and_becomes_a_row_per_message() -> None:
    made = Trace("phase")
    made.note(SENT, 5, 1, [7, 8], 3, (), [50, 60])
    made.note(COMPLETED, 9, 1, [7, 8], 4, [70, 80])
    table = made.table()
    assert table.schema == trace.SCHEMA
    assert table.to_pylist() == [
        {"kind": SENT, "time_ns": 5, "queue": 1, "sequence": 0, "payload": 7, "worker": 3, "phase": "phase", "due_ns": 50},
        {"kind": SENT, "time_ns": 5, "queue": 1, "sequence": 0, "payload": 8, "worker": 3, "phase": "phase", "due_ns": 60},
        {"kind": COMPLETED, "time_ns": 9, "queue": 1, "sequence": 70, "payload": 7, "worker": 4, "phase": "phase", "due_ns": None},
        {"kind": COMPLETED, "time_ns": 9, "queue": 1, "sequence": 80, "payload": 8, "worker": 4, "phase": "phase", "due_ns": None},
    ]


def test_a_trace_written_to_parquet_comes_back_as_it_was(tmp_path: Path) -> None:
    table = table_of(random_rows(random.Random(7)))
    trace.write(table, tmp_path / "trace.parquet")
    back = trace.read(tmp_path / "trace.parquet")
    assert back.schema == trace.SCHEMA and back.to_pylist() == table.to_pylist()
