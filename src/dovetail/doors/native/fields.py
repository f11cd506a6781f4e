"""The small parts of payloads: texts, rules of queues, the items that name parts of runs.

    text     u16 bytes, then UTF-8
    rules    u16 count, u16 extras, u32 zero; for each rule: u32 number, u32 zero, u64 value; for each extra: text, text
    item     first sequence u64, first delivery u64, count u32, from u32, to u32, zero u32, seal 8 bytes

Reading raises Malformed, or one of UNREADABLE, which decoders turn into it; nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import le
from struct import Struct
from struct import error as struct_error
from typing import Any

from dovetail.core.column import Column
from dovetail.core.receipts import Part
from dovetail.errors import CodecError
from dovetail.limits import BATCH_MESSAGES_MAX

_H = Struct("<H")
_RULES = Struct("<HHI")
_RULE = Struct("<IIQ")
ITEM = Struct("<QQIIII8s")
ITEM_BYTES = 40
UNREADABLE = (struct_error, UnicodeDecodeError, ValueError, IndexError, OverflowError)

RULES = (
    "",
    "lease_ms",
    "lease_max_ms",
    "delay_ms",
    "retention_ms",
    "receives_max",
    "dead_letter",
    "dedup_ms",
    "grouped",
    "in_flight_max",
    "backoff_ms",
    "backoff_max_ms",
)
"""The rules of a queue by their number on the wire. A number is never given to another rule."""
_NUMBERS = {name: number for number, name in enumerate(RULES) if name}

Rules = Mapping[str, Any]
"""Rule → value, as core.operation.Attributes names them: whole numbers, `grouped` True or False, `extra` texts by texts."""


Item = Part
"""Messages of a run that was handed out, as requests that settle name them."""


class Malformed(CodecError):
    """The payload is not what its kind says."""


class NoSuchKind(CodecError):
    """A frame of a kind that is not known here."""


class Walk:
    """Walks over a payload, never past its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def take(self, size: int) -> memoryview:
        if size < 0 or self.at + size > len(self.data):
            raise Malformed("the payload is cut short")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def text(self) -> str:
        return str(self.take(self.fixed(_H)[0]), "utf-8")

    def rest_text(self) -> str:
        return str(self.take(len(self.data) - self.at), "utf-8")

    def rules(self) -> dict[str, Any]:
        count, extras, zero = self.fixed(_RULES)
        given: dict[str, Any] = {}
        for _ in range(count):
            number, empty, value = self.fixed(_RULE)
            zero |= empty
            if not 1 <= number < len(RULES) or RULES[number] in given:
                raise Malformed(f"rule {number} is not known, or named twice")
            if RULES[number] == "grouped":
                if value > 1:
                    raise Malformed("grouped is 0 or 1")
                value = bool(value)
            elif value >= 1 << 63:
                raise Malformed(f"{RULES[number]} is too large")
            given[RULES[number]] = value
        if extras:
            given["extra"] = {self.text(): self.text() for _ in range(extras)}
        reserved(zero)
        return given

    def items(self, count: int) -> list[Item]:
        """`count` items that name at least one message each, and together no more than a batch may have."""
        if not 1 <= count <= BATCH_MESSAGES_MAX:
            raise Malformed(f"{count} items in one frame; 1 to {BATCH_MESSAGES_MAX} are allowed")
        found = []
        total = 0
        for sequence, delivery, size, start, end, zero, seal in ITEM.iter_unpack(self.take(ITEM_BYTES * count)):
            if not start < end <= size or zero:
                raise Malformed(f"an item names messages {start} to {end} of a run of {size}, or its reserved bits are not zero")
            found.append(Item(sequence, delivery, size, start, end, seal))
            total += end - start
        if total > BATCH_MESSAGES_MAX:
            raise Malformed(f"{total} messages named in one frame; at most {BATCH_MESSAGES_MAX} are allowed")
        return found

    def column(self, count: int) -> Column:
        """Byte strings as in records of the log: u32 offsets, then the strings back to back, padded to 4."""
        offsets = self.take(4 * (count + 1)).cast("I")
        if offsets[0] or (count > 1 and not all(map(le, offsets, offsets[1:]))):
            raise Malformed("the offsets of a column do not grow")
        blob = self.take(offsets[count])
        self.take(-len(blob) & 3)
        return Column(offsets, blob)

    def numbers(self, count: int) -> memoryview:
        return self.take(8 * count).cast("Q")

    def end(self) -> None:
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes too many")


def reserved(bits: int) -> None:
    if bits:
        raise Malformed("reserved bits are not zero")


def text(value: str) -> bytes:
    data = value.encode()
    return _H.pack(len(data)) + data


def rules(given: Rules) -> bytes:
    named = [(_NUMBERS[name], int(value)) for name, value in given.items() if name != "extra"]
    extra: Mapping[str, str] = given.get("extra") or {}
    parts = [_RULES.pack(len(named), len(extra), 0), *(_RULE.pack(number, 0, value) for number, value in named)]
    for pair in extra.items():
        parts += map(text, pair)
    return b"".join(parts)


def column(given: Column) -> bytes:
    blob = given.blob
    return b"".join((array("I", given.offsets).tobytes(), blob, bytes(-len(blob) & 3)))


def items(given: Sequence[Item]) -> bytes:
    return b"".join(ITEM.pack(one.sequence, one.delivery, one.length, one.start, one.end, 0, one.seal) for one in given)
