"""Requests about queues as a whole, and about their taps."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Rules, Walk
from dovetail.doors.native.frames import Kind

ARROW = 1
"""Flag of TAP_READ: answer with an Arrow stream."""
TAP_POSITION = (1 << 64) - 1
"""As `from_sequence` of a read: from the tap's own position on."""

_Q = Struct("<Q")
_QQ = Struct("<QQ")
_QQQ = Struct("<QQQ")
_QQQQ = Struct("<QQQQ")
_LOOK = Struct("<QQII")
_LIST = Struct("<II")


class Open(NamedTuple):
    """A queue by its name, in a namespace or (empty) in one's own."""

    name: str
    namespace: str = ""

    def encode(self) -> bytes:
        return fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Open:
        namespace = walk.text()
        return cls(walk.text(), namespace)


class Declare(NamedTuple):
    """The same, made if it is missing. A rule that is named must be the one it has."""

    name: str
    rules: Rules
    namespace: str = ""

    def encode(self) -> bytes:
        return fields.text(self.namespace) + fields.text(self.name) + fields.rules(self.rules)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Declare:
        namespace, name = walk.text(), walk.text()
        return cls(name, walk.rules(), namespace)


class Configure(NamedTuple):
    """Rules that are named change; the others stay."""

    queue: int
    rules: Rules

    def encode(self) -> bytes:
        return _Q.pack(self.queue) + fields.rules(self.rules)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Configure:
        (queue,) = walk.fixed(_Q)
        return cls(queue, walk.rules())


class About(NamedTuple):
    """DROP, NAME, PURGE, COUNTS, REDRIVE_STATUS, REDRIVE_CANCEL, TAP_LIST or RESERVE_LIST: what names a queue and says no more."""

    kind: Kind
    queue: int

    def encode(self) -> bytes:
        return _Q.pack(self.queue)

    @classmethod
    def decoder(cls, kind: Kind) -> Callable[[Walk, int], About]:
        def decode(walk: Walk, flags: int) -> About:
            return cls(kind, *walk.fixed(_Q))

        return decode


class List(NamedTuple):
    """Names of queues in order: those that begin with `prefix` and come behind `after`."""

    prefix: str = ""
    after: str = ""
    most: int = 1000
    namespace: str = ""

    def encode(self) -> bytes:
        return _LIST.pack(self.most, 0) + fields.text(self.namespace) + fields.text(self.prefix) + fields.text(self.after)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> List:
        most, zero = walk.fixed(_LIST)
        fields.reserved(zero)
        namespace, prefix = walk.text(), walk.text()
        return cls(prefix, walk.text(), most, namespace)


class Peek(NamedTuple):
    """Look at messages above sequence `after` without receiving them."""

    queue: int
    most: int = 10
    after: int = 0
    bytes_max: int = 0

    def encode(self) -> bytes:
        return _LOOK.pack(self.queue, self.after, self.most, self.bytes_max)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Peek:
        queue, after, most, bytes_max = walk.fixed(_LOOK)
        return cls(queue, most, after, bytes_max)


class Redrive(NamedTuple):
    """Dead letters go to `target`, or (0) back to where they came from, at `rate` thousandths of a message a second."""

    queue: int
    target: int
    rate: int

    def encode(self) -> bytes:
        return _QQQ.pack(self.queue, self.target, self.rate)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Redrive:
        return cls(*walk.fixed(_QQQ))


class TapOpen(NamedTuple):
    """Open a tap, or the one that has that name. `start` is a sequence, EARLIEST or LATEST of core.operation."""

    queue: int
    name: str
    start: int
    age_ms: int
    bytes_max: int

    def encode(self) -> bytes:
        return _QQQQ.pack(self.queue, self.start, self.age_ms, self.bytes_max) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> TapOpen:
        queue, start, age_ms, size = walk.fixed(_QQQQ)
        return cls(queue, walk.rest_text(), start, age_ms, size)


class TapRead(NamedTuple):
    """Up to `most` messages and about `bytes_max` bytes of them (0: as much as one frame takes). Changes nothing."""

    queue: int
    name: str
    from_sequence: int = TAP_POSITION
    most: int = 1000
    bytes_max: int = 0
    arrow: bool = False

    def encode(self) -> bytes:
        return _LOOK.pack(self.queue, self.from_sequence, self.most, self.bytes_max) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> TapRead:
        queue, from_sequence, most, bytes_max = walk.fixed(_LOOK)
        return cls(queue, walk.rest_text(), from_sequence, most, bytes_max, bool(flags & ARROW))


class TapAdvance(NamedTuple):
    """Everything below `sequence` is no longer needed."""

    queue: int
    name: str
    sequence: int

    def encode(self) -> bytes:
        return _QQ.pack(self.queue, self.sequence) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> TapAdvance:
        queue, sequence = walk.fixed(_QQ)
        return cls(queue, walk.rest_text(), sequence)


class TapClose(NamedTuple):
    queue: int
    name: str

    def encode(self) -> bytes:
        return _Q.pack(self.queue) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> TapClose:
        (queue,) = walk.fixed(_Q)
        return cls(queue, walk.rest_text())
