"""Leases and receipts: a received message is hidden until its lease ends, and an old receipt changes nothing."""

from __future__ import annotations

import pytest

from dovetail.errors import BadRequest, ReceiptInvalid
from tests.contract.house import House, bodies, everything


async def test_a_received_message_is_hidden_until_its_lease_ends(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=30)
    await queue.send(b"a")
    (first,) = await queue.receive()
    house.clock.advance(29.999)
    assert await queue.receive() == []
    house.clock.advance(0.001)
    (second,) = await queue.receive()
    assert (second.id, second.receives) == (first.id, 2)
    assert second.receipt != first.receipt


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_lease_goes_on_through_a_restart(house: House, snapshot: bool) -> None:
    queue = await house.node.queue("orders", lease_s=30)
    await queue.send_many([b"a", b"b"])
    (message,) = await queue.receive()
    house.clock.advance(10)
    await house.again(snapshot=snapshot)
    queue = await house.node.queue("orders")
    assert bodies(await queue.receive(max=10, lease_s=100)) == [b"b"]
    house.clock.advance(19)
    assert await queue.receive() == []
    assert await queue.extend([message.receipt], 5) == [True]
    house.clock.advance(5)
    assert [(one.body, one.receives) for one in await queue.receive()] == [(b"a", 2)]


async def test_time_spent_down_counts_for_leases_and_delays(house: House) -> None:
    if not house.kind.persists:
        pytest.skip("nothing is left of a memory store")
    queue = await house.node.queue("orders")
    await queue.send(b"leased")
    await queue.receive(lease_s=60)
    await queue.send(b"delayed", delay_s=60)
    await house.close()
    house.clock.advance(60)
    await house.open()
    assert bodies(await (await house.node.queue("orders")).receive(max=10)) == [b"leased", b"delayed"]


async def test_a_wall_clock_that_is_set_makes_no_lease_lapse(house: House) -> None:
    if not house.owns_time:
        pytest.skip("the log's stamps lie years ahead of the test's clock, and hold nothing back")
    queue = await house.node.queue("orders")
    await queue.send(b"a")
    await queue.receive(lease_s=60)
    house.clock.step_wall(86_400)
    assert await queue.receive() == []
    house.clock.step_wall(-2 * 86_400)
    await house.again()
    queue = await house.node.queue("orders")
    assert await queue.receive() == []
    house.clock.advance(60)
    assert bodies(await queue.receive()) == [b"a"]


async def test_a_wall_clock_that_was_set_makes_no_lease_lapse_at_the_next_start(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send(b"a")
    house.clock.step_wall(86_400)
    await queue.receive(lease_s=60)
    await house.again()
    queue = await house.node.queue("orders")
    assert await queue.receive() == []
    house.clock.advance(60)
    assert bodies(await queue.receive()) == [b"a"]


async def test_an_operator_moves_the_time_of_the_node_forward_to_a_clock_that_was_set_right(house: House) -> None:
    if not house.retimes:
        with pytest.raises(BadRequest):
            await house.node.retime()
        pytest.skip("the time of a shared log is not one node's to move")
    queue = await house.node.queue("orders")
    await queue.send(b"tomorrow", delay_s=86_400)
    house.clock.step_wall(86_400)
    assert await queue.receive() == []
    assert await house.node.retime() == 86_400_000
    assert bodies(await queue.receive()) == [b"tomorrow"]
    assert await house.node.retime() == 0


async def test_an_old_receipt_changes_nothing_once_the_message_was_handed_out_again(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=10)
    await queue.send(b"a")
    (old,) = await queue.receive()
    house.clock.advance(10)
    (new,) = await queue.receive()
    assert [await old.complete(), await old.requeue(0), await old.extend(99), await old.release()] == [False] * 4
    with pytest.raises(ReceiptInvalid):
        await old.complete_and_send(queue, b"never")
    await house.again()
    queue = await house.node.queue("orders")
    assert await queue.complete([old.receipt]) == [False]
    assert [one.state for one in await everything(queue)] == ["leased"]
    assert await queue.complete([new.receipt]) == [True]


async def test_after_its_lease_a_receipt_still_completes_until_the_next_delivery_but_nothing_else(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=10)
    await queue.send(b"a")
    (message,) = await queue.receive()
    house.clock.advance(10)
    assert [await message.extend(10), await message.requeue(0), await message.release()] == [False] * 3
    assert await message.complete() is True
    assert await everything(queue) == []


async def test_requeue_gives_back_at_once_in_its_old_place_and_ends_the_receipt(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send_many([b"a", b"b", b"c"])
    a, _ = await queue.receive(max=2)
    assert await a.requeue(delay_s=0) is True
    assert await a.complete() is False
    assert [(one.body, one.receives) for one in await queue.receive(max=3)] == [(b"a", 2), (b"c", 1)]


async def test_requeue_with_a_delay_hides_the_message_for_that_long(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=5)
    await queue.send(b"a")
    (message,) = await queue.receive()
    assert await message.requeue(delay_s=100) is True
    await house.again()
    queue = await house.node.queue("orders")
    assert [one.state for one in await everything(queue)] == ["delayed"]
    house.clock.advance(99.9)
    assert await queue.receive() == []
    house.clock.advance(0.1)
    assert bodies(await queue.receive()) == [b"a"]


async def test_back_off_doubles_with_each_receive_up_to_its_most(house: House) -> None:
    queue = await house.node.queue("orders", backoff_s=1, backoff_max_s=5)
    await queue.send(b"a")
    for number, wait_s in enumerate((1, 2, 4, 5, 5), 1):
        (message,) = await queue.receive()
        assert message.receives == number
        await message.requeue()
        house.clock.advance(wait_s - 0.001)
        assert await queue.receive() == []
        house.clock.advance(0.001)
    assert len(await queue.receive()) == 1


async def test_extend_moves_the_end_of_the_lease_both_ways(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=10)
    await queue.send(b"a")
    (message,) = await queue.receive()
    house.clock.advance(9)
    assert await message.extend(20) is True
    house.clock.advance(19)
    assert await queue.receive() == []
    assert await message.extend(0.5) is True
    house.clock.advance(0.5)
    (again,) = await queue.receive()
    assert again.receives == 2
    assert await again.extend(0) is True, "nothing left of the lease gives it back"
    assert await again.complete() is False
    assert len(await queue.receive()) == 1


async def test_release_undoes_the_delivery_and_its_count_but_never_its_number(house: House) -> None:
    queue = await house.node.queue("orders")
    await queue.send(b"a")
    (first,) = await queue.receive()
    assert await first.release() is True
    (second,) = await queue.receive()
    assert (second.receives, second.receipt != first.receipt) == (1, True)
    assert await first.complete() is False
    assert await second.complete() is True


async def test_a_lease_of_its_own_overrules_the_queue(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=1000)
    await queue.send_many([b"a", b"b"])
    await queue.receive(lease_s=1)
    await queue.receive()
    house.clock.advance(1)
    assert bodies(await queue.receive(max=2)) == [b"a"]
    await queue.configure(lease_s=2)
    house.clock.advance(998)
    assert await queue.receive() == [], "a lease that has begun is not changed by a new rule"
    house.clock.advance(1)
    assert bodies(await queue.receive()) == [b"b"]


async def test_a_receive_attempt_that_is_repeated_gets_the_same_messages_under_the_same_receipts(house: House) -> None:
    queue = await house.node.queue("orders", lease_s=30)
    await queue.send_many([b"a", b"b", b"c"])
    first = await queue.receive(max=2, attempt="try-1")
    house.clock.advance(20)
    await house.again()
    queue = await house.node.queue("orders")
    again = await queue.receive(max=2, attempt="try-1")
    assert [one.receipt for one in again] == [one.receipt for one in first]
    assert [one.receives for one in again] == [1, 1]
    house.clock.advance(20)
    assert bodies(await queue.receive(max=3)) == [b"c"], "the repeat began the leases anew"
    assert await queue.complete([again[0].receipt]) == [True]
    assert await queue.receive(max=2, attempt="try-1") == [], "void once one of them was settled"
