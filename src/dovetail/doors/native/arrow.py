"""Reads of taps and of reserved batches as Arrow: stretches of the log become record batches without anything being done for each message.

Bodies are joined, their offsets are moved, what a run says once is repeated. Only ids are computed, all of a run at once: they are made of
queue and sequence by arithmetic on 122 bits, here in limbs of 32 bits and columns (60 ns for each; one by one it took 860).

pyarrow is loaded with this file, and this file only when somebody reads with Arrow.
"""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core import slices
from dovetail.core.message import MIX
from dovetail.core.slices import Piece
from dovetail.doors.native import factarrow
from dovetail.doors.native.answers.messages import MESSAGES
from dovetail.doors.native.frames import HEADER, Kind
from dovetail.doors.native.tapping import Part, Reading, has_ids
from dovetail.service.broker import FactsRead

SCHEMA = pa.schema(
    [
        pa.field("queue", pa.uint64(), nullable=False),
        pa.field("sequence", pa.uint64(), nullable=False),
        pa.field("time", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("group", pa.string()),
        pa.field("attributes", pa.binary()),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
RESERVED = SCHEMA.append(pa.field("receives", pa.uint32(), nullable=False))
_LOW = (1 << 32) - 1


class Streams:
    """Makes streams, and keeps the columns that are the same for all of them."""

    def __init__(self) -> None:
        self._empty_groups = pa.nulls(0, pa.string())
        self._empty_attributes = pa.nulls(0, pa.binary())
        self._steps = pa.array([], pa.uint64())

    def frame(self, number: int, reading: Reading, salt: bytes) -> bytes:
        """One ARROW frame."""
        stream = self.stream(reading, salt)
        head = MESSAGES.pack(reading.queue, reading.next, reading.end, reading.messages, 0)
        return b"".join((HEADER.pack(len(head) + len(stream), Kind.ARROW, 0, 0, number), head, stream))

    @staticmethod
    def facts_frame(number: int, read: FactsRead) -> bytes:
        """One ARROW frame of what happened."""
        stream = factarrow.stream(read)
        head = MESSAGES.pack(0, read.next, read.end, len(read.page), 0)
        return b"".join((HEADER.pack(len(head) + len(stream), Kind.ARROW, 0, 0, number), head, stream))

    def stream(self, reading: Reading, salt: bytes) -> Any:
        """The schema and one batch of everything that was read."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA if reading.receives is None else RESERVED) as writer:
            if reading.messages:
                writer.write_batch(self._batch(reading, int.from_bytes(salt, "big")))
        return sink.getvalue()

    def _batch(self, reading: Reading, salt: int) -> pa.RecordBatch:
        queue, count, parts = reading.queue, reading.messages, reading.parts
        sequences = self._sequences(parts, count)
        columns = [
            _fixed(pa.uint64(), count, queue.to_bytes(8, "little") * count),
            sequences,
            _fixed(SCHEMA.field("time").type, count, b"".join(_times(parts))),
            self._ids(queue, sequences, parts, count, salt),
            self._texts(parts, count),
            self._attributes(parts, count),
            _strings(pa.binary(), count, [part.slice.bodies for part in parts]),
        ]
        if reading.receives is None:
            return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        received = [times.to_bytes(4, "little") * part.noted.length for times, part in zip(reading.receives, parts, strict=True)]
        return pa.RecordBatch.from_arrays([*columns, _fixed(pa.uint32(), count, b"".join(received))], schema=RESERVED)

    def _sequences(self, parts: list[Part], count: int) -> pa.Array:
        if len(self._steps) < count:
            self._steps = pa.array(range(count), pa.uint64())
        found = []
        at = 0
        while at < len(parts):
            # Neighbours make one stretch, however many records they lie in.
            first = following = parts[at].noted.sequence
            while at < len(parts) and parts[at].noted.sequence == following:
                following += parts[at].noted.length
                at += 1
            found.append(pc.add(self._steps.slice(0, following - first), pa.scalar(first, pa.uint64())))
        return found[0] if len(found) == 1 else pa.concat_arrays(found)

    def _ids(self, queue: int, sequences: pa.Array, parts: list[Part], count: int, salt: int) -> pa.Array:
        made = _ids(queue, sequences, salt)
        if has_ids(parts):
            own = b"".join(slices.own_ids(part.slice, part.noted.length, part.noted.id) for part in parts)
            for at in range(0, len(own), 16):
                if any(own[at : at + 16]):
                    made[at : at + 16] = own[at : at + 16]
        return _fixed(pa.binary(16), count, made)

    def _texts(self, parts: list[Part], count: int) -> pa.Array:
        if any(part.slice.groups is not None for part in parts):
            return _or_null(_strings(pa.string(), count, [part.slice.groups or slices.empty(part.noted.length) for part in parts]))
        if len(self._empty_groups) < count:
            self._empty_groups = pa.nulls(count, pa.string())
        return self._empty_groups.slice(0, count)

    def _attributes(self, parts: list[Part], count: int) -> pa.Array:
        if any(part.slice.attributes is not None for part in parts):
            return _or_null(_strings(pa.binary(), count, [part.slice.attributes or slices.empty(part.noted.length) for part in parts]))
        if len(self._empty_attributes) < count:
            self._empty_attributes = pa.nulls(count, pa.binary())
        return self._empty_attributes.slice(0, count)


def _fixed(kind: pa.DataType, count: int, data: bytes | bytearray) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _times(parts: list[Part]) -> list[bytes]:
    return [part.noted.time_ms.to_bytes(8, "little") * part.noted.length for part in parts]


def _strings(kind: pa.DataType, count: int, pieces: list[Piece]) -> pa.Array:
    offsets, _ = slices.joined_offsets(pieces)
    blob = b"".join([piece.blob for piece in pieces])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(b"".join(offsets)), pa.py_buffer(blob)])


def _or_null(strings: pa.Array) -> pa.Array:
    """Without an empty one: nothing was said there."""
    return pc.if_else(pc.equal(pc.binary_length(strings), 0), pa.scalar(None, strings.type), strings)


# Ids: what core.message.id_of does for one, done for a column


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


_LOW32, _BY32 = _u64(_LOW), _u64(32)
_MIX_LIMBS = [_u64(MIX >> shift & _LOW) for shift in (0, 32, 64, 96)]
_TOP = _u64((1 << 26) - 1)
"""Of the fourth limb: 122 bits in all."""


def _ids(queue: int, sequences: pa.Array, salt: int) -> bytearray:
    """The ids that the queue makes for these sequences, 16 bytes each."""
    constant = ((queue << 64) ^ salt) & (1 << 122) - 1
    lowest, highest = [bound.as_py() >> 32 for bound in pc.min_max(sequences).values()]
    limbs = [pc.bit_wise_xor(pc.bit_wise_and(sequences, _LOW32), _u64(constant & _LOW))]
    if lowest == highest:
        # The same for all, as nearly always: three limbs of four are one number, and so is what becomes of them.
        rest = constant >> 32 ^ lowest
    else:
        limbs.append(pc.bit_wise_xor(pc.shift_right(sequences, _BY32), _u64(constant >> 32 & _LOW)))
        rest = constant >> 64
    mixed = _mixed(limbs, rest << 32 * len(limbs))
    low, high = _halves(mixed)
    low = pc.bit_wise_xor(low, pc.bit_wise_or(pc.shift_right(low, _u64(61)), pc.shift_left(high, _u64(3))))
    mixed = _mixed([pc.bit_wise_and(low, _LOW32), pc.shift_right(low, _BY32), mixed[2], mixed[3]])
    low, high = _halves(mixed)
    rest = pc.bit_wise_or(pc.shift_right(low, _u64(62)), pc.shift_left(high, _u64(2)))
    above = pc.bit_wise_or(pc.shift_left(pc.shift_right(rest, _u64(12)), _u64(16)), pc.bit_wise_and(rest, _u64(0xFFF)))
    below = pc.bit_wise_or(pc.bit_wise_and(low, _u64((1 << 62) - 1)), _u64(0b10 << 62))
    both = array("Q", bytes(16 * len(sequences)))
    both[0::2] = _swapped(pc.bit_wise_or(above, _u64(0x8 << 12)))
    both[1::2] = _swapped(below)
    return bytearray(both.tobytes())


def _mixed(limbs: list[pa.Array], constant: int = 0) -> list[pa.Array]:
    """The number in up to four limbs, and a constant above them, times MIX, modulo 2^122."""
    sums: list[pa.Array | None] = [None] * 4

    def put(at: int, value: pa.Array) -> None:
        known = sums[at]
        sums[at] = value if known is None else pc.add(known, value)

    for i, limb in enumerate(limbs):
        for j in range(4 - i):
            product = pc.multiply(limb, _MIX_LIMBS[j])
            if i + j == 3:
                put(3, product)  # What is above its 26 bits is cut off in the end.
            else:
                put(i + j, pc.bit_wise_and(product, _LOW32))
                put(i + j + 1, pc.shift_right(product, _BY32))
    if constant:
        for at in range(4):
            put(at, _u64(constant * MIX >> 32 * at & _LOW))
    for at in range(3):
        carry = pc.shift_right(sums[at], _BY32)
        sums[at] = pc.bit_wise_and(sums[at], _LOW32)
        put(at + 1, carry)
    sums[3] = pc.bit_wise_and(sums[3], _TOP)
    return sums


def _halves(limbs: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
    return pc.bit_wise_or(limbs[0], pc.shift_left(limbs[1], _BY32)), pc.bit_wise_or(limbs[2], pc.shift_left(limbs[3], _BY32))


def _swapped(column: pa.Array) -> array[int]:
    """Big-endian, as ids are."""
    made = array("Q", column.buffers()[1].to_pybytes()[: 8 * len(column)])
    made.byteswap()
    return made
