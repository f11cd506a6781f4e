"""A door without a socket: a node in memory and one loop, for tests that ask thousands of questions. It also judges answers: whatever was
asked, an answer can be read by a client of the protocol that was used, and is never a fault of ours."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

from dovetail.doors.http.message import Request, Response, encode
from dovetail.doors.sqs import Door
from dovetail.node import start
from dovetail.settings import Settings, Sqs

WAIT_S = 0.01
"""A receive that still waits after this is left: that too must do no harm. Everything else is waited for."""
PATIENCE_S = 60.0

HEADERS = {b"host": b"127.0.0.1:9324"}
_REQUEST_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Inside:
    def __init__(self, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        chosen = {"store": "memory:", "cooldowns": "off", **settings}
        beyond = chosen.pop("beyond", "off")
        self.settings = Settings(sqs=Sqs(beyond=beyond), **chosen)
        self.node = self.loop.run_until_complete(start("memory:", settings=self.settings))
        self.door: Door = self.node.sqs_door(self.settings)

    def close(self) -> None:
        self.loop.run_until_complete(self.node.close())
        self.loop.close()

    def ask(self, request: Request, *, patient: bool = False) -> Response | None:
        """The answer; None where it is a receive that waits for messages."""
        asked = (request.headers.get(b"x-amz-target", b""), request.target, request.body)
        receives = not patient and any(b"ReceiveMessage" in text for text in asked)

        async def wait() -> Response | None:
            answer = self.door.handle(request)
            if not inspect.isawaitable(answer):
                return answer
            try:
                return await asyncio.wait_for(answer, WAIT_S if receives else PATIENCE_S)
            except TimeoutError:
                assert receives, request
                return None

        return self.loop.run_until_complete(wait())

    def json(self, action: str, members: Any) -> Response | None:
        return self.ask(json_request(action, json.dumps(members).encode()))

    def call(self, action: str, **members: Any) -> dict[str, Any]:
        """A call that must succeed, and its result."""
        answer = self.ask(json_request(action, json.dumps(members).encode()), patient=True)
        assert answer is not None and answer.status == 200, (action, members, answer and answer.body)
        return dict(json.loads(answer.body or b"{}"))


def json_request(action: str, body: bytes, headers: Mapping[bytes, bytes] = HEADERS) -> Request:
    prefix = "Dovetail" if action == "PeekMessages" else "AmazonSQS"
    own = {b"x-amz-target": f"{prefix}.{action}".encode("utf-8", "surrogatepass"), b"content-type": b"application/x-amz-json-1.0"}
    return Request("POST", b"/", {**headers, **own}, body, True)


def form_request(fields: list[tuple[str, str]], path: bytes = b"/", headers: Mapping[bytes, bytes] = HEADERS) -> Request:
    own = {b"content-type": b"application/x-www-form-urlencoded"}
    return Request("POST", path, {**headers, **own}, urlencode(fields).encode(), True)


def judge(request: Request, answer: Response | None) -> None:
    if answer is None:
        return
    told = (request, request.headers, request.body[:2000], answer, answer.body[:2000])
    assert isinstance(answer, Response) and 200 <= answer.status < 600, told
    assert answer.status != 500 and b"InternalFailure" not in answer.body, told
    names = [name for name, _ in answer.headers]
    assert names == [name.lower() for name in names] and len(set(names)) == len(names), told
    assert _REQUEST_ID.fullmatch(dict(answer.headers)[b"x-amzn-requestid"]), told
    raw = encode(answer, date=b"date: x\r\n", close=False, head=False)
    assert raw.endswith(b"\r\n\r\n" + answer.body) and raw.count(b"\r\n\r\n") >= 1, told
    if answer.content_type == b"text/xml":
        tree = ElementTree.fromstring(answer.body.decode())
        assert tree.tag.rpartition("}")[2].endswith("Response"), told
        assert (answer.status == 200) is (tree.tag.rpartition("}")[2] != "ErrorResponse"), told
        return
    tree = json.loads(answer.body) if answer.body else {}
    if answer.status != 200 and answer.content_type == b"application/x-amz-json-1.0":
        assert set(tree) == {"__type", "message"} and all(isinstance(one, str) for one in tree.values()), told
    elif answer.status != 200:
        assert set(tree) == {"Error", "RequestId"}, told
