"""Requests about reservations: batches of messages that are set aside for a named owner, the same whenever they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Walk
from dovetail.doors.native.frames import Kind
from dovetail.doors.native.requests.queues import ARROW

_Q = Struct("<Q")
_RESERVE = Struct("<QQqII")
_READ = Struct("<QqIIII")
_SETTLE = Struct("<QQq")


class Reservation(NamedTuple):
    """RESERVE_OPEN, RESERVE_RELEASE or RESERVE_CLOSE: what names a reservation and says no more."""

    kind: Kind
    queue: int
    name: str

    def encode(self) -> bytes:
        return _Q.pack(self.queue) + self.name.encode()

    @classmethod
    def decoder(cls, kind: Kind) -> Callable[[Walk, int], Reservation]:
        def decode(walk: Walk, flags: int) -> Reservation:
            (queue,) = walk.fixed(_Q)
            return cls(kind, queue, walk.rest_text())

        return decode


class Reserve(NamedTuple):
    """Set up to `most` visible messages aside for a batch, or find those that were set aside for it before."""

    queue: int
    name: str
    epoch: int
    batch: int
    most: int

    def encode(self) -> bytes:
        return _RESERVE.pack(self.queue, self.epoch, self.batch, self.most, 0) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Reserve:
        queue, epoch, batch, most, zero = walk.fixed(_RESERVE)
        fields.reserved(zero)
        return cls(queue, walk.rest_text(), epoch, batch, most)


class ReserveRead(NamedTuple):
    """The messages of a batch from the `start`-th on, counted from 0: up to `most`, and about `bytes_max` bytes (0: as much as one frame
    takes). Changes nothing, and asks for no epoch: anybody may who may receive."""

    queue: int
    name: str
    batch: int
    start: int = 0
    most: int = 1000
    bytes_max: int = 0
    arrow: bool = False

    def encode(self) -> bytes:
        return _READ.pack(self.queue, self.batch, self.start, self.most, self.bytes_max, 0) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> ReserveRead:
        queue, batch, start, most, bytes_max, zero = walk.fixed(_READ)
        fields.reserved(zero)
        return cls(queue, walk.rest_text(), batch, start, most, bytes_max, bool(flags & ARROW))


class ReserveSettle(NamedTuple):
    """Done with all batches up to this one."""

    queue: int
    name: str
    epoch: int
    batch: int

    def encode(self) -> bytes:
        return _SETTLE.pack(self.queue, self.epoch, self.batch) + self.name.encode()

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> ReserveSettle:
        queue, epoch, batch = walk.fixed(_SETTLE)
        return cls(queue, walk.rest_text(), epoch, batch)
