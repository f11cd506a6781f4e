"""Standard queues through the door: visibility, delays, long polling, filters, limits in flight. Time is the test's own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dovetail.clock import ManualClock
from dovetail.doors.http.message import Request
from tests.doors.sqs.callers import Desk, Refused


@pytest.fixture
async def queue(desk: Desk) -> str:
    return await desk.queue("orders")


async def refusal(desk: Desk, action: str, /, **members: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        await desk(action, **members)
    return caught.value.code, caught.value.text


async def send(desk: Desk, url: str, *bodies: str, **more: Any) -> None:
    for body in bodies:
        await desk("SendMessage", QueueUrl=url, MessageBody=body, **more)


# Visibility


async def test_a_lease_may_be_changed_for_twelve_hours_in_all(desk: Desk, queue: str, clock: ManualClock) -> None:
    """Counted from the receive, whatever was asked for in between; a later delivery begins anew."""
    await send(desk, queue, "x")
    for _ in range(2):
        handle = (await desk.receive(queue, VisibilityTimeout=43_200))["ReceiptHandle"]
        clock.advance(10 * 3600)
        change = {"QueueUrl": queue, "ReceiptHandle": handle}
        await desk("ChangeMessageVisibility", **change, VisibilityTimeout=2 * 3600)
        text = "Value 7262 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit"
        told = await refusal(desk, "ChangeMessageVisibility", **change, VisibilityTimeout=2 * 3600 + 62)
        assert told == ("InvalidParameterValue", text + " [43200 seconds].")
        await desk("ChangeMessageVisibility", **change, VisibilityTimeout=0)


async def test_a_message_is_hidden_for_the_time_of_the_queue_or_of_the_call(desk: Desk, queue: str, clock: ManualClock) -> None:
    await send(desk, queue, "x")
    for seconds, asked in ((30, {}), (5, {"VisibilityTimeout": 5})):
        assert await desk.bodies(queue, **asked) == ["x"]
        clock.advance(seconds - 0.1)
        assert await desk.bodies(queue) == []
        clock.advance(0.2)
    assert await desk.bodies(queue, VisibilityTimeout=0) == ["x"]
    assert await desk.bodies(queue) == ["x"], "a visibility of 0 hides nothing"


async def test_a_change_counts_from_the_call_and_0_gives_back(desk: Desk, queue: str, clock: ManualClock) -> None:
    await send(desk, queue, "x")
    handle = (await desk.receive(queue))["ReceiptHandle"]
    clock.advance(20)
    await desk("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=60)
    clock.advance(59)
    assert await desk.bodies(queue) == []
    await desk("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
    assert await desk.bodies(queue) == ["x"]


async def test_a_change_of_what_is_not_in_flight_is_refused(desk: Desk, queue: str, clock: ManualClock) -> None:
    await send(desk, queue, "x")
    handle = (await desk.receive(queue))["ReceiptHandle"]
    change = {"QueueUrl": queue, "ReceiptHandle": handle, "VisibilityTimeout": 60}
    await desk("ChangeMessageVisibility", **change | {"VisibilityTimeout": 0})
    not_in_flight = ("AWS.SimpleQueueService.MessageNotInflight", "The specified message isn't in flight.")
    assert await refusal(desk, "ChangeMessageVisibility", **change) == not_in_flight
    entries = [{"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 60}]
    told = await desk("ChangeMessageVisibilityBatch", QueueUrl=queue, Entries=entries)
    assert told == {"Successful": [], "Failed": [{"Id": "a", "SenderFault": True, "Code": not_in_flight[0], "Message": not_in_flight[1]}]}
    newer = (await desk.receive(queue))["ReceiptHandle"]
    assert newer != handle
    assert await refusal(desk, "ChangeMessageVisibility", **change) == not_in_flight, "an older handle changes nothing"
    assert await desk.bodies(queue) == []
    await desk("DeleteMessage", QueueUrl=queue, ReceiptHandle=newer)
    code, text = await refusal(desk, "ChangeMessageVisibility", **change)
    assert code == "InvalidParameterValue"
    assert text.endswith("Reason: Message does not exist or is not available for visibility timeout change.")


async def test_an_entry_without_a_visibility_is_the_only_one_that_fails(desk: Desk, queue: str) -> None:
    await send(desk, queue, "x", "y")
    told = await desk("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=2)
    entries = [{"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(told["Messages"])]
    entries[0]["VisibilityTimeout"] = 0
    told = await desk("ChangeMessageVisibilityBatch", QueueUrl=queue, Entries=entries)
    text = "The request must contain the parameter VisibilityTimeout."
    assert told == {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "SenderFault": True, "Code": "MissingParameter", "Message": text}]}


async def test_a_delete_works_after_the_visibility_ended_and_does_nothing_once_another_has_it(
    desk: Desk, queue: str, clock: ManualClock
) -> None:
    await send(desk, queue, "x")
    late = (await desk.receive(queue))["ReceiptHandle"]
    clock.advance(31)
    other = (await desk.receive(queue))["ReceiptHandle"]
    await desk("DeleteMessage", QueueUrl=queue, ReceiptHandle=late)
    clock.advance(31)
    await desk("DeleteMessage", QueueUrl=queue, ReceiptHandle=other)
    assert await desk.bodies(queue) == []


async def test_a_handle_opens_only_its_own_queue(desk: Desk, queue: str) -> None:
    await send(desk, queue, "x")
    handle = (await desk.receive(queue))["ReceiptHandle"]
    other = await desk.queue("other")
    for action, more in (("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 0})):
        code, text = await refusal(desk, action, QueueUrl=other, ReceiptHandle=handle, **more)
        assert (code, text) == ("ReceiptHandleIsInvalid", f'The input receipt handle "{handle[:200]}" is not a valid receipt handle.')
    assert await refusal(desk, "DeleteMessage", QueueUrl=queue, ReceiptHandle=handle[:-2] + handle[-2:].swapcase() + "x")
    assert await desk.bodies(queue) == []


async def test_receives_are_counted_and_the_first_one_keeps_its_time(desk: Desk, queue: str, clock: ManualClock) -> None:
    sent_ms = clock.wall_ms()
    await send(desk, queue, "x")
    clock.advance(3)
    first_ms = clock.wall_ms()
    for count in ("1", "2", "3"):
        got = await desk.receive(queue, AttributeNames=["All"], VisibilityTimeout=7)
        assert got["Attributes"] == {
            "SenderId": "000000000000",
            "SentTimestamp": str(sent_ms),
            "ApproximateReceiveCount": count,
            "ApproximateFirstReceiveTimestamp": str(first_ms),
        }
        clock.advance(8)


# Delays and retention


async def test_a_message_is_delayed_by_its_own_time_or_that_of_its_queue(desk: Desk, clock: ManualClock) -> None:
    url = await desk.queue("later", DelaySeconds="10")
    await send(desk, url, "queue")
    await send(desk, url, "now", DelaySeconds=0)
    await send(desk, url, "long", DelaySeconds=900)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible"]
    told = await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    assert told["Attributes"] == dict(zip(names, ["1", "2", "0"], strict=True))
    assert await desk.bodies(url) == ["now"]
    clock.advance(9)
    assert await desk.bodies(url) == []
    clock.advance(1)
    assert await desk.bodies(url) == ["queue"]
    await desk("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "0"})
    assert await desk.bodies(url) == [], "a changed delay is not that of messages sent before"
    clock.advance(890)
    assert "long" in await desk.bodies(url)


async def test_a_message_lives_for_its_retention_and_not_much_longer(desk: Desk, clock: ManualClock) -> None:
    url = await desk.queue("short", MessageRetentionPeriod="60")

    async def there_after(seconds: int) -> str:
        for _ in range(seconds // 5):
            clock.advance(5)
            for _ in range(5):
                await asyncio.sleep(0)
        told = await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        count: str = told["Attributes"]["ApproximateNumberOfMessages"]
        return count

    await there_after(600)  # Until then a node does not trust its clock enough to destroy anything by it.
    await send(desk, url, "x")
    assert await there_after(55) == "1"
    assert await there_after(120) == "0"
    assert await desk.bodies(url) == []


# Long polling


@pytest.mark.parametrize("asked", [{"WaitTimeSeconds": 20}, {}], ids=["of the call", "of the queue"])
async def test_a_long_poll_is_answered_with_the_first_message(desk: Desk, asked: dict[str, int]) -> None:
    url = await desk.queue("poll", ReceiveMessageWaitTimeSeconds="0" if asked else "20")
    waiting = asyncio.ensure_future(desk.bodies(url, **asked))
    await asyncio.sleep(0)
    assert not waiting.done()
    await send(desk, url, "x")
    assert await asyncio.wait_for(waiting, 60) == ["x"]


async def test_a_long_poll_that_ends_without_a_message_has_no_messages_key(desk: Desk, clock: ManualClock) -> None:
    url = await desk.queue("poll", ReceiveMessageWaitTimeSeconds="20")
    assert await desk("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=0) == {}, "a call may ask for no wait"
    waiting = asyncio.ensure_future(desk("ReceiveMessage", QueueUrl=url))
    for _ in range(3):
        await asyncio.sleep(0)
    clock.advance(19.9)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(0.2)
    assert await asyncio.wait_for(waiting, 60) == {}


async def test_a_long_poll_sees_what_becomes_visible_meanwhile(desk: Desk, queue: str, clock: ManualClock) -> None:
    await send(desk, queue, "later", DelaySeconds=5)
    waiting = asyncio.ensure_future(desk.bodies(queue, WaitTimeSeconds=20))
    for _ in range(3):
        await asyncio.sleep(0)
    clock.advance(5)
    assert await asyncio.wait_for(waiting, 60) == ["later"]


async def test_a_long_poll_ends_when_its_queue_is_deleted(desk: Desk, queue: str) -> None:
    waiting = asyncio.ensure_future(refusal(desk, "ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=20))
    for _ in range(3):
        await asyncio.sleep(0)
    await desk("DeleteQueue", QueueUrl=queue)
    assert await asyncio.wait_for(waiting, 60) == ("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")


# What a receiver asks for

SENT = {name: {"DataType": "String", "StringValue": name} for name in ("Hello", "Help.Me", "General", "Help")}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["All"], sorted(SENT)),
        ([".*"], sorted(SENT)),
        (["Hel.*"], ["Hello", "Help", "Help.Me"]),
        (["Help.*"], ["Help", "Help.Me"]),
        (["Help.Me"], ["Help.Me"]),
        (["Hello", "General"], ["General", "Hello"]),
        (["Hello", "Nobody"], ["Hello"]),
        (["Nobody"], []),
        (["hello"], []),
        (["AWS."], []),
        (["..foo"], []),
        (["Hello", "All"], sorted(SENT)),
    ],
    ids=repr,
)
async def test_a_receiver_gets_the_attributes_it_names(desk: Desk, queue: str, names: list[str], expected: list[str]) -> None:
    await desk("SendMessage", QueueUrl=queue, MessageBody="x", MessageAttributes=SENT)
    got = await desk.receive(queue, MessageAttributeNames=names)
    assert sorted(got.get("MessageAttributes", {})) == expected
    assert ("MD5OfMessageAttributes" in got) == ("MessageAttributes" in got) == bool(expected), "of none there is no MD5 either"


async def test_the_md5_is_that_of_the_attributes_that_are_given_out(desk: Desk, queue: str) -> None:
    """The three that were recorded from AWS."""
    recorded = {"Hello": "There", "Help.Me": "Me", "General": "Kenobi"}
    sent = {name: {"DataType": "String", "StringValue": text} for name, text in recorded.items()}
    told = await desk("SendMessage", QueueUrl=queue, MessageBody="msg", MessageAttributes=sent)
    assert told["MD5OfMessageAttributes"] == "4c360f3fdafd970e05fae2f149d997f5"
    for names, md5 in (
        (["All"], "4c360f3fdafd970e05fae2f149d997f5"),
        (["Hello", "General"], "fca026605781cb4126a1e9044df24232"),
        (["Hello", "Foo"], "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], "83fee93c1bcd8b9a5a923ffacdc636c7"),
    ):
        got = await desk.receive(queue, MessageAttributeNames=names, VisibilityTimeout=0)
        assert (got["MD5OfMessageAttributes"], got["MD5OfBody"]) == (md5, "6e2baaf3b97dbeef01c0043275f9a0e7")


@pytest.mark.parametrize("member", ["AttributeNames", "MessageSystemAttributeNames"])
async def test_system_attributes_are_asked_for_by_either_name_of_the_list(desk: Desk, queue: str, member: str) -> None:
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2"}}
    await desk("SendMessage", QueueUrl=queue, MessageBody="x", MessageSystemAttributes=trace, MessageGroupId="tenant")
    for names, expected in (
        (["AWSTraceHeader"], {"AWSTraceHeader": "Root=1-2"}),
        (["MessageGroupId", "SenderId"], {"MessageGroupId": "tenant", "SenderId": "000000000000"}),
        (["SequenceNumber", "MessageDeduplicationId", "DeadLetterQueueSourceArn"], None),
    ):
        got = await desk.receive(queue, **{member: names}, VisibilityTimeout=0)
        assert got.get("Attributes") == expected
    got = await desk.receive(queue, AttributeNames=["SenderId"], MessageSystemAttributeNames=["AWSTraceHeader"])
    assert got["Attributes"] == {"SenderId": "000000000000", "AWSTraceHeader": "Root=1-2"}


async def test_what_the_service_keeps_with_a_message_is_never_shown_as_an_attribute(desk: Desk) -> None:
    url = await desk.queue("f.fifo", FifoQueue="true")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2"}}
    members = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d", "MessageSystemAttributes": trace}
    await desk("SendMessage", QueueUrl=url, **members)
    got = await desk.receive(url, MessageAttributeNames=["All", "AWS.*", "AWS.TraceHeader"])
    assert "MessageAttributes" not in got and "MD5OfMessageAttributes" not in got


# Looking, which SQS does not have


async def test_a_look_at_messages_changes_nothing_about_them(desk: Desk, queue: str) -> None:
    await send(desk, queue, "later", DelaySeconds=60)
    await send(desk, queue, "held", "free")
    handle = (await desk.receive(queue))["ReceiptHandle"]

    async def look(**members: Any) -> list[tuple[str, str, str]]:
        body = json.dumps({"QueueUrl": queue, **members}).encode()
        answer = await desk.door.handle(Request("POST", b"/", {b"x-amz-target": b"Dovetail.PeekMessages"}, body, True))  # type: ignore[misc]
        assert answer.status == 200, answer.body
        found = json.loads(answer.body)["Messages"]
        return [(one["Body"], one["State"], one["Attributes"]["ApproximateReceiveCount"]) for one in found]

    seen = [("later", "delayed", "0"), ("held", "leased", "1"), ("free", "visible", "0")]
    assert await look() == await look() == seen
    assert await look(MaxNumberOfMessages=1) == seen[:1]
    assert await look(After=1) == seen[1:]
    await desk("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)
    assert await desk.bodies(queue) == ["free"]


# In flight


async def test_one_message_too_many_in_flight_is_over_the_limit(desk: Desk, queue: str) -> None:
    lane = desk.door.broker.catalog.get("000000000000/us-east-1", "orders")
    assert lane.attributes.in_flight_max == 120_000
    await desk.door.broker.catalog.configure(lane, in_flight_max=2)
    await send(desk, queue, "1", "2", "3")
    assert await desk.bodies(queue, 10) == ["1", "2"]
    with pytest.raises(Refused) as caught:
        await desk.bodies(queue)
    assert (caught.value.code, caught.value.status, caught.value.text) == ("OverLimit", 403, "Too many messages are in flight.")


async def test_a_long_poll_of_a_full_queue_waits_for_room_and_is_told_of_no_error(desk: Desk, queue: str, clock: ManualClock) -> None:
    """As AWS's guide has it: OverLimit is for those who do not wait."""
    await desk.door.broker.catalog.configure(desk.door.broker.catalog.get("000000000000/us-east-1", "orders"), in_flight_max=1)
    await send(desk, queue, "1", "2")
    held = await desk.receive(queue, VisibilityTimeout=600)
    waiting = asyncio.ensure_future(desk("ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=20))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.advance(21)
    assert await asyncio.wait_for(waiting, 60) == {}
    served = asyncio.ensure_future(desk.bodies(queue, WaitTimeSeconds=20))
    for _ in range(5):
        await asyncio.sleep(0)
    await desk("DeleteMessage", QueueUrl=queue, ReceiptHandle=held["ReceiptHandle"])
    assert await asyncio.wait_for(served, 60) == ["2"]
