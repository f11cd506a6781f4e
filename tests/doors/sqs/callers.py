"""How the tests of the SQS door call it: both protocols written a second time, from AWS's documents and not from the door's tables.

A call is `(action, members)` with the names of the service's model. `as_form` writes it as the query protocol wants it, `of_xml` reads an
answer of that protocol back into what JSON would have said, so that one expectation serves both.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from collections.abc import Awaitable, Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from dovetail.doors.http.message import Request
from dovetail.doors.sqs import Door

JSON = {"Content-Type": "application/x-amz-json-1.0"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
XMLNS = "{http://queue.amazonaws.com/doc/2012-11-05/}"

# Lists and maps of the query protocol: the model's name → the name that is numbered (and the names of a map's two halves).
SENT_LISTS = {
    "AttributeNames": "AttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}
SENT_MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
    "tags": ("Tag", "Key"),
    "Tags": ("Tag", "Key"),
}
READ_LISTS = {
    "SendMessageBatch": {"SendMessageBatchResultEntry": "Successful", "BatchResultErrorEntry": "Failed"},
    "DeleteMessageBatch": {"DeleteMessageBatchResultEntry": "Successful", "BatchResultErrorEntry": "Failed"},
    "ChangeMessageVisibilityBatch": {"ChangeMessageVisibilityBatchResultEntry": "Successful", "BatchResultErrorEntry": "Failed"},
    "ReceiveMessage": {"Message": "Messages"},
    "ListQueues": {"QueueUrl": "QueueUrls"},
    "ListDeadLetterSourceQueues": {"QueueUrl": "queueUrls"},
    "ListMessageMoveTasks": {"ListMessageMoveTasksResultEntry": "Results"},
}
READ_MAPS = {"Attribute": ("Attributes", "Name"), "MessageAttribute": ("MessageAttributes", "Name"), "Tag": ("Tags", "Key")}
NUMBERS = re.compile(r"(Approximate\w+|StartedTimestamp|MaxNumberOfMessagesPerSecond)")


class Like:
    """Equal to every text that has this form: ids, handles, times."""

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern, re.DOTALL)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.pattern.fullmatch(other) is not None

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"Like({self.pattern.pattern!r})"


UUID = Like(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HANDLE = Like(r"[!-~]{20,1024}")
SEQUENCE = Like(r"\d{20}")
MILLISECONDS = Like(r"\d{13}")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def as_form(action: str, members: Mapping[str, Any]) -> dict[str, str]:
    fields = {"Action": action, "Version": "2012-11-05"}
    fields.update(_fields(action, members, ""))
    return fields


def _fields(action: str, members: Mapping[str, Any], prefix: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, value in members.items():
        if name == "Entries":
            for number, entry in enumerate(value, 1):
                made |= _fields(action, entry, f"{prefix}{action}RequestEntry.{number}.")
        elif name in SENT_LISTS:
            made |= {f"{prefix}{SENT_LISTS[name]}.{number}": _text(one) for number, one in enumerate(value, 1)}
        elif name in SENT_MAPS:
            stem, key = SENT_MAPS[name]
            for number, (one, its) in enumerate(value.items(), 1):
                made[f"{prefix}{stem}.{number}.{key}"] = one
                if isinstance(its, Mapping):
                    made |= _fields(action, its, f"{prefix}{stem}.{number}.Value.")
                else:
                    made[f"{prefix}{stem}.{number}.Value"] = _text(its)
        else:
            made[prefix + name] = _text(value)
    return made


def _text(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def as_json(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, default=lambda value: b64encode(value).decode()).encode()


def of_xml(action: str, body: bytes) -> tuple[dict[str, Any] | None, str]:
    """(the result as JSON has it, or None where the model has none; the request id)"""
    root = ElementTree.fromstring(body)
    assert root.tag == f"{XMLNS}{action}Response", root.tag
    parts = {child.tag.removeprefix(XMLNS): child for child in root}
    assert parts.keys() <= {f"{action}Result", "ResponseMetadata"}
    request_id = parts["ResponseMetadata"].findtext(f"{XMLNS}RequestId") or ""
    result = parts.get(f"{action}Result")
    return (_structure(action, result) if result is not None else None), request_id


def _structure(action: str, element: ElementTree.Element) -> dict[str, Any]:
    made: dict[str, Any] = {name: [] for name in ("Successful", "Failed") if action.endswith("Batch") and element.tag.endswith("Result")}
    for child in element:
        tag = child.tag.removeprefix(XMLNS)
        lists = READ_LISTS.get(action, {})
        if tag in lists:
            made.setdefault(lists[tag], []).append(_structure(action, child) if len(child) else child.text or "")
        elif tag in READ_MAPS:
            name, key = READ_MAPS[tag]
            value = child.find(f"{XMLNS}Value")
            assert value is not None
            made.setdefault(name, {})[child.findtext(XMLNS + key)] = _structure(action, value) if len(value) else value.text or ""
        elif tag == "SenderFault":
            made[tag] = child.text == "true"
        else:
            made[tag] = int(child.text or "") if NUMBERS.fullmatch(tag) else child.text or ""
    return made


def of_xml_error(body: bytes) -> tuple[str, str, str, str]:
    """(type, code, message, request id) of an error; the element Detail is there and empty."""
    root = ElementTree.fromstring(body)
    assert root.tag == f"{XMLNS}ErrorResponse", root.tag
    assert [child.tag for child in root] == [f"{XMLNS}Error", f"{XMLNS}RequestId"]
    assert [child.tag.removeprefix(XMLNS) for child in root[0]] == ["Type", "Code", "Message", "Detail"]
    kind, code, message, detail = (child.text or "" for child in root[0])
    assert detail == ""
    return kind, code, message, root[1].text or ""


class Caller:
    """A raw caller of the served door. Nothing is checked on the way out: it sends what clients never would."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._connection = HTTPConnection(host, port, timeout=60)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        self._connection.request(method, target, body or None, dict(headers or {}))
        answer = self._connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def json(self, action: str, members: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None) -> Answer:
        body = members if isinstance(members, bytes) else as_json(members)
        return self.ask("POST", "/", body, JSON | {"X-Amz-Target": f"AmazonSQS.{action}"} | dict(headers or {}))

    def query(self, action: str, members: Mapping[str, Any], target: str = "/", headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("POST", target, urlencode(as_form(action, members)).encode(), FORM | dict(headers or {}))

    def get(self, action: str, members: Mapping[str, Any], path: str = "/", headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", f"{path}?{urlencode(as_form(action, members))}", b"", headers)

    def close(self) -> None:
        self._connection.close()


class Refused(Exception):
    """An error of the door in the tests' words: `code` is that of the query protocol, `name` that of JSON where it was said."""

    def __init__(self, code: str, text: str, status: int, name: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.status, self.name = code, text, status, name


class Desk:
    """A caller inside the process, for what needs a clock of its own: `await desk("SendMessage", QueueUrl=…)`."""

    def __init__(self, door: Door, host: str = "sqs.test") -> None:
        self.door, self.host = door, host

    async def __call__(self, action: str, **members: Any) -> dict[str, Any]:
        headers = {b"x-amz-target": f"AmazonSQS.{action}".encode(), b"host": self.host.encode()}
        answer = self.door.handle(Request("POST", b"/", headers, as_json(members), True))
        if isinstance(answer, Awaitable):
            answer = await answer
        told: dict[str, Any] = json.loads(answer.body) if answer.body else {}
        if answer.status != 200:
            code = dict(answer.headers)[b"x-amzn-query-error"].decode().partition(";")[0]
            raise Refused(code, told["message"], answer.status)
        return told

    async def queue(self, name: str, **attributes: str) -> str:
        url: str = (await self("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        return url

    async def bodies(self, url: str, most: int = 10, **more: Any) -> list[str]:
        """What one receive gives, by its bodies."""
        got = await self("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=most, **more)
        return [one["Body"] for one in got.get("Messages", [])]

    async def receive(self, url: str, **more: Any) -> dict[str, Any]:
        (one,) = (await self("ReceiveMessage", QueueUrl=url, **more))["Messages"]
        message: dict[str, Any] = one
        return message

    async def arn(self, url: str) -> str:
        told = await self("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
        arn: str = told["Attributes"]["QueueArn"]
        return arn
