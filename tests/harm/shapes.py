"""Requests that look like SQS requests and are wrong in odd places: made from botocore's model, so that an action that is added to the
model is asked as well. It knows what names and values reach deep into the door, and nothing of how the door is made."""

from __future__ import annotations

from typing import Any

import botocore.session
from hypothesis import strategies as st

MODEL = botocore.session.get_session().get_service_model("sqs")
OPERATIONS: list[str] = sorted(MODEL.operation_names)
URL = "http://127.0.0.1:9324/000000000000/"
ARN = "arn:aws:sqs:us-east-1:000000000000:"
QUEUES = ["plain", "dead", "order.fifo"]

_LONG = "x" * 5000
TEXTS = [
    "", " ", "\x00", "\x0b", "\t\r\n", "\x7f", "\x85", "\ufffe", "\uffff", "\U0001f600", "é", "'", '"', "<&>]]>", "../..", "%00", "%",
    "All", ".*", "*", "none", "null", "true", "false", "0", "-1", "1", "10", "11", "30", "١٢", "²", "1e3", "0x10", "1.5", "NaN", "Infinity",
    "99999999999999999999", "9" * 5000, _LONG, "a.b.c", ".", "..", "AWS.x", "amazon.x", "{}", "[]", '{"a":', "[" * 3000, '{"a":1}',
]  # fmt: skip
"""Odd anywhere."""

_POLICY = '{"Version":"2012-10-17","Statement":[{"Sid":"s","Effect":"Allow","Principal":"*","Action":"sqs:*","Resource":"*"%s}]}'
NAMED: dict[str, list[str]] = {
    "QueueUrl": [
        *(URL + name for name in QUEUES),
        URL,
        URL + "missing",
        "plain",
        "/000000000000/plain",
        "http://x/plain",
        "//",
        URL + "\x00",
    ],
    "QueueName": [*QUEUES, "new", "new.fifo", ".fifo", "x" * 80, "x" * 81],
    "QueueOwnerAWSAccountId": ["000000000000", "123456789012"],
    "SourceArn": [ARN + "dead", ARN + "plain", ARN + "missing", ARN, "arn:aws:sqs:::"],
    "DestinationArn": [ARN + "dead", ARN + "plain", ARN + "order.fifo"],
    "TaskHandle": ["e30=", "eyJzb3VyY2VBcm4iOiAxfQ==", "W10=", "eyJ0YXNrSWQiOiAiIiwgInNvdXJjZUFybiI6ICIifQ=="],
    "Label": ["one", "two", "x" * 81],
    "DataType": ["String", "Number", "Binary", "String.\x00", "Number.int", "Binary.\ufffe", "String." + _LONG, "string"],
    "Id": ["a", "b", "c", "x" * 80, "x" * 81],
    "MessageGroupId": ["g", "h"],
    "MessageDeduplicationId": ["d", "e"],
    "ReceiveRequestAttemptId": ["t"],
    "NextToken": ["YQ==", "////", "YQ", "gA=="],
    "MessageBody": ["hello", "x" * 20_000],
}
ATTRIBUTES = [
    "VisibilityTimeout", "DelaySeconds", "MaximumMessageSize", "MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds",
    "FifoQueue", "Policy", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled", "ContentBasedDeduplication", "DeduplicationScope",
    "FifoThroughputLimit",
    "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages",
    "AWSTraceHeader", "SenderId", "SentTimestamp", "MessageGroupId", "Dovetail.ReceiveAndDelete",
]  # fmt: skip
DOCUMENTS = [
    *(_POLICY % more for more in ("", ',"Condition":{}', ',"Condition":{"IpAddress":{"aws:SourceIp":"x"}}', ',"Condition":{"Bool":[]}')),
    _POLICY.replace('"*"', "[]", 1) % "",
    _POLICY.replace('"*"', '{"AWS":["123456789012",1]}', 1) % "",
    '{"Version":1,"Statement":{}}', '{"Statement":[null]}',
    f'{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":2}}', f'{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":"1e3"}}',
    f'{{"deadLetterTargetArn":"{ARN}plain"}}', '{"deadLetterTargetArn":[],"maxReceiveCount":[]}', '{"maxReceiveCount":%s}' % ("9" * 4000),
    '{"redrivePermission":"byQueue","sourceQueueArns":["x"]}', '{"redrivePermission":[],"sourceQueueArns":{}}',
    '{"redrivePermission":"denyAll"}',
]  # fmt: skip

odd = st.one_of(st.sampled_from(TEXTS), st.text(max_size=20))
"""Text without surrogates: those cannot be sent."""
numbers = st.one_of(
    st.sampled_from([-1, 0, 1, 2, 10, 11, 20, 21, 900, 901, 43_200, 43_201, 1 << 31, 1 << 63, 1 << 64, -(1 << 70)]), st.integers(-5, 50)
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(allow_nan=False, allow_infinity=False), odd),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd, inner, max_size=3)),
    max_leaves=5,
)


def members_of(shape: Any, name: str, receipts: list[str]) -> st.SearchStrategy[Any]:
    """Values for a shape of the model: mostly of its kind, now and then of none."""
    return st.one_of(_fitting(shape, name, receipts), _fitting(shape, name, receipts), _fitting(shape, name, receipts), anything)


def _fitting(shape: Any, name: str, receipts: list[str]) -> st.SearchStrategy[Any]:
    match shape.type_name:
        case "structure":
            required = {key: members_of(one, key, receipts) for key, one in shape.members.items() if key in shape.required_members}
            others = {key: members_of(one, key, receipts) for key, one in shape.members.items() if key not in required}
            whole = st.fixed_dictionaries(required, optional=others)
            return st.one_of(whole, whole, whole, st.fixed_dictionaries({}, optional={**required, **others}))
        case "list":
            return st.lists(members_of(shape.member, name.removesuffix("s"), receipts), max_size=12)
        case "map":
            keys = st.one_of(st.sampled_from(ATTRIBUTES), st.sampled_from(["a", "b"]), odd)
            values = members_of(shape.value, name, receipts)
            if shape.value.type_name == "string":
                values = st.one_of(st.sampled_from(DOCUMENTS), values)
            return st.dictionaries(keys, values, max_size=4)
        case "integer" | "long":
            return numbers
        case "blob":
            return st.one_of(st.sampled_from(["", "AA==", "AP8Q", "A", "A===", "\x00"]), odd)
        case "boolean":
            return st.booleans()
    if name == "ReceiptHandle":
        # Picked while drawing: the real ones are only known once the queues are there.
        return st.one_of(st.integers(0, 99).map(lambda number: receipts[number % len(receipts)]), odd)
    known = NAMED.get(name) or (ATTRIBUTES if name.endswith("AttributeName") else None)
    return st.one_of(st.sampled_from(known), st.sampled_from(known), odd) if known else odd


def requests(receipts: list[str]) -> dict[str, st.SearchStrategy[Any]]:
    """The members of a request, by action. Made once: putting strategies together costs more than drawing from them."""
    return {action: members_of(MODEL.operation_model(action).input_shape, "", receipts) for action in OPERATIONS}


def fields_of(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A tree as the fields of a form, numbered and dotted as the query protocol does it, names as they are."""
    if isinstance(value, dict):
        return [pair for key, one in value.items() for pair in fields_of(one, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, list):
        return [pair for number, one in enumerate(value, 1) for pair in fields_of(one, f"{prefix}.{number}")]
    if isinstance(value, bool):
        return [(prefix, "true" if value else "false")]
    return [] if value is None else [(prefix, str(value))]


_SINGULAR = {
    "Attributes": "Attribute", "MessageAttributes": "MessageAttribute", "MessageSystemAttributes": "MessageSystemAttribute", "tags": "Tag",
    "Tags": "Tag", "AttributeNames": "AttributeName", "MessageAttributeNames": "MessageAttributeName", "TagKeys": "TagKey",
    "MessageSystemAttributeNames": "MessageSystemAttributeName", "AWSAccountIds": "AWSAccountId", "Actions": "ActionName",
}  # fmt: skip


def form_of(action: str, value: Any) -> Any:
    """The same members under the names that they have in forms; what does not fit stays as it is."""
    if isinstance(value, list):
        return [form_of(action, one) for one in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for key, one in value.items():
        name = f"{action}RequestEntry" if key == "Entries" else _SINGULAR.get(key, key)
        if key in ("Attributes", "MessageAttributes", "MessageSystemAttributes", "tags", "Tags") and isinstance(one, dict):
            first = "Key" if name == "Tag" else "Name"
            one = [{first: inner, "Value": other} for inner, other in one.items()]
        made[name] = form_of(action, one)
    return made
