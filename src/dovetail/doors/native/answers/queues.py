"""Answers about queues as a whole, and about their taps."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Malformed, Rules, Walk

REDRIVES = ("", "running", "completed", "cancelled", "failed", "cancelling")

_Q = Struct("<Q")
_LIST = Struct("<II")
_COUNTED = Struct("<8Q")
_REDRIVING = Struct("<IIQ")
_TAP = Struct("<QQQQ")


class Opened(NamedTuple):
    """A queue's id, by which requests of this connection name it from now on, and its rules."""

    queue: int
    rules: Rules

    def encode(self) -> bytes:
        return _Q.pack(self.queue) + fields.rules(self.rules)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Opened:
        (queue,) = walk.fixed(_Q)
        return cls(queue, walk.rules())


class Queues(NamedTuple):
    queues: Sequence[tuple[str, int]]
    more: bool

    def encode(self) -> bytes:
        return _LIST.pack(len(self.queues), self.more) + b"".join(_Q.pack(queue) + fields.text(name) for name, queue in self.queues)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Queues:
        count, more = walk.fixed(_LIST)
        found = []
        for _ in range(count):
            (queue,) = walk.fixed(_Q)
            found.append((walk.text(), queue))
        return cls(found, bool(more))


class Named(NamedTuple):
    namespace: str
    name: str

    def encode(self) -> bytes:
        return fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Named:
        return cls(walk.text(), walk.text())


class Counted(NamedTuple):
    visible: int
    delayed: int
    leased: int
    oldest_age_ms: int
    pushed: int
    dead_lettered: int
    stranded: int
    reserved: int = 0

    def encode(self) -> bytes:
        return _COUNTED.pack(*self)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Counted:
        return cls(*walk.fixed(_COUNTED))


class Redriving(NamedTuple):
    status: int
    moved: int

    def encode(self) -> bytes:
        return _REDRIVING.pack(self.status, 0, self.moved)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Redriving:
        status, _, moved = walk.fixed(_REDRIVING)
        if not 1 <= status < len(REDRIVES):
            raise Malformed("a status that is not known")
        return cls(status, moved)


class Tap(NamedTuple):
    name: str
    next: int
    end: int
    lost_first: int
    lost_count: int


class Taps(NamedTuple):
    taps: Sequence[Tap]

    def encode(self) -> bytes:
        return _LIST.pack(len(self.taps), 0) + b"".join(_TAP.pack(*tap[1:]) + fields.text(tap.name) for tap in self.taps)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Taps:
        count, _ = walk.fixed(_LIST)
        found = []
        for _ in range(count):
            facts = walk.fixed(_TAP)
            found.append(Tap(walk.text(), *facts))
        return cls(found)
