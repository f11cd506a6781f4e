"""What is counted, under which label, and that no number of queues or clients makes it grow or stall."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import dovetail
from dovetail.clock import ManualClock
from dovetail.service import lags
from dovetail.service import meters as room
from dovetail.service.meters import CROWD_BITS, CROWD_SLICE_MS, REQUEST_KINDS_MAX, Crowd, Meters
from dovetail.service.metrics import Registry
from dovetail.stores.store import Delivery


def series(page: str, name: str) -> dict[str, float]:
    """Label text → value of one metric."""
    return {labels or "": float(value) for labels, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.M)}


def looked(meters: Meters, registry: Registry, node: dovetail.Node) -> str:
    meters.look(node.store, node.broker.dequeue.waiting)
    return registry.render()


def strangers(count: int) -> list[str]:
    """Names that fall on different bits, so that they are counted exactly whatever this process's hash seed is."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        found.setdefault(hash(f"10.0.0.{number}") & (CROWD_BITS - 1), f"10.0.0.{number}")
        number += 1
    return list(found.values())


def delivery(receives: int) -> Delivery:
    return Delivery("receipt", b"id", 1, b"body", b"", b"", receives, 0, 0, 0, 0)


async def test_what_a_queue_went_through_is_on_the_page() -> None:
    clock = ManualClock()
    async with dovetail.open("memory:", clock=clock) as node:
        queue = await node.queue("orders")
        await queue.send_many([b"one", b"three", b"fifteen"])
        await queue.send(b"later", delay_s=60)
        (first,) = await queue.receive()
        await first.complete()
        await queue.receive()
        clock.advance(5)
        page = node.metrics()
    label = 'namespace="default",queue="orders"'
    for name, value in {
        "messages_pushed_total": 4,
        "messages_repeated_total": 0,
        "messages_delivered_total": 2,
        "messages_completed_total": 1,
        "bytes_pushed_total": 20,
        "oldest_message_age_seconds": 5,
        "receivers_waiting": 0,
        "messages_dead_lettered": 0,
        "deliveries_past_limit": 0,
    }.items():
        assert series(page, f"dovetail_{name}") == {label: value}, name
    assert series(page, "dovetail_messages") == {
        f'{label},state="{state}"': value for state, value in (("visible", 1), ("delayed", 1), ("leased", 1), ("reserved", 0))
    }
    assert series(page, "dovetail_queues") == {"": 1}


async def test_queues_of_one_name_in_two_namespaces_are_told_apart_also_when_they_were_counted_before_the_first_look() -> None:
    async with dovetail.open("memory:") as node:
        for namespace, count in (("a", 1), ("b", 2)):
            await (await node.queue("orders", namespace=namespace)).send_many([b"x"] * count)
        page = node.metrics()
    assert series(page, "dovetail_messages_pushed_total") == {'namespace="a",queue="orders"': 1, 'namespace="b",queue="orders"': 2}


async def test_a_name_with_quotes_and_backslashes_is_escaped() -> None:
    async with dovetail.open("memory:") as node:
        await node.queue('a"b\\c')
        page = node.metrics()
    assert 'dovetail_messages_pushed_total{namespace="default",queue="a\\"b\\\\c"} 0\n' in page


async def test_a_dropped_queue_leaves_the_page_with_its_taps_and_one_made_anew_begins_at_0() -> None:
    async with dovetail.open("memory:") as node:
        queue = await node.queue("orders")
        await queue.tap("archive")
        await queue.send(b"x")
        assert series(node.metrics(), "dovetail_tap_lag_messages") == {'namespace="default",queue="orders",tap="archive"': 1}
        await node.drop("orders")
        assert "orders" not in node.metrics()
        await node.queue("orders")
        page = node.metrics()
    assert series(page, "dovetail_messages_pushed_total") == {'namespace="default",queue="orders"': 0}
    assert series(page, "dovetail_tap_lag_messages") == {}


async def test_a_closed_tap_leaves_the_page() -> None:
    async with dovetail.open("memory:") as node:
        tap = await (await node.queue("orders")).tap("archive")
        assert 'tap="archive"' in node.metrics()
        await tap.close()
        assert 'tap="archive"' not in node.metrics()


async def test_how_far_a_tap_is_behind_is_told_in_messages_and_in_time(tmp_path: Path) -> None:
    """Also where its notes have left memory, and across a restart. What a cut took stays on the page until the reader has gone on."""
    clock = ManualClock()
    label = 'namespace="default",queue="orders",tap="archive"'

    def shown(node: dovetail.Node) -> list[float]:
        page = node.metrics()
        return [series(page, f"dovetail_tap_{name}")[label] for name in ("lag_messages", "lag_seconds", "lost_messages")]

    async with dovetail.open(f"local:{tmp_path}", clock=clock) as node:
        queue = await node.queue("orders")
        tap = await queue.tap("archive", age_s=100)
        assert shown(node) == [0, 0, 0]
        for _ in range(20):
            await queue.send(b"x")
            clock.advance(1)
        assert shown(node) == [20, 20, 0]
        await tap.advance(15)
        assert shown(node) == [6, 6, 0]
        await node.snapshot()
        assert shown(node)[0] == 6 and 6 <= shown(node)[1] <= 20
        await tap.advance(21)
        assert shown(node) == [0, 0, 0]
        await queue.send_many([b"x"] * 3)
        await (await queue.receive(max=10))[0].complete()
    clock.advance(1000)
    async with dovetail.open(f"local:{tmp_path}", clock=clock) as node:
        assert shown(node)[0] == 3
        await (await node.queue("orders")).send(b"x")
        await node.snapshot()
        lag, _, lost = shown(node)
        assert (lag, lost) == (1, 3)


async def test_what_is_set_aside_for_a_job_is_told_under_its_reservation() -> None:
    async with dovetail.open("memory:") as node:
        queue = await node.queue("orders")
        await queue.send_many([b"x"] * 10)
        label = 'namespace="default",queue="orders",reservation="job"'

        def shown() -> list[float | None]:
            page = node.metrics()
            return [series(page, f"dovetail_reservation_{name}").get(label) for name in ("messages", "batches", "settled_batch")]

        job = await queue.reservation("job")
        assert shown() == [0, 0, -1]
        await job.reserve(0, max=4)
        await job.reserve(1, max=3)
        assert shown() == [7, 2, -1]
        await job.settle(0)
        assert shown() == [3, 1, 0]
        await queue.close_reservation("job")
        assert shown() == [None, None, None]


async def test_how_far_a_facts_tap_is_behind_is_told_until_it_is_closed() -> None:
    clock = ManualClock()
    label = 'namespace="default",tap="audit"'
    async with dovetail.open("memory:", clock=clock) as node:

        def shown() -> list[float | None]:
            page = node.metrics()
            return [series(page, f"dovetail_facts_tap_{name}").get(label) for name in ("lag_facts", "lag_seconds", "lost_facts")]

        queue = await node.queue("orders")
        facts = await node.facts("audit", age_s=100)
        assert shown() == [0, 0, 0]
        for _ in range(4):
            await queue.send(b"x")
            clock.advance(30)
        assert shown() == [4, 120, 0]
        assert series(node.metrics(), "dovetail_facts_bytes")[""] > 0
        await node.snapshot()
        assert shown() == [3, 90, 1]
        await facts.advance(4)
        assert shown() == [1, 30, 0]
        await facts.close()
        assert shown() == [None, None, None]


async def test_names_beyond_the_bound_have_no_series_until_others_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags, "SHOWN_MAX", 2)
    async with dovetail.open("memory:") as node:
        queue = await node.queue("orders")
        taps = [await queue.tap(name) for name in "abc"]
        assert len(series(node.metrics(), "dovetail_tap_lag_messages")) == 2
        await taps[0].close()
        node.metrics()
        page = node.metrics()
        assert [label.rpartition("tap=")[2] for label in series(page, "dovetail_tap_lag_messages")] == ['"b"', '"c"']


async def test_queues_beyond_the_bound_share_one_label_and_their_sums_are_right() -> None:
    registry = Registry()
    meters = Meters(registry, queues_max=2)
    async with dovetail.open("memory:") as node:
        for number in range(5):
            queue = await node.queue(f"q{number}")
            await queue.send_many([b"x"] * (number + 1))
            meters.of(queue.lane.queue).pushed.add(number + 1)
        page = looked(meters, registry, node)
        own = {'namespace="default",queue="q0"': 1, 'namespace="default",queue="q1"': 2}
        assert series(page, "dovetail_messages_pushed_total") == {**own, 'namespace="",queue="(others)"': 12}
        visible = {labels: value for labels, value in series(page, "dovetail_messages").items() if "visible" in labels}
        assert sorted(visible.values()) == [1, 2, 12]
        # What was counted for a queue among the others stays counted when it goes; a place that is free goes to the next new queue.
        await node.drop("q4")
        await node.drop("q0")
        await node.queue("q5")
        page = looked(meters, registry, node)
    assert series(page, "dovetail_messages_pushed_total") == {
        'namespace="default",queue="q1"': 2,
        'namespace="default",queue="q5"': 0,
        'namespace="",queue="(others)"': 12,
    }


async def test_without_the_bound_every_queue_has_a_label_of_its_own() -> None:
    registry = Registry()
    meters = Meters(registry, queues_max=1 << 30)
    async with dovetail.open("memory:") as node:
        for number in range(5):
            await node.queue(f"q{number}")
        assert len(series(looked(meters, registry, node), "dovetail_messages_pushed_total")) == 5


async def test_the_page_in_steps_is_the_page_at_once_and_others_run_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "STEP_WORK", 10)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = Registry()
    beside.counter("door_total", "Of a door.").of().add(7)
    async with dovetail.open("memory:", clock=ManualClock()) as node:
        for number in range(50):
            await node.queue(f"q{number}")
        registry = Registry()
        meters = Meters(registry)
        other = asyncio.create_task(count_turns())
        page = await meters.page(node.store, node.broker.dequeue.waiting, [beside])
        other.cancel()
        assert page.decode() == beside.render() + looked(meters, registry, node)
    assert turns >= 50, "fifty new queues at ten units of work a step are a step each"


async def test_queues_may_come_and_go_while_the_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "STEP_WORK", 1)
    registry = Registry()
    meters = Meters(registry)
    async with dovetail.open("memory:") as node:
        for number in range(6):
            await node.queue(f"q{number}")
        for step, _ in enumerate(meters.steps(node.store, node.broker.dequeue.waiting)):
            if step == 1:
                await node.drop("q3")
                await node.drop("q0")
                await node.queue("q9")
        page = looked(meters, registry, node)
    shown = [labels.split('"')[3] for labels in series(page, "dovetail_messages_pushed_total")]
    assert shown == ["q1", "q2", "q4", "q5", "q9"]


def test_clients_are_counted_once_each_and_leave_after_a_minute() -> None:
    crowd = Crowd()
    assert crowd.count(0) == 0
    first, second, third = strangers(3)
    for _ in range(100):
        crowd.see(first)
        crowd.see(second)
    assert crowd.count(1) == 2
    crowd.see(third)
    assert crowd.count(CROWD_SLICE_MS) == 3
    crowd.see(first)
    assert crowd.count(CROWD_SLICE_MS + 1) == 3, "the half minute before still counts"
    assert crowd.count(2 * CROWD_SLICE_MS) == 1
    assert crowd.count(3 * CROWD_SLICE_MS) == 0


@pytest.mark.parametrize("count", [30, 300, 3000])
def test_many_clients_are_estimated_within_a_fifth(count: int) -> None:
    crowd = Crowd()
    for number in range(count):
        crowd.see(f"client-{number}")
    assert 0.8 * count <= crowd.count(0) <= 1.2 * count


def test_a_flood_of_clients_takes_no_more_memory_and_is_still_a_number() -> None:
    crowd = Crowd()
    for number in range(30_000):
        crowd.see(str(number))
    assert crowd._bits is not None and len(crowd._bits) == CROWD_BITS // 8
    assert crowd.count(0) > 4000


async def test_publishers_and_consumers_of_a_queue_are_on_the_page() -> None:
    registry = Registry()
    meters = Meters(registry)
    async with dovetail.open("memory:", clock=ManualClock()) as node:
        meter = meters.of((await node.queue("orders")).lane.queue)
        for name in strangers(3):
            meter.seen_publisher(name)
        meter.seen_consumer("10.0.0.9")
        page = looked(meters, registry, node)
    label = 'namespace="default",queue="orders"'
    assert series(page, "dovetail_publishers") == {label: 3} and series(page, "dovetail_consumers") == {label: 1}


def test_deliveries_that_are_not_the_first_are_counted_apart() -> None:
    meter = Meters(Registry()).of(1)
    got: Sequence[Delivery] = [delivery(1), delivery(2), delivery(7)]
    meter.count_delivered(got)
    assert (meter.delivered.value, meter.redelivered.value) == (3, 2)


def test_requests_are_counted_by_action_and_outcome_and_timed_by_action() -> None:
    registry = Registry()
    count = Meters(registry).count_request
    count("SendMessage", "ok", 0.002)
    count("SendMessage", "ok", 0.004)
    count("SendMessage", "InvalidMessageContents", 0.001)
    page = registry.render()
    assert series(page, "dovetail_requests_total") == {
        'action="SendMessage",code="ok"': 2,
        'action="SendMessage",code="InvalidMessageContents"': 1,
    }
    assert series(page, "dovetail_request_seconds_count") == {'action="SendMessage"': 3}
    assert series(page, "dovetail_request_seconds_sum") == {'action="SendMessage"': pytest.approx(0.007)}


def test_actions_that_a_client_makes_up_do_not_become_labels_without_end() -> None:
    registry = Registry()
    meters = Meters(registry)
    for number in range(REQUEST_KINDS_MAX + 500):
        meters.count_request(f"{number:04}" + "x" * 1000, "InvalidAction", 0.001)
    found = series(registry.render(), "dovetail_requests_total")
    assert len(found) == REQUEST_KINDS_MAX + 1 and found['action="other",code="other"'] == 500
    assert max(map(len, found)) < 200


def test_commits_are_shown_in_buckets_that_tell_a_fast_disk_from_a_slow_one() -> None:
    registry = Registry()
    meters = Meters(registry)
    for seconds in (0.00004, 0.0002, 0.02):
        meters.commits.observe(seconds)
    found = series(registry.render(), "dovetail_commit_seconds_bucket")
    assert (found['le="5e-05"'], found['le="0.00025"'], found['le="0.025"'], found['le="+Inf"']) == (1, 2, 3, 3)


def test_the_page_of_a_node_that_has_done_nothing_names_every_metric() -> None:
    registry = Registry()
    Meters(registry)
    page = registry.render()
    assert len(re.findall(r"^# TYPE ", page, re.M)) == len(registry._families) >= 18
