"""Promises of the SQS door to itself: whatever arrives is answered in the protocol it came in, and nothing of it is our fault."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.doors.http.message import Request
from dovetail.doors.sqs.actions import ACTIONS
from tests.harm.inside import HEADERS, Inside, form_request, json_request, judge
from tests.harm.shapes import ARN, OPERATIONS, TEXTS, URL, anything, fields_of, form_of, odd, requests

EXAMPLES = int(os.environ.get("DOVETAIL_FUZZ_EXAMPLES", "120"))
LOOK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
RECEIPTS: list[str] = ["none yet"]
REQUESTS = requests(RECEIPTS)


def furnish(inside: Inside) -> None:
    """Queues with messages in them, leased and waiting, so that odd requests get as far as they can."""
    inside.call("CreateQueue", QueueName="dead")
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 3})
    inside.call("CreateQueue", QueueName="plain", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "1000"})
    inside.call("CreateQueue", QueueName="order.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    value = {"a": {"DataType": "Binary", "BinaryValue": "AP8Q"}}
    for name, more in (("dead", {}), ("plain", {}), ("order.fifo", {"MessageGroupId": "g"})):
        for body in "abc":
            inside.call("SendMessage", QueueUrl=URL + name, MessageBody=body, MessageAttributes=value, **more)
        got = inside.call("ReceiveMessage", QueueUrl=URL + name, MaxNumberOfMessages=2)["Messages"]
        RECEIPTS.extend(one["ReceiptHandle"] for one in got)


@pytest.fixture(scope="module", params=["off", "on"])
def inside(request: pytest.FixtureRequest) -> Iterator[Inside]:
    made = Inside(beyond=request.param)
    furnish(made)
    yield made
    made.close()


def mend(inside: Inside) -> None:
    """What a random request has deleted comes back, lest the later ones ask about nothing."""
    for name, more in (("dead", {}), ("plain", {}), ("order.fifo", {"FifoQueue": "true"})):
        inside.json("CreateQueue", {"QueueName": name, **({"Attributes": more} if more else {})})


def ask(inside: Inside, request: Request) -> None:
    judge(request, inside.ask(request))
    mend(inside)


@LOOK
@given(data=st.data())
def test_json_shaped_like_the_model_is_answered(inside: Inside, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(OPERATIONS))
    members = data.draw(REQUESTS[action])
    ask(inside, json_request(action, json.dumps(members).encode()))


@LOOK
@given(data=st.data(), accept=st.sampled_from([b"*/*", b"application/json"]), path=st.sampled_from([b"/", b"/000000000000/plain", b"/x"]))
def test_forms_shaped_like_the_model_are_answered(inside: Inside, data: st.DataObject, accept: bytes, path: bytes) -> None:
    action = data.draw(st.sampled_from(OPERATIONS))
    members = data.draw(REQUESTS[action])
    fields = (
        [("Action", action), *fields_of(form_of(action, members))]
        if isinstance(members, dict)
        else [("Action", action), ("x", str(members))]
    )
    ask(inside, form_request(fields, path, {**HEADERS, b"accept": accept}))


@LOOK
@given(
    target=st.one_of(st.sampled_from([f"AmazonSQS.{name}" for name in OPERATIONS]), odd), body=st.one_of(st.binary(max_size=200), anything)
)
def test_any_target_and_any_body_are_answered(inside: Inside, target: str, body: Any) -> None:
    headers = {**HEADERS, b"x-amz-target": target.encode()}
    ask(inside, Request("POST", b"/", headers, body if isinstance(body, bytes) else json.dumps(body).encode(), True))


@LOOK
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]),
    target=st.one_of(
        st.binary(max_size=80), st.sampled_from([b"/?Action=ListQueues", b"/?Action=SendMessage&QueueUrl=%00&MessageBody=%FF"])
    ),
    headers=st.dictionaries(
        st.sampled_from([b"host", b"accept", b"authorization", b"content-type", b"x-amz-date", b"x-amz-target", b"x-amz-security-token"]),
        st.one_of(st.binary(max_size=60), st.sampled_from([b"AWS4-HMAC-SHA256 Credential=123456789012/20260101/x/sqs/aws4_request"])),
    ),
    body=st.binary(max_size=200),
)
def test_any_bytes_in_any_place_are_answered(inside: Inside, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes) -> None:
    ask(inside, Request(method, target, headers, body, True))


@LOOK
@given(
    names=st.lists(
        st.one_of(st.sampled_from(["Action", "Version", "QueueUrl", "MessageBody", "Attribute.1.Name", "Attribute"]), odd), max_size=8
    )
)
def test_forms_of_any_names_are_answered(inside: Inside, names: list[str]) -> None:
    ask(inside, form_request([("Action", "CreateQueue"), *((name, TEXTS[number]) for number, name in enumerate(names))]))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_what_can_be_kept_can_be_shown_in_both_protocols(inside: Inside, text: str) -> None:
    """An odd text in every place that keeps one: refused, or readable afterwards in XML and in JSON."""
    where = {"QueueUrl": URL + "plain"}
    value = {"DataType": "String", "StringValue": text or "x"}
    for action, members in (
        ("TagQueue", {**where, "Tags": {text: text, "k": text}}),
        ("SetQueueAttributes", {**where, "Attributes": {"KmsMasterKeyId": text}}),
        ("SendMessage", {**where, "MessageBody": text}),
        ("SendMessage", {**where, "MessageBody": "x", "MessageAttributes": {"n": value}}),
        ("SendMessage", {**where, "MessageBody": "x", "MessageAttributes": {"n": {**value, "DataType": f"String.{text}"}}}),
        ("SendMessage", {**where, "MessageBody": "x", "MessageSystemAttributes": {"AWSTraceHeader": value}}),
        ("SendMessage", {**where, "MessageBody": "x", "MessageGroupId": text}),
    ):
        judge(request := json_request(action, json.dumps(members).encode()), inside.ask(request))
    for fields in (
        [("Action", "ListQueueTags")],
        [("Action", "GetQueueAttributes"), ("AttributeName.1", "All")],
        [
            ("Action", "ReceiveMessage"), ("AttributeName.1", "All"), ("MessageAttributeName.1", "All"), ("MaxNumberOfMessages", "10"),
            ("VisibilityTimeout", "1000"),
        ],
    ):  # fmt: skip
        judge(request := form_request([*fields, ("QueueUrl", URL + "plain")]), inside.ask(request))


def test_a_fault_of_ours_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: with a fault planted behind an action, the judge does not let the answer pass."""

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    made = Inside()
    monkeypatch.setitem(ACTIONS, "ListQueues", ACTIONS["ListQueues"]._replace(run=fail))
    for request in (json_request("ListQueues", b"{}"), form_request([("Action", "ListQueues")])):
        with pytest.raises(AssertionError):
            judge(request, made.ask(request))
    made.close()
