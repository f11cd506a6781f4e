"""Every action refuses what it must, by the code of each protocol, with AWS's words, and changes nothing.

The table has one row per kind of wrong input. `{std}`, `{fifo}`, `{handle}` … stand for what each test makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.doors.sqs.callers import Caller, Refused
from tests.doors.sqs.voices import Voice, json_result, xml_result

pytestmark = pytest.mark.slow

MISSING = ("MissingParameter", "MissingRequiredParameterException", 400)
VALUE = ("InvalidParameterValue", "InvalidParameterValueException", 400)
NOBODY = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", 400)
NOT_FOUND = ("ResourceNotFoundException", "ResourceNotFoundException", 404)
ADDRESS = ("InvalidAddress", "InvalidAddress", 400)
ATTRIBUTE_NAME = ("InvalidAttributeName", "InvalidAttributeName", 400)
ATTRIBUTE_VALUE = ("InvalidAttributeValue", "InvalidAttributeValue", 400)
CONTENTS = ("InvalidMessageContents", "InvalidMessageContents", 400)
RECEIPT = ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400)
EXISTS = ("QueueAlreadyExists", "QueueNameExists", 400)
MANY = ("OverLimit", "OverLimit", 403)
UNSUPPORTED = ("AWS.SimpleQueueService.UnsupportedOperation", "UnsupportedOperation", 400)


def _batch(name: str) -> tuple[str, str, int]:
    return f"AWS.SimpleQueueService.{name}", name, 400


class Row(NamedTuple):
    action: str
    members: dict[str, Any]
    kind: tuple[str, str, int]
    text: str

    def __str__(self) -> str:
        return f"{self.action}-{self.text[:60]}"


def needs(action: str, parameter: str, /, **members: Any) -> Row:
    return Row(action, members, MISSING, f"The request must contain the parameter {parameter}.")


def value(action: str, parameter: str, given: Any, reason: str, /, **members: Any) -> Row:
    return Row(action, members, VALUE, f"Value {given} for parameter {parameter} is invalid. Reason: {reason}")


OF_A_QUEUE: dict[str, dict[str, Any]] = {
    "SendMessage": {"MessageBody": "x"},
    "SendMessageBatch": {"Entries": [{"Id": "a", "MessageBody": "x"}]},
    "ReceiveMessage": {},
    "DeleteMessage": {"ReceiptHandle": "x"},
    "DeleteMessageBatch": {"Entries": [{"Id": "a", "ReceiptHandle": "x"}]},
    "ChangeMessageVisibility": {"ReceiptHandle": "x", "VisibilityTimeout": 1},
    "ChangeMessageVisibilityBatch": {"Entries": [{"Id": "a", "ReceiptHandle": "x", "VisibilityTimeout": 1}]},
    "DeleteQueue": {},
    "GetQueueAttributes": {},
    "SetQueueAttributes": {"Attributes": {"DelaySeconds": "1"}},
    "PurgeQueue": {},
    "ListDeadLetterSourceQueues": {},
    "TagQueue": {"Tags": {"a": "b"}},
    "UntagQueue": {"TagKeys": ["a"]},
    "ListQueueTags": {},
    "AddPermission": {"Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]},
    "RemovePermission": {"Label": "l"},
}
NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
TOKEN_RULE = "can only include alphanumeric and punctuation characters. 1 to 128 in length."
ID_RULE = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."
DEDUPLICATION = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)
NOT_A_HANDLE = 'The input receipt handle "nonsense" is not a valid receipt handle.'
S, F = "{std}", "{fifo}"


def batch_rows(action: str, entry: dict[str, Any]) -> list[Row]:
    return [
        Row(action, {"QueueUrl": S}, _batch("EmptyBatchRequest"), f"There should be at least one {action}RequestEntry in the request."),
        Row(
            action,
            {"QueueUrl": S, "Entries": [{"Id": str(one), **entry} for one in range(11)]},
            _batch("TooManyEntriesInBatchRequest"),
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        Row(action, {"QueueUrl": S, "Entries": [{"Id": "a", **entry}] * 2}, _batch("BatchEntryIdsNotDistinct"), "Id a repeated."),
        *(
            Row(action, {"QueueUrl": S, "Entries": [{"Id": bad, **entry}]}, _batch("InvalidBatchEntryId"), ID_RULE)
            for bad in ("", "a b", "a.b", "é", "i" * 81)
        ),
    ]


ROWS: list[Row] = [
    needs("CreateQueue", "QueueName"),
    *(value("CreateQueue", "QueueName", bad, NAME_RULE, QueueName=bad) for bad in ("", "a b", "a.b", "é", "q" * 81, "a.fifo.fifo")),
    value("CreateQueue", "QueueName", "q" * 76 + ".fifo", NAME_RULE, QueueName="q" * 76 + ".fifo", Attributes={"FifoQueue": "true"}),
    Row("CreateQueue", {"QueueName": "a", "Attributes": {"Nonsense": "1"}}, ATTRIBUTE_NAME, "Unknown Attribute Nonsense."),
    Row("CreateQueue", {"QueueName": "a", "Attributes": {"QueueArn": "1"}}, ATTRIBUTE_NAME, "Unknown Attribute QueueArn."),
    Row("CreateQueue", {"QueueName": "a", "Attributes": {"FifoQueue": "false"}}, ATTRIBUTE_NAME, "Unknown Attribute FifoQueue."),
    Row(
        "CreateQueue",
        {"QueueName": "{name}", "Attributes": {"VisibilityTimeout": "31"}},
        EXISTS,
        "A queue already exists with the same name and a different value for attribute VisibilityTimeout",
    ),
    needs("GetQueueUrl", "QueueName"),
    Row("GetQueueUrl", {"QueueName": "nobody"}, NOBODY, ""),
    Row("GetQueueUrl", {"QueueName": "{name}", "QueueOwnerAWSAccountId": "111111111111"}, NOBODY, ""),
    value("GetQueueUrl", "QueueOwnerAWSAccountId", "me", "An account id has 12 digits.", QueueName="a", QueueOwnerAWSAccountId="me"),
    *(needs(action, "QueueUrl", **rest) for action, rest in OF_A_QUEUE.items()),
    *(Row(action, {"QueueUrl": "{missing}", **rest}, NOBODY, "") for action, rest in OF_A_QUEUE.items()),
    needs("SetQueueAttributes", "Attributes", QueueUrl=S),
    Row("SetQueueAttributes", {"QueueUrl": S, "Attributes": {"FifoQueue": "true"}}, ATTRIBUTE_NAME, "Unknown Attribute FifoQueue."),
    Row(
        "SetQueueAttributes",
        {"QueueUrl": F, "Attributes": {"FifoQueue": "false"}},
        ATTRIBUTE_VALUE,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    Row(
        "SetQueueAttributes",
        {"QueueUrl": S, "Attributes": {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}},
        ATTRIBUTE_NAME,
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.",
    ),
    Row("GetQueueAttributes", {"QueueUrl": S, "AttributeNames": ["Nonsense"]}, ATTRIBUTE_NAME, "Unknown Attribute Nonsense."),
    value("ListQueues", "MaxResults", 0, "MaxResults must be an integer between 1 and 1000.", MaxResults=0),
    value("ListQueues", "MaxResults", 1001, "MaxResults must be an integer between 1 and 1000.", MaxResults=1001),
    value("ListQueues", "NextToken", "cXE=", "NextToken cannot be specified without MaxResults.", NextToken="cXE="),
    value("ListQueues", "NextToken", "x", "It was not given by this service.", NextToken="x", MaxResults=1),
    value("ListQueues", "NextToken", "_w==", "It was not given by this service.", NextToken="_w==", MaxResults=1),
    value(
        "ListDeadLetterSourceQueues", "MaxResults", 1001, "MaxResults must be an integer between 1 and 1000.", QueueUrl=S, MaxResults=1001
    ),
    needs("SendMessage", "MessageBody", QueueUrl=S),
    needs("SendMessage", "MessageBody", QueueUrl=S, MessageBody=""),
    Row("SendMessage", {"QueueUrl": S, "MessageBody": "\x00"}, CONTENTS, CHARACTERS),
    Row("SendMessage", {"QueueUrl": S, "MessageBody": "a\ufffe"}, CONTENTS, CHARACTERS),
    *(
        value("SendMessage", "DelaySeconds", bad, "DelaySeconds must be >= 0 and <= 900.", QueueUrl=S, MessageBody="x", DelaySeconds=bad)
        for bad in (-1, 901)
    ),
    value(
        "SendMessage",
        "DelaySeconds",
        2,
        "The request include parameter that is not valid for this queue type.",
        QueueUrl=F,
        MessageBody="x",
        MessageGroupId="g",
        MessageDeduplicationId="d",
        DelaySeconds=2,
    ),
    value(
        "SendMessage",
        "MessageDeduplicationId",
        "d",
        "The request includes a parameter that is not valid for this queue type.",
        QueueUrl=S,
        MessageBody="x",
        MessageDeduplicationId="d",
    ),
    needs("SendMessage", "MessageGroupId", QueueUrl=F, MessageBody="x", MessageDeduplicationId="d"),
    Row("SendMessage", {"QueueUrl": F, "MessageBody": "x", "MessageGroupId": "g"}, VALUE, DEDUPLICATION),
    *(
        value("SendMessage", "MessageGroupId", bad, f"MessageGroupId {TOKEN_RULE}", QueueUrl=S, MessageBody="x", MessageGroupId=bad)
        for bad in ("", "a b", "é")
    ),
    Row(
        "SendMessageBatch",
        {"QueueUrl": F, "Entries": [{"Id": "a", "MessageBody": "x", "MessageDeduplicationId": "d"}]},
        VALUE,
        "The request must contain the parameter MessageGroupId.",
    ),
    Row("SendMessageBatch", {"QueueUrl": F, "Entries": [{"Id": "a", "MessageBody": "x", "MessageGroupId": "g"}]}, VALUE, DEDUPLICATION),
    *batch_rows("SendMessageBatch", {"MessageBody": "x"}),
    *batch_rows("DeleteMessageBatch", {"ReceiptHandle": "x"}),
    *batch_rows("ChangeMessageVisibilityBatch", {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
    *(
        value("ReceiveMessage", "MaxNumberOfMessages", bad, "Must be between 1 and 10, if provided.", QueueUrl=S, MaxNumberOfMessages=bad)
        for bad in (-1, 0, 11)
    ),
    *(
        value("ReceiveMessage", "WaitTimeSeconds", bad, "Must be >= 0 and <= 20, if provided.", QueueUrl=S, WaitTimeSeconds=bad)
        for bad in (-1, 21)
    ),
    *(
        value(
            "ReceiveMessage",
            "VisibilityTimeout",
            bad,
            "VisibilityTimeout must be an integer between 0 and 43200.",
            QueueUrl=S,
            VisibilityTimeout=bad,
        )
        for bad in (-1, 43201)
    ),
    value(
        "ReceiveMessage",
        "ReceiveRequestAttemptId",
        "a",
        "The request include parameter that is not valid for this queue type.",
        QueueUrl=S,
        ReceiveRequestAttemptId="a",
    ),
    Row("ReceiveMessage", {"QueueUrl": S, "AttributeNames": ["Nonsense"]}, ATTRIBUTE_NAME, "Unknown Attribute Nonsense."),
    Row("ReceiveMessage", {"QueueUrl": S, "MessageSystemAttributeNames": ["Nonsense"]}, ATTRIBUTE_NAME, "Unknown Attribute Nonsense."),
    needs("DeleteMessage", "ReceiptHandle", QueueUrl=S),
    Row("DeleteMessage", {"QueueUrl": S, "ReceiptHandle": "nonsense"}, RECEIPT, NOT_A_HANDLE),
    needs("ChangeMessageVisibility", "ReceiptHandle", QueueUrl=S, VisibilityTimeout=1),
    needs("ChangeMessageVisibility", "VisibilityTimeout", QueueUrl=S, ReceiptHandle="x"),
    Row("ChangeMessageVisibility", {"QueueUrl": S, "ReceiptHandle": "nonsense", "VisibilityTimeout": 1}, RECEIPT, NOT_A_HANDLE),
    value(
        "ChangeMessageVisibility",
        "VisibilityTimeout",
        43201,
        "VisibilityTimeout must be an integer between 0 and 43200.",
        QueueUrl=S,
        ReceiptHandle="x",
        VisibilityTimeout=43201,
    ),
    needs("StartMessageMoveTask", "SourceArn"),
    Row("StartMessageMoveTask", {"SourceArn": "{std_arn}"}, VALUE, "Source queue must be configured as a Dead Letter Queue."),
    value("StartMessageMoveTask", "SourceArn", "nonsense", "It is not the ARN of a queue.", SourceArn="nonsense"),
    Row(
        "StartMessageMoveTask",
        {"SourceArn": "{missing_arn}"},
        NOT_FOUND,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    ),
    needs("ListMessageMoveTasks", "SourceArn"),
    Row(
        "ListMessageMoveTasks",
        {"SourceArn": "{missing_arn}"},
        NOT_FOUND,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    ),
    *(
        value("ListMessageMoveTasks", "MaxResults", bad, "Must be between 1 and 10.", SourceArn="{std_arn}", MaxResults=bad)
        for bad in (0, 11)
    ),
    needs("CancelMessageMoveTask", "TaskHandle"),
    Row("CancelMessageMoveTask", {"TaskHandle": "nonsense"}, VALUE, "Value for parameter TaskHandle is invalid."),
    needs("TagQueue", "Tags", QueueUrl=S),
    needs("UntagQueue", "TagKeys", QueueUrl=S),
    needs("AddPermission", "Label", QueueUrl=S, AWSAccountIds=["111111111111"], Actions=["SendMessage"]),
    needs("AddPermission", "AWSAccountIds", QueueUrl=S, Label="l", Actions=["SendMessage"]),
    needs("AddPermission", "Actions", QueueUrl=S, Label="l", AWSAccountIds=["111111111111"]),
    value("AddPermission", "Label", "a b", NAME_RULE, QueueUrl=S, Label="a b", AWSAccountIds=["111111111111"], Actions=["SendMessage"]),
    value(
        "AddPermission", "PrincipalId", "[me]", "Unable to verify.", QueueUrl=S, Label="l", AWSAccountIds=["me"], Actions=["SendMessage"]
    ),
    value(
        "AddPermission",
        "ActionName",
        "SQS:Nonsense",
        "Please refer to the appropriate WSDL for a list of valid actions.",
        QueueUrl=S,
        Label="l",
        AWSAccountIds=["111111111111"],
        Actions=["Nonsense"],
    ),
    value(
        "AddPermission",
        "ActionName",
        "SQS:DeleteQueue",
        "Only the queue owner is allowed to invoke this action.",
        QueueUrl=S,
        Label="l",
        AWSAccountIds=["111111111111"],
        Actions=["DeleteQueue"],
    ),
    Row(
        "AddPermission",
        {"QueueUrl": S, "Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"] * 8},
        MANY,
        "8 Actions were found, maximum allowed is 7.",
    ),
    needs("RemovePermission", "Label", QueueUrl=S),
    value("RemovePermission", "Label", "never", "can't find label.", QueueUrl=S, Label="never"),
]


class Place(NamedTuple):
    """What rows speak of."""

    words: dict[str, str]

    def of(self, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: self.of(one) for name, one in given.items()}
        if isinstance(given, list):
            return [self.of(one) for one in given]
        return self.words.get(given, given) if isinstance(given, str) else given


@pytest.fixture(scope="module")
def place(sqs: Any, caller: Caller) -> Place:
    std = sqs.create_queue(QueueName="refusals")["QueueUrl"]
    fifo = sqs.create_queue(QueueName="refusals.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    return Place(
        {
            "{std}": std,
            "{fifo}": fifo,
            "{name}": "refusals",
            "{missing}": f"{caller.url}/000000000000/nobody",
            "{std_arn}": arn + "refusals",
            "{missing_arn}": arn + "nobody",
        }
    )


@pytest.fixture(scope="module", autouse=True)
def nothing_changes(sqs: Any, place: Place) -> Any:
    def look() -> list[Any]:
        urls = [place.words["{std}"], place.words["{fifo}"]]
        return [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"] for url in urls] + [
            sqs.list_queue_tags(QueueUrl=url).get("Tags") for url in urls
        ]

    before = look()
    yield
    assert look() == before


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_wrong_input_is_refused_in_every_voice(row: Row, raw_voice: Voice, place: Place) -> None:
    with pytest.raises(Refused) as caught:
        raw_voice(row.action, **place.of(row.members))
    told = caught.value
    code, name, status = row.kind
    spoken = raw_voice.__name__  # type: ignore[attr-defined]  # they are functions
    wsdl = "" if spoken == "json" else " for this wsdl version"
    assert (told.code, told.status, told.text) == (code, status, row.text or f"The specified queue does not exist{wsdl}.")
    assert told.name == (name if spoken == "json" else "")


@pytest.mark.parametrize("row", [row for row in ROWS if row.kind is not MISSING and row.action == "SendMessage"], ids=str)
def test_boto3_shows_the_code_of_the_query_protocol(row: Row, all_voices: dict[str, Voice], place: Place) -> None:
    with pytest.raises(Refused) as caught:
        all_voices["boto3"](row.action, **place.of(row.members))
    assert (caught.value.code, caught.value.name, caught.value.status) == row.kind


SERIALIZATION = ("MalformedInput", "SerializationException", 400)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[]", "The parameter body is array where object was expected."),
        (b'"x"', "The parameter body is str where object was expected."),
        (b'{"QueueUrl": 5, "MessageBody": "x"}', "The parameter QueueUrl is int where str was expected."),
        (b'{"QueueUrl": "q", "MessageBody": null}', "The parameter MessageBody is null where str was expected."),
        (b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": "5"}', "The parameter DelaySeconds is str where int was expected."),
        (b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": 1.5}', "The parameter DelaySeconds is float where int was expected."),
        (
            b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": []}',
            "The parameter MessageAttributes is array where object was expected.",
        ),
        (b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {"a": "b"}}', None),
        (b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "%"}}}', None),
        (b"{", None),
        (b'{"QueueUrl": "q", "MessageBody": "x"}{}', None),
        (b"\xff", None),
        (b'{"QueueUrl": "q", "MessageBody": "\\ud800"}', None),
        (b'{"QueueUrl": "q", "MessageBody": "\\ud800x"}', None),
        (b'{"QueueUrl": "q", "MessageBody": "\\udc00"}', None),
        (b'{"QueueUrl": "q", "MessageBody": "\xed\xa0\x80"}', None),
        (b'{"QueueUrl": "q", "MessageBody": "\x01"}', None),
        (b"[" * 100_000, None),
    ],
)
def test_json_that_is_not_the_shape_is_refused_and_says_where(caller: Caller, body: bytes, text: str | None) -> None:
    with pytest.raises(Refused) as caught:
        json_result(caller.json("SendMessage", body))
    told = caught.value
    assert (told.code, told.name, told.status) == SERIALIZATION
    assert text is None or told.text == text


def test_a_missing_member_of_an_entry_is_named_with_its_place(caller: Caller, queue: str) -> None:
    with pytest.raises(Refused) as caught:
        json_result(caller.json("SendMessageBatch", {"QueueUrl": queue, "Entries": [{"Id": "a"}]}))
    assert (caught.value.code, caught.value.text) == (
        "MissingParameter",
        "The request must contain the parameter Entries[0].MessageBody.",
    )


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"", "MissingAction"),
        (b"Version=2012-11-05", "MissingAction"),
        (b"Action=Nonsense", "InvalidAction"),
        (b"Action=ListQueues&Version=1999-01-01", "InvalidParameterValue"),
        (b"Action=ListQueues&Action=ListQueues", "MalformedInput"),
        (b"Action=ListQueues&MaxResults=many", "MalformedInput"),
        (b"Action=ListQueues&MaxResults=1.5", "MalformedInput"),
        (b"Action=ListQueues&MaxResults=1&MaxResults.1=2", "MalformedInput"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=%ED%A0%80", "MalformedInput"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=%FF", "MalformedInput"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=\xff", "MalformedInput"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=x&MessageAttribute.x.Name=a", "MalformedInput"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=x&MessageAttribute.1.Value=a", "MissingParameter"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=x&a.b.c.d.e.f.g.h.i.j=1", "MalformedInput"),
        (b"Action=TagQueue&QueueUrl=q&Tag.1.Key=a&Tag.1.Value=b&Tag.2.Key=a&Tag.2.Value=c", "InvalidParameterValue"),
        (b"Action=SendMessageBatch&QueueUrl=q&SendMessageBatchRequestEntry.1.Id=a", "MissingParameter"),
        (b"&".join(b"a%d=" % one for one in range(10_001)), "MalformedInput"),
        (b"Action=CreateQueue&QueueName=a%01b", "InvalidParameterValue"),
        (b"Action=CreateQueue&QueueName=a%0Db", "InvalidParameterValue"),
    ],
)
def test_a_form_that_nobody_can_read_is_refused(caller: Caller, form: bytes, code: str) -> None:
    with pytest.raises(Refused) as caught:
        xml_result("", caller.ask("POST", "/", form, {"Content-Type": "application/x-www-form-urlencoded"}))
    assert (caught.value.code, caught.value.status) == (code, 400)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "AmazonSQS.Nonsense"),
        ("POST", "Nonsense.ListQueues"),
        ("POST", "AmazonSQS"),
        ("GET", "AmazonSQS.ListQueues"),
        ("POST", "AmazonSQS.PeekMessages"),
    ],
)
def test_a_target_that_is_no_action_is_refused(caller: Caller, method: str, target: str) -> None:
    with pytest.raises(Refused) as caught:
        json_result(caller.ask(method, "/", b"{}", {"X-Amz-Target": target}))
    assert (caught.value.code, caught.value.name, caught.value.status) == ("InvalidAction", "UnknownOperationException", 400)


@pytest.mark.parametrize(
    "url", ["http://h/queue", "http://h/queue/name", "/12345678901/name", "http://h/00000000000x/name", f"/{'²' * 12}/name", "//"]
)
def test_an_address_that_is_no_queue_is_refused(caller: Caller, url: str) -> None:
    with pytest.raises(Refused) as caught:
        json_result(caller.json("PurgeQueue", {"QueueUrl": url}))
    assert (caught.value.code, caught.value.name, caught.value.status) == ADDRESS
    assert caught.value.text == f"The address {url} is not valid for this endpoint."


def test_an_unknown_member_is_passed_over(caller: Caller, queue: str) -> None:
    """As AWS does, so that newer clients go on working."""
    assert json_result(caller.json("PurgeQueue", {"QueueUrl": queue, "Nonsense": {"a": [1]}})) is None
    assert xml_result("ListQueueTags", caller.query("ListQueueTags", {"QueueUrl": queue, "Nonsense": "1"})) == {}


def test_a_refusal_never_shows_more_than_a_little_of_what_was_given(caller: Caller, fresh: Callable[[], str]) -> None:
    long = "é" * 100_000
    for action, members in (
        ("CreateQueue", {"QueueName": long}),
        ("CreateQueue", {"QueueName": fresh(), "Attributes": {long: "1"}}),
        ("CreateQueue", {"QueueName": fresh(), "Attributes": {"RedrivePolicy": json.dumps({"deadLetterTargetArn": long})}}),
        ("DeleteMessage", {"QueueUrl": "refusals", "ReceiptHandle": long}),
        ("ReceiveMessage", {"QueueUrl": "refusals", "AttributeNames": [long]}),
        ("ReceiveMessage", {"QueueUrl": f"{long}/{long}/{long}"}),
        ("SendMessage", {"QueueUrl": "refusals", "MessageBody": "x", "MessageGroupId": long}),
        (
            "SendMessage",
            {"QueueUrl": "refusals", "MessageBody": "x", "MessageAttributes": {long: {"DataType": "String", "StringValue": "x"}}},
        ),
        ("SendMessage", {"QueueUrl": "refusals", "MessageBody": "x", "MessageSystemAttributes": {long: {"DataType": "String"}}}),
        ("ListQueues", {"NextToken": long, "MaxResults": 1}),
        ("CancelMessageMoveTask", {"TaskHandle": long}),
        ("StartMessageMoveTask", {"SourceArn": long}),
        ("GetQueueUrl", {"QueueName": "a", "QueueOwnerAWSAccountId": long}),
        ("TagQueue", {"QueueUrl": "refusals", "Tags": {"aws:" + long: "1"}}),
        ("AddPermission", {"QueueUrl": "refusals", "Label": long, "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}),
        ("AddPermission", {"QueueUrl": "refusals", "Label": "l", "AWSAccountIds": [long], "Actions": ["SendMessage"]}),
        ("AddPermission", {"QueueUrl": "refusals", "Label": "l", "AWSAccountIds": ["111111111111"], "Actions": [long]}),
        ("RemovePermission", {"QueueUrl": "refusals", "Label": long}),
    ):
        with pytest.raises(Refused) as caught:
            json_result(caller.json(action, members))
        assert caught.value.status == 400 and len(caught.value.text) < 800, action
