"""What happens when several things happen at once: changes of one queue, calls of one connection, callers that leave."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from dovetail.service.catalog import Catalog
from tests.doors.sqs.callers import Caller, Desk

PATIENCE_S = 60.0


async def test_changes_of_one_queue_at_the_same_moment_are_all_kept(desk: Desk) -> None:
    url = await desk.queue("q")
    await asyncio.gather(
        *(desk("TagQueue", QueueUrl=url, Tags={f"tag{number}": "x"}) for number in range(20)),
        desk("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "77"}),
        desk("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "7"}),
        *(desk("AddPermission", QueueUrl=url, Label=f"l{n}", AWSAccountIds=["1" * 12], Actions=["SendMessage"]) for n in range(5)),
    )
    assert len((await desk("ListQueueTags", QueueUrl=url))["Tags"]) == 20
    shown = (await desk("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"]))["Attributes"]
    assert (shown["VisibilityTimeout"], shown["DelaySeconds"], len(json.loads(shown["Policy"])["Statement"])) == ("77", "7", 5)


async def test_without_the_turns_one_change_undoes_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def change(self: Catalog, lane: Any, make: Any) -> None:
        await self._store.configure(lane.queue, make(lane.attributes))

    monkeypatch.setattr(Catalog, "change", change)
    url = await desk.queue("q")
    await asyncio.gather(*(desk("TagQueue", QueueUrl=url, Tags={f"tag{number}": "x"}) for number in range(20)))
    assert len((await desk("ListQueueTags", QueueUrl=url))["Tags"]) < 20


async def test_a_queue_can_be_changed_when_its_dead_letter_queue_is_gone(desk: Desk) -> None:
    dead = await desk.queue("dead")
    url = await desk.queue("q", RedrivePolicy=json.dumps({"deadLetterTargetArn": await desk.arn(dead), "maxReceiveCount": 3}))
    await desk("DeleteQueue", QueueUrl=dead)
    await desk("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "5"})
    await desk("TagQueue", QueueUrl=url, Tags={"a": "b"})
    assert (await desk("ListQueueTags", QueueUrl=url))["Tags"] == {"a": "b"}


def _request(action: str, **members: Any) -> bytes:
    body = json.dumps(members).encode()
    head = f"POST / HTTP/1.1\r\nhost: x\r\nx-amz-target: AmazonSQS.{action}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _asked(caller: Caller, *requests: bytes, cork: bool = False) -> socket.socket:
    """`cork`: what is sent leaves with the close that follows, so that no answer can come in between, however busy the machine is."""
    made = socket.create_connection((caller.host, caller.port), timeout=60)
    if cork:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    made.sendall(b"".join(requests))
    return made


def test_pipelined_calls_take_effect_in_their_order(caller: Caller, sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="before")
    plain, rich = {"MessageBody": "plain"}, {"MessageBody": "rich", "DelaySeconds": 0}
    calls = [_request("PurgeQueue", QueueUrl=queue), *(_request("SendMessage", QueueUrl=queue, **one) for one in (rich, plain))]
    with _asked(caller, *calls) as connection:
        seen = b""
        while seen.count(b"HTTP/1.1 200 OK") < 3:
            seen += connection.recv(65536)
    got = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert [one["Body"] for one in got] == ["rich", "plain"]


@pytest.mark.parametrize("more", [{}, {"AttributeNames": ["All"]}], ids=["plain", "with attributes"])
def test_a_receiver_that_leaves_at_once_hides_nothing(caller: Caller, sqs: Any, queue: str, more: dict[str, Any]) -> None:
    for _ in range(30):
        sqs.send_message(QueueUrl=queue, MessageBody="x")
    for _ in range(30):
        _asked(caller, _request("ReceiveMessage", QueueUrl=queue, VisibilityTimeout=600, **more), cork=True).close()
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    give_up = time.monotonic() + PATIENCE_S
    while (counts := sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"])[names[0]] != "30":
        assert time.monotonic() < give_up, counts
        time.sleep(0.05)
    assert [counts[name] for name in names] == ["30", "0"]


@pytest.mark.parametrize("last", [b"", b"connection: close\r\n"], ids=["kept", "last"])
def test_plain_calls_and_others_are_answered_under_the_same_headers(caller: Caller, sqs: Any, queue: str, last: bytes) -> None:
    """The short way writes its lines itself: each header once, also in the last answer of a connection."""
    sqs.send_message(QueueUrl=queue, MessageBody="x")  # The first call about a queue goes the long way.
    names = []
    for more in ({}, {"DelaySeconds": 0}):
        request = _request("SendMessage", QueueUrl=queue, MessageBody="x", **more).replace(b"content-length", last + b"content-length")
        with _asked(caller, request) as connection:
            seen = b""
            while not seen.endswith(b"}"):
                seen += connection.recv(65536)
        head, _, _ = seen.partition(b"\r\n\r\n")
        names.append([line.partition(b":")[0] for line in head.split(b"\r\n")[1:]])
    common = [b"date", b"content-type", b"x-amzn-requestid", *([b"connection"] if last else []), b"content-length"]
    assert names == [common, common]


def test_a_receive_behind_another_takes_nothing_before_its_turn(caller: Caller, sqs: Any, queue: str, fresh: Any) -> None:
    empty = sqs.create_queue(QueueName=fresh())["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    waiting = _request("ReceiveMessage", QueueUrl=empty, WaitTimeSeconds=20)
    with _asked(caller, waiting, _request("ReceiveMessage", QueueUrl=queue, VisibilityTimeout=600)) as connection:
        for _ in range(3):
            got = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)
            assert [one["Body"] for one in got["Messages"]] == ["x"]
        sqs.send_message(QueueUrl=empty, MessageBody="y")
        seen = b""
        while seen.count(b"HTTP/1.1 200 OK") < 2 or not seen.endswith(b"}"):
            seen += connection.recv(65536)
    assert seen.index(b'"Body":"y"') < seen.index(b'"Body":"x"')
