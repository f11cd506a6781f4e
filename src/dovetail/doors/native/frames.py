"""The frame: a header of 16 bytes, then its payload. Knows bytes and kinds; what a payload says is in requests.py and answers.py.

     0               4       5       6       8                              16
    +---------------+-------+-------+-------+-------------------------------+------------ - -
    | payload bytes | kind  | flags | zero  | number                        | payload …
    +---------------+-------+-------+-------+-------------------------------+------------ - -

Little-endian. `number` is the client's: each request has the number of the one before plus one, and answers carry it. Number 0 is the
node's own: its HELLO, and what it says about the connection as a whole. A connection begins with the client's hello, which is no frame:

     0                               8       10      12              16
    +-------------------------------+-------+-------+---------------+
    | "DOVETAIL"                    | lowest| highest version       |   (u16, u16, and a zero u32)
    +-------------------------------+-------+-------+---------------+

The reader is total: any bytes give events, the last of which may be Broken, and nothing is kept beyond what was given.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native.bounds import FRAME_BYTES_MAX

VERSION = 1
MAGIC = b"DOVETAIL"
HEADER = Struct("<IBBHQ")
HEADER_BYTES = 16
HELLO = Struct("<8sHHI")

PIECE_BYTES = 4096

Data = bytes | memoryview


class Kind(IntEnum):
    """What a frame is. A number is never given to another meaning; requests lie below 128, answers above."""

    AUTH = 1
    PING = 2
    OPEN = 8
    DECLARE = 9
    CONFIGURE = 10
    DROP = 11
    LIST = 12
    NAME = 13
    PUSH = 16
    PULL = 17
    CONSUME = 18
    CREDIT = 19
    STOP = 20
    COMPLETE = 24
    REQUEUE = 25
    EXTEND = 26
    RELEASE = 27
    COMPLETE_PULL = 28
    COMPLETE_PUSH = 29
    CANCEL = 32
    RESCHEDULE = 33
    RECLAIM = 34
    PURGE = 36
    COUNTS = 37
    PEEK = 38
    REDRIVE = 40
    REDRIVE_STATUS = 41
    REDRIVE_CANCEL = 42
    PRODUCER = 44
    SKIP = 45
    TAP_OPEN = 48
    TAP_LIST = 49
    TAP_READ = 50
    TAP_ADVANCE = 51
    TAP_CLOSE = 52
    STAGE = 56
    PUBLISH = 57
    RESERVE = 58
    RESERVE_SETTLE = 59
    UNSTAGE = 60
    STAGES = 61
    RESERVE_OPEN = 62
    RESERVE_READ = 63
    RESERVE_RELEASE = 64
    RESERVE_CLOSE = 65
    RESERVE_LIST = 66
    FACTS_OPEN = 67
    FACTS_LIST = 68
    FACTS_READ = 69
    FACTS_ADVANCE = 70
    FACTS_CLOSE = 71

    HELLO = 128
    WELCOME = 129
    ERROR = 130
    BYE = 131
    PONG = 132
    DONE = 133
    OPENED = 134
    QUEUES = 135
    NAMED = 136
    PUSHED = 137
    DELIVERIES = 138
    SETTLED = 139
    COUNTED = 140
    MESSAGES = 141
    ARROW = 142
    REDRIVING = 143
    PRODUCING = 144
    TAPS = 145
    PUBLISHED = 146
    STAGED = 147
    RESERVING = 148
    RESERVED = 149
    RESERVATIONS = 150


class Hello(NamedTuple):
    """The first bytes of a client: the versions that it speaks."""

    lowest: int
    highest: int


class Frame(NamedTuple):
    kind: int
    flags: int
    number: int
    payload: memoryview


class Broken(NamedTuple):
    """The bytes are no frames any more: nothing behind them can be read, and the connection ends."""

    number: int
    text: str


Event = Hello | Frame | Broken


def hello(lowest: int = VERSION, highest: int = VERSION) -> bytes:
    return HELLO.pack(MAGIC, lowest, highest, 0)


def encode(kind: int, number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return HEADER.pack(len(payload), kind, flags, 0, number) + payload


class Reader:
    """Bytes in, events out. `hello` says that a hello comes before the first frame (the node's side)."""

    __slots__ = ("_dead", "_greets", "_kept", "_need", "_size", "payload_max")

    def __init__(self, *, hello: bool = False, payload_max: int = FRAME_BYTES_MAX) -> None:
        self.payload_max = payload_max
        self._greets = hello
        self._kept: list[Data | bytearray] = []
        self._size = 0
        self._need = HEADER_BYTES
        self._dead = False

    @property
    def empty(self) -> bool:
        """Nothing of a frame has arrived that is not whole yet."""
        return not self._size

    @property
    def unfinished_bytes(self) -> int:
        """What has arrived of a frame that is not whole yet."""
        return self._size

    def feed(self, data: Data) -> list[Event]:
        if self._dead:
            return []
        if self._size:
            self._keep(data)
            if self._size < self._need:
                return []
            data, self._kept = b"".join(self._kept), []
        events: list[Event] = []
        at, end = 0, len(data)
        whole = memoryview(data)
        unpack = HEADER.unpack_from
        if self._greets and end >= HEADER_BYTES:
            self._greets = False
            magic, lowest, highest, zero = HELLO.unpack_from(whole)
            if magic != MAGIC or zero:
                return self._broken(events, 0, "the connection does not begin with the hello of this protocol")
            events.append(Hello(lowest, highest))
            at = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            size, kind, flags, zero, number = unpack(whole, at)
            if zero:
                return self._broken(events, number, "the reserved bits of a frame's header are not zero")
            if size > self.payload_max:
                return self._broken(events, number, f"a frame of {size} bytes; at most {self.payload_max} are allowed here")
            start = at + HEADER_BYTES
            if end - start < size:
                self._need = HEADER_BYTES + size
                break
            at = start + size
            events.append(Frame(kind, flags, number, whole[start:at]))
        else:
            self._need = HEADER_BYTES
        self._size = 0
        if at < end:
            # A copy: what lies before it in this delivery must not be kept for its sake.
            self._keep(bytes(whole[at:]))
        return events

    def _keep(self, data: Data) -> None:
        """A frame that comes in pieces is put together once, when it is whole. Small pieces are put together at once: an object for every
        byte that trickles in would cost fifty times what was given."""
        self._size += len(data)
        last = self._kept[-1] if self._kept else None
        if len(data) >= PIECE_BYTES:
            self._kept.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._kept.append(bytearray(data))

    def _broken(self, events: list[Event], number: int, text: str) -> list[Event]:
        self._dead = True
        self._kept, self._size = [], 0
        events.append(Broken(number, text))
        return events
