"""The authorization matrix: every action × its queue's owner, another account that a policy allows, another that it does not, and a queue
that is not there. A stranger learns nothing: what is forbidden and what is missing are answered alike.

Actions come from botocore's model; one that is added to it and has no row here fails the test."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import botocore.session
import pytest
from botocore.exceptions import ClientError

from dovetail.service.accounts import Accounts
from tests.clients.aws import client
from tests.clients.node import Node
from tests.clients.querymodel import write

REGION = "us-east-1"
OWN = ("CreateQueue", "ListQueues")
"""Name no queue of anybody else: they are about the caller's own account."""
OWNER_ONLY = frozenset(
    "AddPermission CancelMessageMoveTask DeleteQueue ListMessageMoveTasks ListQueueTags RemovePermission SetQueueAttributes "
    "StartMessageMoveTask TagQueue UntagQueue".split()
)
"""By AWS's rules no policy opens these to another account."""


class Person(NamedTuple):
    account: str
    sqs: Any


class World(NamedTuple):
    owner: Person
    friend: Person
    stranger: Person
    url: str
    """Up to the queue's name."""


@pytest.fixture(scope="module", params=["json", "query"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("accounts")
    accounts = Accounts(str(folder / "accounts.json"))
    models = write(folder / "models") if request.param == "query" else None
    keys = []
    for name in ("owner", "friend", "stranger"):
        accounts.create(name)
        keys.append(accounts.add_key(name, 0))
    with Node(folder, "--store", "memory:", "--cooldowns", "off", "--auth", "signed", "--accounts", "accounts.json") as node:
        people = [Person(key.account, client(node, key=key.access_key_id, secret=key.secret, models=models)) for key in keys]
        yield World(*people, f"{node.url}/{people[0].account}/")


def members(action: str, world: World, name: str) -> dict[str, Any]:
    """A request of each action about one queue, as its owner would make it."""
    url, arn = world.url + name, f"arn:aws:sqs:{REGION}:{world.owner.account}:{name}"
    handle = b64encode(json.dumps({"taskId": "x", "sourceArn": arn}).encode()).decode()
    entry = {"Id": "a", "ReceiptHandle": "made-up"}
    return {
        "AddPermission": {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]},
        "CancelMessageMoveTask": {"TaskHandle": handle},
        "ChangeMessageVisibility": {"QueueUrl": url, "ReceiptHandle": "made-up", "VisibilityTimeout": 0},
        "ChangeMessageVisibilityBatch": {"QueueUrl": url, "Entries": [{**entry, "VisibilityTimeout": 0}]},
        "CreateQueue": {"QueueName": name},
        "DeleteMessage": {"QueueUrl": url, "ReceiptHandle": "made-up"},
        "DeleteMessageBatch": {"QueueUrl": url, "Entries": [entry]},
        "DeleteQueue": {"QueueUrl": url},
        "GetQueueAttributes": {"QueueUrl": url, "AttributeNames": ["All"]},
        "GetQueueUrl": {"QueueName": name, "QueueOwnerAWSAccountId": world.owner.account},
        "ListDeadLetterSourceQueues": {"QueueUrl": url},
        "ListMessageMoveTasks": {"SourceArn": arn},
        "ListQueueTags": {"QueueUrl": url},
        "ListQueues": {},
        "PurgeQueue": {"QueueUrl": url},
        "ReceiveMessage": {"QueueUrl": url},
        "RemovePermission": {"QueueUrl": url, "Label": "friends"},
        "SendMessage": {"QueueUrl": url, "MessageBody": "x"},
        "SendMessageBatch": {"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "x"}]},
        "SetQueueAttributes": {"QueueUrl": url, "Attributes": {"DelaySeconds": "0"}},
        "StartMessageMoveTask": {"SourceArn": arn},
        "TagQueue": {"QueueUrl": url, "Tags": {"a": "b"}},
        "UntagQueue": {"QueueUrl": url, "TagKeys": ["a"]},
    }[action]


OPERATIONS = sorted(botocore.session.get_session().get_service_model("sqs").operation_names)
ABOUT_A_QUEUE = [action for action in OPERATIONS if action not in OWN]


def ask(person: Person, action: str, world: World, name: str) -> tuple[int, str, str]:
    """(status, code, message) of an answer; the code is empty where it is a result."""
    method = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action).lstrip("_")
    try:
        answer = getattr(person.sqs, method)(**members(action, world, name))
        return answer["ResponseMetadata"]["HTTPStatusCode"], "", ""
    except ClientError as error:
        told = error.response
        return told["ResponseMetadata"]["HTTPStatusCode"], told["Error"]["Code"], told["Error"]["Message"]


def make(world: World, name: str) -> None:
    """A queue that lets the friend do everything that a policy can."""
    statement = {
        "Sid": "friends",
        "Effect": "Allow",
        "Principal": {"AWS": world.friend.account},
        "Action": "sqs:*",
        "Resource": f"arn:aws:sqs:{REGION}:{world.owner.account}:{name}",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    world.owner.sqs.create_queue(QueueName=name, Attributes={"Policy": policy})


@pytest.mark.parametrize("action", ABOUT_A_QUEUE)
def test_the_owner_may_a_friend_may_what_can_be_given_and_a_stranger_learns_nothing(world: World, action: str) -> None:
    name, missing = f"queue-{action}", f"nowhe-{action}"
    make(world, name)
    stranger = ask(world.stranger, action, world, name)
    assert stranger[:2] == (403, "AccessDenied")
    assert ask(world.stranger, action, world, missing) == (*stranger[:2], stranger[2].replace(name, missing))
    friend = ask(world.friend, action, world, name)
    if action in OWNER_ONLY:
        assert friend[:2] == (403, "AccessDenied")
    else:
        assert friend[1] != "AccessDenied"
    absent = ask(world.friend, action, world, missing)
    assert absent[:2] == (403, "AccessDenied") and absent[2].replace(world.friend.account, world.stranger.account) == stranger[2].replace(
        name, missing
    )
    assert world.owner.sqs.get_queue_url(QueueName=name), "none of them did anything to it"
    assert ask(world.owner, action, world, missing)[1] in ("AWS.SimpleQueueService.NonExistentQueue", "ResourceNotFoundException")
    assert ask(world.owner, action, world, name)[1] != "AccessDenied"


def test_a_policy_that_denies_binds_the_owner_too(world: World) -> None:
    make(world, "denied")
    deny = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    world.owner.sqs.set_queue_attributes(QueueUrl=world.url + "denied", Attributes={"Policy": policy})
    for action in ("SendMessage", "SendMessageBatch"):
        assert ask(world.owner, action, world, "denied")[:2] == (403, "AccessDenied")
    assert ask(world.owner, "ReceiveMessage", world, "denied")[0] == 200


def test_accounts_see_and_make_queues_of_their_own_only(world: World) -> None:
    make(world, "same-name")
    url = world.stranger.sqs.create_queue(QueueName="same-name")["QueueUrl"]
    assert url.endswith(f"/{world.stranger.account}/same-name")
    assert world.stranger.sqs.list_queues()["QueueUrls"] == [url]
    assert "QueueUrls" not in world.friend.sqs.list_queues(), "what a policy opens is still not listed"
    world.stranger.sqs.send_message(QueueUrl="same-name", MessageBody="mine")
    assert "Messages" not in world.owner.sqs.receive_message(QueueUrl="same-name")


def test_another_account_is_no_target_for_dead_letters_whether_it_has_the_queue_or_not(world: World) -> None:
    make(world, "letters")
    world.stranger.sqs.create_queue(QueueName="mine")
    told = set()
    for name in ("letters", "nothing"):
        target = json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{world.owner.account}:{name}", "maxReceiveCount": 1})
        with pytest.raises(ClientError) as refused:
            world.stranger.sqs.set_queue_attributes(QueueUrl="mine", Attributes={"RedrivePolicy": target})
        error = refused.value.response["Error"]
        told.add((error["Code"], error["Message"].replace(name, "…")))
    assert len(told) == 1


def test_a_receipt_opens_nothing_for_somebody_else(world: World) -> None:
    """Also not in a queue of the same name that is theirs."""
    make(world, "receipts")
    world.owner.sqs.send_message(QueueUrl=world.url + "receipts", MessageBody="kept")
    (got,) = world.owner.sqs.receive_message(QueueUrl=world.url + "receipts")["Messages"]
    world.stranger.sqs.create_queue(QueueName="receipts")
    with pytest.raises(ClientError) as refused:
        world.stranger.sqs.delete_message(QueueUrl="receipts", ReceiptHandle=got["ReceiptHandle"])
    assert refused.value.response["Error"]["Code"] in ("ReceiptHandleIsInvalid", "InvalidParameterValue")
    with pytest.raises(ClientError):
        world.stranger.sqs.delete_message(QueueUrl=world.url + "receipts", ReceiptHandle=got["ReceiptHandle"])
    names = ["ApproximateNumberOfMessagesNotVisible"]
    assert world.owner.sqs.get_queue_attributes(QueueUrl=world.url + "receipts", AttributeNames=names)["Attributes"] == {names[0]: "1"}
