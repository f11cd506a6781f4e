"""The attacker's end of a raw connection: bytes as they are, sent while answers are read, and no patience beyond a limit."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple

from tests.clients.node import Node

PATIENCE_S = 40.0
"""Longer than the edge waits for a head; an attack that is still not answered then is a failed test."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Outcome(NamedTuple):
    """What an attacker got for its bytes."""

    sent_bytes: int
    received: bytes
    closed: bool
    """The other end closed or reset the connection."""

    @property
    def answers(self) -> list[Answer]:
        return answers_of(self.received)

    @property
    def statuses(self) -> list[int]:
        return [one.status for one in self.answers]


def answers_of(data: bytes) -> list[Answer]:
    """The answers in a stream, read strictly; a last one that was cut off is left out."""
    found, place = [], 0
    while (end := data.find(b"\r\n\r\n", place)) >= 0:
        lines = data[place:end].decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines
        headers = dict(line.split(": ", 1) for line in lines[1:])
        place = end + 4 + int(headers.get("content-length", "0"))
        if place > len(data):
            break
        found.append(Answer(int(status), headers, data[end + 4 : place]))
    return found


def connect(node: Node) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def attack(node: Node, pieces: Iterable[bytes], *, answers: int | None = None, half_close: bool = False) -> Outcome:
    """Send the pieces while reading; ends when the other end closes, or `answers` have come and everything is sent."""
    with connect(node) as sock:
        sock.setblocking(False)
        return _talk(sock, iter(pieces), answers, half_close)


def _talk(sock: socket.socket, pieces: Iterable[bytes], answers: int | None, half_close: bool) -> Outcome:
    source, pending, sent, received, done = iter(pieces), memoryview(b""), 0, bytearray(), False
    give_up = time.monotonic() + PATIENCE_S
    while True:
        if not pending and not done:
            piece = next(source, None)
            done = piece is None
            pending = memoryview(piece or b"")
            if done and half_close:
                sock.shutdown(socket.SHUT_WR)
        # Counted first, because reading them all again for each piece takes long where they are many.
        if done and answers is not None and received.count(b"HTTP/1.1 ") >= answers and len(answers_of(bytes(received))) >= answers:
            return Outcome(sent, bytes(received), False)
        assert time.monotonic() < give_up, (sent, bytes(received)[:500])
        readable, writable, _ = select.select([sock], [sock] if pending else [], [], 1)
        try:
            if writable:
                count = sock.send(pending)
                sent += count
                pending = pending[count:]
            if readable:
                data = sock.recv(1 << 20)
                if not data:
                    return Outcome(sent, bytes(received), True)
                received += data
        except BlockingIOError:
            continue
        except OSError:
            return Outcome(sent, bytes(received), True)


def post(body: bytes, *headers: str, path: str = "/") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


def call(action: str, body: bytes) -> bytes:
    return post(body, f"X-Amz-Target: AmazonSQS.{action}", "Content-Type: application/x-amz-json-1.0")


FORM = "Content-Type: application/x-www-form-urlencoded"
LIST = b"GET /?Action=ListQueues&QueueNamePrefix=none HTTP/1.1\r\nHost: x\r\n\r\n"
