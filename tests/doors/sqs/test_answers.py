"""Every action, said in every way, does its work and answers whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import md5
from typing import Any

import pytest

from tests.doors.sqs.callers import HANDLE, MILLISECONDS, SEQUENCE, UUID, Caller, Like
from tests.doors.sqs.voices import Voice

HELLO = "5d41402abc4b2a76b9719d911017c592"
ATTRIBUTES = {
    "city": {"DataType": "String", "StringValue": "Zürich"},
    "count": {"DataType": "Number.int", "StringValue": "7"},
    "blob": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}


def length_prefixed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def md5_of(attributes: dict[str, dict[str, Any]]) -> str:
    """AWS's rule, written from its guide."""
    text = b""
    for name, value in sorted(attributes.items()):
        binary = "BinaryValue" in value
        data = value["BinaryValue"] if binary else value["StringValue"].encode()
        text += length_prefixed(name.encode(), value["DataType"].encode()) + (b"\x02" if binary else b"\x01") + length_prefixed(data)
    return md5(text, usedforsecurity=False).hexdigest()


def received_attributes(shown: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """As they were sent: JSON and XML carry binary values as base64, boto3 decodes them."""
    blob = shown["blob"]["BinaryValue"]
    return shown | {"blob": {"DataType": "Binary", "BinaryValue": {b"\x00\xff": b"\x00\xff", "AP8=": b"\x00\xff"}[blob]}}


def test_a_queue_is_made_found_listed_and_deleted(voice: Voice, caller: Caller, name: str) -> None:
    url = f"{caller.url}/000000000000/{name}"
    assert voice("CreateQueue", QueueName=name, Attributes={"DelaySeconds": "3"}, tags={"team": "blue"}) == {"QueueUrl": url}
    assert voice("CreateQueue", QueueName=name, Attributes={"DelaySeconds": "3"}) == {"QueueUrl": url}
    assert voice("GetQueueUrl", QueueName=name) == {"QueueUrl": url}
    assert voice("GetQueueUrl", QueueName=name, QueueOwnerAWSAccountId="000000000000") == {"QueueUrl": url}
    assert voice("ListQueues", QueueNamePrefix=name) == {"QueueUrls": [url]}
    assert voice("ListQueues", QueueNamePrefix=name + "-no") in ({}, None)
    assert voice("ListQueueTags", QueueUrl=url) == {"Tags": {"team": "blue"}}
    assert voice("DeleteQueue", QueueUrl=url) is None
    assert voice("ListQueues", QueueNamePrefix=name) in ({}, None)


def test_the_attributes_of_a_queue_are_read_and_set(voice: Voice, queue: str) -> None:
    name = queue.rpartition("/")[2]
    seconds = Like(r"\d{10}")
    plain = {
        "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "CreatedTimestamp": seconds,
        "LastModifiedTimestamp": seconds,
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }
    assert voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=["All"]) == {"Attributes": plain}
    assert voice("GetQueueAttributes", QueueUrl=queue) in ({}, None)
    changed = {"VisibilityTimeout": "20", "MaximumMessageSize": "2048", "KmsMasterKeyId": "alias/mine", "DelaySeconds": "1"}
    assert voice("SetQueueAttributes", QueueUrl=queue, Attributes=changed) is None
    expected = plain | changed | {"KmsDataKeyReusePeriodSeconds": "300", "SqsManagedSseEnabled": "false"}
    assert voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=["All"]) == {"Attributes": expected}
    asked = voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=["VisibilityTimeout", "QueueArn"])
    assert asked == {"Attributes": {"VisibilityTimeout": "20", "QueueArn": plain["QueueArn"]}}


def test_a_fifo_queue_shows_what_only_it_has(voice: Voice, fresh: Callable[[], str]) -> None:
    url = (voice("CreateQueue", QueueName=f"{fresh()}.fifo", Attributes={"FifoQueue": "true"}) or {})["QueueUrl"]
    names = ["FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"]
    assert voice("GetQueueAttributes", QueueUrl=url, AttributeNames=names) == {
        "Attributes": dict(zip(names, ["true", "false", "queue", "perQueue"], strict=True))
    }
    values = ["true", "true", "messageGroup", "perMessageGroupId"]
    assert voice("SetQueueAttributes", QueueUrl=url, Attributes=dict(zip(names, values, strict=True))) is None
    assert voice("GetQueueAttributes", QueueUrl=url, AttributeNames=names) == {"Attributes": dict(zip(names, values, strict=True))}


def test_a_message_is_sent_received_hidden_and_deleted(voice: Voice, queue: str) -> None:
    sent = voice("SendMessage", QueueUrl=queue, MessageBody="hello", MessageAttributes=ATTRIBUTES, MessageSystemAttributes=TRACE)
    assert sent == {
        "MD5OfMessageBody": HELLO,
        "MD5OfMessageAttributes": md5_of(ATTRIBUTES),
        "MD5OfMessageSystemAttributes": md5_of(TRACE),
        "MessageId": UUID,
    }
    got = voice(
        "ReceiveMessage", QueueUrl=queue, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"], MaxNumberOfMessages=10
    )
    assert got is not None
    (message,) = got["Messages"]
    message["MessageAttributes"] = received_attributes(message["MessageAttributes"])
    assert message == {
        "MessageId": sent["MessageId"],
        "ReceiptHandle": HANDLE,
        "MD5OfBody": HELLO,
        "Body": "hello",
        "Attributes": {
            "SenderId": "000000000000",
            "SentTimestamp": MILLISECONDS,
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": MILLISECONDS,
            "AWSTraceHeader": TRACE["AWSTraceHeader"]["StringValue"],
        },
        "MD5OfMessageAttributes": md5_of(ATTRIBUTES),
        "MessageAttributes": ATTRIBUTES,
    }
    assert voice("ReceiveMessage", QueueUrl=queue) in ({}, None), "an empty answer has no Messages"
    assert voice("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0) is None
    again = voice("ReceiveMessage", QueueUrl=queue)
    assert again == {"Messages": [{"MessageId": sent["MessageId"], "ReceiptHandle": HANDLE, "MD5OfBody": HELLO, "Body": "hello"}]}
    assert voice("DeleteMessage", QueueUrl=queue, ReceiptHandle=again["Messages"][0]["ReceiptHandle"]) is None
    assert voice("DeleteMessage", QueueUrl=queue, ReceiptHandle=again["Messages"][0]["ReceiptHandle"]) is None, "a second time does nothing"
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    assert voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=names) == {"Attributes": dict.fromkeys(names, "0")}


def test_a_fifo_message_has_a_group_an_id_and_a_number(voice: Voice, fifo: str) -> None:
    members = {"QueueUrl": fifo, "MessageBody": "hello", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    sent = voice("SendMessage", **members)
    assert sent == {"MD5OfMessageBody": HELLO, "MessageId": UUID, "SequenceNumber": SEQUENCE}
    assert voice("SendMessage", **members) == sent, "a repeat is answered like the first"
    got = voice("ReceiveMessage", QueueUrl=fifo, AttributeNames=["All"], MaxNumberOfMessages=10, ReceiveRequestAttemptId="a")
    assert got == {
        "Messages": [
            {
                "MessageId": sent["MessageId"],
                "ReceiptHandle": HANDLE,
                "MD5OfBody": HELLO,
                "Body": "hello",
                "Attributes": {
                    "SenderId": "000000000000",
                    "SentTimestamp": MILLISECONDS,
                    "ApproximateReceiveCount": "1",
                    "ApproximateFirstReceiveTimestamp": MILLISECONDS,
                    "SequenceNumber": sent["SequenceNumber"],
                    "MessageDeduplicationId": "d",
                    "MessageGroupId": "g",
                },
            }
        ]
    }
    again = voice("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a")
    assert [one["ReceiptHandle"] for one in (again or {})["Messages"]] == [got["Messages"][0]["ReceiptHandle"]]


def test_batches_answer_for_each_of_their_entries(voice: Voice, queue: str) -> None:
    sent = voice(
        "SendMessageBatch",
        QueueUrl=queue,
        Entries=[
            {"Id": "one", "MessageBody": "hello", "MessageAttributes": ATTRIBUTES, "MessageSystemAttributes": TRACE},
            {"Id": "two", "MessageBody": "hello", "DelaySeconds": 901},
            {"Id": "three", "MessageBody": "hello", "MessageGroupId": "tenant"},
        ],
    )
    reason = "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."
    assert sent == {
        "Successful": [
            {
                "Id": "one",
                "MessageId": UUID,
                "MD5OfMessageBody": HELLO,
                "MD5OfMessageAttributes": md5_of(ATTRIBUTES),
                "MD5OfMessageSystemAttributes": md5_of(TRACE),
            },
            {"Id": "three", "MessageId": UUID, "MD5OfMessageBody": HELLO},
        ],
        "Failed": [{"Id": "two", "SenderFault": True, "Code": "InvalidParameterValue", "Message": reason}],
    }
    got = voice("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10) or {}
    handles = [one["ReceiptHandle"] for one in got["Messages"]]
    assert len(handles) == 2
    bad = 'The input receipt handle "nonsense" is not a valid receipt handle.'
    changed = voice(
        "ChangeMessageVisibilityBatch",
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 60},
            {"Id": "b", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60},
            {"Id": "c", "ReceiptHandle": handles[1], "VisibilityTimeout": 43201},
        ],
    )
    refused = {"Id": "b", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": bad}
    too_long = "Value 43201 for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer between 0 and 43200."
    assert changed == {
        "Successful": [{"Id": "a"}],
        "Failed": [refused, {"Id": "c", "SenderFault": True, "Code": "InvalidParameterValue", "Message": too_long}],
    }
    entries = [{"Id": "a", "ReceiptHandle": handles[0]}, {"Id": "b", "ReceiptHandle": "nonsense"}, {"Id": "c", "ReceiptHandle": handles[1]}]
    deleted = voice("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
    assert deleted == {"Successful": [{"Id": "a"}, {"Id": "c"}], "Failed": [refused]}
    assert voice("PurgeQueue", QueueUrl=queue) is None


def test_tags_are_added_replaced_removed_and_listed(voice: Voice, queue: str) -> None:
    assert voice("ListQueueTags", QueueUrl=queue) in ({}, None)
    assert voice("TagQueue", QueueUrl=queue, Tags={"a": "1", "b": "2", "c": ""}) is None
    assert voice("TagQueue", QueueUrl=queue, Tags={"b": "zwei <&>"}) is None
    assert voice("ListQueueTags", QueueUrl=queue) == {"Tags": {"a": "1", "b": "zwei <&>", "c": ""}}
    assert voice("UntagQueue", QueueUrl=queue, TagKeys=["a", "c", "never"]) is None
    assert voice("ListQueueTags", QueueUrl=queue) == {"Tags": {"b": "zwei <&>"}}


def test_permissions_are_statements_of_the_policy(voice: Voice, queue: str) -> None:
    arn = f"arn:aws:sqs:us-east-1:000000000000:{queue.rpartition('/')[2]}"
    given = {"Label": "read", "AWSAccountIds": ["111111111111", "222222222222"], "Actions": ["ReceiveMessage"]}
    assert voice("AddPermission", QueueUrl=queue, **given) is None
    shown = voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=["Policy"]) or {}
    assert json.loads(shown["Attributes"]["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "read",
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws:iam::111111111111:root", "arn:aws:iam::222222222222:root"]},
                "Action": "SQS:ReceiveMessage",
                "Resource": arn,
            }
        ],
    }
    assert voice("RemovePermission", QueueUrl=queue, Label="read") is None
    assert voice("GetQueueAttributes", QueueUrl=queue, AttributeNames=["Policy"]) in ({}, None)


def test_dead_letters_are_listed_moved_and_their_tasks_shown(voice: Voice, sqs: Any, queue: str, fresh: Callable[[], str]) -> None:
    dead = sqs.create_queue(QueueName=fresh())["QueueUrl"]
    arns = {url: f"arn:aws:sqs:us-east-1:000000000000:{url.rpartition('/')[2]}" for url in (queue, dead)}
    redrive = json.dumps({"deadLetterTargetArn": arns[dead], "maxReceiveCount": 1})
    assert voice("ListDeadLetterSourceQueues", QueueUrl=dead) in ({"queueUrls": []}, {})
    assert voice("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": redrive}) is None
    assert voice("ListDeadLetterSourceQueues", QueueUrl=dead) == {"queueUrls": [queue]}
    sqs.send_message_batch(QueueUrl=dead, Entries=[{"Id": str(one), "MessageBody": "hello"} for one in range(10)])
    started = voice("StartMessageMoveTask", SourceArn=arns[dead], DestinationArn=arns[queue], MaxNumberOfMessagesPerSecond=1)
    assert started == {"TaskHandle": HANDLE}
    shown = voice("ListMessageMoveTasks", SourceArn=arns[dead], MaxResults=10)
    assert shown is not None
    (task,) = shown["Results"]
    moved = task["ApproximateNumberOfMessagesMoved"]
    assert task == {
        "TaskHandle": started["TaskHandle"],
        "Status": "RUNNING",
        "SourceArn": arns[dead],
        "DestinationArn": arns[queue],
        "MaxNumberOfMessagesPerSecond": 1,
        "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": 10,
        "StartedTimestamp": task["StartedTimestamp"],
    }
    assert isinstance(task["StartedTimestamp"], int) and 0 <= moved < 10
    cancelled = voice("CancelMessageMoveTask", TaskHandle=started["TaskHandle"])
    assert cancelled is not None and moved <= cancelled["ApproximateNumberOfMessagesMoved"] < 10
    (ended,) = (voice("ListMessageMoveTasks", SourceArn=arns[dead]) or {})["Results"]
    del task["TaskHandle"]
    assert ended == task | {"Status": "CANCELLED"} | cancelled


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/plain, */*", "Application/JSON;charset=utf-8"])
def test_json_over_the_query_protocol_is_the_older_form_to_the_byte(caller: Caller, queue: str, accept: str) -> None:
    """As programs without an SDK read it: every member there, null for nothing, maps as lists, `messages` and `queueUrls` small."""

    def ask(action: str, **members: Any) -> Any:
        answer = caller.get(action, {"QueueUrl": queue} | members, headers={"Accept": accept})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        (told,) = answer.json.values()
        assert answer.json.keys() == {f"{action}Response"}
        assert told.pop("ResponseMetadata") == {"RequestId": answer.headers["x-amzn-requestid"]}
        return told

    attribute = {"city": {"DataType": "String", "StringValue": "Rome"}}
    assert ask("SendMessage", MessageBody="hello", MessageAttributes=attribute) == {
        "SendMessageResult": {
            "MD5OfMessageBody": HELLO,
            "MessageId": UUID,
            "MD5OfMessageAttributes": md5_of(attribute),
            "MD5OfMessageSystemAttributes": None,
            "SequenceNumber": None,
        }
    }
    got = ask("ReceiveMessage", MessageAttributeNames=["All"], AttributeNames=["ApproximateReceiveCount"])
    value = {"DataType": "String", "StringValue": "Rome", "BinaryValue": None, "StringListValues": None, "BinaryListValues": None}
    assert got == {
        "ReceiveMessageResult": {
            "messages": [
                {
                    "MessageId": UUID,
                    "ReceiptHandle": HANDLE,
                    "MD5OfBody": HELLO,
                    "Body": "hello",
                    "Attributes": [{"Name": "ApproximateReceiveCount", "Value": "1"}],
                    "MD5OfMessageAttributes": md5_of(attribute),
                    "MessageAttributes": [{"Name": "city", "Value": value}],
                }
            ]
        }
    }
    assert ask("ReceiveMessage") == {"ReceiveMessageResult": {"messages": None}}
    handle = got["ReceiveMessageResult"]["messages"][0]["ReceiptHandle"]
    assert ask("DeleteMessage", ReceiptHandle=handle) == {}
    assert ask("ListQueues", QueueNamePrefix=queue.rpartition("/")[2]) == {"ListQueuesResult": {"queueUrls": [queue], "NextToken": None}}
    assert ask("ListQueues", QueueNamePrefix="nobody") == {"ListQueuesResult": {"queueUrls": None, "NextToken": None}}
    shown = ask("GetQueueAttributes", AttributeNames=["DelaySeconds"])
    assert shown == {"GetQueueAttributesResult": {"Attributes": [{"Name": "DelaySeconds", "Value": "0"}]}}


def test_who_would_rather_have_xml_gets_xml(caller: Caller, queue: str) -> None:
    for accept in ("*/*", "text/xml, application/json", "application/jsonp", "application/x-amz-json-1.0"):
        answer = caller.get("ListQueueTags", {"QueueUrl": queue}, headers={"Accept": accept})
        assert (answer.status, answer.headers["content-type"]) == (200, "text/xml"), accept
