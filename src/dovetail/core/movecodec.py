"""The operations of moves between logs as bytes and back; docs/format-entry.md draws them.

Leave       | 80 | returning u8 | 0 × 6 | source u64 | target u64 | max u64
Arrive      | 81 | 0 × 7 | source u64 | number u64 | home u64 | sequence u64 | time u64 | a Push of that one message
MoveSettle  | 82 | 0 × 3 | count u32 | source u64 | target u64 | numbers: u64 × count | arrived: u64 × count
Forget      | 83 | 0 × 7 | source u64 | target u64 | low u64
Divide      | 84 | 0 × 7 | logs u64 | place u64
"""

from __future__ import annotations

from array import array
from struct import Struct

from dovetail.core.consecutive import numbers
from dovetail.core.moves import Arrive, Divide, Forget, Leave, MoveSettle
from dovetail.core.operation import Kind
from dovetail.core.pushcodec import Data, decode_push, encode_push
from dovetail.errors import CodecError
from dovetail.limits import BATCH_MESSAGES_MAX

FORGET, DIVIDE = Struct("<B7xQQQ"), Struct("<B7xQQ")
ARRIVE = Struct("<B7xQQQQQ")
_LEAVE = Struct("<BB6xQQQ")
_SETTLE = Struct("<B3xIQQ")


def encode_leave(o: Leave) -> bytes:
    return _LEAVE.pack(Kind.LEAVE, o.returning, o.source, o.target, o.max)


def decode_leave(data: Data) -> Leave:
    _, returning, source, target, most = _LEAVE.unpack_from(data)
    if returning > 1 or len(data) != _LEAVE.size:
        raise CodecError(f"a Leave of {len(data)} bytes")
    return Leave(source, target, most, bool(returning))


def encode_arrive(o: Arrive) -> bytes:
    return ARRIVE.pack(Kind.ARRIVE, o.source, o.number, o.home, o.sequence, o.time) + encode_push(o.push)


def decode_arrive(data: Data) -> Arrive:
    push = decode_push(data[ARRIVE.size :])
    if len(push.queues) != 1 or len(push.bodies) != 1 or any((push.numbered, push.delays, push.dedups)):
        raise CodecError("what arrives is one message, for one queue")
    _, source, number, home, sequence, time = ARRIVE.unpack_from(data)
    return Arrive(source, number, home, sequence, time, push)


def encode_settle(o: MoveSettle) -> bytes:
    return _SETTLE.pack(Kind.MOVE_SETTLE, len(o.numbers), o.source, o.target) + numbers(o.numbers) + numbers(o.arrived)


def decode_settle(data: Data) -> MoveSettle:
    _, count, source, target = _SETTLE.unpack_from(data)
    if count > BATCH_MESSAGES_MAX or len(data) != _SETTLE.size + 16 * count:
        raise CodecError(f"{count} moves are settled in {len(data)} bytes")
    both = array("Q", bytes(data[_SETTLE.size :]))
    return MoveSettle(source, target, both[:count], both[count:])


FIXED = {Forget: (Kind.FORGET, FORGET), Divide: (Kind.DIVIDE, DIVIDE)}
