"""Safeguards of the SQS door, each with the harm that it prevents: taken away, the harm is there. A check that cannot fail is no check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable
from typing import Any

import pytest

from dovetail.doors.http.message import Request
from dovetail.doors.sqs import content, cooldowns, messages, querywire, queueattributes
from dovetail.service.broker import dedup_hash
from tests.doors.sqs.callers import Desk, Refused

NEVER = re.compile(r"(?!)")


async def get(desk: Desk, target: bytes) -> bytes:
    answer = desk.door.handle(Request("GET", target, {b"host": b"sqs.test"}, b"", True))
    if isinstance(answer, Awaitable):
        answer = await answer
    return answer.body


async def test_without_the_hash_of_the_whole_group_messages_of_groups_that_begin_alike_are_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sent(name: str) -> list[str]:
        url = await desk.queue(name, FifoQueue="true", DeduplicationScope="messageGroup")
        for last in "ab":
            members = {"MessageBody": last, "MessageGroupId": "g" * 127 + last, "MessageDeduplicationId": "d"}
            await desk("SendMessage", QueueUrl=url, **members)
        return await desk.bodies(url)

    assert await sent("with.fifo") == ["a", "b"]
    monkeypatch.setattr(messages, "dedup_hash", lambda text, scope: dedup_hash(text, scope[:64]))
    assert await sent("without.fifo") == ["a"]


async def test_without_its_characters_checked_an_answer_is_no_xml(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    target = b"/?Action=CreateQueue&QueueName=a%01b"
    ElementTree.fromstring(await get(desk, target))
    monkeypatch.setattr(querywire, "NOT_XML", NEVER)
    with pytest.raises(ElementTree.ParseError):
        ElementTree.fromstring(await get(desk, target))


async def test_without_the_check_of_bodies_one_comes_back_changed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    url = await desk.queue("q")
    with pytest.raises(Refused):
        await desk("SendMessage", QueueUrl=url, MessageBody="a\x01b")
    monkeypatch.setattr(content, "_REFUSED", NEVER)
    await desk("SendMessage", QueueUrl=url, MessageBody="a\x01b")
    body = ElementTree.fromstring(await get(desk, b"/?Action=ReceiveMessage&QueueUrl=q")).findtext(".//{*}Body")
    assert body == "a\ufffdb"


async def test_without_the_rest_a_deleted_name_is_used_again_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk("DeleteQueue", QueueUrl=await desk.queue("q"))
    with pytest.raises(Refused):
        await desk.queue("q")
    monkeypatch.setattr(cooldowns, "REST_MS", 0)
    await desk.queue("q")


async def test_without_counting_what_fails_a_batch_that_is_too_long_is_not_noticed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    url = await desk.queue("q")
    entries: list[dict[str, Any]] = [{"Id": "a", "MessageBody": "x" * 1_048_577}, {"Id": "b", "MessageBody": "x"}]
    with pytest.raises(Refused) as caught:
        await desk("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert caught.value.code == "AWS.SimpleQueueService.BatchRequestTooLong"
    monkeypatch.setattr(content, "counted", lambda *_: 0)
    told = await desk("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in told["Failed"]] == ["a"]


async def test_without_one_form_for_numbers_a_queue_is_in_its_own_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.queue("q", VisibilityTimeout="030")
    monkeypatch.setattr(queueattributes, "_number", lambda name, value, beyond: value)
    with pytest.raises(Refused) as caught:
        await desk.queue("q", VisibilityTimeout="030")
    assert caught.value.code == "QueueAlreadyExists"


async def test_without_a_look_at_its_form_a_number_may_be_what_no_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(content.SqsError):
        content._check_number("a", "1_000")
    monkeypatch.setattr(content, "_NUMBER", re.compile(r".*"))
    content._check_number("a", "1_000")
