"""The rules of a queue: in-flight limit, retention, purge; how they are named, changed and refused."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, OverInFlight, QueueExists
from tests.contract.house import House, bodies, everything

DAY_S = 86_400


async def test_no_more_messages_are_out_than_the_limit_allows(house: House) -> None:
    queue = await house.node.queue("orders", in_flight_max=3, lease_s=10)
    await queue.send_many([b"%d" % number for number in range(5)])
    got = await queue.receive(max=10)
    assert bodies(got) == [b"0", b"1", b"2"]
    with pytest.raises(OverInFlight):
        await queue.receive()
    await house.again()
    queue = await house.node.queue("orders")
    with pytest.raises(OverInFlight):
        await queue.receive()
    await queue.complete([got[0].receipt])
    assert bodies(await queue.receive(max=10)) == [b"3"]
    house.clock.advance(10)
    assert bodies(await queue.receive(max=10)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_what_is_past_its_retention_expires_and_what_is_leased_is_spared(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders", retention_s=100)
    await queue.send_many([b"old", b"leased"])
    (old, leased) = await queue.receive(max=2, lease_s=1000)
    await old.requeue(0)
    house.clock.advance(50)
    await queue.send(b"young")
    house.clock.advance(50.001)
    await house.again(snapshot=snapshot)
    assert await house.node.store.chores.expire() == 1
    queue = await house.node.queue("orders")
    assert bodies(await everything(queue)) == [b"leased", b"young"]
    assert await queue.complete([leased.receipt]) == [True]
    assert await house.node.store.chores.expire() == 0


async def test_retention_counts_from_the_first_visible_time_so_that_long_delays_outlive_it(house: House) -> None:
    queue = await house.node.queue("orders", retention_s=100)
    await queue.send_many([Outgoing(b"long", delay_s=10_000), b"short"])
    for seconds, left in ((9_999, [b"long"]), (100, [b"long"]), (3, [])):
        house.clock.advance(seconds)
        await house.node.store.chores.expire()  # A node that has had a turn meanwhile may have done it by itself.
        assert bodies(await everything(queue)) == left


async def test_expired_messages_leave_by_themselves_once_the_clocks_can_be_trusted(house: House) -> None:
    queue = await house.node.queue("orders", retention_s=60)
    await queue.send(b"old")
    await house.pass_time(300, 10)
    assert len(await everything(queue)) == 1, "ten minutes have not passed"
    await house.pass_time(330, 10)
    assert await everything(queue) == []


@pytest.mark.parametrize("snapshot", [False, True])
async def test_purge_removes_everything_and_ends_every_receipt(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b", Outgoing(b"c", delay_s=60)])
    (message,) = await queue.receive()
    assert await queue.purge() == 3
    assert await queue.purge() == 0
    after = await queue.send(b"d")
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    assert await queue.complete([message.receipt]) == [False]
    house.clock.advance(100)
    assert [(one.body, one.sequence) for one in await queue.receive(max=9)] == [(b"d", after.sequence)]
    assert after.sequence == 4, "sequences go on"


RULES: dict[str, Any] = {
    "lease_s": 5,
    "delay_s": 6,
    "retention_s": 7,
    "max_receives": 8,
    "deduplication_s": 9,
    "in_flight_max": 10,
    "backoff_s": 11,
    "backoff_max_s": 12,
}


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_queue_keeps_its_rules_and_takes_new_ones(house: House, snapshot: bool) -> None:
    await house.node.queue("dead")
    await house.node.queue("orders", **RULES, dead_letter="dead", extra={"door": "x"})
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders", **RULES, dead_letter="dead", extra={"door": "x"})
    await queue.configure(lease_s=50, in_flight_max=0)
    await house.again(snapshot=snapshot)
    rules = (await house.node.queue("orders")).lane.attributes
    assert (rules.lease_ms, rules.delay_ms, rules.retention_ms, rules.receives_max, rules.dedup_ms) == (50_000, 6000, 7000, 8, 9000)
    assert (rules.in_flight_max, rules.backoff_ms, rules.backoff_max_ms, dict(rules.extra)) == (0, 11_000, 12_000, {"door": "x"})


async def test_a_queue_that_exists_with_other_rules_is_refused(house: House) -> None:
    await house.node.queue("orders", lease_s=5)
    await house.node.queue("orders")
    await house.node.queue("orders", lease_s=5)
    with pytest.raises(QueueExists):
        await house.node.queue("orders", lease_s=6)
    with pytest.raises(QueueExists):
        await house.node.queue("orders", groups=True)


@pytest.mark.parametrize("rule", [*RULES])
async def test_a_rule_beyond_its_limit_is_refused_and_nothing_is_made(house: House, rule: str) -> None:
    for value in (-5, 1 << 60):
        with pytest.raises(BadRequest):
            await house.node.queue("orders", **{rule: value})
    assert await house.node.queues() == []


async def test_the_discipline_of_a_queue_with_messages_is_not_changed(house: House) -> None:
    await house.needs("groups", groups=True)
    queue = await house.node.queue("orders")
    sent = await queue.send(b"a", group="g")
    with pytest.raises(BadRequest):
        await queue.configure(groups=True)
    await queue.cancel(sent.id)
    await queue.configure(groups=True)
    await queue.send_many([Outgoing(b"1", group="g"), Outgoing(b"2", group="g")])
    assert bodies([*await queue.receive(), *await queue.receive()]) == [b"1"]


async def test_queues_are_listed_by_prefix_and_kept_apart_by_namespace(house: House) -> None:
    for name in ("b", "a1", "a2"):
        await house.node.queue(name)
    theirs = await house.node.queue("a1", namespace="them", lease_s=5)
    await theirs.send(b"theirs")
    await house.again()
    assert await house.node.queues() == ["a1", "a2", "b"]
    assert await house.node.queues("a") == ["a1", "a2"]
    assert await house.node.queues(namespace="them") == ["a1"]
    assert await (await house.node.queue("a1")).receive() == []
    with pytest.raises(NoSuchQueue):
        await house.node.drop("a2", namespace="them")
    await house.node.drop("a1", namespace="them")
    assert await house.node.queues() == ["a1", "a2", "b"]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_dropped_queue_is_gone_and_one_of_the_same_name_begins_empty(house: House, snapshot: bool) -> None:
    old = await house.node.queue("orders", lease_s=5)
    await old.send_many([b"a", b"b"])
    (message,) = await old.receive()
    await house.node.drop("orders")
    with pytest.raises(NoSuchQueue):
        await house.node.drop("orders")
    new = await house.node.queue("orders", lease_s=9)
    await new.send(b"c")
    for act in (
        old.send(b"x"),
        old.receive(),
        old.receive(wait_s=1),
        old.counts(),
        old.peek(),
        old.purge(),
        message.complete(),
        old.taps(),
    ):
        with pytest.raises(NoSuchQueue):
            await act
    await house.again(snapshot=snapshot)
    new = await house.node.queue("orders", lease_s=9)
    assert bodies(await new.receive(max=9)) == [b"c"]


@pytest.mark.parametrize("name", ["", "x" * 257, "new\nline", "\0"])
async def test_a_name_that_breaks_the_rules_is_refused(house: House, name: str) -> None:
    with pytest.raises(LimitExceeded):
        await house.node.queue(name)
    assert await house.node.queues() == []
