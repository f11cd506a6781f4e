"""FIFO queues through the door: order in groups, deduplication, attempts. Time is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.clock import ManualClock
from tests.doors.sqs.callers import Desk, Refused

Send = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def fifo(desk: Desk) -> str:
    return await desk.queue("f.fifo", FifoQueue="true", ContentBasedDeduplication="true")


@pytest.fixture
def send(desk: Desk, fifo: str) -> Send:
    async def one(body: str, group: str = "g", **more: Any) -> dict[str, Any]:
        return await desk("SendMessage", **{"QueueUrl": fifo, "MessageBody": body, "MessageGroupId": group} | more)

    return one


async def test_a_group_is_held_while_one_of_its_messages_is_in_flight(desk: Desk, fifo: str, send: Send) -> None:
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        await send(body, group)
    first = await desk.receive(fifo)
    assert first["Body"] == "a1"
    assert await desk.bodies(fifo, 1) == ["b1"]
    assert await desk.bodies(fifo) == [], "both groups are held"
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    assert await desk.bodies(fifo) == ["a2"]


async def test_one_receive_takes_what_it_can_of_a_group_and_then_of_others_in_order(desk: Desk, fifo: str, send: Send) -> None:
    for number in range(4):
        for group in "ab":
            await send(f"{group}{number}", group)
    got = await desk.bodies(fifo, 6)
    assert [body for body in got if body[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [body for body in got if body[0] == "b"] == ["b0", "b1"]


async def test_after_a_lapse_the_group_goes_on_in_its_order(desk: Desk, fifo: str, send: Send, clock: ManualClock) -> None:
    for body in ("1", "2", "3"):
        await send(body)
    assert await desk.bodies(fifo, 2, VisibilityTimeout=10) == ["1", "2"]
    clock.advance(9.9)
    assert await desk.bodies(fifo) == []
    clock.advance(0.2)
    assert await desk.bodies(fifo) == ["1", "2", "3"]


async def test_a_message_given_back_comes_first_and_one_extended_holds_the_rest(
    desk: Desk, fifo: str, send: Send, clock: ManualClock
) -> None:
    for body in ("1", "2"):
        await send(body)
    told = await desk("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages=2, VisibilityTimeout=10)
    first, second = (one["ReceiptHandle"] for one in told["Messages"])
    await desk("ChangeMessageVisibility", QueueUrl=fifo, ReceiptHandle=first, VisibilityTimeout=60)
    await desk("ChangeMessageVisibility", QueueUrl=fifo, ReceiptHandle=second, VisibilityTimeout=0)
    assert await desk.bodies(fifo) == [], "2 is visible and waits behind 1"
    await desk("ChangeMessageVisibility", QueueUrl=fifo, ReceiptHandle=first, VisibilityTimeout=0)
    assert await desk.bodies(fifo) == ["1", "2"]


async def test_sequence_numbers_grow_with_every_message(desk: Desk, fifo: str, send: Send) -> None:
    numbers = [(await send(str(number), f"g{number % 3}"))["SequenceNumber"] for number in range(12)]
    assert all(len(number) == 20 and number.isdigit() for number in numbers)
    assert numbers == sorted(set(numbers))
    told = await desk("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages=10, AttributeNames=["SequenceNumber"])
    assert {one["Attributes"]["SequenceNumber"] for one in told["Messages"]} <= set(numbers)


async def test_a_repeat_within_five_minutes_is_one_message_also_after_it_was_deleted(
    desk: Desk, fifo: str, send: Send, clock: ManualClock
) -> None:
    first = await send("x")
    got = await desk.receive(fifo)
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=got["ReceiptHandle"])
    clock.advance(299)
    assert await send("x") == first
    assert await desk.bodies(fifo) == []
    clock.advance(2)
    again = await send("x")
    assert again["MessageId"] != first["MessageId"] and again["SequenceNumber"] > first["SequenceNumber"]
    assert await desk.bodies(fifo) == ["x"]


async def test_an_id_wins_over_the_content_and_other_content_is_another_message(desk: Desk, fifo: str, send: Send) -> None:
    first = await send("x", MessageDeduplicationId="one")
    assert (await send("other", MessageDeduplicationId="one"))["MessageId"] == first["MessageId"]
    assert (await send("x", MessageDeduplicationId="two"))["MessageId"] != first["MessageId"]
    assert (await send("x"))["MessageId"] != first["MessageId"], "the id of the content is another one"
    told = await desk("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages=10, AttributeNames=["MessageDeduplicationId"])
    assert [(one["Body"], one["Attributes"]["MessageDeduplicationId"]) for one in told["Messages"]] == [
        ("x", "one"),
        ("x", "two"),
        ("x", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
    ], "the id of content is its SHA-256"


async def test_content_is_the_body_and_not_the_attributes(desk: Desk, fifo: str, send: Send) -> None:
    first = await send("x")
    assert (await send("x", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}}))["MessageId"] == first["MessageId"]


async def test_the_scope_is_the_queue_or_the_group(desk: Desk, fifo: str, send: Send) -> None:
    first = await send("x", "a")
    assert (await send("x", "b"))["MessageId"] == first["MessageId"]
    per_group = await desk.queue("g.fifo", FifoQueue="true", ContentBasedDeduplication="true", DeduplicationScope="messageGroup")
    ids = {(await send("x", group, QueueUrl=per_group))["MessageId"] for group in ("a", "b", "a", "b")}
    assert len(ids) == 2


async def test_groups_with_long_names_that_begin_alike_have_scopes_of_their_own(desk: Desk, send: Send) -> None:
    """128 characters are allowed, and the last one counts."""
    url = await desk.queue("g.fifo", FifoQueue="true", ContentBasedDeduplication="true", DeduplicationScope="messageGroup")
    for last in "abc":
        await send("x", "g" * 127 + last, QueueUrl=url)
    assert await desk.bodies(url) == ["x"] * 3


async def test_a_purge_clears_what_repeats_are_known_by(desk: Desk, fifo: str, send: Send) -> None:
    first = await send("x")
    await desk("PurgeQueue", QueueUrl=fifo)
    assert (await send("x"))["MessageId"] != first["MessageId"]
    assert await desk.bodies(fifo) == ["x"]


async def test_a_batch_with_a_repeat_in_it_answers_with_the_first(desk: Desk, fifo: str) -> None:
    entries = [{"Id": str(number), "MessageBody": body, "MessageGroupId": "g"} for number, body in enumerate("xyx")]
    told = await desk("SendMessageBatch", QueueUrl=fifo, Entries=entries)
    ids = [one["MessageId"] for one in told["Successful"]]
    assert ids[0] == ids[2] != ids[1]
    assert await desk.bodies(fifo) == ["x", "y"]


async def test_an_attempt_that_is_repeated_gets_the_same_messages_and_handles(
    desk: Desk, fifo: str, send: Send, clock: ManualClock
) -> None:
    for body in ("1", "2", "3"):
        await send(body)

    async def attempt(name: str = "try") -> list[tuple[str, str]]:
        told = await desk("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages=2, VisibilityTimeout=30, ReceiveRequestAttemptId=name)
        return [(one["Body"], one["ReceiptHandle"]) for one in told.get("Messages", [])]

    first = await attempt()
    assert [body for body, _ in first] == ["1", "2"]
    clock.advance(20)
    assert await attempt() == first
    assert await attempt("another") == []
    clock.advance(20)
    assert await desk.bodies(fifo) == [], "the repeat began the visibility anew"
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=first[0][1])
    assert await attempt() == [], "an attempt of which one message is done is over"
    clock.advance(11)
    assert await desk.bodies(fifo) == ["2", "3"]


async def test_an_attempt_is_forgotten_after_five_minutes(desk: Desk, fifo: str, send: Send, clock: ManualClock) -> None:
    await send("1")
    (first,) = (await desk("ReceiveMessage", QueueUrl=fifo, VisibilityTimeout=600, ReceiveRequestAttemptId="try"))["Messages"]
    clock.advance(301)
    assert await desk.bodies(fifo, ReceiveRequestAttemptId="try") == []
    assert first["Body"] == "1"


async def test_a_delete_with_a_handle_whose_time_is_over_is_refused(desk: Desk, fifo: str, send: Send, clock: ManualClock) -> None:
    await send("1")
    got = await desk.receive(fifo, VisibilityTimeout=5)
    clock.advance(6)
    reason = f"Value {got['ReceiptHandle'][:100]}"
    with pytest.raises(Refused) as caught:
        await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=got["ReceiptHandle"])
    assert caught.value.code == "InvalidParameterValue" and caught.value.text.startswith(reason)
    assert caught.value.text.endswith("for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
    told = await desk("DeleteMessageBatch", QueueUrl=fifo, Entries=[{"Id": "a", "ReceiptHandle": got["ReceiptHandle"]}])
    assert [(one["Id"], one["Code"]) for one in told["Failed"]] == [("a", "InvalidParameterValue")] and told["Successful"] == []
    fresh = await desk.receive(fifo)
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=fresh["ReceiptHandle"])
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=fresh["ReceiptHandle"])  # done is done


async def test_the_queue_delays_every_message_and_no_message_itself(desk: Desk, send: Send, clock: ManualClock) -> None:
    url = await desk.queue("d.fifo", FifoQueue="true", ContentBasedDeduplication="true", DelaySeconds="10")
    await send("x", QueueUrl=url, DelaySeconds=0)
    with pytest.raises(Refused):
        await send("y", QueueUrl=url, DelaySeconds=1)
    assert await desk.bodies(url) == [], "0 is no delay of the message's own, so the queue's counts"
    clock.advance(10)
    assert await desk.bodies(url) == ["x"]


async def test_a_long_poll_gets_the_next_message_of_a_group_as_soon_as_it_is_free(desk: Desk, fifo: str, send: Send) -> None:
    await send("1")
    await send("2")
    first = await desk.receive(fifo)
    waiting = asyncio.ensure_future(desk.bodies(fifo, WaitTimeSeconds=20))
    await asyncio.sleep(0)
    assert not waiting.done()
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    assert await asyncio.wait_for(waiting, 60) == ["2"]


async def test_a_full_fifo_queue_says_nothing_and_gives_nothing(desk: Desk, fifo: str, send: Send) -> None:
    lane = desk.door.broker.catalog.get("000000000000/us-east-1", "f.fifo")
    await desk.door.broker.catalog.configure(lane, in_flight_max=2)
    for number in range(4):
        await send(str(number), f"g{number}")
    assert await desk.bodies(fifo) == ["0", "1"]
    assert await desk.bodies(fifo) == []


async def test_a_long_poll_of_a_full_fifo_queue_waits_for_room(desk: Desk, fifo: str, send: Send) -> None:
    lane = desk.door.broker.catalog.get("000000000000/us-east-1", "f.fifo")
    await desk.door.broker.catalog.configure(lane, in_flight_max=1)
    await send("1", "a")
    await send("2", "b")
    held = await desk.receive(fifo)
    waiting = asyncio.ensure_future(desk.bodies(fifo, WaitTimeSeconds=20))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await desk("DeleteMessage", QueueUrl=fifo, ReceiptHandle=held["ReceiptHandle"])
    assert await asyncio.wait_for(waiting, 60) == ["2"]
