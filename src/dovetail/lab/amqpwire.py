"""AMQP 0-9-1 as bytes: the least of it that publishes with confirms and consumes with acks. It parses nothing that it can know beforehand.

    frame     0      1         3              7
              | type | channel | payload size | payload | 0xCE           big-endian
    payload   of type 1, a method: class u16 · method u16 · arguments
              of type 2, the header of a message: class u16 · 0 u16 · body size u64 · flags u16 · properties
              of type 3: the body

The usual clients cost several times what the broker does and would flatter us. Here a publish is one string of bytes that is made once; its
confirm has 21 bytes. Deliveries of one queue's equal bodies are equally long and number themselves 1, 2, 3, so that to take one is to
count bytes, and its ack follows from its number.
"""

from __future__ import annotations

import re
import socket
from struct import Struct
from typing import NamedTuple

METHOD, HEADER, BODY, END = 1, 2, 3, 0xCE
GREETING = b"AMQP\x00\x00\x09\x01"
CONSUMER = b"c"
_FRAME = Struct(">BHI")
_ID = Struct(">HH")
_ACK = Struct(">BHIHHQBB")
_PERSISTENT = 2
_TIMEOUT_S = 30.0
_VERSION = re.compile(rb"\x07versionS....([\d.]+)", re.DOTALL)

PUBLISHED = (60, 80)
"""basic.ack, which confirms a publish."""
DELIVER = (60, 60)
ACK_BYTES = _ACK.size


class Refused(Exception):
    """The broker closed the channel or the connection; in its own words."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, identity: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, _ID.pack(*identity) + arguments)


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def long(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def publish(queue: bytes, body: bytes) -> bytes:
    """A persistent message to the queue by its name, as all three frames of it."""
    properties = _ID.pack(60, 0) + len(body).to_bytes(8, "big") + b"\x10\x00" + bytes((_PERSISTENT,))
    return method(1, (60, 40), b"\x00\x00" + short(b"") + short(queue) + b"\x00") + frame(HEADER, 1, properties) + frame(BODY, 1, body)


def ack(tag: int) -> bytes:
    return _ACK.pack(METHOD, 1, 13, *PUBLISHED, tag, 0, END)


def cancel() -> bytes:
    """No more deliveries, and no answer to this."""
    return method(1, (60, 30), short(CONSUMER) + b"\x01")


def delivery_bytes(queue: bytes, body_bytes: int) -> int:
    """How long the three frames of a delivery are, when its message came from `publish`."""
    return len(method(1, DELIVER, short(CONSUMER) + bytes(9) + short(b"") + short(queue))) + 8 + 15 + 8 + body_bytes


def identity_at(data: bytes, at: int) -> tuple[int, int]:
    """(class, method) of the method frame that begins there."""
    return _ID.unpack_from(data, at + 7)


class Declared(NamedTuple):
    waiting: int
    consumers: int


class Line:
    """A connection with one channel, and whatever is done rarely on it: one question at a time, on a blocking socket.

    When a load begins, its socket is handed to the load's own protocol.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(GREETING)
            found = _VERSION.search(self._expect((10, 10)))
            self.version = found[1].decode() if found else "unknown"
            self.socket.sendall(method(0, (10, 11), long(b"") + short(b"PLAIN") + long(b"\0guest\0guest") + short(b"en_US")))
            tune = self._expect((10, 30))
            # What it offers, but no heartbeats: a load has no time for them.
            self.socket.sendall(method(0, (10, 31), tune[4:10] + b"\x00\x00"))
            self.ask(method(0, (10, 40), short(b"/") + b"\x00\x00"), (10, 41))
            self.ask(method(1, (20, 10), short(b"")), (20, 11))
        except BaseException:
            self.socket.close()
            raise

    def ask(self, request: bytes, answer: tuple[int, int]) -> bytes:
        self.socket.sendall(request)
        return self._expect(answer)

    def declare(self, queue: bytes, *, quorum: bool) -> Declared:
        """A durable queue; made unless it is there. How much waits in it, and who consumes."""
        kind = b"quorum" if quorum else b"classic"
        arguments = long(short(b"x-queue-type") + b"S" + long(kind))
        told = self.ask(method(1, (50, 10), b"\x00\x00" + short(queue) + b"\x02" + arguments), (50, 11))
        waiting, consumers = Struct(">II").unpack_from(told, 4 + 1 + len(queue))
        return Declared(waiting, consumers)

    def confirms(self) -> None:
        self.ask(method(1, (85, 10), b"\x00"), (85, 11))

    def prefetch(self, messages: int) -> None:
        self.ask(method(1, (60, 10), bytes(4) + messages.to_bytes(2, "big") + b"\x00"), (60, 11))

    @staticmethod
    def consume(queue: bytes) -> bytes:
        """Deliveries begin; without an answer of its own."""
        return method(1, (60, 20), b"\x00\x00" + short(queue) + short(CONSUMER) + b"\x08" + long(b""))

    def close(self) -> None:
        self.socket.close()

    def _expect(self, identity: tuple[int, int]) -> bytes:
        """The payload of the next frame, which has to be this method."""
        head = self._exactly(_FRAME.size)
        payload = self._exactly(_FRAME.unpack(head)[2] + 1)[:-1]
        if _ID.unpack_from(payload) != identity:
            raise Refused(f"in place of {identity}: {payload!r}")
        return payload

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise Refused("the broker closed the connection")
            data += part
        return data
