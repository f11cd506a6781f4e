"""Every limit holds at the limit and refuses one past it. Sizes are counted as AWS counts them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from dovetail.doors.http.message import Request
from dovetail.doors.sqs import Door, content, shapes
from dovetail.doors.sqs.actions import ACTIONS
from dovetail.doors.sqs.errors import SqsError
from tests.doors.sqs.callers import Caller, Refused, as_json
from tests.doors.sqs.voices import Voice, json_result, xml_result

MIB = 1_048_576


@pytest.fixture
def call(caller: Caller) -> Callable[..., Any]:
    """One call in JSON that refuses with Refused."""

    def ask(action: str, /, **members: Any) -> Any:
        return json_result(caller.json(action, members))

    return ask


def refusal(call: Callable[..., Any], action: str, /, **members: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        call(action, **members)
    return caught.value.code, caught.value.text


def string(text: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": text}


def binary(data: bytes, kind: str = "Binary") -> dict[str, Any]:
    return {"DataType": kind, "BinaryValue": data}


# Sizes

TOO_LONG = ("InvalidParameterValue", f"One or more parameters are invalid. Reason: Message must be shorter than {MIB} bytes.")


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ("x" * MIB, {}),
        ("é" * (MIB // 2), {}),
        ("🙂" * (MIB // 4), {}),
        # A name, a type and a value count, each in UTF-8: 4 + 6 + 10 and 1 + 8 + 2.
        ("x" * (MIB - 20 - 11), {"name": string("0123456789"), "b": binary(b"\x00\xff", "Binary.x")}),
        ("x", {"a": string("x" * (MIB - 8))}),
        ("x", {"a": binary(b"x" * (MIB - 8))}),
    ],
    ids=["ascii", "two-byte", "four-byte", "with attributes", "a large attribute", "a large blob"],
)
def test_a_message_of_1_mib_passes_and_one_byte_more_does_not(
    sqs: Any, call: Callable[..., Any], queue: str, body: str, attributes: Any
) -> None:
    trace = {"AWSTraceHeader": string("t" * 1024)}
    sent = sqs.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=attributes, MessageSystemAttributes=trace)
    (got,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"], VisibilityTimeout=0)["Messages"]
    assert (got["MessageId"], got["Body"] == body, got.get("MessageAttributes", {}) == attributes) == (sent["MessageId"], True, True)
    assert refusal(call, "SendMessage", QueueUrl=queue, MessageBody=body + "x", MessageAttributes=attributes) == TOO_LONG


def test_a_queue_may_take_less_and_counts_attributes_too(sqs: Any, call: Callable[..., Any], fresh: Callable[[], str]) -> None:
    url = sqs.create_queue(QueueName=fresh(), Attributes={"MaximumMessageSize": "1024"})["QueueUrl"]
    reason = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    call("SendMessage", QueueUrl=url, MessageBody="x" * 1024)
    assert refusal(call, "SendMessage", QueueUrl=url, MessageBody="x" * 1025) == ("InvalidParameterValue", reason)
    attributes = {"a": string("x")}
    call("SendMessage", QueueUrl=url, MessageBody="x" * 1016, MessageAttributes=attributes)
    assert refusal(call, "SendMessage", QueueUrl=url, MessageBody="x" * 1017, MessageAttributes=attributes) == (
        "InvalidParameterValue",
        reason,
    )
    entries = [{"Id": "a", "MessageBody": "x" * 1024}, {"Id": "b", "MessageBody": "x" * 1025}]
    told = call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in told["Successful"]] == ["a"]
    assert told["Failed"] == [{"Id": "b", "SenderFault": True, "Code": "InvalidParameterValue", "Message": reason}]


def test_a_batch_has_1_mib_in_all_whatever_else_is_wrong_with_it(call: Callable[..., Any], queue: str) -> None:
    def entries(last: str, **more: Any) -> list[dict[str, Any]]:
        return [{"Id": str(one), "MessageBody": "x" * 100_000} for one in range(9)] + [{"Id": "last", "MessageBody": last, **more}]

    def told(size: int) -> tuple[str, str]:
        return (
            "AWS.SimpleQueueService.BatchRequestTooLong",
            f"Batch requests cannot be longer than {MIB} bytes. You have sent {size} bytes.",
        )

    rest = MIB - 900_000
    assert len(call("SendMessageBatch", QueueUrl=queue, Entries=entries("x" * rest))["Successful"]) == 10
    with_attribute = call("SendMessageBatch", QueueUrl=queue, Entries=entries("x" * (rest - 8), MessageAttributes={"a": string("x")}))
    assert len(with_attribute["Successful"]) == 10
    assert refusal(call, "SendMessageBatch", QueueUrl=queue, Entries=entries("x" * (rest + 1))) == told(MIB + 1)
    assert refusal(call, "SendMessageBatch", QueueUrl=queue, Entries=entries("x" * rest, MessageAttributes={"a": string("x")})) == told(
        MIB + 8
    )
    one = [{"Id": "a", "MessageBody": "x" * (MIB + 1)}]
    assert refusal(call, "SendMessageBatch", QueueUrl=queue, Entries=one) == told(MIB + 1), "also where the entry alone is too long"
    call("PurgeQueue", QueueUrl=queue)


# Characters

ALLOWED = "\t\n\r\x20\x7f\x85\ud7ff\ue000\ufffd\U00010000\U0001fffe\U0010ffff"
REFUSED = "\x00\x01\x08\x0b\x0c\x0e\x1f\ufffe\uffff"


def test_every_allowed_character_comes_back_in_both_protocols(sqs: Any, caller: Caller, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody=ALLOWED, MessageAttributes={"a": string(ALLOWED)})
    xml = xml_result(
        "ReceiveMessage", caller.query("ReceiveMessage", {"QueueUrl": queue, "VisibilityTimeout": 0, "MessageAttributeNames": ["All"]})
    )
    assert xml is not None
    (over_json,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    for got in (xml["Messages"][0], over_json):
        assert (got["Body"], got["MessageAttributes"]["a"]["StringValue"]) == (ALLOWED, ALLOWED)
    sent = xml_result("SendMessage", caller.query("SendMessage", {"QueueUrl": queue, "MessageBody": ALLOWED}))
    assert sent is not None and sent["MD5OfMessageBody"] == over_json["MD5OfBody"]


@pytest.mark.parametrize("character", REFUSED, ids=ascii)
def test_every_other_character_is_refused(character: str) -> None:
    with pytest.raises(SqsError) as caught:
        content.body_bytes(f"a{character}b")
    assert caught.value.kind.name == "InvalidMessageContents"
    with pytest.raises(SqsError) as caught:
        content.attributes_of({"a": shapes.Value("String", f"a{character}b")})
    assert caught.value.kind.name == "InvalidParameterValueException"


def test_no_character_is_taken_for_printable_that_is_refused() -> None:
    """body_bytes looks at printable bodies only once; this is why it may."""
    assert not [code for code in range(0x110000) if chr(code).isprintable() and content._REFUSED.search(chr(code))]


# Message attributes


def attributes_refused(given: dict[str, shapes.Value]) -> str:
    with pytest.raises(SqsError) as caught:
        content.attributes_of(given)
    assert caught.value.kind.code == "InvalidParameterValue"
    return caught.value.text


def test_a_message_has_at_most_ten_attributes(call: Callable[..., Any], queue: str) -> None:
    ten = {f"a{one}": string("x") for one in range(10)}
    call("SendMessage", QueueUrl=queue, MessageBody="x", MessageAttributes=ten)
    told = refusal(call, "SendMessage", QueueUrl=queue, MessageBody="x", MessageAttributes=ten | {"more": string("x")})
    assert told == ("InvalidParameterValue", "Number of message attributes [11] exceeds the allowed maximum [10].")


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "n" * 256, "awsome", "amazonas", "aws", "1", "-", "_"])
def test_names_of_attributes_that_pass(name: str) -> None:
    assert content.attributes_of({name: shapes.Value("String", "x")})[1] == len(name) + 7


@pytest.mark.parametrize(
    "name", ["", "n" * 257, "a b", "a/b", "é", ".a", "a.", "a..b", "AWS.a", "aws.a", "Amazon.a", "AMAZON.A", "a\n", "\x00"], ids=ascii
)
def test_names_of_attributes_that_do_not(name: str) -> None:
    assert "attribute name" in attributes_refused({name: shapes.Value("String", "x")})


@pytest.mark.parametrize(
    "kind", ["String", "String.json", "Number", "Number.int", "Number.a.b", "Binary", "Binary.gif", "String." + "x" * 249]
)
def test_types_that_pass_with_their_labels(kind: str) -> None:
    value = shapes.Value(kind, None, b"1") if kind.startswith("Binary") else shapes.Value(kind, "1")
    made, size = content.attributes_of({"a": value})
    assert (made["a"].type, made["a"].value, size) == (kind, b"1", len(kind) + 2)


@pytest.mark.parametrize(
    "kind", ["", "string", "Text", "String.", "Stringy", "Number/int", ".String", "String." + "x" * 250, "String.\x01", "Binary.\ufffe"]
)
def test_types_that_do_not(kind: str) -> None:
    assert attributes_refused({"a": shapes.Value(kind, "1", b"1")}) == (
        "The type of message (user) attribute 'a' is invalid. "
        "You must use only the following supported type prefixes: Binary, Number, String."
    )


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-0",
        "1",
        "-1",
        "+1",
        "007",
        "1.5",
        ".5",
        "5.",
        "1e10",
        "1E-10",
        "9" * 38,
        "0." + "1" * 38,
        "1" + "0" * 126,
        "1e126",
        "-1e126",
        "1e-128",
        "1" * 38 + "000",
    ],
)
def test_numbers_that_pass(number: str) -> None:
    assert content.attributes_of({"a": shapes.Value("Number", number)})[0]["a"].value == number.encode()


@pytest.mark.parametrize(
    "number",
    [
        "x",
        "1_000",
        " 1",
        "1 ",
        "NaN",
        "Infinity",
        "-inf",
        "0x10",
        "1,5",
        "--1",
        "e5",
        ".",
        "١",
        "9" * 39,
        "1e127",
        "1.1e126",
        "-2e126",
        "1e-129",
        "9e-129",
        "1e999999999",
    ],
)
def test_numbers_that_do_not(number: str) -> None:
    assert (
        attributes_refused({"a": shapes.Value("Number.x", number)}) == "Can't cast the value of message (user) attribute 'a' to a number."
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (shapes.Value("String"), "String"),
        (shapes.Value("String", ""), "String"),
        (shapes.Value("String", None, b"x"), "String"),
        (shapes.Value("Number", ""), "Number"),
        (shapes.Value("Binary", "x"), "Binary"),
        (shapes.Value("Binary.x", None, b""), "Binary"),
    ],
)
def test_a_value_must_be_of_its_type_and_not_empty(value: shapes.Value, kind: str) -> None:
    assert attributes_refused({"a": value}) == f"Message (user) attribute 'a' must contain a non-empty value of type '{kind}'."


@pytest.mark.parametrize("more", [{"string_list_values": ["x"]}, {"binary_list_values": [b"x"]}])
def test_lists_of_values_were_never_a_part_of_sqs(more: Any) -> None:
    with pytest.raises(SqsError) as caught:
        content.attributes_of({"a": shapes.Value("String", "x", **more)})
    assert (caught.value.kind.name, caught.value.text) == (
        "UnsupportedOperation",
        "Message attribute list values in SendMessage operation are not supported.",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"SenderId": string("x")},
        {"AWSTraceHeader": string("x", "Number")},
        {"AWSTraceHeader": string("")},
        {"AWSTraceHeader": string("x" * 1025)},
        {"AWSTraceHeader": binary(b"x")},
        {"AWSTraceHeader": string("\x00")},
    ],
    ids=repr,
)
def test_only_a_trace_header_is_a_system_attribute_and_it_is_text(call: Callable[..., Any], queue: str, given: dict[str, Any]) -> None:
    code, text = refusal(call, "SendMessage", QueueUrl=queue, MessageBody="x", MessageSystemAttributes=given)
    assert code == "InvalidParameterValue" and "ystem attribute" in text


# Ids, delays, times


@pytest.mark.parametrize("member", ["MessageGroupId", "MessageDeduplicationId"])
def test_ids_have_1_to_128_printable_ascii_characters(call: Callable[..., Any], fifo: str, member: str) -> None:
    every = "".join(chr(code) for code in range(0x21, 0x7F))
    rest = {"QueueUrl": fifo, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for good in ("x", "x" * 128, every):
        call("SendMessage", **rest | {member: good})
    for bad in ("", "x" * 129, "a b", "a\n", "\x7f", "é"):
        code, text = refusal(call, "SendMessage", **rest | {member: bad})
        assert code == "InvalidParameterValue"
        assert text.endswith(f"{member} can only include alphanumeric and punctuation characters. 1 to 128 in length.")


def test_an_attempt_id_is_held_to_the_same(call: Callable[..., Any], fifo: str) -> None:
    assert call("ReceiveMessage", QueueUrl=fifo, ReceiveRequestAttemptId="x" * 128) == {}
    for bad in ("", "x" * 129, "a b"):
        code, _ = refusal(call, "ReceiveMessage", QueueUrl=fifo, ReceiveRequestAttemptId=bad)
        assert code == "InvalidParameterValue"


def test_batch_ids_have_80_characters_and_batches_ten_entries(call: Callable[..., Any], queue: str) -> None:
    ids = ["i" * 80, *"ABCabc-_9"]
    told = call("SendMessageBatch", QueueUrl=queue, Entries=[{"Id": one, "MessageBody": "x"} for one in ids])
    assert [one["Id"] for one in told["Successful"]] == ids and told["Failed"] == []


def test_delays_waits_leases_and_counts_at_their_limits(call: Callable[..., Any], queue: str) -> None:
    for seconds in (0, 900):
        call("SendMessage", QueueUrl=queue, MessageBody="x", DelaySeconds=seconds)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=names) == {"Attributes": dict.fromkeys(names, "1")}
    for most, seconds, wait in ((1, 0, 0), (10, 43200, 20)):
        (got,) = call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=most, VisibilityTimeout=seconds, WaitTimeSeconds=wait)[
            "Messages"
        ]
    for seconds in (43200, 0):
        call("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=seconds)
    assert refusal(call, "SendMessage", QueueUrl=queue, MessageBody="x", DelaySeconds=10**30)[0] == "InvalidParameterValue"


# Queues

RANGES = {
    "VisibilityTimeout": (0, 43200),
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1024, 1048576),
    "MessageRetentionPeriod": (60, 1209600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "KmsDataKeyReusePeriodSeconds": (60, 86400),
}


@pytest.mark.parametrize("name", RANGES)
def test_numbers_of_a_queue_at_their_limits_and_past_them(
    call: Callable[..., Any], queue: str, fresh: Callable[[], str], name: str
) -> None:
    least, most = RANGES[name]
    for good in (least, most):
        for text in (str(good), f"0{good}"):
            call("SetQueueAttributes", QueueUrl=queue, Attributes={name: text})
            assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=[name]) == {"Attributes": {name: str(good)}}
            made = fresh()
            call("CreateQueue", QueueName=made, Attributes={name: text})
            call("CreateQueue", QueueName=made, Attributes={name: str(good)})
    for bad in (str(least - 1), str(most + 1), "", "x", "1.0", "+60", " 60", "٦٠", "9" * 5000):
        for action, members in (("SetQueueAttributes", {"QueueUrl": queue}), ("CreateQueue", {"QueueName": fresh()})):
            told = refusal(call, action, **members, Attributes={name: bad})
            assert told == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=[name]) == {"Attributes": {name: str(most)}}, "nothing was changed"


CHOICES = {
    "SqsManagedSseEnabled": ("true", "false"),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("messageGroup", "queue"),
    "FifoThroughputLimit": ("perQueue",),
}


@pytest.mark.parametrize("name", CHOICES)
def test_words_of_a_queue_are_these_and_no_others(call: Callable[..., Any], fifo: str, name: str) -> None:
    for good in CHOICES[name]:
        call("SetQueueAttributes", QueueUrl=fifo, Attributes={name: good})
        assert call("GetQueueAttributes", QueueUrl=fifo, AttributeNames=[name]) == {"Attributes": {name: good}}
    for bad in ("", "True", "yes", "perGroup"):
        told = refusal(call, "SetQueueAttributes", QueueUrl=fifo, Attributes={name: bad})
        assert told == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def test_the_high_throughput_of_a_fifo_queue_needs_deduplication_in_groups(call: Callable[..., Any], fifo: str) -> None:
    told = (
        "InvalidAttributeValue",
        "Invalid value for the parameter FifoThroughputLimit. perMessageGroupId needs a DeduplicationScope of messageGroup.",
    )
    assert refusal(call, "SetQueueAttributes", QueueUrl=fifo, Attributes={"FifoThroughputLimit": "perMessageGroupId"}) == told
    call("SetQueueAttributes", QueueUrl=fifo, Attributes={"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"})
    assert refusal(call, "SetQueueAttributes", QueueUrl=fifo, Attributes={"DeduplicationScope": "queue"}) == told


def test_names_of_queues_have_80_characters_with_the_suffix(call: Callable[..., Any], fresh: Callable[[], str]) -> None:
    stem = fresh() + "_-aZ9"
    for good in (stem, stem.ljust(80, "q")):
        assert call("CreateQueue", QueueName=good)["QueueUrl"].endswith(f"/{good}")
    for good in (stem + ".fifo", stem.ljust(75, "q") + ".fifo"):
        assert call("CreateQueue", QueueName=good, Attributes={"FifoQueue": "true"})["QueueUrl"].endswith(f"/{good}")
    assert refusal(call, "CreateQueue", QueueName=stem + ".fifo")[0] == "InvalidParameterValue", "the suffix belongs to FIFO queues"
    assert refusal(call, "CreateQueue", QueueName=stem, Attributes={"FifoQueue": "true"})[0] == "InvalidParameterValue"


def test_a_queue_has_50_tags_with_keys_of_128_and_values_of_256(call: Callable[..., Any], queue: str) -> None:
    fifty = {f"{one:02}".ljust(128, "k"): "v" * 256 for one in range(50)}
    call("TagQueue", QueueUrl=queue, Tags=fifty)
    call("TagQueue", QueueUrl=queue, Tags=dict(list(fifty.items())[:1]))
    assert call("ListQueueTags", QueueUrl=queue) == {"Tags": fifty}
    for bad in ({"one more": ""}, {"k" * 129: ""}, {"": "x"}, {"00".ljust(128, "k"): "v" * 257}, {"aws:mine": "x"}, {"AWS:mine": "x"}):
        assert refusal(call, "TagQueue", QueueUrl=queue, Tags=bad)[0] == "InvalidParameterValue"
    assert call("ListQueueTags", QueueUrl=queue) == {"Tags": fifty}


def test_the_largest_policy_passes_and_one_byte_more_does_not(call: Callable[..., Any], queue: str) -> None:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    small = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    full = small + " " * (8192 - len(small))
    call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": full})
    assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=["Policy"]) == {"Attributes": {"Policy": full}}
    told = refusal(call, "SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": full + " "})
    assert told == ("InvalidAttributeValue", "Invalid value for the parameter Policy. Reason: it is longer than 8192 bytes.")
    call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": ""})
    assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=["Policy"]) == {}


@pytest.mark.parametrize("name", ["KmsMasterKeyId", "RedriveAllowPolicy"])
def test_the_other_texts_of_a_queue_are_bounded_too(call: Callable[..., Any], queue: str, fresh: Callable[[], str], name: str) -> None:
    most = {"KmsMasterKeyId": "k" * 8192, "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}'.ljust(8192)}[name]
    call("SetQueueAttributes", QueueUrl=queue, Attributes={name: most})
    assert call("GetQueueAttributes", QueueUrl=queue, AttributeNames=[name]) == {"Attributes": {name: most}}
    expected = ("InvalidAttributeValue", f"Invalid value for the parameter {name}. Reason: it is longer than 8192 characters.")
    assert refusal(call, "SetQueueAttributes", QueueUrl=queue, Attributes={name: most + " "}) == expected
    unmade = fresh()
    assert refusal(call, "CreateQueue", QueueName=unmade, Attributes={name: most * 100}) == expected
    assert call("ListQueues", QueueNamePrefix=unmade) == {}


def pages(call: Callable[..., Any], action: str, key: str, most: int, **members: Any) -> Iterator[list[str]]:
    token: dict[str, str] = {}
    while True:
        told = call(action, MaxResults=most, **members, **token)
        yield [url.rpartition("/")[2] for url in told.get(key, [])]
        if "NextToken" not in told:
            return
        token = {"NextToken": told["NextToken"]}


def test_queues_are_listed_in_pages_that_stand_while_queues_go(call: Callable[..., Any], fresh: Callable[[], str]) -> None:
    stem = fresh()
    names = [f"{stem}-{one}" for one in range(5)]
    for one in names:
        call("CreateQueue", QueueName=one)
    for most, expected in (
        (1, [names[at : at + 1] for at in range(5)]),
        (2, [names[:2], names[2:4], names[4:]]),
        (5, [names]),
        (1000, [names]),
    ):
        assert list(pages(call, "ListQueues", "QueueUrls", most, QueueNamePrefix=stem)) == expected
    assert "NextToken" not in call("ListQueues", QueueNamePrefix=stem), "without MaxResults there is one page"
    reading = pages(call, "ListQueues", "QueueUrls", 2, QueueNamePrefix=stem)
    assert next(reading) == names[:2]
    for one in (names[1], names[2]):
        call("DeleteQueue", QueueUrl=one)
    assert list(reading) == [names[3:]]


def test_sources_of_dead_letters_are_listed_in_pages(call: Callable[..., Any], queue: str, fresh: Callable[[], str]) -> None:
    arn = f"arn:aws:sqs:us-east-1:000000000000:{queue.rpartition('/')[2]}"
    stem = fresh()
    names = [f"{stem}-{one}" for one in range(3)]
    for one in names:
        call("CreateQueue", QueueName=one, Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn})})
    assert list(pages(call, "ListDeadLetterSourceQueues", "queueUrls", 2, QueueUrl=queue)) == [names[:2], names[2:]]


def test_words_that_mean_nothing_to_json_are_words_in_a_form(all_voices: dict[str, Voice], fifo: str) -> None:
    """null, true and 5 are texts where a text is asked for."""
    for voice in ("post", "json"):
        for word in ("null", "true", "5"):
            members = {"MessageBody": word, "MessageGroupId": word, "MessageDeduplicationId": f"{word}{voice}"}
            assert all_voices[voice]("SendMessage", QueueUrl=fifo, **members, MessageAttributes={word: string(word)})
            (got,) = (all_voices[voice]("ReceiveMessage", QueueUrl=fifo, AttributeNames=["All"], MessageAttributeNames=["All"]) or {})[
                "Messages"
            ]
            assert (got["Body"], got["Attributes"]["MessageGroupId"]) == (word, word)
            assert got["MessageAttributes"] == {word: string(word)}
            all_voices[voice]("DeleteMessage", QueueUrl=fifo, ReceiptHandle=got["ReceiptHandle"])
    with pytest.raises(Refused) as caught:
        all_voices["post"]("ReceiveMessage", QueueUrl=fifo, MaxNumberOfMessages="null")
    assert caught.value.text == "The parameter MaxNumberOfMessages is 'null' where int was expected."
    members = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "blob"}
    sent = all_voices["post"]("SendMessage", QueueUrl=fifo, **members, MessageAttributes={"a": binary(b"\x9e\xe9e")})
    (got,) = (all_voices["boto3"]("ReceiveMessage", QueueUrl=fifo, MessageAttributeNames=["All"]) or {})["Messages"]
    assert sent and got["MessageAttributes"] == {"a": binary(b"\x9e\xe9e")}, "the base64 of these three bytes is the word null"


def test_the_request_of_the_largest_batch_fits_in_both_protocols(caller: Caller, queue: str) -> None:
    """The most that a batch can be on the wire: every byte escaped, and ten attributes with the longest names in each entry."""
    attributes = {f"{one}".ljust(256, "n"): string("\x7f") for one in range(10)}
    entries = [{"Id": str(one), "MessageBody": "\x7f" * 100_000, "MessageAttributes": attributes} for one in range(9)]
    entries.append({"Id": "9", "MessageBody": "\x7f" * (MIB - 900_000 - 10 * 10 * 263), "MessageAttributes": attributes})
    members = {"QueueUrl": queue, "Entries": entries}
    assert len(as_json(members)) > MIB
    told = json_result(caller.json("SendMessageBatch", members))
    assert told is not None and len(told["Successful"]) == 10
    over_query = xml_result("SendMessageBatch", caller.query("SendMessageBatch", members))
    assert over_query is not None and len(over_query["Successful"]) == 10


# What the edge takes


def test_the_largest_batch_passes_also_where_every_character_is_escaped(server: str, queue: str, call: Callable[..., Any]) -> None:
    # Six bytes for one: a writer of JSON may escape what it likes.
    text = "\\u0009" * (MIB // 10)
    entries = ",".join(f'{{"Id":"{i}","MessageBody":"{text}"}}' for i in range(10))
    body = f'{{"QueueUrl":"{queue}","Entries":[{entries}]}}'
    connection = HTTPConnection(server.removeprefix("http://"), timeout=60)
    connection.request("POST", "/", body, {"X-Amz-Target": "AmazonSQS.SendMessageBatch"})
    answer = connection.getresponse()
    assert answer.status == 200 and len(json.loads(answer.read())["Successful"]) == 10
    connection.close()


def test_only_calls_that_show_no_messages_and_no_names_are_taken_for_brief() -> None:
    brief = {name for name in ACTIONS if Door.is_brief(Request("POST", b"/", {b"x-amz-target": f"AmazonSQS.{name}".encode()}, b"", True))}
    assert brief == {f"{name}{batch}" for name in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility") for batch in ("", "Batch")}
    assert not Door.is_brief(Request("POST", b"/", {}, b"Action=SendMessage", True))
