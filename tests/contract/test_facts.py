"""The facts table: what a naive ledger of the calls has seen is what a facts tap reads, again and again, across restarts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from dovetail import Facts, Happened, Outgoing
from dovetail.errors import BadRequest, LimitExceeded, NoSuchTap, TapCut
from dovetail.limits import FACTS_TAPS_MAX
from tests.contract.house import House

pytest.importorskip("pyarrow", reason="a client reads facts as Arrow")


@pytest.fixture(autouse=True)
async def kept(house: House) -> None:
    await house.needs("facts")


async def everything(tap: Facts, step: int = 100_000) -> list[Happened]:
    found: list[Happened] = []
    following = None
    while batch := await tap.read(max=step, from_number=following):
        found += batch.facts
        following = batch.next
    return found


def brief(facts: list[Happened]) -> list[tuple[Any, ...]]:
    """(kind, queue, sequence, outcome)"""
    return [(one.kind, one.queue, one.sequence, one.outcome) for one in facts]


async def lives(house: House) -> list[tuple[Any, ...]]:
    """Queues whose messages end in every way that there is; what the caller saw of it."""
    node, seen = house.node, list[tuple[Any, ...]]()
    dead = await node.queue("dead")
    orders = await node.queue("orders", lease_s=30, max_receives=2, dead_letter="dead", deduplication_s=60, backoff_s=1)
    seen += [("create", "dead", None, "done"), ("create", "orders", None, "done")]
    for number in range(6):
        sent = await orders.send(b"x" * number, delay_s=number % 2)
        seen.append(("push", "orders", sent.sequence, "done"))
    for _ in range(2):
        sent = await orders.send(b"once", deduplication="k")
        seen.append(("push", "orders", sent.sequence, "repeat" if sent.repeat else "done"))
    house.clock.advance(2)
    got = await orders.receive(max=4)
    seen += [("delivery", "orders", one.sequence, "done") for one in got]
    assert await got[0].complete()
    assert not await got[0].complete()
    await got[1].requeue()
    await got[2].requeue(0)
    await got[3].extend(60)
    seen += [("complete", "orders", got[0].sequence, "done"), ("complete", "orders", got[0].sequence, "refused")]
    seen += [("requeue", "orders", got[1].sequence, "done"), ("requeue", "orders", got[2].sequence, "done")]
    seen.append(("extend", "orders", got[3].sequence, "done"))
    house.clock.advance(40)
    (again,) = await orders.receive(max=1)
    seen.append(("delivery", "orders", again.sequence, "done"))
    house.clock.advance(40)
    taken = await orders.receive(max=1, delete=True)
    # The one that was received twice and lapsed twice goes before anything else is looked at.
    seen += [("dead-letter", "orders", again.sequence, "done"), ("take", "orders", taken[0].sequence, "done")]
    left = await orders.peek(max=100)
    assert await orders.cancel(left[0].sequence)
    seen.append(("cancel", "orders", left[0].sequence, "done"))
    last = max(one.sequence for one in left)
    assert await orders.purge() == len(left) - 1
    seen.append(("purge", "orders", last, "done"))
    await node.drop("orders")
    seen.append(("drop", "orders", None, "done"))
    (letter,) = await dead.peek()
    assert letter.sequence == 1
    return seen


@pytest.mark.parametrize("snapshot", [False, True])
async def test_facts_are_what_the_callers_saw_and_are_read_again_the_same(house: House, snapshot: bool) -> None:
    tap = await house.node.facts("audit")
    seen = await lives(house)
    facts = await everything(tap)
    assert brief(facts) == seen
    assert [one.number for one in facts] == list(range(1, len(facts) + 1))
    assert all(one.time_ms <= later.time_ms and one.position <= later.position for one, later in pairwise(facts))
    stream = await _arrow(tap)
    await house.again(snapshot=snapshot)
    tap = await house.node.facts("audit", start="latest")
    assert await everything(tap) == facts
    assert await everything(tap, step=3) == facts
    assert await _arrow(tap) == stream, "the same bytes, before and after"


async def _arrow(tap: Facts) -> bytes:
    try:
        return (await tap.read_arrow(max=20, from_number=5)).stream
    except BadRequest:
        return b""  # In the same process there is no Arrow.


async def test_facts_say_sizes_delays_leases_and_where_dead_letters_went(house: House) -> None:
    await house.node.queue("dead")
    orders = await house.node.queue("orders", max_receives=1, dead_letter="dead", lease_s=7)
    tap = await house.node.facts("audit")
    await orders.send(b"abc", delay_s=2)
    producer = await house.node.producer("p")
    await producer.send(orders, b"numbered")
    (one,) = await orders.receive()
    await one.requeue(0)
    await orders.receive()
    pushed, numbered, delivery, requeue, letter = (await tap.read()).facts
    assert (pushed.size, pushed.duration_ms, pushed.due_ms) == (3, 2000, pushed.time_ms + 2000)
    assert (numbered.producer, numbered.producer_number) == (producer.identity, 1)
    assert (delivery.receives, delivery.duration_ms, delivery.due_ms) == (1, 7000, delivery.time_ms + 7000)
    assert (requeue.kind, requeue.delivery, requeue.sequence) == ("requeue", delivery.delivery, 2)
    assert (letter.kind, letter.queue, letter.target, letter.target_sequence) == ("dead-letter", "orders", "dead", 1)


async def test_facts_of_stages_and_reservations(house: House) -> None:
    orders = await house.node.queue("orders")
    tap = await house.node.facts("audit")
    stage = house.node.stage()
    await stage.send_many(orders, [b"a", b"b", b"c"])
    assert not await tap.read(), "what is staged has not happened to any queue"
    await house.node.publish([stage], "job", 0)
    reservation = await orders.reservation("shares")
    for batch, most in ((0, 2), (1, 1)):
        await reservation.reserve(batch, most)
    await reservation.settle(0)
    await orders.release_reservation("shares")
    facts = (await tap.read()).facts
    assert [(one.kind, one.sequence, one.count, one.owner, one.batch) for one in facts] == [
        ("push", 1, 1, None, None),
        ("push", 2, 1, None, None),
        ("push", 3, 1, None, None),
        ("reserve", 1, 2, "shares", 0),
        ("reserve", 3, 1, "shares", 1),
        ("settle", 1, 2, "shares", 0),
        ("unreserve", 3, 1, "shares", 1),
    ]


async def test_a_namespace_reads_its_own_facts_only(house: House) -> None:
    mine, theirs = await house.node.facts("audit"), await house.node.facts("audit", namespace="theirs")
    for namespace in (None, "theirs"):
        queue = await house.node.queue("orders", namespace=namespace)
        await queue.send(b"x")
    for tap in (mine, theirs):
        assert brief(await everything(tap)) == [("create", "orders", None, "done"), ("push", "orders", 1, "done")]
    assert [one.name for one in await house.node.facts_taps(namespace="theirs")] == ["audit"]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_facts_tap_advances_and_lets_go(house: House, snapshot: bool) -> None:
    orders = await house.node.queue("orders")
    tap = await house.node.facts("audit")
    for number in range(10):
        await orders.send(b"%d" % number)
    batch = await tap.read(max=4)
    assert (len(batch), batch.next) == (4, 5)
    assert await tap.advance(batch.next) == 5
    assert await tap.advance(2) == 5
    await house.again(snapshot=snapshot)
    tap = await house.node.facts("audit")
    assert (tap.position, len(await everything(tap))) == (5, 6)
    with pytest.raises(BadRequest):
        await tap.read(from_number=4)
    assert ((await tap.read(from_number=11)).facts, await tap.advance(1000)) == ([], 11)
    assert [(one.next, one.end, one.lost_count) for one in await house.node.facts_taps()] == [(11, 11, 0)]


async def test_nothing_is_kept_before_the_first_tap_and_behind_the_last(house: House) -> None:
    orders = await house.node.queue("orders")
    await orders.send(b"before")
    tap = await house.node.facts("audit", start="earliest")
    assert not await tap.read()
    await orders.send(b"while")
    await tap.close()
    with pytest.raises(NoSuchTap):
        await tap.read()
    await orders.send(b"behind")
    tap = await house.node.facts("audit", start="earliest")
    assert (tap.position, len(await tap.read())) == (2, 0), "a number is never given twice"


@pytest.mark.parametrize("bound", ["age", "bytes"])
async def test_a_facts_tap_past_its_bound_is_cut_and_names_what_it_lost(house: House, bound: str) -> None:
    orders = await house.node.queue("orders")
    tap = await house.node.facts("audit", age_s=100 if bound == "age" else 1e6, bytes_max=64 << 30 if bound == "age" else 400)
    for number in range(10):
        await orders.send(b"%d" % number)
        house.clock.advance(30)
    await house.node.snapshot()
    await house.again()
    tap = await house.node.facts("audit")
    with pytest.raises(TapCut) as cut:
        await tap.read()
    assert cut.value.lost_first == 1 and 1 <= cut.value.lost_count < 10
    following = cut.value.lost_first + cut.value.lost_count
    await tap.advance(following)
    assert [one.number for one in await everything(tap)] == list(range(following, 11))


async def test_a_facts_tap_has_a_name_a_start_and_company_within_limits(house: House) -> None:
    for start in ("middle", -1, 1.5):
        with pytest.raises(BadRequest):
            await house.node.facts("audit", start=start)  # type: ignore[arg-type]
    for name in ("", "x" * 129):
        with pytest.raises(LimitExceeded):
            await house.node.facts(name)
    tap = await house.node.facts("audit")
    for most in (0, 1 << 40, "all"):
        with pytest.raises(LimitExceeded):
            await tap.read(max=most)  # type: ignore[arg-type]
    for number in range(FACTS_TAPS_MAX - 1):
        await house.node.facts(f"tap-{number}")
    with pytest.raises(LimitExceeded):
        await house.node.facts("one more")


@pytest.mark.slow
async def test_facts_outlive_the_log_that_they_were_made_of(house: House) -> None:
    """Through snapshots and restarts, with the log trimmed as if nobody read: no message of it is needed for a fact."""
    orders = await house.node.queue("orders")
    await house.node.facts("audit")
    sent = 0
    for _ in range(4):
        for _ in range(3):
            await orders.send_many([Outgoing(bytes(3000))] * 200)
            sent += 200
        while got := await orders.receive(max=1000):
            await orders.complete(got)
        await house.again(snapshot=True)
        orders = await house.node.queue("orders")
    facts = await everything(await house.node.facts("audit"))
    assert [one.number for one in facts] == list(range(1, 3 * sent + 1))
    for kind in ("push", "delivery", "complete"):
        assert [one.sequence for one in facts if one.kind == kind] == list(range(1, sent + 1))
