"""Answers about stages and reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Walk

_PUBLISHED = Struct("<BBHI")
_JOINED = Struct("<QQQQ")
_LIST = Struct("<II")
_STAGE = Struct("<16sQQQ")
_RESERVING = Struct("<Qq")
_RESERVATION = Struct("<QqqII")
_BATCH = Struct("<qII")


class Joined(NamedTuple):
    """What a publish brought to one queue."""

    queue: int
    messages: int
    repeats: int
    bytes: int


class Published(NamedTuple):
    """`before`: this batch of the owner's, or a later one, had been published, and nothing joined."""

    durability: int
    joined: Sequence[Joined]
    before: bool = False

    def encode(self) -> bytes:
        head = _PUBLISHED.pack(self.durability, self.before, 0, len(self.joined))
        return head + b"".join([_JOINED.pack(*one) for one in self.joined])

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Published:
        durability, before, _, count = walk.fixed(_PUBLISHED)
        joined = [Joined(*values) for values in _JOINED.iter_unpack(walk.take(_JOINED.size * count))]
        return cls(durability, joined, bool(before))


class OpenStage(NamedTuple):
    stage: bytes
    began_ms: int
    messages: int
    bytes: int


class Staged(NamedTuple):
    """Stages that are open, in the order of their names. `more`: ask again, behind the last."""

    stages: Sequence[OpenStage]
    more: bool

    def encode(self) -> bytes:
        return _LIST.pack(len(self.stages), self.more) + b"".join([_STAGE.pack(*one) for one in self.stages])

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Staged:
        count, more = walk.fixed(_LIST)
        return cls([OpenStage(*values) for values in _STAGE.iter_unpack(walk.take(_STAGE.size * count))], bool(more))


class Reserving(NamedTuple):
    """A reservation is open: the owner's epoch, and the last batch that was given out (-1: none was)."""

    epoch: int
    last: int

    def encode(self) -> bytes:
        return _RESERVING.pack(*self)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Reserving:
        return cls(*walk.fixed(_RESERVING))


class Reserved(NamedTuple):
    """A batch is set aside, and `again` if it was before: so many messages, which RESERVE_READ reads."""

    messages: int
    again: bool

    def encode(self) -> bytes:
        return _LIST.pack(self.messages, self.again)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Reserved:
        messages, again = walk.fixed(_LIST)
        return cls(messages, bool(again))


class Reservation(NamedTuple):
    """`batches` are those that are open: number → messages."""

    name: str
    epoch: int
    last: int
    settled: int
    batches: Mapping[int, int]


class Reservations(NamedTuple):
    reservations: Sequence[Reservation]

    def encode(self) -> bytes:
        parts = [_LIST.pack(len(self.reservations), 0)]
        for one in self.reservations:
            parts += (_RESERVATION.pack(one.epoch, one.last, one.settled, len(one.batches), 0), fields.text(one.name))
            parts += [_BATCH.pack(number, count, 0) for number, count in one.batches.items()]
        return b"".join(parts)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Reservations:
        count, _ = walk.fixed(_LIST)
        found = []
        for _ in range(count):
            epoch, last, settled, batches, _ = walk.fixed(_RESERVATION)
            name = walk.text()
            numbers = {number: messages for number, messages, _ in _BATCH.iter_unpack(walk.take(_BATCH.size * batches))}
            found.append(Reservation(name, epoch, last, settled, numbers))
        return cls(found)
