"""The packet: one entry as an engine keeps it. Pure bytes; little-endian.

     0               2       3       4               8               12              16
    +---------------+-------+-------+---------------+---------------+---------------+
    | "DV"          | 1     | 0     | record count  | packet bytes  | crc32c        |
    +---------------+-------+-------+---------------+---------------+---------------+
    | end           | crc32c        |   once per record: where it ends, counted from the first record's begin
    +---------------+---------------+
    | the records, back to back                                                     |
    +-------------------------------------------------------------------------------+

- The header's crc32c covers bytes 0..12 and the table, so it stands for the whole packet: who compares it has compared all records.
- A record's crc32c is seeded with its length, as in the frames of `local`, so that one record can be checked alone.

A record's *address* is the packet's number and the record's index in it, so it is the same on every node:

     63                              16 15            0
    +----------------------------------+---------------+
    | number                           | index         |
    +----------------------------------+---------------+
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from ...errors import CodecError, LimitExceeded

SHIFT = 16
RECORDS_MAX = 1 << SHIFT
VERSION = 1
OVERHEAD_BYTES = 16

_HEADER = Struct("<2sBBII")
_CRC = Struct("<I")
_PAIR = Struct("<II")
_MAGIC = b"DV"
_SEED = 0x0D0E7A12
HEADER_BYTES = _HEADER.size + _CRC.size

assert HEADER_BYTES == OVERHEAD_BYTES


def packet_bytes(records: Sequence[bytes]) -> int:
    return HEADER_BYTES + _PAIR.size * len(records) + sum(map(len, records))


def encode(records: Sequence[bytes]) -> bytes:
    if not 1 <= len(records) < RECORDS_MAX:
        raise LimitExceeded(f"an entry holds 1 to {RECORDS_MAX - 1} records, not {len(records)}")
    numbers: list[int] = []
    end = 0
    for record in records:
        size = len(record)
        end += size
        numbers.append(end)
        numbers.append(crc32c(record, size ^ _SEED))
    table = Struct(f"<{len(numbers)}I").pack(*numbers)
    head = _HEADER.pack(_MAGIC, VERSION, 0, len(records), HEADER_BYTES + len(table) + end)
    return b"".join((head, _CRC.pack(crc32c(table, crc32c(head))), table, *records))


def mark_of(packet: bytes | memoryview) -> int:
    """What stands for the whole packet. It was checked when the packet was decoded."""
    return int(_CRC.unpack_from(packet, _HEADER.size)[0])


def decode(packet: bytes | memoryview) -> list[memoryview]:
    """Its records, checked, as views. Total: it answers or raises CodecError."""
    view = memoryview(packet)
    if len(view) < HEADER_BYTES:
        raise CodecError("it is too short for a packet")
    magic, version, _, count, size = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise CodecError("it does not begin as a packet does: something else publishes here")
    if version != VERSION:
        raise CodecError(f"it is a packet of version {version}; this node knows {VERSION}")
    begin = HEADER_BYTES + _PAIR.size * count
    if size != len(view) or not 1 <= count < RECORDS_MAX or begin > size:
        raise CodecError(f"a packet of {size} bytes and {count} records came with {len(view)} bytes")
    table = view[HEADER_BYTES:begin]
    if mark_of(view) != crc32c(table, crc32c(view[: _HEADER.size])):
        raise CodecError("its head is damaged")
    records = []
    at = 0
    for end, checksum in _PAIR.iter_unpack(table):
        record = view[begin + at : begin + end]
        if end < at or len(record) != end - at or crc32c(record, len(record) ^ _SEED) != checksum:
            raise CodecError("one of its records is damaged")
        records.append(record)
        at = end
    if begin + at != size:
        raise CodecError("there are bytes behind its records")
    return records


def record_at(view: memoryview, offset: int, index: int) -> memoryview:
    """One record of the packet that begins at `offset`, checked; CodecError where it is not what was written."""
    count = _HEADER.unpack_from(view, offset)[3]
    if index >= count:
        raise CodecError(f"the packet has no record {index}")
    place = offset + HEADER_BYTES + _PAIR.size * index
    end, checksum = _PAIR.unpack_from(view, place)
    start = _PAIR.unpack_from(view, place - _PAIR.size)[0] if index else 0
    begin = offset + HEADER_BYTES + _PAIR.size * count
    record = view[begin + start : begin + end]
    if len(record) != end - start or crc32c(record, len(record) ^ _SEED) != checksum:
        raise CodecError(f"record {index} of the packet is damaged")
    return record
