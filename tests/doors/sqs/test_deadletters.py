"""Dead letters through the door: when a message moves, what it keeps, who may send it there, and how it comes back."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from dovetail.clock import ManualClock
from dovetail.doors.sqs import deadletters
from dovetail.stores.lanes import ReplayedLane
from tests.doors.sqs.callers import Desk, Refused

ARN = "arn:aws:sqs:us-east-1:000000000000:"


def redrive(target: str = "dead", receives: Any = 2) -> str:
    return json.dumps({"deadLetterTargetArn": target if target.startswith("arn:") else ARN + target, "maxReceiveCount": receives})


async def refusal(desk: Desk, action: str, /, **members: Any) -> tuple[str, str, int]:
    with pytest.raises(Refused) as caught:
        await desk(action, **members)
    return caught.value.code, caught.value.text, caught.value.status


@pytest.fixture
async def dead(desk: Desk) -> str:
    return await desk.queue("dead")


@pytest.fixture
async def queue(desk: Desk, dead: str) -> str:
    return await desk.queue("orders", RedrivePolicy=redrive(), VisibilityTimeout="10")


async def bury(desk: Desk, clock: ManualClock, url: str, *bodies: str, receives: int = 2) -> list[str]:
    """Send messages and receive them until they are dead; their ids."""
    ids = [(await desk("SendMessage", QueueUrl=url, MessageBody=body))["MessageId"] for body in bodies]
    for _ in range(receives):
        got: list[str] = []
        while more := await desk.bodies(url):
            got += more
        assert sorted(got) == sorted(bodies)
        clock.advance(11)
    assert await desk.bodies(url) == []
    return ids


async def test_a_message_moves_when_its_receives_exceed_the_limit_and_keeps_what_it_is(
    desk: Desk, queue: str, dead: str, clock: ManualClock
) -> None:
    sent_ms = clock.wall_ms()
    attributes = {"city": {"DataType": "String", "StringValue": "Rome"}}
    sent = await desk("SendMessage", QueueUrl=queue, MessageBody="x", MessageAttributes=attributes, MessageGroupId="tenant")
    for count in ("1", "2"):
        got = await desk.receive(queue, AttributeNames=["All"])
        assert got["Attributes"]["ApproximateReceiveCount"] == count
        assert "DeadLetterQueueSourceArn" not in got["Attributes"]
        assert await desk.bodies(dead) == []
        clock.advance(11)
    assert await desk.bodies(dead) == [], "it moves when it is asked for once more"
    assert await desk.bodies(queue) == []
    got = await desk.receive(dead, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (got["MessageId"], got["Body"], got["MessageAttributes"]) == (sent["MessageId"], "x", attributes)
    told = got["Attributes"]
    assert told["DeadLetterQueueSourceArn"] == ARN + "orders"
    assert (told["SentTimestamp"], told["MessageGroupId"], told["SenderId"]) == (str(sent_ms), "tenant", "000000000000")


async def test_a_dead_fifo_message_keeps_its_group_and_its_order(desk: Desk, clock: ManualClock) -> None:
    await desk.queue("dead.fifo", FifoQueue="true")
    url = await desk.queue("orders.fifo", FifoQueue="true", RedrivePolicy=redrive("dead.fifo", 1), ContentBasedDeduplication="true")
    for body in ("1", "2"):
        await desk("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId="g")
    assert await desk.bodies(url) == ["1", "2"]
    clock.advance(31)
    assert await desk.bodies(url) == []
    told = await desk("ReceiveMessage", QueueUrl="dead.fifo", MaxNumberOfMessages=10, AttributeNames=["All"])
    assert [(one["Body"], one["Attributes"]["MessageGroupId"]) for one in told["Messages"]] == [("1", "g"), ("2", "g")]


async def test_a_message_that_is_given_back_at_once_is_counted_too(desk: Desk, queue: str, dead: str) -> None:
    await desk("SendMessage", QueueUrl=queue, MessageBody="x")
    for _ in range(2):
        assert await desk.bodies(queue, VisibilityTimeout=0) == ["x"]
    assert await desk.bodies(queue) == []
    assert await desk.bodies(dead) == ["x"]


async def test_a_policy_that_is_removed_buries_nothing(desk: Desk, queue: str, dead: str) -> None:
    await desk("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": ""})
    assert await desk("GetQueueAttributes", QueueUrl=queue, AttributeNames=["RedrivePolicy"]) == {}
    await desk("SendMessage", QueueUrl=queue, MessageBody="x")
    for _ in range(5):
        assert await desk.bodies(queue, VisibilityTimeout=0) == ["x"]
    assert await desk("ListDeadLetterSourceQueues", QueueUrl=dead) == {"queueUrls": []}


# The two policies


@pytest.mark.parametrize("receives", [1, 1000, "1", "1000"])
async def test_a_limit_of_receives_at_its_own_limits(desk: Desk, dead: str, receives: Any) -> None:
    text = redrive(receives=receives)
    url = await desk.queue("q", RedrivePolicy=text)
    assert await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"]) == {"Attributes": {"RedrivePolicy": text}}


@pytest.mark.parametrize("receives", [0, 1001, -1, "0", "x", "", 1.5, True, None, [], "9" * 5000])
async def test_a_limit_of_receives_past_them(desk: Desk, dead: str, receives: Any) -> None:
    text = redrive(receives=receives)
    code, told, _ = await refusal(desk, "CreateQueue", QueueName="q", Attributes={"RedrivePolicy": text})
    assert code == "InvalidParameterValue"
    assert told.startswith(f"Value {text[:500]} for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount: ")
    assert told.endswith(", valid values are from 1 to 1000 both inclusive.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "Not a valid JSON object."),
        ("[]", "Not a valid JSON object."),
        ("[" * 5000, "Not a valid JSON object."),
        ("{}", "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        ('{"maxReceiveCount": 5}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (redrive("arn:aws:sns:us-east-1:000000000000:dead"), "Invalid value for deadLetterTargetArn."),
        (redrive("arn:aws:sqs:us-east-1:0:dead"), "Invalid value for deadLetterTargetArn."),
        (redrive("nobody"), "Dead letter target does not exist."),
        (redrive("fifo.fifo"), "Dead-letter queue must be same type of queue as the source."),
        (redrive("orders"), "Dead-letter queue must not be the queue itself."),
        (redrive("arn:aws:sqs:eu-west-1:000000000000:dead"), "Dead-letter target owner should be the same as the source."),
        (redrive("arn:aws:sqs:us-east-1:111111111111:dead"), "Dead-letter target owner should be the same as the source."),
    ],
)
async def test_a_redrive_policy_that_cannot_be(desk: Desk, queue: str, text: str, reason: str) -> None:
    await desk.queue("fifo.fifo", FifoQueue="true")
    before = await desk("GetQueueAttributes", QueueUrl=queue, AttributeNames=["RedrivePolicy"])
    told = f"Value {text[:500]} for parameter RedrivePolicy is invalid. Reason: {reason}"
    assert await refusal(desk, "SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": text}) == (
        "InvalidParameterValue",
        told,
        400,
    )
    assert await desk("GetQueueAttributes", QueueUrl=queue, AttributeNames=["RedrivePolicy"]) == before


async def test_a_new_queue_with_a_dead_letter_queue_that_is_missing_is_told_so(desk: Desk) -> None:
    told = await refusal(desk, "CreateQueue", QueueName="q", Attributes={"RedrivePolicy": redrive("nobody")})
    assert told == ("AWS.SimpleQueueService.NonExistentQueue", "Dead letter target does not exist.", 400)
    assert await desk("ListQueues") == {}


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [ARN + "orders"]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [ARN + f"q{one}" for one in range(9)] + [ARN + "orders"]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [ARN + "others"]}, False),
    ],
    ids=repr,
)
async def test_a_dead_letter_queue_says_whose_letters_it_takes(desk: Desk, dead: str, policy: dict[str, Any], allowed: bool) -> None:
    text = json.dumps(policy)
    await desk("SetQueueAttributes", QueueUrl=dead, Attributes={"RedriveAllowPolicy": text})
    assert await desk("GetQueueAttributes", QueueUrl=dead, AttributeNames=["RedriveAllowPolicy"]) == {
        "Attributes": {"RedriveAllowPolicy": text}
    }
    if allowed:
        await desk.queue("orders", RedrivePolicy=redrive())
    else:
        code, told, _ = await refusal(desk, "CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": redrive()})
        assert code == "InvalidParameterValue"
        assert told.endswith("Reason: The dead-letter queue's RedriveAllowPolicy does not permit this source queue.")
    await desk("SetQueueAttributes", QueueUrl=dead, Attributes={"RedriveAllowPolicy": ""})
    await desk.queue("orders", RedrivePolicy=redrive())


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "[]",
        "{}",
        {"redrivePermission": "some"},
        {"redrivePermission": "allowAll", "sourceQueueArns": [ARN + "orders"]},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "byQueue", "sourceQueueArns": ARN + "orders"},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["orders"]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [ARN + f"q{one}" for one in range(11)]},
        {"redrivePermission": "allowAll", "more": 1},
    ],
    ids=repr,
)
async def test_a_redrive_allow_policy_that_cannot_be(desk: Desk, dead: str, policy: Any) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    code, told, status = await refusal(desk, "SetQueueAttributes", QueueUrl=dead, Attributes={"RedriveAllowPolicy": text})
    assert (code, status) == ("InvalidParameterValue", 400)
    assert told.startswith(f"Value {text[:500]} for parameter RedriveAllowPolicy is invalid. Reason: ")


# Moving back


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def run(clock: ManualClock, seconds: float) -> None:
    """Let time pass in small steps, as a task needs it that sleeps between them."""
    for _ in range(round(seconds * 10)):
        await settle()
        clock.advance(0.1)
    await settle()


async def test_dead_letters_go_back_to_the_queue_that_each_came_from(desk: Desk, queue: str, dead: str, clock: ManualClock) -> None:
    other = await desk.queue("others", RedrivePolicy=redrive(), VisibilityTimeout="10")
    ids = await bury(desk, clock, queue, "a", "b")
    await bury(desk, clock, other, "c")
    started_ms = clock.wall_ms()
    handle = (await desk("StartMessageMoveTask", SourceArn=ARN + "dead"))["TaskHandle"]
    await run(clock, 1)
    assert await desk("ListMessageMoveTasks", SourceArn=ARN + "dead") == {
        "Results": [
            {
                "Status": "COMPLETED",
                "SourceArn": ARN + "dead",
                "ApproximateNumberOfMessagesMoved": 3,
                "ApproximateNumberOfMessagesToMove": 3,
                "StartedTimestamp": started_ms,
            }
        ]
    }, "no handle once it has ended, and no destination where none was named"
    told = await desk("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10, AttributeNames=["All"])
    assert sorted(one["MessageId"] for one in told["Messages"]) == sorted(ids)
    assert {one["Attributes"]["ApproximateReceiveCount"] for one in told["Messages"]} == {"1"}, "they begin anew"
    assert await desk.bodies(other) == ["c"]
    assert await desk.bodies(dead) == []
    ended = ("AWS.SimpleQueueService.UnsupportedOperation", "Only active tasks can be cancelled.", 400)
    assert await refusal(desk, "CancelMessageMoveTask", TaskHandle=handle) == ended


async def test_a_task_keeps_to_its_rate_and_to_its_destination_and_can_be_cancelled(
    desk: Desk, queue: str, dead: str, clock: ManualClock
) -> None:
    elsewhere = await desk.queue("elsewhere")
    for number in range(20):
        await desk("SendMessage", QueueUrl=dead, MessageBody=str(number))
    members = {"SourceArn": ARN + "dead", "DestinationArn": ARN + "elsewhere", "MaxNumberOfMessagesPerSecond": 2}
    handle = (await desk("StartMessageMoveTask", **members))["TaskHandle"]
    await run(clock, 3)
    (task,) = (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead"))["Results"]
    moved = task["ApproximateNumberOfMessagesMoved"]
    assert 5 <= moved <= 7
    assert (task["Status"], task["TaskHandle"], task["MaxNumberOfMessagesPerSecond"]) == ("RUNNING", handle, 2)
    assert (task["DestinationArn"], task["ApproximateNumberOfMessagesToMove"]) == (ARN + "elsewhere", 20)
    running = (
        "InvalidParameterValue",
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        400,
    )
    assert await refusal(desk, "StartMessageMoveTask", **members) == running
    cancelling = asyncio.ensure_future(desk("CancelMessageMoveTask", TaskHandle=handle))
    await run(clock, 0.2)
    assert await cancelling == {"ApproximateNumberOfMessagesMoved": moved}
    (task,) = (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead"))["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"], "TaskHandle" in task) == ("CANCELLED", moved, False)
    await run(clock, 2)
    names = ["ApproximateNumberOfMessages"]
    assert await desk("GetQueueAttributes", QueueUrl=elsewhere, AttributeNames=names) == {"Attributes": {names[0]: str(moved)}}
    assert await desk("GetQueueAttributes", QueueUrl=dead, AttributeNames=names) == {"Attributes": {names[0]: str(20 - moved)}}
    again = await desk("StartMessageMoveTask", **members)
    cancelling = asyncio.ensure_future(desk("CancelMessageMoveTask", TaskHandle=again["TaskHandle"]))
    await run(clock, 0.2)
    assert (await cancelling).keys() == {"ApproximateNumberOfMessagesMoved"}, "after one was cancelled another may run"


async def test_a_task_is_shown_cancelling_until_its_last_step_has_ended(
    desk: Desk, queue: str, dead: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.queue("elsewhere")
    for number in range(5):
        await desk("SendMessage", QueueUrl=dead, MessageBody=str(number))
    begun, gate = asyncio.Event(), asyncio.Event()
    move = ReplayedLane.move

    async def slow(self: ReplayedLane, target: int, most: int) -> int:
        begun.set()
        await gate.wait()
        return await move(self, target, most)

    monkeypatch.setattr(ReplayedLane, "move", slow)
    members = {"SourceArn": ARN + "dead", "DestinationArn": ARN + "elsewhere", "MaxNumberOfMessagesPerSecond": 10}
    handle = (await desk("StartMessageMoveTask", **members))["TaskHandle"]
    await begun.wait()
    cancelling = asyncio.ensure_future(desk("CancelMessageMoveTask", TaskHandle=handle))
    await settle()
    (task,) = (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead"))["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"], "TaskHandle" in task) == ("CANCELLING", 0, False)
    assert (await refusal(desk, "StartMessageMoveTask", **members))[1].startswith("There is already a task running.")
    assert (await refusal(desk, "CancelMessageMoveTask", TaskHandle=handle))[1] == "Only active tasks can be cancelled."
    assert not cancelling.done()
    gate.set()
    assert await cancelling == {"ApproximateNumberOfMessagesMoved": 1}
    (task,) = (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead"))["Results"]
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)


async def test_a_task_whose_destination_is_gone_has_failed_with_the_code(desk: Desk, queue: str, dead: str, clock: ManualClock) -> None:
    elsewhere = await desk.queue("elsewhere")
    for number in range(10):
        await desk("SendMessage", QueueUrl=dead, MessageBody=str(number))
    members = {"SourceArn": ARN + "dead", "DestinationArn": ARN + "elsewhere", "MaxNumberOfMessagesPerSecond": 1}
    await desk("StartMessageMoveTask", **members)
    await run(clock, 2)
    await desk("DeleteQueue", QueueUrl=elsewhere)
    await run(clock, 2)
    (task,) = (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead"))["Results"]
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    moved = task["ApproximateNumberOfMessagesMoved"]
    assert await desk("GetQueueAttributes", QueueUrl=dead, AttributeNames=["ApproximateNumberOfMessages"]) == {
        "Attributes": {"ApproximateNumberOfMessages": str(10 - moved)}
    }, "what had not moved is where it was"


async def test_the_last_ten_tasks_are_listed_newest_first_and_one_where_no_number_is_named(
    desk: Desk, queue: str, dead: str, clock: ManualClock
) -> None:
    started = []
    for _ in range(11):
        started.append(clock.wall_ms())
        await desk("StartMessageMoveTask", SourceArn=ARN + "dead")
        await run(clock, 0.2)

    async def listed(**most: int) -> list[int]:
        return [one["StartedTimestamp"] for one in (await desk("ListMessageMoveTasks", SourceArn=ARN + "dead", **most))["Results"]]

    assert await listed() == started[:-2:-1]
    assert await listed(MaxResults=10) == started[:0:-1]


async def test_a_queue_made_again_begins_without_tasks_and_old_sources_are_forgotten(
    desk: Desk, queue: str, dead: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(name: str) -> int:
        return len((await desk("ListMessageMoveTasks", SourceArn=ARN + name, MaxResults=10)).get("Results", []))

    await desk("StartMessageMoveTask", SourceArn=ARN + "dead")
    await run(clock, 0.2)
    assert await listed("dead") == 1
    await desk("DeleteQueue", QueueUrl=dead)
    clock.advance(60)
    await desk.queue("dead")
    assert await listed("dead") == 0
    monkeypatch.setattr(deadletters, "SOURCES_KEPT", 2)
    for name in ("d1", "d2", "d3"):
        await desk.queue(name)
        await desk.queue(f"source-of-{name}", RedrivePolicy=redrive(name))
        await desk("StartMessageMoveTask", SourceArn=ARN + name)
        await run(clock, 0.2)
    assert [await listed(name) for name in ("d1", "d2", "d3")] == [0, 1, 1]


async def test_what_a_task_cannot_be(desk: Desk, queue: str, dead: str) -> None:
    await desk.queue("fifo.fifo", FifoQueue="true")

    async def told(**members: Any) -> tuple[str, str, int]:
        return await refusal(desk, "StartMessageMoveTask", **{"SourceArn": ARN + "dead"} | members)

    missing = "The resource that you specified for the DestinationArn parameter doesn't exist."
    assert await told(DestinationArn=ARN + "nobody") == ("ResourceNotFoundException", missing, 404)
    assert await told(DestinationArn=ARN + "dead") == (
        "InvalidParameterValue",
        "Source queue arn and destination queue arn cannot be the same.",
        400,
    )
    for rate in (0, 501, -1):
        assert await told(MaxNumberOfMessagesPerSecond=rate) == (
            "InvalidParameterValue",
            f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: Must be between 1 and 500.",
            400,
        )
    assert (await told(DestinationArn=ARN + "fifo.fifo"))[::2] == ("InvalidParameterValue", 400)
    assert await desk("ListMessageMoveTasks", SourceArn=ARN + "dead") == {}, "none of them began"

    def handle(**told: Any) -> str:
        return b64encode(json.dumps(told).encode()).decode()

    gone = "The resource that you specified for the SourceArn parameter doesn't exist."
    for text, expected in (
        (handle(taskId="x", sourceArn=ARN + "nobody"), ("ResourceNotFoundException", gone, 404)),
        (handle(taskId="x", sourceArn=ARN + "dead"), ("ResourceNotFoundException", "Task does not exist.", 404)),
        (handle(taskId="x"), ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400)),
        (handle(taskId="x", sourceArn="nonsense"), ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400)),
        ("[" * 1000, ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400)),
        ("é", ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400)),
    ):
        assert await refusal(desk, "CancelMessageMoveTask", TaskHandle=text) == expected


async def test_a_dead_letter_queue_that_is_made_again_takes_its_place_again(desk: Desk) -> None:
    dead = await desk.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": await desk.arn(dead), "maxReceiveCount": "1"})
    url = await desk.queue("source", RedrivePolicy=policy)
    await desk("DeleteQueue", QueueUrl=dead)
    await desk("SendMessage", QueueUrl=url, MessageBody="a")
    for _ in range(2):
        assert await desk.bodies(url, VisibilityTimeout=0) == ["a"], "there is nowhere to move it to"
    desk.door.cooldowns.clear()
    assert await desk.queue("dead") == dead
    assert await desk.bodies(url) == []
    assert await desk.bodies(dead) == ["a"]
