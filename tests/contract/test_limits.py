"""Limits: what lies at the limit passes on every store, one more is refused in so many words, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from dovetail import Outgoing
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.limits import (
    ATTRIBUTE_NAME_BYTES_MAX,
    ATTRIBUTES_BYTES_MAX,
    ATTRIBUTES_MAX,
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    GROUP_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    QUEUE_EXTRA_CHARS_MAX,
    QUEUE_NAME_BYTES_MAX,
)
from tests.contract.house import House, everything, soon

ATTRIBUTE_OVERHEAD = 2 + 8 + 1 + 6  # count, three lengths, a name of one byte, "Binary"

AT_THE_LIMIT: dict[str, Mapping[str, Any]] = {
    "body": {"body": bytes(BODY_BYTES_MAX)},
    "attributes": {"attributes": {"a": bytes(ATTRIBUTES_BYTES_MAX - ATTRIBUTE_OVERHEAD)}},
    "both": {"body": bytes(BODY_BYTES_MAX), "attributes": {"a": bytes(MESSAGE_BYTES_MAX - BODY_BYTES_MAX - ATTRIBUTE_OVERHEAD)}},
    "number of attributes": {"attributes": {str(number): "" for number in range(ATTRIBUTES_MAX)}},
    "name of an attribute": {"attributes": {"x" * ATTRIBUTE_NAME_BYTES_MAX: ""}},
    "group": {"group": "g" * GROUP_BYTES_MAX},
}
BEYOND: dict[str, Mapping[str, Any]] = {
    "body": {"body": bytes(BODY_BYTES_MAX + 1)},
    "attributes": {"attributes": {"a": bytes(ATTRIBUTES_BYTES_MAX - ATTRIBUTE_OVERHEAD + 1)}},
    "both": {
        "body": bytes(BODY_BYTES_MAX),
        "attributes": {"a": bytes(MESSAGE_BYTES_MAX - BODY_BYTES_MAX - ATTRIBUTE_OVERHEAD + 1)},
    },
    "number of attributes": {"attributes": {str(number): "" for number in range(ATTRIBUTES_MAX + 1)}},
    "name of an attribute": {"attributes": {"x" * (ATTRIBUTE_NAME_BYTES_MAX + 1): ""}},
    "empty name of an attribute": {"attributes": {"": "x"}},
    "group": {"group": "g" * (GROUP_BYTES_MAX + 1)},
    "delay": {"delay_s": 1e12},
    "negative delay": {"delay_s": -1},
    "endless delay": {"delay_s": float("inf")},
    "no delay": {"delay_s": float("nan")},
    "text": {"body": "text"},
    "nothing": {"attributes": {"a": None}},
}


@pytest.mark.parametrize("what", AT_THE_LIMIT)
async def test_a_message_at_the_limit_passes(house: House, what: str) -> None:
    queue = await house.node.queue("q" * QUEUE_NAME_BYTES_MAX)
    given = {"body": b"", **AT_THE_LIMIT[what]}
    await queue.send(**given)
    await queue.send_many([Outgoing(**given)])
    await house.again()
    queue = await house.node.queue("q" * QUEUE_NAME_BYTES_MAX)
    for message in await queue.receive(max=2):
        assert message.body == given["body"]
        assert len(message.attributes) == len(given.get("attributes", {}))
        await message.complete()


@pytest.mark.parametrize("what", BEYOND)
async def test_a_message_beyond_the_limit_is_refused_alone(house: House, what: str) -> None:
    queue = await house.node.queue("orders")
    given = {"body": b"", **BEYOND[what]}
    one, two, three = await soon(
        asyncio.gather(queue.send(b"stranger"), queue.send(**given), queue.send_many([b"a", b"b"]), return_exceptions=True)
    )
    assert isinstance(two, BadRequest) and str(two), two
    assert not isinstance(one, BaseException) and not isinstance(three, BaseException)
    assert len(await everything(queue)) == 3


async def test_a_batch_at_its_limits_passes_and_one_more_is_refused(house: House) -> None:
    queue = await house.node.queue("orders")
    assert len(await queue.send_many([b""] * BATCH_MESSAGES_MAX)) == BATCH_MESSAGES_MAX
    got = await queue.receive(max=BATCH_MESSAGES_MAX)
    assert all(await queue.complete([message.receipt for message in got]))
    assert len(await queue.send_many([bytes(BATCH_BYTES_MAX // 16)] * 16)) == 16
    got = await queue.receive(max=16)
    assert [len(message.body) for message in got] == [BATCH_BYTES_MAX // 16] * 16
    for many in ([], [b""] * (BATCH_MESSAGES_MAX + 1), [bytes(BATCH_BYTES_MAX // 16)] * 16 + [b"x"]):
        with pytest.raises(LimitExceeded):
            await queue.send_many(many)
    with pytest.raises(LimitExceeded):
        await queue.complete([])
    assert len(await everything(queue)) == 16


async def test_many_large_messages_at_once_are_all_stored(house: House) -> None:
    queue = await house.node.queue("orders")
    large = {"a": bytes(60_000)}
    sends = [queue.send(b"x", attributes=large) for _ in range(60)]
    sends += [queue.send(bytes(BODY_BYTES_MAX)) for _ in range(4)]
    answers = await soon(asyncio.gather(*sends, return_exceptions=True))
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert len(await everything(queue)) == 64


async def test_a_push_names_each_queue_once(house: House) -> None:
    queue = await house.node.queue("orders")
    for queues in ([], [queue, queue]):
        with pytest.raises(LimitExceeded):
            await house.node.send_to(queues, b"x")
    assert await everything(queue) == []


async def test_a_queue_that_would_keep_too_much_beside_its_rules_is_not_made_and_leaves_no_name(house: House) -> None:
    with pytest.raises(BadRequest):  # over the wire, no text of that length can be said at all
        await house.node.queue("heavy", extra={"note": "x" * (QUEUE_EXTRA_CHARS_MAX + 1)})
    assert "heavy" not in [queue.name for queue in await house.node.queues()]
