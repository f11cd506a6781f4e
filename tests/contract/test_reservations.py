"""Reservations: a job that competes with other consumers gets the same messages for the same batch, whatever restarts in between."""

from __future__ import annotations

import asyncio

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, BatchRefused, Fenced, LimitExceeded, NoSuchQueue, NoSuchReservation
from dovetail.limits import RESERVATIONS_PER_QUEUE_MAX, RESERVE_MESSAGES_MAX
from dovetail.stores.store import Lane, ReservationFacts
from tests.contract.house import bodies, everything, soon, waiting
from tests.contract.seam import SeamHouse, house  # noqa: F401  # the fixture takes the place of the suite's


async def lane_of(house: SeamHouse, name: str = "orders") -> Lane:  # noqa: F811
    return (await house.queue(name)).lane  # type: ignore[no-any-return]  # in this process it is a lane


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_batch_is_the_same_after_a_restart_and_for_the_next_owner(house: SeamHouse, snapshot: bool) -> None:  # noqa: F811
    queue = await house.queue(lease_s=5)
    await queue.send_many([Outgoing(b"%d" % number, attributes={"n": number}) for number in range(6)])
    (other,) = await queue.receive()
    assert await queue.lane.reserve_open("job") == (1, -1)
    first = await queue.lane.reserve("job", 1, 0, 2)
    assert [(one.body, one.receipt, one.receives, one.lease_until_ms) for one in first] == [(b"1", "", 0, 0), (b"2", "", 0, 0)]
    second = await queue.lane.reserve("job", 1, 1, 9)
    house.clock.advance(1_000_000)
    await house.again(snapshot=snapshot)
    lane = await lane_of(house)
    assert await lane.reserve_open("job") == (2, 1)
    with pytest.raises(Fenced):
        await lane.reserve("job", 1, 0, 2)
    with pytest.raises(Fenced):
        await lane.reserve_settle("job", 1, 1)
    assert (await lane.reserve("job", 2, 0, 9), await lane.reserve("job", 2, 1, 1)) == (first, second)
    queue = await house.queue(lease_s=5)
    assert [(one.body, one.id) for one in await queue.receive(max=9)] == [(b"0", other.id)], "nobody else gets them"
    assert await lane.reserve_settle("job", 2, 0) == 2
    await house.again(snapshot=snapshot)
    lane = await lane_of(house)
    assert await lane.reserve_settle("job", 2, 1) == 3
    assert lane.reservations() == [ReservationFacts("job", 2, 1, 1, {})]
    assert bodies(await everything(await house.queue(lease_s=5))) == [b"0"]


async def test_an_empty_batch_stays_empty(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    epoch, _ = await queue.lane.reserve_open("job")
    assert await queue.lane.reserve("job", epoch, 0, 5) == []
    await queue.send(b"x")
    await house.again(snapshot=True)
    lane = await lane_of(house)
    assert await lane.reserve("job", epoch, 0, 5) == []
    assert [one.body for one in await lane.reserve("job", epoch, 1, 5)] == [b"x"]


@pytest.mark.parametrize("close", [False, True])
async def test_what_an_operator_releases_returns_to_its_place_and_the_owner_hears_of_it(house: SeamHouse, close: bool) -> None:  # noqa: F811
    queue = await house.queue()
    await queue.send_many([b"1", b"2", b"3"])
    lane = queue.lane
    epoch, _ = await lane.reserve_open("job")
    await lane.reserve("job", epoch, 0, 2)
    assert await (lane.reserve_close("job") if close else lane.reserve_release("job")) == 2
    await house.again()
    queue = await house.queue()
    lane = queue.lane
    with pytest.raises(NoSuchReservation if close else Fenced):
        await lane.reserve_settle("job", epoch, 0)
    new, last = await lane.reserve_open("job")
    assert (new, last) == (epoch + 1, -1 if close else 0)
    if not close:
        with pytest.raises(BatchRefused):
            await lane.reserve("job", new, 0, 2)
        with pytest.raises(BatchRefused, match="released"):
            await lane.reserve_settle("job", new, 0)
    assert bodies(await queue.receive(max=9)) == [b"1", b"2", b"3"]


async def test_numbers_of_batches_only_grow(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await queue.send_many([b"1", b"2", b"3"])
    lane = queue.lane
    epoch, _ = await lane.reserve_open("job")
    await lane.reserve("job", epoch, 5, 1)
    for batch in (0, 4):
        with pytest.raises(BatchRefused):
            await lane.reserve("job", epoch, batch, 1)
    with pytest.raises(BatchRefused, match="never reserved"):
        await lane.reserve_settle("job", epoch, 6)
    assert (await lane.reserve_settle("job", epoch, 5), await lane.reserve_settle("job", epoch, 5)) == (1, 0)
    with pytest.raises(BatchRefused):
        await lane.reserve("job", epoch, 5, 1)


async def test_what_is_reserved_is_shown_as_such(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await queue.send_many([b"1", b"2", Outgoing(b"3", delay_s=60)])
    epoch, _ = await queue.lane.reserve_open("job")
    await queue.lane.reserve("job", epoch, 0, 1)
    counts = await queue.counts()
    assert (counts.visible, counts.delayed, counts.leased, counts.reserved, counts.pushed) == (1, 1, 0, 1, 3)
    assert [(one.body, one.state) for one in await everything(queue)] == [(b"1", "reserved"), (b"2", "visible"), (b"3", "delayed")]
    assert queue.lane.reservations() == [ReservationFacts("job", epoch, 0, -1, {0: 1})]
    assert 'dovetail_messages{namespace="default",queue="orders",state="reserved"} 1' in house.node.metrics()


async def test_a_batch_is_read_in_parts_and_in_columns_without_writing(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await queue.send_many([b"%d" % number for number in range(5)])
    await queue.send(b"5")
    lane = queue.lane
    epoch, _ = await lane.reserve_open("job")
    reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    lane.reserve_for(reply, "job", epoch, 0, 9)
    runs = lane.set_aside(await reply)
    assert [(run.sequence, run.delivery, run.length, run.item, run.lease_until_ms) for run in runs] == [(1, 0, 5, 0, 0), (6, 0, 1, 0, 0)]
    entries = house.node.store.facts()["dovetail_log_entries"]
    assert lane.reserved("job", 0) == runs
    assert [(run.sequence, run.length, run.item) for run in lane.reserved("job", 0, 2, 2)] == [(3, 2, 2)]
    assert [(run.sequence, run.length) for run in lane.reserved("job", 0, 4, 9)] == [(5, 1), (6, 1)]
    assert lane.reserved("job", 0, 6) == lane.reserved("job", 0, 0, 0) == []
    for name, batch, error in (("nobody", 0, NoSuchReservation), ("job", 1, BatchRefused)):
        with pytest.raises(error):
            lane.reserved(name, batch)
    assert house.node.store.facts()["dovetail_log_entries"] == entries
    assert await lane.reserve("job", epoch, 0, 9).runs() == runs


async def test_a_dead_letter_that_is_reserved_keeps_what_it_is(house: SeamHouse) -> None:  # noqa: F811
    dead = await house.queue("dead")
    queue = await house.queue(max_receives=1, dead_letter="dead")
    sent = await queue.send(b"x", group="tenant")
    await (await queue.receive())[0].requeue(0)
    assert await queue.receive() == []
    epoch, _ = await dead.lane.reserve_open("job")
    house.clock.advance(3)
    (letter,) = await dead.lane.reserve("job", epoch, 0, 1)
    (seen,) = await dead.peek()
    assert (seen.id, letter.source, letter.body, letter.group) == (sent.id, queue.lane.queue, b"x", b"tenant")
    assert letter.id.hex() == sent.id.replace("-", "")


async def test_a_reserved_message_blocks_its_group_and_its_end_wakes_whoever_waits(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue(groups=True)
    await queue.send_many([Outgoing(b"1", group="a"), Outgoing(b"2", group="a"), Outgoing(b"3", group="b")])
    lane = queue.lane
    epoch, _ = await lane.reserve_open("job")
    await lane.reserve("job", epoch, 0, 1)
    assert bodies(await queue.receive(max=9)) == [b"3"]
    (receiver,) = await waiting(queue.receive(wait_s=60))
    assert not receiver.done()
    await lane.reserve_settle("job", epoch, 0)
    (got,) = await soon(receiver)
    assert got.body == b"2"
    await got.requeue(0)
    await lane.reserve("job", epoch, 1, 1)
    (receiver,) = await waiting(queue.receive(wait_s=60))
    await lane.reserve_release("job")
    assert bodies(await soon(receiver)) == [b"2"]


async def test_expiry_purge_and_verbs_by_id_spare_what_is_reserved(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue(retention_s=10)
    (sent, *_) = await queue.send_many([b"1", b"2"])
    lane = queue.lane
    epoch, _ = await lane.reserve_open("job")
    await lane.reserve("job", epoch, 0, 1)
    house.clock.advance(100)
    assert await house.node.store.chores.expire() == 1
    assert await house.node.store.chores.expire() == 0
    assert (await queue.cancel(sent.id), await queue.reclaim(sent.id), await queue.reschedule(sent.id, 5)) == (False, False, False)
    await queue.send(b"3")
    assert await queue.purge() == 1
    await house.again(snapshot=True)
    lane = await lane_of(house)
    assert [one.body for one in await lane.reserve("job", epoch, 0, 1)] == [b"1"]
    assert await lane.reserve_settle("job", epoch, 0) == 1


@pytest.mark.slow
async def test_a_reserved_message_keeps_its_body_while_the_log_is_trimmed(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    await queue.send_many([b"kept", b"too"])
    epoch, _ = await queue.lane.reserve_open("job")
    first = await queue.lane.reserve("job", epoch, 0, 9)
    await house.wear()
    assert house.node.store.log.first > 0
    assert await (await lane_of(house)).reserve("job", epoch, 0, 9) == first


async def test_what_is_no_reservation_is_refused(house: SeamHouse) -> None:  # noqa: F811
    queue = await house.queue()
    lane = queue.lane
    for name in ("", "x" * 129):
        with pytest.raises(LimitExceeded):
            await lane.reserve_open(name)
    epoch, _ = await lane.reserve_open("job")
    for batch, most, error in (
        (-1, 1, BadRequest),
        (1 << 64, 1, BadRequest),
        (0, 0, LimitExceeded),
        (0, RESERVE_MESSAGES_MAX + 1, LimitExceeded),
    ):
        with pytest.raises(error):
            await lane.reserve("job", epoch, batch, most)
    for act in (
        lane.reserve("other", 1, 0, 1),
        lane.reserve_settle("other", 1, 0),
        lane.reserve_release("other"),
        lane.reserve_close("other"),
    ):
        with pytest.raises(NoSuchReservation):
            await act
    for number in range(RESERVATIONS_PER_QUEUE_MAX - 1):
        await lane.reserve_open(str(number))
    with pytest.raises(LimitExceeded):
        await lane.reserve_open("one more")
    await house.node.drop("orders")
    await house.queue()
    with pytest.raises(NoSuchQueue):
        await lane.reserve_settle("job", epoch, 0)
    for ask in (lane.reservations, lambda: lane.reserve("job", epoch, 0, 1), lambda: lane.reserved("job", 0)):
        with pytest.raises(NoSuchQueue):
            ask()


async def test_the_broker_counts_what_a_job_takes_and_settles(house: SeamHouse) -> None:  # noqa: F811
    queue, broker = await house.queue(), house.node.broker
    await queue.send_many([b"1", b"2", b"3"])
    epoch, _ = await broker.reserve_open(queue.lane, "job")
    assert len(await broker.reserve(queue.lane, "job", epoch, 0, 2)) == 2
    assert await broker.reserve_settle(queue.lane, "job", epoch, 0) == 2
    await broker.reserve(queue.lane, "job", epoch, 1, 2)
    assert await broker.reserve_release(queue.lane, "job") == 1
    assert await broker.reserve_close(queue.lane, "job") == 0
    meter = broker.meter(queue.lane)
    assert (meter.delivered.value, meter.completed.value) == (3, 2)
