"""Promises to people who use boto3, its client and its resources, as it is installed. What each action answers in detail is tested at the
door; here the whole way there and back is walked, with the client's own checks of digests and shapes on."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.clients.aws import KEY, SECRET, client, plain, session, settings
from tests.clients.node import Node
from tests.clients.querymodel import write

ATTRIBUTES = {
    "city": {"DataType": "String", "StringValue": "Zürich"},
    "count": {"DataType": "Number", "StringValue": "12"},
    "raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x10"},
}


@pytest.fixture(scope="module", params=["json", "query"])
def sqs(node: Node, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """boto3 as it is, and boto3 as it was before SQS had a JSON protocol."""
    return client(node) if request.param == "json" else client(node, models=write(tmp_path_factory.mktemp("models")))


def test_a_message_goes_its_whole_way(sqs: Any, node: Node, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{node.url}/000000000000/{name}"
    body = "grüezi \U0001f600\r\n<&>\t"
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    sent = plain(
        sqs.send_message(
            QueueUrl=url,
            MessageBody=body,
            MessageAttributes=ATTRIBUTES,
            MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
        )
    )
    digest = hashlib.md5(body.encode()).hexdigest()
    assert sent.pop("MD5OfMessageBody") == digest
    identity, of_attributes = sent.pop("MessageId"), sent.pop("MD5OfMessageAttributes")
    assert list(sent) == ["MD5OfMessageSystemAttributes"]
    (message,) = plain(sqs.receive_message(QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"]))["Messages"]
    receipt, system = message.pop("ReceiptHandle"), message.pop("Attributes")
    assert message == {
        "MessageId": identity,
        "MD5OfBody": digest,
        "Body": body,
        "MD5OfMessageAttributes": of_attributes,
        "MessageAttributes": ATTRIBUTES,
    }
    assert int(system.pop("SentTimestamp")) <= int(system.pop("ApproximateFirstReceiveTimestamp"))
    assert system == {"SenderId": "000000000000", "ApproximateReceiveCount": "1", "AWSTraceHeader": trace}
    assert plain(sqs.receive_message(QueueUrl=url)) == {}, "it is leased"
    assert plain(sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)) == {}
    (again,) = plain(sqs.receive_message(QueueUrl=url, AttributeNames=["ApproximateReceiveCount"]))["Messages"]
    assert (again["MessageId"], again["Attributes"]) == (identity, {"ApproximateReceiveCount": "2"})
    assert plain(sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])) == {}
    counts = {f"ApproximateNumberOfMessages{state}": "0" for state in ("", "NotVisible", "Delayed")}
    assert plain(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(counts))) == {"Attributes": counts}


def test_a_batch_goes_and_comes_in_tens_with_the_failures_named(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    entries: list[dict[str, Any]] = [{"Id": f"m{number}", "MessageBody": f"body {number}"} for number in range(9)]
    answer = plain(sqs.send_message_batch(QueueUrl=url, Entries=[*entries, {"Id": "bad", "MessageBody": "x", "DelaySeconds": 901}]))
    assert [one["Id"] for one in answer["Successful"]] == [one["Id"] for one in entries]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["SenderFault"], failed["Code"]) == ("bad", True, "InvalidParameterValue")
    got = plain(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10))["Messages"]
    assert [one["Body"] for one in got] == [one["MessageBody"] for one in entries]
    handles = [{"Id": f"h{number}", "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(got)]
    longer = [{**one, "VisibilityTimeout": 60} for one in handles]
    done = [{"Id": one["Id"]} for one in handles]
    changed = plain(sqs.change_message_visibility_batch(QueueUrl=url, Entries=longer))
    assert changed.pop("Failed", []) == [] and changed == {"Successful": done}
    answer = plain(sqs.delete_message_batch(QueueUrl=url, Entries=[*handles, {"Id": "bad", "ReceiptHandle": "nonsense"}]))
    assert answer["Successful"] == done and [one["Id"] for one in answer["Failed"]] == ["bad"]
    assert plain(sqs.receive_message(QueueUrl=url)) == {}


def test_a_fifo_queue_keeps_groups_in_order_and_drops_repeats(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})["QueueUrl"]
    sequences = []
    for body in ("one", "two", "one", "three"):
        sent = plain(sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="a"))
        sequences.append(sent["SequenceNumber"])
    sqs.send_message(QueueUrl=url, MessageBody="other", MessageGroupId="b", MessageDeduplicationId="d")
    assert sequences[2] == sequences[0] < sequences[1] < sequences[3]
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=2, AttributeNames=["All"])["Messages"]
    assert [one["Body"] for one in got] == ["one", "two"]
    assert [one["Attributes"]["SequenceNumber"] for one in got] == sequences[:2]
    (other,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    assert (other["Body"], other["Attributes"]["MessageGroupId"]) == ("other", "b"), "the group a waits for its leased messages"
    assert other["Attributes"]["MessageDeduplicationId"] == "d"
    for one in got:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert [one["Body"] for one in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]] == ["three"]


def test_a_long_poll_is_woken_by_a_send(sqs: Any, node: Node, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"ReceiveMessageWaitTimeSeconds": "20"})["QueueUrl"]
    found: list[str] = []

    def wait() -> None:
        found.extend(one["Body"] for one in client(node).receive_message(QueueUrl=url)["Messages"])

    waiter = threading.Thread(target=wait)
    waiter.start()
    sqs.send_message(QueueUrl=url, MessageBody="wake up")
    waiter.join(30)
    assert found == ["wake up"]


def test_dead_letters_are_found_listed_and_moved_back(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    assert arn == f"arn:aws:sqs:us-east-1:000000000000:{name}-dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})["QueueUrl"]
    assert plain(sqs.list_dead_letter_source_queues(QueueUrl=dead)) == {"queueUrls": [url]}
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")["MessageId"]
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["MessageId"] == sent
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    (letter,) = sqs.receive_message(QueueUrl=dead, VisibilityTimeout=0, AttributeNames=["All"])["Messages"]
    assert (letter["Body"], letter["Attributes"]["DeadLetterQueueSourceArn"]) == ("poison", arn.removesuffix("-dead"))
    handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    assert handle
    (back,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert back["Body"] == "poison"
    (task,) = plain(sqs.list_message_move_tasks(SourceArn=arn))["Results"]
    assert task["SourceArn"] == arn and task["ApproximateNumberOfMessagesMoved"] == 1


def test_errors_are_the_exceptions_that_programs_catch(sqs: Any, node: Node, name: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as missing:
        sqs.get_queue_url(QueueName=name)
    assert missing.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert missing.value.response["Error"]["Message"].startswith("The specified queue does not exist")
    url = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "1"})["QueueUrl"]
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "2"})
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="nonsense")
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    with pytest.raises(sqs.exceptions.BatchEntryIdsNotDistinct):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "1"}] * 2)
    with pytest.raises(sqs.exceptions.InvalidMessageContents):
        sqs.send_message(QueueUrl=url, MessageBody="\x00")
    with pytest.raises(ClientError) as wrong:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    assert wrong.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_system_attributes_have_two_names_and_errors_two_codes(node: Node, name: str) -> None:
    sqs = client(node)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as missing:
        sqs.get_queue_url(QueueName=name)
    assert missing.value.response["Error"]["QueryErrorCode"] == "QueueDoesNotExist"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (got,) = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["ApproximateReceiveCount"], AttributeNames=["SenderId"])[
        "Messages"
    ]
    assert got["Attributes"] == {"ApproximateReceiveCount": "1", "SenderId": "000000000000"}


def test_queues_are_listed_by_page_and_prefix(sqs: Any, node: Node, name: str) -> None:
    urls = [sqs.create_queue(QueueName=f"{name}-page-{number}")["QueueUrl"] for number in range(5)]
    sqs.create_queue(QueueName=f"{name}-not")
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=f"{name}-page-", PaginationConfig={"PageSize": 2})
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:4], urls[4:]]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{name}-nothing")
    assert "QueueUrls" not in client(node, region="eu-west-1").list_queues(QueueNamePrefix=name), "regions are kept apart"
    assert "QueueUrls" not in client(node, key="123456789012").list_queues(QueueNamePrefix=name), "so are accounts"


def test_tags_permissions_purge_and_deletion(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, tags={"team": "blue", "stage": "test"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "live"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    assert plain(sqs.list_queue_tags(QueueUrl=url)) == {"Tags": {"stage": "live"}}
    sqs.add_permission(QueueUrl=url, Label="neighbour", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    policy = json.loads(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
    assert [one["Sid"] for one in policy["Statement"]] == ["neighbour"]
    sqs.remove_permission(QueueUrl=url, Label="neighbour")
    assert "Policy" not in plain(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])).get("Attributes", {})
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.purge_queue(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=url, MessageBody="x")


def test_resources_read_like_objects(node: Node, name: str) -> None:
    resource: Any = session().resource("sqs", endpoint_url=node.url, config=settings())
    queue = resource.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "45"})
    assert queue.url == resource.get_queue_by_name(QueueName=name).url
    assert queue.attributes["VisibilityTimeout"] == "45" and queue.attributes["QueueArn"].endswith(f":{name}")
    queue.send_message(MessageBody="first", MessageAttributes=ATTRIBUTES)
    queue.send_messages(Entries=[{"Id": "1", "MessageBody": "second"}, {"Id": "2", "MessageBody": "third"}])
    messages = queue.receive_messages(MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    assert [one.body for one in messages] == ["first", "second", "third"]
    assert messages[0].message_attributes == ATTRIBUTES
    messages[0].change_visibility(VisibilityTimeout=0)
    messages[1].delete()
    assert queue.delete_messages(Entries=[{"Id": "1", "ReceiptHandle": messages[2].receipt_handle}])["Successful"] == [{"Id": "1"}]
    assert [one.body for one in queue.receive_messages()] == ["first"]
    queue.set_attributes(Attributes={"DelaySeconds": "7"})
    queue.reload()
    assert queue.attributes["DelaySeconds"] == "7"
    assert [one.url for one in resource.queues.filter(QueueNamePrefix=name)] == [queue.url]
    queue.purge()
    queue.delete()
    assert list(resource.queues.filter(QueueNamePrefix=name)) == []


def test_a_queue_url_names_the_host_by_which_the_caller_came(node: Node, name: str) -> None:
    by_name, by_number = client(node, node.url_at("localhost")), client(node)
    url = by_name.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"http://localhost:{node.port}/000000000000/{name}"
    by_name.send_message(QueueUrl=url, MessageBody="over the name")
    assert by_number.get_queue_url(QueueName=name)["QueueUrl"] == f"http://127.0.0.1:{node.port}/000000000000/{name}"
    # A URL that was made for somebody else (another name, another port, AWS itself) still means this queue here.
    for host in (f"localhost:{node.port}", f"127.0.0.1:{node.port}", "queue.example:1", "sqs.us-east-1.amazonaws.com"):
        (got,) = by_number.receive_message(QueueUrl=f"https://{host}/000000000000/{name}", VisibilityTimeout=0)["Messages"]
        assert got["Body"] == "over the name"
    assert by_number.receive_message(QueueUrl=name)["Messages"], "the bare name does too"


def test_a_client_from_the_environment_needs_no_code_for_us(node: Node, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {
        "AWS_ENDPOINT_URL_SQS": node.url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():
        monkeypatch.setenv(variable, value)
    sqs: Any = boto3.Session().client("sqs")
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == f"{node.url}/000000000000/{name}"


def test_the_largest_message_goes_and_one_byte_more_is_refused(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    body = "x" * 1_048_576
    sqs.send_message(QueueUrl=url, MessageBody=body)
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == body
    with pytest.raises(ClientError) as wrong:
        sqs.send_message(QueueUrl=url, MessageBody=body + "x")
    assert wrong.value.response["Error"]["Code"] == "InvalidParameterValue"
