"""The verbs of `dovetail queue` that move messages: send, receive, peek. Bodies come from anywhere and go to people, programs or files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import BadRequest
from . import tables
from .sqsclient import CallRefused, Client

BATCH = 10
"""What SQS takes at once."""
BODY_BYTES_MAX = 1 << 20
BATCH_BYTES = 512 << 10
"""So that a batch and its attributes stay below what SQS takes at once."""
PEEK_MAX = 1000


def send(client: Client, given: argparse.Namespace) -> None:
    attributes = {}
    for pair in given.attribute:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadRequest(f"--attribute {pair}: must be NAME=VALUE")
        attributes[name] = {"DataType": "String", "StringValue": value}
    common = {
        "DelaySeconds": given.delay,
        "MessageGroupId": given.group,
        "MessageDeduplicationId": given.deduplication,
        "MessageAttributes": attributes or None,
    }
    if not given.lines:
        answers = [client.on(given.queue, "SendMessage", MessageBody=_body(given), **common)]
    else:
        if given.deduplication is not None:
            raise BadRequest("--deduplication names one message, and --lines sends many")
        fields = {name: value for name, value in common.items() if value is not None}
        answers = []
        for batch in _batches(_lines(given)):
            entries = [{"Id": str(at), "MessageBody": body, **fields} for at, body in enumerate(batch)]
            told = client.on(given.queue, "SendMessageBatch", Entries=entries)
            answers += told["Successful"]
            if told["Failed"]:
                failed = told["Failed"][0]
                line = tables.line(batch[int(failed["Id"])])
                raise CallRefused(
                    failed["Code"], f"{failed['Message']} The line was: {line}. {len(answers)} messages were sent before or beside it"
                )
    rows = [{"id": one["MessageId"], **({"sequence": one["SequenceNumber"]} if "SequenceNumber" in one else {})} for one in answers]
    if given.json:
        print(json.dumps(rows))
    elif given.lines:
        print(f"{len(rows):,} messages sent")
    else:
        print(rows[0]["id"])


def _body(given: argparse.Namespace) -> str:
    if given.body is not None:
        if given.file is not None:
            raise BadRequest("BODY and --file: one of them")
        return str(given.body)
    return _read(_opened(given))


def _opened(given: argparse.Namespace) -> Any:
    if given.file is None or given.file == "-":
        if given.file is None and sys.stdin.isatty():
            raise BadRequest("there is no body: give it as BODY, with --file FILE, or through a pipe")
        return sys.stdin.buffer
    try:
        return open(given.file, "rb")  # it is read to its end, and then the process is over
    except OSError as error:
        raise BadRequest(f"--file {given.file}: cannot be read: {error.strerror}") from None


def _read(file: Any) -> str:
    data = file.read(BODY_BYTES_MAX + 1)
    if len(data) > BODY_BYTES_MAX:
        raise BadRequest(f"the body is larger than {BODY_BYTES_MAX:,} bytes, which is the most that a message may have")
    return _text(data)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8 text, and SQS carries text only; encode it first, for instance with base64") from None


def _lines(given: argparse.Namespace) -> Iterator[str]:
    if given.body is not None:
        raise BadRequest("BODY and --lines: lines come from --file or through a pipe")
    file = _opened(given)
    while data := file.readline(BODY_BYTES_MAX + 2):
        text = _text(data).rstrip("\r\n")
        if text:
            yield text


def _batches(bodies: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for body in bodies:
        bytes_more = len(body.encode())
        if batch and (len(batch) == BATCH or size + bytes_more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += bytes_more
    if batch:
        yield batch


def receive(client: Client, given: argparse.Namespace) -> None:
    got: list[dict[str, Any]] = []
    while len(got) < given.max:
        # Whoever has something does not wait for more.
        wait_s = given.wait if not got else 0
        answer = client.on(
            given.queue,
            "ReceiveMessage",
            wait_s=given.wait or 20,
            MaxNumberOfMessages=min(BATCH, given.max - len(got)),
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=given.visibility,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        if not answer.get("Messages"):
            break
        got += answer["Messages"]
    _print_received(got, given)
    # Printed first and deleted then: what was cut off on its way to the screen or the file comes back.
    sys.stdout.flush()
    if given.delete:
        for at in range(0, len(got), BATCH):
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(got[at : at + BATCH])]
            failed = client.on(given.queue, "DeleteMessageBatch", Entries=entries)["Failed"]
            if failed:
                raise CallRefused(failed[0]["Code"], f"received, but not deleted: {failed[0]['Message']}")


def _print_received(got: Sequence[dict[str, Any]], given: argparse.Namespace) -> None:
    if given.json:
        print(json.dumps(got))
    elif given.bodies:
        for one in got:
            print(one["Body"])
    elif not got:
        print(f"{given.queue} has no messages to receive now", file=sys.stderr)
    else:
        for one in got:
            system = one["Attributes"]
            facts = [
                one["MessageId"],
                f"sent {tables.instant(int(system['SentTimestamp']))}",
                f"receive {system['ApproximateReceiveCount']}",
            ]
            if "MessageGroupId" in system:
                facts.append(f"group {system['MessageGroupId']}")
            for name, value in one.get("MessageAttributes", {}).items():
                facts.append(f"{name}={tables.line(value.get('StringValue', value.get('BinaryValue', '')))}")
            if not given.delete:
                facts.append(f"receipt {one['ReceiptHandle']}")
            print("  ".join(facts))
            print(tables.safe(one["Body"]) + "\n")


def peek(client: Client, given: argparse.Namespace) -> None:
    most = min(given.max, PEEK_MAX)
    found = client.on(given.queue, "PeekMessages", MaxNumberOfMessages=most, After=given.after)["Messages"]
    if given.json:
        print(json.dumps(found))
        return
    rows = []
    for one in found:
        system = one.get("Attributes", {})
        row = {"sequence": str(one["Sequence"]), "state": one["State"], "sent": tables.instant(int(system["SentTimestamp"]))}
        row |= {"receives": system["ApproximateReceiveCount"], "group": system.get("MessageGroupId"), "body": tables.line(one["Body"])}
        rows.append(row)
    tables.tell(False, rows, f"{given.queue} has no messages")
