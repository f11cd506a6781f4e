"""What is of the wrong type is refused by name, by a node in this process and by one that is elsewhere; and what it costs a producer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import dovetail
from dovetail.errors import BadRequest, Closed, LimitExceeded, NoSuchQueue, Unavailable

ACTS: list[Callable[[Any], Awaitable[Any]]] = [
    lambda queue: queue.extend(["r"], lease_s="a"),
    lambda queue: queue.requeue(["r"], delay_s=[]),
    lambda queue: queue.receive(wait_s="a"),
    lambda queue: queue.reschedule(1, "a"),
    lambda queue: queue.send(b"a", delay_s="a"),
    lambda queue: queue.cancel([1]),
    lambda queue: queue.reclaim(None),
    lambda queue: queue.cancel(True),
    lambda queue: queue.complete([None]),
    lambda queue: queue.complete("text"),
    lambda queue: queue.complete(5),
    lambda queue: queue.release([b"r"]),
    lambda queue: queue.extend([1]),
]


async def test_a_value_of_the_wrong_type_is_a_bad_request(either: dovetail.Queues) -> None:
    queue = await either.queue("orders")
    for act in ACTS:
        with pytest.raises(BadRequest):
            await act(queue)
    assert (await queue.send(b"a")).sequence == 1


@pytest.mark.parametrize("number", ["a", 1.0, True, 0, -1, 1 << 63, 1 << 70])
async def test_what_is_no_number_leaves_a_producer_as_it_was(either: dovetail.Queues, number: Any) -> None:
    queue, producer = await either.queue("orders"), await either.producer("billing")
    for act in (producer.send(queue, b"a", number=number), producer.skip(number)):
        with pytest.raises(BadRequest):
            await act
    assert producer.last == 0
    assert (await producer.send(queue, b"a")).sequence == 1


async def test_a_refusal_takes_the_number_back(either: dovetail.Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, producer = await either.queue("orders"), await either.producer("billing")
    push_all = either.verbs.push_all
    for refusal in (Unavailable(), Closed(), BadRequest(), LimitExceeded()):

        async def refusing(*_: Any, error: Exception = refusal) -> Any:
            raise error

        monkeypatch.setattr(either.verbs, "push_all", refusing)
        for number in (None, 1, 9):
            with pytest.raises(type(refusal)):
                await producer.send(queue, b"a", number=number)
            assert producer.last == 0
    monkeypatch.setattr(either.verbs, "push_all", push_all)
    with pytest.raises(BadRequest):
        await producer.send(queue, b"a", number=9)  # It leaves a gap.
    assert (await producer.send(queue, b"a")).sequence == 1 and producer.last == 1


async def test_a_queue_that_is_gone_does_not_stop_a_producer(either: dovetail.Queues) -> None:
    queue, gone, producer = await either.queue("orders"), await either.queue("gone"), await either.producer("billing")
    await either.drop("gone")
    with pytest.raises(NoSuchQueue):
        await producer.send(gone, b"a")
    assert (await producer.send(queue, b"b")).sequence == 1
