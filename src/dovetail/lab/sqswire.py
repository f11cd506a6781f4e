"""Requests to an SQS endpoint as bytes: AWS JSON 1.0, signed where keys are given. It sends nothing and reads only what a load needs.

    POST / · Host · Content-Type · X-Amz-Target: AmazonSQS.ACTION · (X-Amz-Date · Authorization) · Content-Length · JSON

A signature holds for fifteen minutes, so a request that is made once may be sent for as long as a load runs; only what is different each
time (a delete names its receipt) is signed each time, which costs about as much as the rest of the client does for that request.
"""

from __future__ import annotations

import hmac
import json
import time
from hashlib import sha256
from typing import Any, NamedTuple

CONTENT_TYPE = "application/x-amz-json-1.0"
REGION = "us-east-1"
_SIGNED_HEADERS = "content-type;host;x-amz-date;x-amz-target"
_HANDLE = b'"ReceiptHandle":"'


class Keys(NamedTuple):
    access: str
    secret: str


class Wire:
    """The requests to one port of the loopback."""

    def __init__(self, port: int, keys: Keys | None = None) -> None:
        self.port = port
        self._host = f"127.0.0.1:{port}"
        self._keys = keys
        self._date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._scope = f"{self._date[:8]}/{REGION}/sqs/aws4_request"
        self._key = signing_key(keys.secret, self._date[:8]) if keys is not None else b""
        self._heads: dict[str, tuple[bytes, bytes]] = {}

    def request(self, action: str, body: bytes) -> bytes:
        made = self._heads.get(action)
        if made is None:
            made = self._heads[action] = self._head(action)
        head, canonical = made
        if self._keys is None:
            return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        text = canonical + sha256(body).hexdigest().encode()
        to_sign = f"AWS4-HMAC-SHA256\n{self._date}\n{self._scope}\n{sha256(text).hexdigest()}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (head, signature.encode(), len(body), body)

    def ask(self, action: str, **members: Any) -> bytes:
        """A request from a dict, for whatever is asked rarely."""
        return self.request(action, json.dumps(members).encode())

    def _head(self, action: str) -> tuple[bytes, bytes]:
        """(what stands before the signature or the length, the canonical request up to the hash of the body)."""
        target = f"AmazonSQS.{action}"
        head = f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {CONTENT_TYPE}\r\nX-Amz-Target: {target}\r\n"
        if self._keys is not None:
            head += f"X-Amz-Date: {self._date}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={self._keys.access}/{self._scope}, "
            head += f"SignedHeaders={_SIGNED_HEADERS}, Signature="
        canonical = f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{self._date}\nx-amz-target:{target}\n\n"
        return head.encode(), f"{canonical}{_SIGNED_HEADERS}\n".encode()


def signing_key(secret: str, day: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def handles(answer: bytes) -> list[bytes]:
    """The receipt handles of a ReceiveMessage answer, as they stand there: found, not parsed."""
    return [part[: part.index(b'"')] for part in answer.split(_HANDLE)[1:]]
