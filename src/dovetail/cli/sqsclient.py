"""A small client of the SQS door for the command line: one connection, AWS JSON, signed where there are keys. Standard library only.

Where to and as whom comes from the names that AWS's own tools read (AWS_ENDPOINT_URL_SQS, AWS_ACCESS_KEY_ID, AWS_REGION …). It knows how to
call and how to tell that a call failed; what is called is queue.py's business. Secrets appear in no error.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import BadRequest, DovetailError

ENDPOINT = "http://127.0.0.1:9324"
REGION = "us-east-1"
CONNECT_S = 10.0
ANSWER_S = 60.0
"""Beyond what the call itself may wait."""
ANSWER_BYTES_MAX = 1 << 30

NO_QUEUE = "QueueDoesNotExist"
_UNSIGNED = ("MissingAuthenticationTokenException", "UnrecognizedClientException", "MissingAuthenticationToken", "InvalidClientTokenId")


class CallRefused(DovetailError):
    """The node refused the call."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        """The exception's name, such as QueueDoesNotExist."""


class Unreachable(DovetailError):
    """Nothing that speaks SQS answers there."""


class Keys(NamedTuple):
    """By whom calls are signed. On an open node any key will do, and one of twelve digits names the account."""

    access_key_id: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Keys({self.access_key_id})"


class Client:
    def __init__(self, endpoint: str, region: str, keys: Keys | None) -> None:
        self.endpoint = endpoint
        self.region = region
        self.keys = keys
        parts = urlsplit(endpoint)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.path not in ("", "/") or parts.query:
            raise BadRequest(f"--endpoint {endpoint}: must be an address such as {ENDPOINT}")
        self._host = parts.netloc.rpartition("@")[2]
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=CONNECT_S)

    def call(self, action: str, wait_s: float = 0, **fields: Any) -> dict[str, Any]:
        """Call an action; fields that are None are left out. `PeekMessages` is Dovetail's own, all others are SQS's."""
        body = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        headers = {
            "host": self._host,
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"{'Dovetail' if action == 'PeekMessages' else 'AmazonSQS'}.{action}",
        }
        if self.keys is not None:
            headers |= signature(headers, body, self.region, self.keys, time.time())
        status, answer = self._ask(body, headers, wait_s)
        try:
            told = json.loads(answer or b"{}")
        except ValueError:
            told = None
        if status == 200 and isinstance(told, dict):
            return told
        if not isinstance(told, dict) or "__type" not in told:
            if status == 503:
                raise Unreachable(f"the node at {self.endpoint} is not ready: {answer[:200].decode(errors='replace').strip()}")
            raise Unreachable(f"what answers at {self.endpoint} does not speak SQS (HTTP {status})")
        kind = str(told["__type"]).rpartition("#")[2]
        text = str(told.get("message") or told.get("Message") or kind)
        if kind in _UNSIGNED:
            text = f"{text.rstrip('.')}. This node asks who calls: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of its accounts"
        raise CallRefused(kind, text)

    def on(self, queue: str, action: str, wait_s: float = 0, **fields: Any) -> dict[str, Any]:
        """Call an action on a queue; the node takes a bare name for a URL."""
        try:
            return self.call(action, wait_s, QueueUrl=queue, **fields)
        except CallRefused as error:
            if error.kind == NO_QUEUE:
                raise CallRefused(NO_QUEUE, f"there is no queue {queue}; `dovetail queue ls` shows those that there are") from None
            raise

    def attributes(self, queue: str, *names: str) -> dict[str, str]:
        found: dict[str, str] = self.on(queue, "GetQueueAttributes", AttributeNames=names).get("Attributes", {})
        return found

    def _ask(self, body: bytes, headers: Mapping[str, str], wait_s: float) -> tuple[int, bytes]:
        connection = self._connection
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(wait_s + ANSWER_S)
            connection.request("POST", "/", body, dict(headers))
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"nothing answers at {self.endpoint} ({why}). `dovetail serve` starts a node; --endpoint or DOVETAIL_ENDPOINT names another"
            ) from None
        return response.status, answer


def signature(headers: Mapping[str, str], body: bytes, region: str, keys: Keys, now_s: float) -> dict[str, str]:
    """The headers that sign a POST to `/` by Signature Version 4. doors/sqs/sigv4.py draws the text that is signed."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    added = {"x-amz-date": stamp}
    if keys.token is not None:
        added["x-amz-security-token"] = keys.token
    signed = sorted({**headers, **added}.items())
    names = ";".join(name for name, _ in signed)
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in signed)
    canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{stamp[:8]}/{region}/sqs/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + keys.secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    made = hmac.digest(key, text.encode(), "sha256").hex()
    return {**added, "authorization": f"AWS4-HMAC-SHA256 Credential={keys.access_key_id}/{scope}, SignedHeaders={names}, Signature={made}"}
