"""Queues through the door: made twice, deleted, purged, kept apart by account and region, and found by what callers call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from dovetail.clock import ManualClock
from dovetail.node import Node
from dovetail.settings import Settings
from tests.doors.sqs.callers import Caller, Desk, Refused
from tests.doors.sqs.voices import json_result, xml_result

FIFO = {"FifoQueue": "true"}


async def refusal(desk: Desk, action: str, /, **members: Any) -> tuple[str, str, int]:
    with pytest.raises(Refused) as caught:
        await desk(action, **members)
    return caught.value.code, caught.value.text, caught.value.status


# The same name twice

ATTRIBUTES = {
    "VisibilityTimeout": ("20", "30"),
    "DelaySeconds": ("5", "0"),
    "MaximumMessageSize": ("2048", "1048576"),
    "MessageRetentionPeriod": ("600", "345600"),
    "ReceiveMessageWaitTimeSeconds": ("3", "0"),
    "KmsMasterKeyId": ("alias/a", "alias/b"),
    "KmsDataKeyReusePeriodSeconds": ("600", "300"),
    "SqsManagedSseEnabled": ("false", "true"),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
async def test_a_queue_made_again_with_the_same_attributes_is_that_queue_and_with_others_it_is_in_the_way(desk: Desk, name: str) -> None:
    value, other = ATTRIBUTES[name]
    url = await desk.queue("q", **{name: value})
    assert await desk.queue("q", **{name: value}) == url
    assert await desk.queue("q") == url, "what is not named is not compared"
    told = f"A queue already exists with the same name and a different value for attribute {name}"
    assert await refusal(desk, "CreateQueue", QueueName="q", Attributes={name: other}) == ("QueueAlreadyExists", told, 400)
    assert await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=[name]) == {"Attributes": {name: value}}


async def test_defaults_that_are_named_are_the_defaults(desk: Desk) -> None:
    url = await desk.queue("q")
    assert await desk.queue("q", VisibilityTimeout="30", SqsManagedSseEnabled="true", Policy="", RedrivePolicy="") == url
    fifo = await desk.queue("q.fifo", **FIFO)
    assert await desk.queue("q.fifo", **FIFO, ContentBasedDeduplication="false", DeduplicationScope="queue") == fifo


async def test_tags_of_a_queue_made_again_change_nothing(desk: Desk) -> None:
    await desk("CreateQueue", QueueName="q", tags={"a": "1"})
    await desk("CreateQueue", QueueName="q", tags={"b": "2"})
    assert await desk("ListQueueTags", QueueUrl="q") == {"Tags": {"a": "1"}}


async def test_one_encryption_takes_the_place_of_the_other(desk: Desk) -> None:
    url = await desk.queue("q", SqsManagedSseEnabled="true")
    names = ["SqsManagedSseEnabled", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"]
    await desk("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": "k", "KmsDataKeyReusePeriodSeconds": "6000"})
    kms = {"KmsMasterKeyId": "k", "KmsDataKeyReusePeriodSeconds": "6000", "SqsManagedSseEnabled": "false"}
    assert await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=names) == {"Attributes": kms}
    await desk("SetQueueAttributes", QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    shown = (await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
    assert shown["SqsManagedSseEnabled"] == "true" and "KmsMasterKeyId" not in shown


async def test_times_of_a_queue_are_seconds_and_a_change_moves_one_of_them(desk: Desk, clock: ManualClock) -> None:
    made = str(clock.wall_ms() // 1000)
    url = await desk.queue("q")
    names = ["CreatedTimestamp", "LastModifiedTimestamp"]
    clock.advance(100)
    await desk("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
    told = await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    assert told == {"Attributes": {"CreatedTimestamp": made, "LastModifiedTimestamp": str(int(made) + 100)}}


# The two rules of 60 seconds


async def test_a_deleted_name_rests_for_60_seconds(desk: Desk, clock: ManualClock) -> None:
    url = await desk.queue("q")
    await desk("SendMessage", QueueUrl=url, MessageBody="x")
    await desk("DeleteQueue", QueueUrl=url)
    gone = ("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.", 400)
    assert await refusal(desk, "SendMessage", QueueUrl=url, MessageBody="x") == gone
    assert await refusal(desk, "DeleteQueue", QueueUrl=url) == gone
    recently = (
        "AWS.SimpleQueueService.QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        400,
    )
    assert await refusal(desk, "CreateQueue", QueueName="q") == recently
    clock.advance(59.9)
    assert await refusal(desk, "CreateQueue", QueueName="q") == recently
    await desk.queue("another")
    clock.advance(0.1)
    assert await desk.bodies(await desk.queue("q")) == [], "it is a new queue"


async def test_a_purge_empties_a_queue_and_rests_for_60_seconds(desk: Desk, clock: ManualClock) -> None:
    url = await desk.queue("q")
    for delay in (0, 0, 30):
        await desk("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay)
    handle = (await desk.receive(url))["ReceiptHandle"]
    await desk("PurgeQueue", QueueUrl=url)
    names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
    assert await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=names) == {"Attributes": dict.fromkeys(names, "0")}
    await desk("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    told = ("AWS.SimpleQueueService.PurgeQueueInProgress", "Only one PurgeQueue operation on q is allowed every 60 seconds.", 403)
    assert await refusal(desk, "PurgeQueue", QueueUrl=url) == told
    await desk("PurgeQueue", QueueUrl=await desk.queue("another"))
    clock.advance(59.9)
    assert await refusal(desk, "PurgeQueue", QueueUrl=url) == told
    clock.advance(0.1)
    await desk("PurgeQueue", QueueUrl=url)


async def test_both_rules_can_be_switched_off(node: Node) -> None:
    desk = Desk(node.sqs_door(Settings(cooldowns="off")))
    for _ in range(3):
        url = await desk.queue("q")
        await desk("PurgeQueue", QueueUrl=url)
        await desk("PurgeQueue", QueueUrl=url)
        await desk("DeleteQueue", QueueUrl=url)


# What callers call queues


async def test_queue_urls_are_built_from_the_host_that_the_caller_used(node: Node) -> None:
    door = node.sqs_door(Settings())
    for host in ("localhost:9324", "queue.test", "10.0.0.7:80", "[::1]:9324"):
        desk = Desk(door, host)
        url = f"http://{host}/000000000000/q"
        assert await desk.queue("q") == url
        assert await desk("GetQueueUrl", QueueName="q") == {"QueueUrl": url}
        assert await desk("ListQueues") == {"QueueUrls": [url]}


@pytest.mark.parametrize(
    "url",
    ["q", "http://elsewhere:1/000000000000/q", "https://sqs.us-east-1.amazonaws.com/000000000000/q", "/000000000000/q", "/000000000000/q/"],
)
async def test_a_queue_is_found_by_any_url_that_names_it_and_by_its_bare_name(desk: Desk, url: str) -> None:
    await desk.queue("q")
    sent = await desk("SendMessage", QueueUrl=url, MessageBody="x")
    assert (await desk.receive(url))["MessageId"] == sent["MessageId"]


def test_a_12_digit_access_key_names_the_account(client: Callable[..., Any], server: str, name: str) -> None:
    one, two, plain = client(key="111111111111"), client(key="222222222222"), client(key="AKIA")
    urls = [each.create_queue(QueueName=name)["QueueUrl"] for each in (one, two, plain)]
    assert urls == [f"{server}/{account}/{name}" for account in ("111111111111", "222222222222", "000000000000")]
    one.send_message(QueueUrl=name, MessageBody="x")
    assert "Messages" not in two.receive_message(QueueUrl=name), "a bare name is one of the caller's account"
    (got,) = two.receive_message(QueueUrl=urls[0], AttributeNames=["SenderId"])["Messages"]
    assert (got["Body"], got["Attributes"]) == ("x", {"SenderId": "111111111111"})
    assert two.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="111111111111")["QueueUrl"] == urls[0]
    told = one.get_queue_attributes(QueueUrl=name, AttributeNames=["QueueArn"])["Attributes"]
    assert told == {"QueueArn": f"arn:aws:sqs:us-east-1:111111111111:{name}"}
    assert one.list_queues(QueueNamePrefix=name)["QueueUrls"] == urls[:1]


def test_regions_are_kept_apart(client: Callable[..., Any], name: str) -> None:
    here, there = client(region="us-east-1"), client(region="eu-west-1")
    url = here.create_queue(QueueName=name)["QueueUrl"]
    with pytest.raises(ClientError) as caught:
        there.get_queue_url(QueueName=name)
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert there.create_queue(QueueName=name)["QueueUrl"] == url, "the region is the caller's and not in the URL"
    here.send_message(QueueUrl=url, MessageBody="x")
    assert "Messages" not in there.receive_message(QueueUrl=url)
    (got,) = here.receive_message(QueueUrl=url)["Messages"]
    assert got["Body"] == "x"
    told = there.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    assert told == f"arn:aws:sqs:eu-west-1:000000000000:{name}"


def test_a_dead_letter_queue_is_of_the_same_account_and_region(client: Callable[..., Any], name: str) -> None:
    here = client(region="us-east-1")
    client(region="eu-west-1").create_queue(QueueName=name)
    text = f'{{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:000000000000:{name}", "maxReceiveCount": 1}}'
    with pytest.raises(ClientError) as caught:
        here.create_queue(QueueName=f"{name}-source", Attributes={"RedrivePolicy": text})
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


# What clients of old and new make of it


def test_the_resource_of_boto3_works_as_people_use_it(server: str, name: str) -> None:
    resource = boto3.resource("sqs", endpoint_url=server, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    queue = resource.create_queue(QueueName=name, Attributes={"DelaySeconds": "0"})
    queue.send_message(MessageBody="hello", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
    (message,) = queue.receive_messages(MessageAttributeNames=["All"], WaitTimeSeconds=1)
    assert (message.body, message.message_attributes["a"]["StringValue"]) == ("hello", "b")
    message.change_visibility(VisibilityTimeout=10)
    message.delete()
    assert queue.attributes["QueueArn"].endswith(f":{name}")
    assert resource.get_queue_by_name(QueueName=name).url == queue.url
    with pytest.raises(resource.meta.client.exceptions.QueueDoesNotExist):
        resource.get_queue_by_name(QueueName=f"{name}-no")


def test_exceptions_of_boto3_are_found_by_their_names(sqs: Any, queue: str) -> None:
    names = sqs.exceptions
    with pytest.raises(names.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle="x")
    with pytest.raises(names.EmptyBatchRequest):
        sqs.send_message_batch(QueueUrl=queue, Entries=[])
    with pytest.raises(names.InvalidMessageContents):
        sqs.send_message(QueueUrl=queue, MessageBody="\x00")
    with pytest.raises(names.InvalidAttributeName):
        sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["x"])
    with pytest.raises(names.ResourceNotFoundException):
        sqs.list_message_move_tasks(SourceArn="arn:aws:sqs:us-east-1:000000000000:nobody")


def test_the_paginators_of_boto3_walk_every_page(sqs: Any, fresh: Callable[[], str]) -> None:
    stem = fresh()
    for number in range(5):
        sqs.create_queue(QueueName=f"{stem}-{number}")
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=stem, PaginationConfig={"PageSize": 2})
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]


def test_lists_of_a_form_may_have_gaps_any_order_and_no_number_where_there_is_one(caller: Caller, queue: str) -> None:
    def ask(form: str) -> Any:
        return xml_result("GetQueueAttributes", caller.ask("GET", f"/?Action=GetQueueAttributes&QueueUrl={queue}&{form}"))

    both = {"Attributes": {"DelaySeconds": "0", "VisibilityTimeout": "30"}}
    assert ask("AttributeName.7=DelaySeconds&AttributeName.2=VisibilityTimeout") == both
    assert ask("AttributeName=DelaySeconds") == {"Attributes": {"DelaySeconds": "0"}}
    entries = [("10", "c"), ("2", "a"), ("3", "b")]
    form = "&".join(
        f"SendMessageBatchRequestEntry.{at}.Id={key}&SendMessageBatchRequestEntry.{at}.MessageBody={key}" for at, key in entries
    )
    told = xml_result("SendMessageBatch", caller.ask("POST", "/", f"Action=SendMessageBatch&QueueUrl={queue}&{form}".encode()))
    assert told is not None and [one["Id"] for one in told["Successful"]] == ["a", "b", "c"]


def test_json_works_on_the_url_of_a_queue_and_charsets_are_passed_over(caller: Caller, queue: str) -> None:
    path = queue.removeprefix(caller.url)
    headers = {"Content-Type": "application/x-amz-json-1.0; charset=utf-8", "X-Amz-Target": "AmazonSQS.ListQueueTags"}
    assert json_result(caller.ask("POST", path, f'{{"QueueUrl": "{queue}"}}'.encode(), headers)) == {}


def test_request_ids_are_never_given_twice(caller: Caller) -> None:
    ids = [caller.json("ListQueues", {"QueueNamePrefix": "no"}).headers["x-amzn-requestid"] for _ in range(50)]
    assert len(set(ids)) == 50
