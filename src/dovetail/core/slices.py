"""Slices: neighbours of one record, in columns, without an object for each message. What goes out in columns is put together of these.

A slice of a column is its offsets, where they begin, and its bytes. Joining columns means to move offsets: each by what lies before it. A
hundred offsets are moved by one addition of large numbers (1 µs; one by one they took 5), because no offset of ours reaches 2^32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from dovetail.core.codec import ATTRIBUTES, DEDUPS, DELAY, DELAYS, GROUPS, IDS, NUMBERED, Data, push_in
from dovetail.errors import CodecError

_PUSH = Struct("<BBHI")
_I = Struct("<I")
_ONES_KEPT = 256
_ZERO_ID = bytes(16)


class Piece(NamedTuple):
    """Part of a column: `offsets` are u32, one more than there are strings; `blob` begins where the first of them points."""

    offsets: memoryview
    blob: memoryview


class Slice(NamedTuple):
    bodies: Piece
    ids: memoryview | None = None
    groups: Piece | None = None
    attributes: Piece | None = None


def slice_of(record: Data, first: int, count: int) -> Slice:
    """`count` messages of a record from the `first`-th on."""
    try:
        data = memoryview(push_in(record))
        _, flags, queues, total = _PUSH.unpack_from(data)
        if first + count > total:
            raise CodecError(f"a record of {total} messages has no {count} from {first} on")
        at = 8 + 8 * queues
        if not flags:
            return Slice(_piece(data, at, total, first, count))
        at += 32 * bool(flags & NUMBERED) + 8 * bool(flags & DELAY)
        at += total * (8 * bool(flags & DELAYS) + 16 * bool(flags & DEDUPS))
        ids = groups = attributes = None
        if flags & IDS:
            ids = data[at + 16 * first : at + 16 * (first + count)]
            at += 16 * total
        if flags & GROUPS:
            groups = _piece(data, at, total, first, count)
            at = _behind(data, at, total)
        if flags & ATTRIBUTES:
            attributes = _piece(data, at, total, first, count)
            at = _behind(data, at, total)
        return Slice(_piece(data, at, total, first, count), ids, groups, attributes)
    except struct_error as error:
        raise CodecError(f"messages in a record: {error}") from None


def _piece(data: memoryview, at: int, total: int, first: int, count: int) -> Piece:
    begin = at + 4 * (total + 1)
    at += 4 * first
    start, end = _I.unpack_from(data, at)[0], _I.unpack_from(data, at + 4 * count)[0]
    return Piece(data[at : at + 4 * count + 4], data[begin + start : begin + end])


def _behind(data: memoryview, at: int, total: int) -> int:
    at += 4 * total
    size: int = _I.unpack_from(data, at)[0]
    return at + 4 + (size + 3 & ~3)


def empty(count: int) -> Piece:
    """`count` empty strings: where others of the column have something to say."""
    return Piece(memoryview(bytes(4 * count + 4)), memoryview(b""))


def joined(pieces: Sequence[Piece]) -> list[Data]:
    """One column of all the pieces, as a record has it (offsets, bytes, padding to 4), in parts that may be joined with others."""
    offsets, size = joined_offsets(pieces)
    return [*offsets, *[piece.blob for piece in pieces], bytes(-size & 3)]


def joined_offsets(pieces: Sequence[Piece]) -> tuple[list[Data], int]:
    """The offsets of all the pieces behind one another, and how many bytes they span."""
    if len(pieces) > 1 and all(len(piece.offsets) == 8 for piece in pieces):
        return _of_singles(pieces)
    parts: list[Data] = []
    size = 0
    for piece in pieces:
        offsets = piece.offsets
        start: int = _I.unpack_from(offsets)[0]
        if parts:
            offsets = offsets[4:]
        parts.append(moved(offsets, size - start) if size != start else offsets)
        size += len(piece.blob)
    return parts or [bytes(4)], size


def _of_singles(pieces: Sequence[Piece]) -> tuple[list[Data], int]:
    """Messages that came alone, each in a record of its own."""
    ends = [0]
    size = 0
    for piece in pieces:
        size += len(piece.blob)
        ends.append(size)
    return [b"".join(map(_I.pack, ends))], size


def moved(offsets: memoryview, by: int) -> bytes:
    """Each of the offsets plus `by`, which leaves all of them at 0 or above."""
    size = len(offsets)
    return (int.from_bytes(offsets, "little") + by * _ones(size >> 2)).to_bytes(size, "little")


@lru_cache(_ONES_KEPT)
def _ones(count: int) -> int:
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def message_sizes(part: Slice) -> list[int]:
    """How many bytes of body, group and attributes each message has."""
    found = [list(_sizes(column.offsets.cast("I"))) for column in (part.bodies, part.groups, part.attributes) if column is not None]
    return found[0] if len(found) == 1 else [sum(sizes) for sizes in zip(*found, strict=True)]


def size_of(part: Slice) -> int:
    """The same for all of them together."""
    return sum(len(column.blob) for column in (part.bodies, part.groups, part.attributes) if column is not None)


def _sizes(offsets: memoryview) -> Iterator[int]:
    return (end - start for start, end in pairwise(offsets))


def own_ids(part: Slice, count: int, made: bytes) -> Data:
    """16 bytes for each message: its own id, else `made` (which a message brought along that was moved), else zeros."""
    own = part.ids
    if own is None:
        return (made or _ZERO_ID) * count
    if not made:
        return own
    return b"".join(bytes(own[at : at + 16]) if any(own[at : at + 16]) else made for at in range(0, 16 * count, 16))
