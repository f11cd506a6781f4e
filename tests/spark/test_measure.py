"""The measures against the paper's worked examples, and against counting by brute force on small random traces. No JVM."""

from __future__ import annotations

import random
from itertools import combinations

import pyarrow as pa
import pytest

from dovetail.spark.pipelines.measures import displacement, increasing, out_of_order, reports


@pytest.mark.parametrize(
    ("came", "rate", "places"), [([2, 1, 3, 4, 5], 0.2, 0.4), ([2, 3, 4, 5, 1], 0.2, 1.6), ([1, 2, 3, 4, 5], 0.0, 0.0)]
)
def test_the_papers_examples(came: list[int], rate: float, places: float) -> None:
    assert out_of_order(came) == pytest.approx(rate)
    assert displacement(pa.array(came)) == pytest.approx(places)


@pytest.mark.parametrize("seed", range(60))
def test_disorder_agrees_with_brute_force(seed: int) -> None:
    chance = random.Random(seed)
    came = chance.sample(range(30), chance.randrange(1, 10))
    longest = max(size for size in range(1, len(came) + 1) if any(list(some) == sorted(some) for some in combinations(came, size)))
    assert increasing(came) == longest
    belongs = sorted(came)
    assert displacement(pa.array(came)) == pytest.approx(sum(abs(belongs.index(one) - place) for place, one in enumerate(came)) / len(came))


@pytest.mark.parametrize("seed", range(60))
def test_a_report_agrees_with_counting_by_hand(seed: int) -> None:
    chance = random.Random(seed)
    rows: list[tuple[str, str, int, int | None, int | None]] = []
    for queue in "ab":
        for payload in range(chance.randrange(12)):
            sent = chance.randrange(100_000)
            rows.append((queue, "sent", sent, payload, sent + 50 if chance.random() < 0.3 else None))
            if chance.random() < 0.8:
                rows.append((queue, "acked", sent + 1 + chance.randrange(1000), payload, None))
            for _ in range(chance.choice([0, 1, 1, 2])):
                rows.append((queue, "delivered", sent + chance.randrange(1, 200_000), payload if chance.random() < 0.9 else None, None))
    chance.shuffle(rows)
    names = ["queue", "kind", "time_ns", "payload", "due_ns"]
    types = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64()]
    table = pa.table([pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)], names)
    found = {row["queue"]: row for row in reports(table).to_pylist()}
    assert set(found) == {row[0] for row in rows}
    for queue, row in found.items():
        acked = {one[3] for one in rows if one[:2] == (queue, "acked")}
        sent = {one[3]: one[2] for one in rows if one[:2] == (queue, "sent")}
        due = {one[3]: one[4] for one in rows if one[:2] == (queue, "sent") and one[4] is not None}
        came: dict[int, int] = {}
        deliveries = 0
        for _, _, time, payload, _ in (one for one in rows if one[:2] == (queue, "delivered")):
            if payload is not None:
                deliveries += 1
                came[payload] = min(time, came.get(payload, time))
        known = acked or set(sent)
        assert (row["sent"], row["acked"], row["delivered"]) == (len(sent), len(acked), len(came))
        assert (row["lost"], row["doubled"]) == (len(known - set(came)), deliveries - len(came))
        assert row["loss"] == pytest.approx(len(known - set(came)) / max(1, len(known)))
        delays = sorted(came[one] - sent[one] for one in came)
        assert row["latency_p99_ms"] == (pytest.approx(delays[-1] / 1e6) if delays else None)
        late = sorted(came[one] - due[one] for one in came if one in due)
        assert row["late_p99_ms"] == (pytest.approx(late[-1] / 1e6) if late else None)
        order = sorted(came, key=lambda one: came[one])
        if len({came[one] for one in order}) == len(order):
            assert row["out_of_order"] == pytest.approx(out_of_order(order))


def test_what_one_receive_handed_out_keeps_its_order() -> None:
    table = pa.table({"queue": ["q"] * 4, "kind": ["delivered"] * 4, "time_ns": [5, 5, 5, 1], "payload": [3, 2, 1, 0]})
    (row,) = reports(table).to_pylist()
    assert row["out_of_order"] == pytest.approx(0.5)
