"""The report that is kept up says, after every fact, what a batch over all of them would say; what it keeps is bounded. No JVM."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.spark.pipelines import consistency, facts, livereport, measure, usage
from dovetail.spark.pipelines.consistency import WINDOW, Consistency, Event, Order, bucket_of, ceiling, percentile
from dovetail.spark.pipelines.measures import Seen, displacement, increasing, minutes, out_of_order, report
from tests.spark.factory import Used


def coming(chance: random.Random, count: int) -> list[int]:
    """1 … count, some of them out of their place, a few far."""
    keys = [(number + chance.choice([0, 0, 0, chance.uniform(-4, 4), chance.uniform(-60, 60)]), number) for number in range(1, count + 1)]
    return [number for _, number in sorted(keys)]


def followed(numbers: list[int], gone: set[int], window: int = WINDOW, order: Order | None = None) -> Order:
    order = order or Order(window)
    for number in sorted(gone):
        order.gone(number, number + 1)
    for number in numbers:
        order.came(number)
    return order


@pytest.mark.parametrize("seed", range(40))
def test_after_every_number_order_is_what_a_batch_says(seed: int) -> None:
    chance = random.Random(seed)
    order, came = Order(), list[int]()
    for number in coming(chance, 150):
        if chance.random() < 0.1:
            order.gone(number, number + 1)
            continue
        order.came(number)
        came.append(number)
        order = Order.of(json.loads(json.dumps(order.told())))
        assert order.out_of_order == pytest.approx(out_of_order(came))
        assert order.displacement == pytest.approx(displacement(pa.array(came)))
    assert order.beyond == 0


@pytest.mark.parametrize("seed", range(40))
def test_beyond_its_window_the_rate_is_a_bound_and_says_so(seed: int) -> None:
    chance = random.Random(seed)
    came = coming(chance, 300)
    order = followed(came, set(), window=chance.choice([2, 5, 20]))
    kept, longest = round((1 - order.out_of_order) * len(came)), increasing(came)
    assert kept <= longest <= kept + order.beyond
    assert order.beyond or order.out_of_order == pytest.approx(out_of_order(came))


def test_what_is_kept_is_bounded_whatever_is_stuck() -> None:
    order = followed(list(range(2, 3 * WINDOW)), set())
    assert all(len(value) <= WINDOW for value in order.told().values() if isinstance(value, list))
    order.came(1)
    assert (order.beyond, order.out_of_order) == (1, pytest.approx(1 / (3 * WINDOW - 1)))


def test_a_queue_that_is_read_in_order_leaves_nothing_to_keep() -> None:
    kept = Consistency()
    kept.fold(Event("push", 1000 + number, number) for number in range(1, 200_001))
    kept.fold(Event("delivery", 300_000 + number, number) for number in range(1, 200_001))
    assert [kept.order.told()[name] for name in ("tails", "numbers", "gone")] == [[], [], []]
    assert len(kept.told()["times"]) <= consistency.STEPS and kept.report("q")["out_of_order"] == 0
    assert kept.report("q")["latency_about_ms"] > 0


def test_twin_who_counts_before_the_lower_numbers_have_come_is_wrong() -> None:
    class Early(Order):
        def came(self, number: int) -> bool:
            first = super().came(number)
            self.low = max(self.low, number + 1)
            self._advance()
            return first

    came = [3, 1, 2]
    assert followed(came, set()).out_of_order == pytest.approx(out_of_order(came))
    assert followed(came, set(), order=Early()).out_of_order != pytest.approx(out_of_order(came))


def test_twin_without_what_is_gone_an_expired_message_holds_the_window_open() -> None:
    numbers = list(range(2, 500))
    assert len(followed(numbers, {1}).told()["numbers"]) == 0
    assert len(followed(numbers, set()).told()["numbers"]) == len(numbers)


@pytest.mark.parametrize("seed", range(60))
def test_percentiles_are_those_of_all_values_but_for_the_width_of_a_bucket(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted(int(chance.expovariate(1 / chance.choice([5, 500, 50_000_000]))) for _ in range(chance.randrange(1, 200)))
    buckets: dict[int, int] = {}
    for value in values:
        assert value <= ceiling(bucket_of(value)) <= value + value // 64
        buckets[bucket_of(value)] = buckets.get(bucket_of(value), 0) + 1
    for share in (0.5, 0.99):
        exact = values[-int(-share * (len(values) - 1) // 1)]
        assert exact <= (percentile(buckets, share) or 0) <= exact + exact // 64


def kept_up(used: Used, cuts: list[int]) -> dict[str, Consistency]:
    """Batches of facts, the state on its way to the disk and back between them."""
    states: dict[str, bytes] = {}
    for first, end in zip([0, *cuts], [*cuts, len(used.rows)], strict=True):
        events = measure.event_table(used.table(first, end))
        for queue in set(events["queue"].to_pylist()):
            made = measure.folded(states, events.filter(pa.compute.equal(events["queue"], queue)))
            states[queue] = made["state"][0].as_py()
    return {queue: Consistency.of(json.loads(state)) for queue, state in states.items()}


@pytest.mark.parametrize("seed", range(40))
def test_kept_up_over_any_cuts_it_says_what_a_batch_over_all_facts_says(seed: int) -> None:
    chance = random.Random(seed)
    used = Used(seed).live(chance.randrange(50, 700))
    cuts = sorted(chance.sample(range(len(used.rows)), min(len(used.rows), chance.randrange(4))))
    live = kept_up(used, cuts)
    trace = facts.trace(used.table())
    for queue in ("a", "b"):
        rows = trace.filter(pa.compute.equal(trace["queue"], queue))
        if not rows.num_rows:
            continue
        (batch,) = report(facts.current(rows)).to_pylist()
        made = live[queue].report(queue)
        assert made["exact"] and batch["lost"] == 0
        for name in ("sent", "delivered", "completed", "doubled"):
            assert made[name] == batch[name], name
        assert batch["waiting"] <= made["depth"] == len(used.waiting[queue])
        for name in ("duplication", "out_of_order", "displacement"):
            assert made[name] == pytest.approx(batch[name]), name
        for name in ("latency_p50_ms", "latency_p99_ms", "late_p50_ms", "late_p99_ms"):
            assert (made[name] is None) == (batch[name] is None), name
            assert made[name] is None or batch[name] - 1 <= made[name] <= batch[name] * 65 / 64 + 1, name
        by_minute = {row["minute"]: row for row in minutes(Seen(facts.current(rows))).to_pylist()}
        for row in made["minutes"]:
            known = by_minute.get(row["minute"], dict.fromkeys(("sent", "delivered", "completed", "doubled"), 0))
            assert {name: row[name] for name in ("sent", "delivered", "completed", "doubled")} == {
                name: known[name] for name in ("sent", "delivered", "completed", "doubled")
            }


def test_a_queue_that_was_made_again_is_measured_as_it_is_now() -> None:
    used = Used(0)
    used.create("a")
    for _ in range(5):
        used.deliver("a", used.push("a"))
    used.drop("a")
    used.create("a")
    used.deliver("a", used.push("a"))
    (batch,) = report(facts.current(facts.trace(used.table()))).to_pylist()
    assert (batch["sent"], batch["delivered"], batch["out_of_order"]) == (1, 1, 0)
    for cuts in ([], [3], [11], [12], [13]):
        made = kept_up(used, cuts)["a"].report("a")
        assert (made["sent"], made["delivered"], made["doubled"], made["depth"]) == (1, 1, 0, 1)


def test_what_became_of_each_message_is_no_loss_unless_it_vanished() -> None:
    used = Used(0)
    for queue in ("a", "dead"):
        used.create(queue)
    one, two, three, four, five = (used.push("a") for _ in range(5))
    used.deliver("a", one)
    used.gone("complete", "a", one)
    used.gone("cancel", "a", two)
    used.deliver("a", three)
    used.bury("a", three, "dead")
    used.gone("complete", "a", four)
    trace = facts.trace(used.table())
    a, dead = (report(facts.current(trace.filter(pa.compute.equal(trace["queue"], queue)))).to_pylist()[0] for queue in ("a", "dead"))
    assert (a["discarded"], a["waiting"], a["lost"], a["loss"]) == (1, 1, 1, pytest.approx(0.2))
    assert (dead["sent"], dead["waiting"]) == (1, 1)
    assert five in used.waiting["a"]


def test_a_delivery_that_was_undone_and_comes_again_is_one_more() -> None:
    kept = Consistency()
    kept.fold([Event("push", 0, 1), Event("delivery", 1, 1, 1), Event("release", 2, 1)])
    kept = Consistency.of(json.loads(json.dumps(kept.told())))
    kept.fold([Event("delivery", 3, 1, 1), Event("delivery", 3, 1, 2)])
    made = kept.report("q")
    assert (made["delivered"], made["doubled"], made["exact"]) == (1, 2, True)


def test_the_report_is_whole_for_people_and_for_programs(tmp_path: Path) -> None:
    used = Used(3).live(200, ("a<b", "b"))
    rows = [one.report(queue) for queue, one in sorted(kept_up(used, []).items())]
    livereport.write(tmp_path, rows, "2026-05-01T12:00:00+00:00")
    told = json.loads((tmp_path / "report.json").read_text())
    assert [row["queue"] for row in told["queues"]] == ["a<b", "b"] and told["queues"][0]["sent"] == rows[0]["sent"]
    page = (tmp_path / "report.html").read_text()
    assert "a&lt;b" in page and "a<b" not in page and "http-equiv" in page
    assert "out of order" in livereport.line(rows[0])
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.slow
def test_in_spark_reports_are_kept_up_and_hours_counted_batch_after_batch(spark: object, tmp_path: Path) -> None:
    used, said = Used(11).live(600), list[str]()
    measuring = measure.Step(tmp_path / "measure", said.append, whole=True)
    counting = usage.Step(tmp_path / "usage", "acme", "csv", None, 5, said.append)
    for batch, (first, end) in enumerate([(0, 250), (250, 250), (250, None)]):
        rows = spark.createDataFrame(used.table(first, end))  # type: ignore[attr-defined]
        for step in (measuring, counting):
            # Twice: a batch that is run again changes nothing.
            step(rows, batch)
            step(rows, batch)
    told = {row.pop("queue"): row for row in json.loads((tmp_path / "measure" / "report.json").read_text())["queues"]}
    batch = kept_up(used, [])
    assert told.keys() == batch.keys() == {"a", "b"}
    for queue, kept in batch.items():
        assert told[queue] == {name: value for name, value in json.loads(json.dumps(kept.report(queue))).items() if name != "queue"}
    assert "2 queues" in measuring.told() and any(line.startswith("a: ") for line in said)
    counting.show()
    assert any("so far" in line for line in said)
