"""A push as bytes and back: the one operation that carries messages, and the part of others that do. Little-endian; columns are read in
place; docs/format-entry.md draws it.

    0      1       2        4        8
    | kind | flags | queues | count  | queue ids: u64 × queues | sections as flags say, in this order:
    NUMBERED    producer 16 · epoch u64 · number u64
    DELAY       one u64 for all          DELAYS   u64 × count       (2^64 - 1: what the queue says)
    DEDUPS      16 × count               IDS      16 × count
    GROUPS      column                   ATTRIBUTES  column
    then the bodies: column
    column      offsets: u32 × (count + 1), then the bytes back to back, padded to 4

It never reads past the end of what it was given, and allocates no more than that.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from operator import le
from struct import Struct, unpack_from

from dovetail.core.column import Column
from dovetail.core.operation import DEFAULT, Kind, Numbered, Push
from dovetail.errors import CodecError
from dovetail.limits import BATCH_MESSAGES_MAX, QUEUES_PER_PUSH_MAX

if sys.byteorder != "little":
    raise ImportError("Dovetail reads its columns in place and runs on little-endian machines only")

NUMBERED, DELAY, DELAYS, DEDUPS, IDS, GROUPS, ATTRIBUTES = 1, 2, 4, 8, 16, 32, 64
_NO_DELAY = (1 << 64) - 1

HEAD = Struct("<BBHI")
NUMBERS = Struct("<16sQQ")
TWO = Struct("<II")
_ONE = Struct("<BBHIQII")
_NOTHING_MORE = (None,) * 6
_PADDING = tuple(bytes(size) for size in range(4))
_I = Struct("<I")
_Q = Struct("<Q")

Data = bytes | memoryview


def encode_push(push: Push, kind: int = Kind.PUSH) -> bytes:
    if len(push.queues) == 1 and push[2:] == _NOTHING_MORE and len(push.bodies.offsets) == 2:
        # One body and nothing else: what every push of a node with many queues is.
        blob = push.bodies.blob
        size = len(blob)
        return b"".join((_ONE.pack(kind, 0, 1, 1, push.queues[0], 0, size), blob, _PADDING[-size & 3]))
    count, flags = len(push.bodies), 0
    parts: list[Data] = [b"", b"".join(map(_Q.pack, push.queues)) if len(push.queues) != 1 else _Q.pack(push.queues[0])]
    if push.numbered is not None:
        flags |= NUMBERED
        parts.append(NUMBERS.pack(*push.numbered))
    if push.delays is not None:
        flags |= DELAY if len(push.delays) == 1 else DELAYS
        parts.append(array("Q", [_NO_DELAY if delay < 0 else delay for delay in push.delays]).tobytes())
    if push.dedups is not None:
        flags |= DEDUPS
        parts.append(push.dedups)
    if push.ids is not None:
        flags |= IDS
        parts.append(push.ids)
    if push.groups is not None:
        flags |= GROUPS
        _encode_column(push.groups, parts)
    if push.attributes is not None:
        flags |= ATTRIBUTES
        _encode_column(push.attributes, parts)
    _encode_column(push.bodies, parts)
    parts[0] = HEAD.pack(kind, flags, len(push.queues), count)
    return b"".join(parts)


def _encode_column(column: Column, parts: list[Data]) -> None:
    offsets = column.offsets
    if len(offsets) == 2 and type(offsets) is tuple:
        parts.append(TWO.pack(0, offsets[1]))
    else:
        parts.append(array("I", offsets).tobytes())
    parts.append(column.blob)
    padding = -len(column.blob) & 3
    if padding:
        parts.append(bytes(padding))


class Reader:
    """Walks the sections of a push, never past its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: Data, at: int) -> None:
        self.data = data if isinstance(data, memoryview) else memoryview(data)
        self.at = at

    def take(self, size: int) -> memoryview:
        if self.at + size > len(self.data):
            raise CodecError("a push is cut short")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def column(self, count: int) -> Column:
        offsets = self.take(4 * (count + 1)).cast("I")
        size = offsets[count]
        if offsets[0] or (count > 1 and not all(map(le, offsets, offsets[1:]))):
            raise CodecError("the offsets of a column do not grow")
        blob = self.take(size)
        self.at += -size & 3
        return Column(offsets, blob)

    def skip_column(self, count: int) -> None:
        self.at += 4 * count
        self.at += 4 + (_I.unpack_from(self.data, self.at)[0] + 3 & ~3)


def decode_push(data: Data) -> Push:
    _, flags, queue_count, count = HEAD.unpack_from(data)
    if not 1 <= queue_count <= QUEUES_PER_PUSH_MAX or not 1 <= count <= BATCH_MESSAGES_MAX:
        raise CodecError(f"a push of {count} messages to {queue_count} queues")
    reader = Reader(data, HEAD.size + 8 * queue_count)
    queues = _Q.unpack_from(data, HEAD.size) if queue_count == 1 else unpack_from(f"<{queue_count}Q", data, HEAD.size)
    if not flags:
        # What a start after a crash reads most.
        return Push(queues, reader.column(count))
    numbered = Numbered(*NUMBERS.unpack(reader.take(NUMBERS.size))) if flags & NUMBERED else None
    delays: Sequence[int] | None = None
    if flags & (DELAY | DELAYS):
        raw = reader.take(8 if flags & DELAY else 8 * count).cast("Q")
        delays = [DEFAULT if delay == _NO_DELAY else delay for delay in raw]
    dedups = bytes(reader.take(16 * count)) if flags & DEDUPS else None
    ids = bytes(reader.take(16 * count)) if flags & IDS else None
    groups = reader.column(count) if flags & GROUPS else None
    attributes = reader.column(count) if flags & ATTRIBUTES else None
    return Push(queues, reader.column(count), delays, groups, dedups, ids, attributes, numbered)
