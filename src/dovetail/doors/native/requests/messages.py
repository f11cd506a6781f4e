"""Requests about messages: in, out, and what becomes of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.core.operation import DEFAULT
from dovetail.doors.native import fields
from dovetail.doors.native.fields import Item, Malformed, Walk
from dovetail.doors.native.frames import Data, Kind
from dovetail.limits import BATCH_MESSAGES_MAX

DELETE = 1
"""Flag of PULL and CONSUME: messages are gone when they are handed out."""

_Q = Struct("<Q")
_Qq = Struct("<Qq")
_PULL = Struct("<QqIIII")
_CONSUME = Struct("<QqQII")
_CREDIT = Struct("<QQII")
_COMPLETE_PUSH = Struct("<QII")


class Push(NamedTuple):
    """Messages for one or several queues: byte for byte the record of the log (core/codec.py)."""

    record: Data

    def encode(self) -> bytes:
        return bytes(self.record)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Push:
        return cls(walk.take(len(walk.data)))


class Pull(NamedTuple):
    """Up to `most` messages and about `bytes_max` bytes (0: as much as one frame takes), waiting up to `wait_ms` for the first."""

    queue: int
    most: int = 1
    lease_ms: int = DEFAULT
    wait_ms: int = 0
    bytes_max: int = 0
    delete: bool = False
    attempt: bytes = b""

    def encode(self) -> bytes:
        return _PULL.pack(self.queue, self.lease_ms, self.most, self.bytes_max, self.wait_ms, 0) + self.attempt

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Pull:
        queue, lease_ms, most, bytes_max, wait_ms, zero = walk.fixed(_PULL)
        fields.reserved(zero)
        return cls(queue, most, lease_ms, wait_ms, bytes_max, bool(flags & DELETE), bytes(walk.take(len(walk.data) - walk.at)))


class Consume(NamedTuple):
    """Stay connected: messages come as they become visible, up to `frame_messages` in a frame, as far as the credit reaches."""

    queue: int
    message_credit: int
    byte_credit: int
    frame_messages: int = 100
    lease_ms: int = DEFAULT
    delete: bool = False

    def encode(self) -> bytes:
        return _CONSUME.pack(self.queue, self.lease_ms, self.byte_credit, self.message_credit, self.frame_messages)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Consume:
        queue, lease_ms, size, messages, frame_messages = walk.fixed(_CONSUME)
        return cls(queue, messages, size, frame_messages, lease_ms, bool(flags & DELETE))


class Credit(NamedTuple):
    """More credit for the consume of that number. Has no answer."""

    consume: int
    message_credit: int
    byte_credit: int

    def encode(self) -> bytes:
        return _CREDIT.pack(self.consume, self.byte_credit, self.message_credit, 0)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Credit:
        consume, size, messages, zero = walk.fixed(_CREDIT)
        fields.reserved(zero)
        return cls(consume, messages, size)


class Stop(NamedTuple):
    """End the consume, or the waiting pull, of that number."""

    target: int

    def encode(self) -> bytes:
        return _Q.pack(self.target)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Stop:
        return cls(*walk.fixed(_Q))


class Settle(NamedTuple):
    """COMPLETE, REQUEUE, EXTEND or RELEASE: what becomes of messages that were handed out. `parameter` is the delay of REQUEUE and the
    lease of EXTEND (DEFAULT: what the queue says), else 0."""

    kind: Kind
    queue: int
    items: Sequence[Item]
    parameter: int = 0

    def encode(self) -> bytes:
        return _Qq.pack(self.queue, self.parameter) + fields.items(self.items)

    @classmethod
    def decoder(cls, kind: Kind) -> Callable[[Walk, int], Settle]:
        def decode(walk: Walk, flags: int) -> Settle:
            queue, parameter = walk.fixed(_Qq)
            if parameter and kind in (Kind.COMPLETE, Kind.RELEASE):
                raise Malformed("the parameter is not zero")
            return cls(kind, queue, walk.items((len(walk.data) - walk.at) // fields.ITEM_BYTES), parameter)

        return decode


class CompletePull(NamedTuple):
    """Complete these and pull, in one round trip and one entry of the log."""

    queue: int
    items: Sequence[Item]
    most: int = 1
    lease_ms: int = DEFAULT
    wait_ms: int = 0
    bytes_max: int = 0

    def encode(self) -> bytes:
        return _PULL.pack(self.queue, self.lease_ms, self.most, self.bytes_max, self.wait_ms, 0) + fields.items(self.items)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> CompletePull:
        queue, lease_ms, most, bytes_max, wait_ms, zero = walk.fixed(_PULL)
        fields.reserved(zero)
        items = walk.items((len(walk.data) - walk.at) // fields.ITEM_BYTES)
        return cls(queue, items, most, lease_ms, wait_ms, bytes_max)


class CompletePush(NamedTuple):
    """Complete these and push those: both or neither."""

    queue: int
    items: Sequence[Item]
    record: Data

    def encode(self) -> bytes:
        return _COMPLETE_PUSH.pack(self.queue, len(self.items), 0) + fields.items(self.items) + self.record

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> CompletePush:
        queue, count, zero = walk.fixed(_COMPLETE_PUSH)
        fields.reserved(zero)
        items = walk.items(count)
        return cls(queue, items, walk.take(len(walk.data) - walk.at))


class BySequence(NamedTuple):
    """CANCEL, RESCHEDULE (`parameter`: the delay) or RECLAIM: without a receipt."""

    kind: Kind
    queue: int
    sequences: Sequence[int]
    parameter: int = 0

    def encode(self) -> bytes:
        return _Qq.pack(self.queue, self.parameter) + array("Q", self.sequences).tobytes()

    @classmethod
    def decoder(cls, kind: Kind) -> Callable[[Walk, int], BySequence]:
        def decode(walk: Walk, flags: int) -> BySequence:
            queue, parameter = walk.fixed(_Qq)
            if parameter and kind is not Kind.RESCHEDULE:
                raise Malformed("the parameter is not zero")
            count = (len(walk.data) - walk.at) // 8
            if not 1 <= count <= BATCH_MESSAGES_MAX:
                raise Malformed(f"{count} sequences in one frame; 1 to {BATCH_MESSAGES_MAX} are allowed")
            return cls(kind, queue, array("Q", bytes(walk.take(8 * count))), parameter)

        return decode
