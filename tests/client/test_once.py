"""process_once, in this process and over a connection."""

from __future__ import annotations

import pytest

import dovetail
from dovetail import process_once
from dovetail.errors import BadRequest, ReceiptInvalid


async def test_what_was_finished_is_not_begun_again(either: dovetail.Queues) -> None:
    queue, bills = await either.queue("orders"), await either.queue("bills")
    await queue.send_many([b"order 7", b"order 7", b"order 8"])
    done = []
    for message in await queue.receive(max=3):
        async with process_once(message, message.body.decode()) as once:
            if once.first:
                done.append(message.body)
                once.send(bills, b"bill for " + message.body)
    assert done == [b"order 7", b"order 8"]
    assert [one.body for one in await bills.peek()] == [b"bill for order 7", b"bill for order 8"]
    counts = await queue.counts()
    assert (counts.visible, counts.leased) == (0, 0)
    assert (await (await either.queue("orders.once")).counts()).visible == 0, "no mark is left"


async def test_what_failed_is_begun_again(either: dovetail.Queues) -> None:
    queue, bills = await either.queue("orders"), await either.queue("bills", deduplication_s=60)
    await queue.send(b"order")
    for number in range(3):
        (message,) = await queue.receive(wait_s=60)
        if number < 2:
            with pytest.raises(ZeroDivisionError):
                async with process_once(message, "7") as once:
                    assert once.first
                    once.send(bills, b"never")
                    1 / 0
        else:
            async with process_once(message, "7") as once:
                assert once.first
                once.send(bills, b"bill")
    assert [one.body for one in await bills.peek()] == [b"bill"]
    assert once.sent[0].sequence == 1


async def test_results_are_stored_once_for_the_key_where_their_queue_recognises_repeats(either: dovetail.Queues) -> None:
    """Two consumers at the same time both run; what they send is the same."""
    queue, bills = await either.queue("orders"), await either.queue("bills", deduplication_s=60)
    await queue.send_many([b"order", b"order"])
    one, two = await queue.receive(max=2)
    async with process_once(one, "7") as first, process_once(two, "7") as second:
        assert first.first and second.first
        first.send(bills, b"bill")
        second.send(bills, b"bill")
    assert len(await bills.peek()) == 1
    assert sorted(sent.repeat for once in (first, second) for sent in once.sent) == [False, True]


async def test_a_handler_that_ran_and_died_before_its_message_was_completed_does_not_run_again(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    await queue.send(b"order")
    (message,) = await queue.receive()
    once = process_once(message, "7")
    await once.__aenter__()
    ledger = queue.ledger
    assert ledger is not None
    await ledger.cancel(once._mark)  # Finished; the process dies here.
    await message.release()
    (again,) = await queue.receive()
    async with process_once(again, "7") as second:
        assert not second.first
    assert (await queue.counts()).leased == 0


async def test_a_delivery_that_is_over_sends_nothing(either: dovetail.Queues) -> None:
    queue, bills = await either.queue("orders"), await either.queue("bills")
    await queue.send(b"order")
    (message,) = await queue.receive()
    with pytest.raises(ReceiptInvalid):
        async with process_once(message, "7") as once:
            once.send(bills, b"bill")
            await queue.requeue([message.receipt], 60)
    assert await bills.peek() == []


async def test_a_ledger_of_ones_own_and_keys_that_make_sense(either: dovetail.Queues) -> None:
    queue, ledger = await either.queue("orders"), await either.queue("done", deduplication_s=600)
    other = await either.queue("other")
    await queue.send_many([b"a", b"b"])
    a, b = await queue.receive(max=2)
    for message in (a, b):
        async with process_once(message, "same", ledger=ledger) as once:
            assert once.first is (message is a)
    assert "orders.once" not in await either.queues()
    with pytest.raises(BadRequest):
        process_once(a, "")
    with pytest.raises(BadRequest):
        async with process_once(a, "x", ledger=ledger) as once:
            once.send(queue, b"1")
            once.send(other, b"2")
