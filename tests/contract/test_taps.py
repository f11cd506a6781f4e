"""Taps: everything that was pushed, by sequence, whatever consumers do."""

from __future__ import annotations

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, NoSuchTap, TapCut
from tests.contract.house import House, bodies


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_tap_reads_everything_pushed_whatever_becomes_of_it_and_reads_it_again(house: House, snapshot: bool) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders", deduplication_s=60)
    await queue.send_many([b"waiting", Outgoing(b"delayed", delay_s=60)])
    tap = await queue.tap("archive")
    await queue.send(b"completed", deduplication="k")
    await queue.send(b"repeat", deduplication="k")
    for message in await queue.receive(max=9):
        await message.complete()
    await queue.send(b"purged")
    await queue.purge()
    await queue.send(b"last")
    expected = [b"waiting", b"delayed", b"completed", b"purged", b"last"]
    first = await tap.read()
    assert bodies(first.messages) == expected
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive", start="latest")
    assert await tap.read() == first, "opening it again changes nothing, and a batch can be replayed exactly"
    assert bodies((await tap.read(max=2)).messages) == expected[:2]
    assert bodies((await tap.read(from_sequence=3)).messages) == expected[2:]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_tap_advances_and_does_not_go_back(house: House, snapshot: bool) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive")
    await queue.send_many([b"%d" % number for number in range(10)])
    batch = await tap.read(max=4)
    assert (len(batch), batch.next) == (4, 5)
    assert await tap.advance(batch.next) == 5
    assert await tap.advance(2) == 5
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive")
    assert bodies((await tap.read()).messages) == [b"%d" % number for number in range(4, 10)]
    with pytest.raises(BadRequest):
        await tap.read(from_sequence=4)
    end = await tap.read(from_sequence=11)
    assert (end.messages, end.next) == ([], 11)
    assert await tap.advance(1000) == 11, "not past what was pushed"


async def test_a_tap_starts_at_the_earliest_the_latest_or_a_sequence(house: House) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders")
    await queue.send_many([b"1", b"2", b"3"])
    latest = await queue.tap("latest", start="latest")
    earliest, third = await queue.tap("earliest"), await queue.tap("third", start=3)
    await queue.send(b"4")
    assert bodies((await latest.read()).messages) == [b"4"]
    assert bodies((await third.read()).messages) == [b"3", b"4"]
    assert bodies((await earliest.read()).messages) == [b"1", b"2", b"3", b"4"]
    for start in ("middle", -1, 1 << 70):
        with pytest.raises(BadRequest):
            await queue.tap("other", start=start)
    await queue.send(b"5")
    assert len(await queue.taps()) == 3


@pytest.mark.parametrize("bound", ["age", "bytes"])
async def test_a_tap_past_its_bound_is_cut_and_names_what_it_lost(house: House, bound: str) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive", age_s=100 if bound == "age" else 1e6, bytes_max=64 << 30 if bound == "age" else 300_000)
    for number in range(5):
        await queue.send(b"%d" % number + bytes(100_000))
        house.clock.advance(30)
    for message in await queue.receive(max=9):
        await message.complete()
    await house.node.snapshot()
    await house.again()
    queue = await house.node.queue("orders")
    tap = await queue.tap("archive")
    with pytest.raises(TapCut) as cut:
        await tap.read()
    assert cut.value.lost_first == 1 and 1 <= cut.value.lost_count <= 4
    with pytest.raises(TapCut):
        await tap.read()
    following = cut.value.lost_first + cut.value.lost_count
    await tap.advance(following)
    assert [one.sequence for one in (await tap.read()).messages] == list(range(following, 6))


async def test_a_closed_tap_is_gone_and_a_dropped_queue_fails_loudly(house: House) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders")
    tap, other = await queue.tap("archive"), await queue.tap("other")
    await queue.send(b"a")
    await tap.close()
    for act in (tap.read(), tap.advance(1), tap.close()):
        with pytest.raises(NoSuchTap):
            await act
    await house.node.drop("orders")
    await house.node.queue("orders")
    for act in (other.read(), other.advance(1)):
        with pytest.raises((NoSuchQueue, NoSuchTap)):
            await act


@pytest.mark.slow
async def test_a_tap_reads_through_many_snapshots_trims_and_restarts(house: House) -> None:
    """More runs than are kept in memory, so that notes are written beside the log, which is trimmed as far as taps allow."""
    await house.needs("taps")
    queue = await house.node.queue("orders")
    await queue.tap("archive")
    sent, read = 0, 0
    for step in range(8):
        for _ in range(130):
            await queue.send(b"%d" % sent + bytes(3000))
            sent += 1
        for message in await queue.receive(max=1000):
            await message.complete()
        await house.again(snapshot=True)
        queue = await house.node.queue("orders")
        tap = await queue.tap("archive")
        if step % 3 == 2:
            batch = await tap.read(max=200)
            assert [int(one.body.rstrip(b"\0")) for one in batch.messages] == list(range(read, read + 200))
            read += 200
            await tap.advance(batch.next)
    rest = await tap.read(max=10_000)
    assert [int(one.body.rstrip(b"\0")) for one in rest.messages] == list(range(read, sent))


async def test_a_tap_keeps_the_old_records_of_messages_that_were_moved_in_late(house: House) -> None:
    await house.needs("taps")
    dead = await house.node.queue("dead")
    queue = await house.node.queue("orders", max_receives=1, dead_letter="dead")
    await queue.send(b"old" + bytes(1000))
    filler = await house.node.queue("filler")
    await dead.tap("archive")
    for _ in range(40):
        await filler.send(bytes(100_000))
    for number in range(300):
        await dead.send(b"%d" % number)
    await house.node.snapshot()
    (message,) = await queue.receive()
    await message.requeue(0)
    assert await queue.receive() == []
    for letter in await dead.receive(max=1000):
        await letter.complete()
    for one in await filler.receive(max=1000):
        await one.complete()
    for _ in range(3):
        filler = await house.node.queue("filler")
        await filler.send(bytes(100_000), delay_s=1)
        await house.again(snapshot=True)
    dead = await house.node.queue("dead")
    got = (await (await dead.tap("archive")).read(max=1000)).messages
    assert bodies(got) == [*(b"%d" % number for number in range(300)), b"old" + bytes(1000)]


async def test_a_queue_has_a_limit_of_taps(house: House) -> None:
    await house.needs("taps")
    queue = await house.node.queue("orders")
    for number in range(64):
        await queue.tap(f"tap-{number}")
    with pytest.raises(LimitExceeded):
        await queue.tap("one more")
    with pytest.raises(LimitExceeded):
        await queue.tap("x" * 129)
