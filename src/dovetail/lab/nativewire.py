"""The native protocol for loads: what is done rarely by a plain blocking line, what is done often as bytes that exist already.

Rare requests go through the codec of the door. The frequent ones are drawn here again from docs/protocol.md, because a load must not
pay for values that it never looks at: a push is one string but for its number, and an item is cut out of the run that it names.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from struct import Struct
from typing import Any

from ..core import codec
from ..core.column import Column
from ..core.operation import Push
from ..doors.native import answers, requests
from ..doors.native.codec import Reader, hello, raised
from ..doors.native.frames import HEADER_BYTES, Frame, Kind

HEADER = Struct("<IBBHQ")
DEFAULT = -1
_PULL = Struct("<QqIIII")
_SETTLE = Struct("<QQ")
_RUN_BYTES = 64
_RUNS_AT = 16
_TIMEOUT_S = 60.0
_ZERO = bytes(4)


class Line:
    """A connection that was greeted and asks one thing at a time. When a load begins, its socket is handed to the load's own protocol,
    and requests go on with the number behind `number`."""

    def __init__(self, port: int) -> None:
        self.number = 0
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader()
        self._frames: list[Frame] = []
        try:
            self.socket.sendall(hello())
            self._next()
            self.welcome: answers.Welcome = self.ask(requests.Auth("", os.urandom(32), bytes(32)))
        except BaseException:
            self.socket.close()
            raise

    def ask(self, request: requests.Request) -> Any:
        """The answer; an error is raised as what it is."""
        self.number += 1
        self.socket.sendall(requests.encode(request, self.number))
        return self._next()

    def _next(self) -> answers.Answer:
        while not self._frames:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the node closed the connection")
            for event in self._reader.feed(data):
                if not isinstance(event, Frame):
                    raise ConnectionError(f"in place of a frame: {event}")
                self._frames.append(event)
        answer = answers.decode(self._frames.pop(0))
        if isinstance(answer, answers.Error):
            raise raised(answer)
        return answer

    def declare(self, name: str, **rules: Any) -> int:
        """The id of the queue; made unless it is there."""
        return int(self.ask(requests.Declare(name, rules)).queue)

    def counts(self, queue: int) -> answers.Counted:
        counted: answers.Counted = self.ask(requests.About(Kind.COUNTS, queue))
        return counted

    def close(self) -> None:
        self.socket.close()


def record(queue: int, bodies: Sequence[bytes], dedups: bytes | None = None) -> bytes:
    return codec.encode_push(Push((queue,), Column.of(bodies), dedups=dedups))


def push(pushed: bytes) -> tuple[bytes, bytes]:
    """(what stands before the number, what stands behind it) of a frame that pushes this record."""
    return HEADER.pack(len(pushed), Kind.PUSH, 0, 0, 0)[:8], pushed


def pull(number: int, queue: int, most: int, wait_ms: int = 0) -> bytes:
    return HEADER.pack(_PULL.size, Kind.PULL, 0, 0, number) + _PULL.pack(queue, DEFAULT, most, 0, wait_ms, 0)


def complete_pull(number: int, queue: int, most: int, items: bytes) -> bytes:
    return HEADER.pack(_PULL.size + len(items), Kind.COMPLETE_PULL, 0, 0, number) + _PULL.pack(queue, DEFAULT, most, 0, 0, 0) + items


def complete(number: int, queue: int, items: bytes) -> bytes:
    return HEADER.pack(_SETTLE.size + len(items), Kind.COMPLETE, 0, 0, number) + _SETTLE.pack(queue, 0) + items


def runs_end(data: bytes, at: int) -> int:
    """Where the runs of a DELIVERIES frame that begins there end; beyond the data where they are not known yet."""
    at += HEADER_BYTES
    if len(data) < at + _RUNS_AT:
        return len(data) + 1
    return at + _RUNS_AT + _RUN_BYTES * int.from_bytes(data[at + 12 : at + 16], "little")


def delivered(data: bytes, at: int) -> tuple[int, bytes]:
    """(how many messages there are, the items that name all of them) of a DELIVERIES frame that begins there.

    run     sequence 8 · delivery 8 · length 4 · receives 4 · four times 8 · seal 8
    item    sequence 8 · delivery 8 · length 4 · from 4 · to 4 · zero 4 · seal 8
    """
    at += HEADER_BYTES
    count = int.from_bytes(data[at + 8 : at + 12], "little")
    runs = int.from_bytes(data[at + 12 : at + 16], "little")
    at += _RUNS_AT
    if runs == 1:
        return count, data[at : at + 20] + _ZERO + data[at + 16 : at + 20] + _ZERO + data[at + 56 : at + 64]
    items: list[bytes] = []
    for _ in range(runs):
        items += (data[at : at + 20], _ZERO, data[at + 16 : at + 20], _ZERO, data[at + 56 : at + 64])
        at += _RUN_BYTES
    return count, b"".join(items)
