"""The codec of the native protocol under one name, for both sides. Sans I/O: bytes in, events out; requests and answers, and their bytes.

reader = Reader()                                       the client's side; Reader(hello=True, …) is the node's
for event in reader.feed(data):                         Hello · Frame · Broken
    answer = answers.decode(event)                      the node's side: requests.decode(event)
data = requests.encode(Pull(queue, most=10), number)    the node's side: answers.encode(answer, number)

It is total: any bytes give events, values, or a CodecError (Malformed, NoSuchKind), and take no more memory than was given.
"""

from __future__ import annotations

from hmac import digest

from dovetail.doors.native import answers, requests
from dovetail.doors.native.fields import Item, Malformed, NoSuchKind, Rules
from dovetail.doors.native.frames import VERSION, Broken, Event, Frame, Hello, Kind, Reader, hello
from dovetail.doors.native.refusals import AccessDenied, Code, NoArrow, NotOpened, NotYet, ProtocolError, raised

__all__ = [
    "VERSION", "AccessDenied", "Broken", "Code", "Event", "Frame", "Hello", "Item", "Kind", "Malformed", "NoArrow", "NoSuchKind",
    "NotOpened", "NotYet", "ProtocolError", "Reader", "Rules", "answers", "client_proof", "hello", "node_proof", "raised", "requests",
]  # fmt: skip

NONCE_BYTES = 32
_CLIENT = b"dovetail-native-1"
_NODE = b"dovetail-native-1 node"


def client_proof(secret: str, node_nonce: bytes, client_nonce: bytes, key: str, session_token: str = "") -> bytes:
    """What AUTH proves: that the caller knows the secret of its key, and the session token where the key is a temporary one. Neither is on
    the wire."""
    said = _CLIENT + node_nonce + client_nonce + key.encode()
    return digest(secret.encode(), said + b"\0" + session_token.encode() if session_token else said, "sha256")


def node_proof(secret: str, node_nonce: bytes, client_nonce: bytes) -> bytes:
    """What WELCOME proves: that the node knows it too."""
    return digest(secret.encode(), _NODE + client_nonce + node_nonce, "sha256")
