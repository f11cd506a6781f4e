"""Reservations as people hold them, here and over a connection: the same messages for the same batch, until they are settled."""

from __future__ import annotations

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, BatchRefused, Fenced, LimitExceeded, NoSuchQueue, NoSuchReservation
from dovetail.limits import RESERVE_MESSAGES_MAX
from dovetail.stores.store import ReservationFacts
from tests.contract.house import House, bodies, everything, soon, waiting


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_batch_is_the_same_after_a_restart_and_for_the_next_owner(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders", lease_s=5)
    await queue.send_many([Outgoing(b"%d" % number, attributes={"n": number}) for number in range(6)])
    await queue.receive()
    before = await queue.reservation("job")
    assert (before.epoch, before.last, await before.reserve(0, max=2), await before.reserve(1)) == (1, -1, 2, 3)
    first, second = await before.read(0), await before.read(1)
    assert [(one.body, one.receives, one.source) for one in first] == [(b"1", 0, None), (b"2", 0, None)]
    house.clock.advance(1_000_000)
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    after = await queue.reservation("job")
    assert (after.epoch, after.last) == (2, 1)
    for act in (lambda: before.reserve(0), lambda: before.settle(1)):
        before.queue = queue
        with pytest.raises(Fenced):
            await act()
    assert (await after.reserve(0), await after.reserve(1, max=1)) == (2, 3)
    assert (await after.read(0), await after.read(1)) == (first, second)
    assert bodies(await queue.receive(max=9)) == [b"0"], "nobody else gets them"
    assert (await after.settle(0), await after.settle(1), await after.settle(1)) == (2, 3, 0)
    assert await queue.reservations() == [ReservationFacts("job", 2, 1, 1, {})]


async def test_an_empty_batch_stays_empty(house: House) -> None:
    queue = await house.node.queue("orders")
    job = await queue.reservation("job")
    assert await job.reserve(0) == 0
    await queue.send(b"x")
    assert (await job.reserve(0), await job.read(0)) == (0, [])
    assert (await job.reserve(1), bodies(await job.read(1))) == (1, [b"x"])


@pytest.mark.parametrize("close", [False, True])
async def test_what_an_operator_releases_goes_back_and_the_owner_hears_of_it(house: House, close: bool) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"1", b"2", b"3"])
    job = await queue.reservation("job")
    await job.reserve(0, max=2)
    assert await (queue.close_reservation("job") if close else queue.release_reservation("job")) == 2
    with pytest.raises(NoSuchReservation if close else Fenced):
        await job.settle(0)
    job = await queue.reservation("job")
    assert (job.epoch, job.last) == (2, -1 if close else 0)
    if not close:
        with pytest.raises(BatchRefused):
            await job.reserve(0)
        with pytest.raises(BatchRefused, match="released"):
            await job.settle(0)
    assert bodies(await queue.receive(max=9)) == [b"1", b"2", b"3"]


async def test_a_batch_is_read_in_ranges_by_whoever_knows_its_name(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"%d" % number for number in range(5)])
    await queue.send(b"5", group="g", id="00112233-4455-6677-8899-aabbccddeeff")
    job = await queue.reservation("job")
    assert await job.reserve(3) == 6
    reader = await house.node.queue("orders")
    whole = await reader.reserved("job", 3)
    assert [one.body for one in whole] == [b"%d" % number for number in range(6)]
    assert (whole[5].group, whole[5].id) == ("g", "00112233-4455-6677-8899-aabbccddeeff")
    assert [one.id for one in whole] == [one.id for one in await everything(queue)]
    assert [await reader.reserved("job", 3, start, 2) for start in (0, 2, 4, 6)] == [whole[:2], whole[2:4], whole[4:], []]
    assert await job.read(3, start=5) == whole[5:]


@pytest.mark.slow
async def test_a_batch_of_many_messages_is_read_whole(house: House) -> None:
    queue = await house.node.queue("orders")
    wanted = []
    for part in range(5):
        sent = [b"%d/%d" % (part, number) for number in range(9000)]
        await queue.send_many(sent)
        wanted += sent
    job = await queue.reservation("job")
    assert await job.reserve(0, max=RESERVE_MESSAGES_MAX) == 45_000
    assert [one.body for one in await job.read(0)] == wanted
    assert [one.body for one in await job.read(0, start=16_000, max=20_000)] == wanted[16_000:36_000]
    assert await job.settle(0) == 45_000


async def test_a_dead_letter_that_is_reserved_tells_where_it_came_from(house: House) -> None:
    dead = await house.node.queue("dead")
    queue = await house.node.queue("orders", max_receives=1, dead_letter="dead")
    sent = await queue.send(b"x")
    await (await queue.receive())[0].requeue(0)
    assert await queue.receive() == []
    job = await dead.reservation("job")
    await job.reserve(0)
    (letter,) = await job.read(0)
    assert (letter.id, letter.source, letter.body) == (sent.id, "orders", b"x")


async def test_reserved_messages_are_counted_and_block_their_group(house: House) -> None:
    queue = await house.node.queue("orders", groups=True)
    await queue.send_many([Outgoing(b"1", group="a"), Outgoing(b"2", group="a"), Outgoing(b"3", group="b")])
    job = await queue.reservation("job")
    await job.reserve(0, max=1)
    counts = await queue.counts()
    assert (counts.leased, counts.reserved) == (0, 1)
    assert (await everything(queue))[0].state == "reserved"
    assert bodies(await queue.receive(max=9)) == [b"3"]
    (receiver,) = await waiting(queue.receive(wait_s=60))
    assert not receiver.done()
    await job.settle(0)
    assert bodies(await soon(receiver)) == [b"2"]


async def test_what_is_no_reservation_is_refused(house: House) -> None:
    queue = await house.node.queue("orders")
    job = await queue.reservation("job")
    for act, error in (
        (lambda: queue.reservation(""), LimitExceeded),
        (lambda: queue.reservation("x" * 129), LimitExceeded),
        (lambda: job.reserve(-1), BadRequest),
        (lambda: job.reserve(1 << 63), BadRequest),
        (lambda: job.reserve(0, max=0), LimitExceeded),
        (lambda: job.reserve(0, max=RESERVE_MESSAGES_MAX + 1), LimitExceeded),
        (lambda: job.read(0), BatchRefused),
        (lambda: job.read(0, start=-1), BadRequest),
        (lambda: job.read(0, max=0), LimitExceeded),
        (lambda: job.settle(0), BatchRefused),
        (lambda: queue.reserved("other", 0), NoSuchReservation),
        (lambda: queue.release_reservation("other"), NoSuchReservation),
    ):
        with pytest.raises(error):
            await act()
    await house.node.drop("orders")
    for act in (lambda: job.reserve(0), lambda: queue.reservations()):
        with pytest.raises(NoSuchQueue):
            await act()
