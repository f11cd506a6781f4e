"""The frame: how one entry lies in a log. Pure bytes; it knows neither files nor what the records mean.

Everything is little-endian and 8-byte aligned. A position counts 8-byte units of the logical log, so that
`address = position + (offset of the record's own header within the frame) / 8`.

     0               4               8              12              16
    +---------------+---------------+-------------------------------+
    | frame bytes   | crc32c        | position                      |   the frame's header: 32 bytes
    +---------------+---------------+---------------+---------------+
    | synced                        | record count  | chain         |
    +---------------+---------------+---------------+---------------+
    | record bytes  | crc32c        | the record ...                |   once per record
    +---------------+---------------+                               |
    | ...                           zero padding to 8 bytes         |
    +---------------------------------------------------------------+

- `frame bytes` counts header, records and padding. Zero means that nothing was written here.
- The header's crc32c covers bytes 8..32 and is seeded with the frame's length and the log's *salt*, so that neither a changed length
  nor a frame of another log (or one that a sender hid in a body) can pass.
- `synced` is the position up to which the log was known to be durable when this frame was written. It is what tells damage from a
  torn tail: a whole frame that says "durable up to here" vouches for everything before that place.
- `chain` is the crc32c over all record headers in order. It binds the records to this header: a record that an earlier, abandoned
  frame left at the same place has a valid checksum of its own, and only the chain refuses it.
- A record's crc32c is seeded with its length (and a constant, so that zeros are not an empty record) and covers its bytes. So the data
  is summed once, and one record can be checked alone.

A frame without records is a *mark*: it exists for its `synced` alone and is never given to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack

from crc32c import crc32c

from ..errors import CodecError
from ..limits import ENTRY_BYTES_MIN, SEGMENT_BYTES_MIN

UNIT_BYTES = 8
HEADER_BYTES = 32
RECORD_HEADER_BYTES = 8
FRAME_BYTES_MAX = SEGMENT_BYTES_MIN - 4096
"""The largest frame: it fits into a segment of any legal size."""

_HEADER = Struct("<IIQQII")
_HEADER_REST = Struct("<QQII")
_PAIR = Struct("<II")
_unpack_header = _HEADER.unpack_from
_unpack_pair = _PAIR.unpack_from
_pack_pair = _PAIR.pack
_RECORD_SEED = 0x0D0E7A11
_PAIRS_MADE = 33
_PAIRS = tuple(Struct(f"<{2 * count}I") for count in range(_PAIRS_MADE))
_ZEROS = tuple(bytes(n) for n in range(8))

assert FRAME_BYTES_MAX >= ENTRY_BYTES_MIN
assert _HEADER.size == HEADER_BYTES and HEADER_BYTES % UNIT_BYTES == 0


def frame_bytes(records: Sequence[bytes | memoryview]) -> int:
    """The length of the frame that holds these records."""
    return HEADER_BYTES + sum((len(record) + 15) & ~7 for record in records)


def encode(records: Sequence[bytes], position: int, synced: int, salt: int = 0) -> tuple[bytes, list[int]]:
    """One frame and the addresses of its records."""
    heads: list[bytes] = []
    parts: list[bytes] = [b""]
    addresses: list[int] = []
    offset = HEADER_BYTES
    for record in records:
        size = len(record)
        head = _pack_pair(size, crc32c(record, size ^ _RECORD_SEED))
        heads.append(head)
        addresses.append(position + (offset >> 3))
        parts.append(head)
        parts.append(record)
        if size & 7:
            parts.append(_ZEROS[-size & 7])
        offset += (size + 15) & ~7
    rest = _HEADER_REST.pack(position, synced, len(heads), crc32c(b"".join(heads)))
    parts[0] = _pack_pair(offset, crc32c(rest, offset ^ salt)) + rest
    return b"".join(parts), addresses


def peek(view: memoryview, offset: int, position: int, salt: int = 0) -> tuple[int, int, int] | None:
    """(frame bytes, synced, record count) if a whole, valid header for `position` lies at `offset`; else None. Records are not checked."""
    if len(view) - offset < HEADER_BYTES:
        return None
    size, crc, own, synced, count, _ = _unpack_header(view, offset)
    if own != position or not HEADER_BYTES <= size <= FRAME_BYTES_MAX or size & 7 or size > len(view) - offset:
        return None
    if crc != crc32c(view[offset + 8 : offset + HEADER_BYTES], size ^ salt):
        return None
    if synced > position or count > (size - HEADER_BYTES) >> 3:
        return None
    return size, synced, count


def decode(view: memoryview, offset: int, position: int, salt: int = 0) -> tuple[int, int, list[memoryview], list[int]]:
    """(frame bytes, synced, records, addresses) of the frame at `offset`, checked whole. The records are views: nothing is copied.

    Total: whatever the bytes are, it answers or raises CodecError, and allocates no more than the frame's own bytes account for.
    """
    # This is what a start after a crash spends its time in: `peek` is written out here, and each record is touched once.
    if len(view) - offset < HEADER_BYTES:
        raise CodecError(f"no frame at position {position}")
    size, crc, own, synced, count, chain = _unpack_header(view, offset)
    at = offset + HEADER_BYTES
    end = offset + size
    if own != position or not HEADER_BYTES <= size <= FRAME_BYTES_MAX or size & 7 or end > len(view):
        raise CodecError(f"no frame at position {position}")
    if crc != crc32c(view[offset + 8 : at], size ^ salt) or synced > position or count > (size - HEADER_BYTES) >> 3:
        raise CodecError(f"no frame at position {position}")
    shift = position - (offset >> 3)
    records: list[memoryview] = []
    addresses: list[int] = []
    pairs: list[int] = []
    for _ in range(count):
        if at == end:
            raise CodecError(f"the frame at position {position} has fewer records than it says")
        length, crc = pair = _unpack_pair(view, at)
        start = at + 8
        stop = start + length
        if stop > end:
            raise CodecError(f"the frame at position {position} ends inside a record")
        record = view[start:stop]
        if crc32c(record, length ^ _RECORD_SEED) != crc:
            raise CodecError(f"a record of the frame at position {position} does not match its checksum")
        records.append(record)
        addresses.append(shift + (at >> 3))
        pairs += pair
        at = (stop + 7) & ~7
    if at != end:
        raise CodecError(f"the frame at position {position} is longer than its records")
    heads = _PAIRS[count].pack(*pairs) if count < _PAIRS_MADE else pack(f"<{2 * count}I", *pairs)
    if crc32c(heads) != chain:
        raise CodecError(f"the records of the frame at position {position} are not its own")
    return size, synced, records, addresses


def record_at(view: memoryview, offset: int) -> memoryview:
    """The one record whose own header lies at `offset`, checked; CodecError where there is none."""
    if offset < 0 or offset & 7 or len(view) - offset < RECORD_HEADER_BYTES:
        raise CodecError("no record here")
    length, crc = _unpack_pair(view, offset)
    start = offset + RECORD_HEADER_BYTES
    if length > len(view) - start:
        raise CodecError("the record is longer than what holds it")
    record = view[start : start + length]
    if crc32c(record, length ^ _RECORD_SEED) != crc:
        raise CodecError("the record does not match its checksum")
    return record
