"""A message's identity and its attributes as bytes.

Ids look like UUIDs (version 8) and are made from (queue id, sequence) by mixing that can be undone, so that a message can be cancelled
by its id without an index of ids. A salt of the namespace keeps the ids of different namespaces apart. They hide nothing; a receipt,
which proves something, is sealed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from dovetail.errors import CodecError, LimitExceeded
from dovetail.limits import ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTES_BYTES_MAX, ATTRIBUTES_MAX

_BITS = 122
_MASK = (1 << _BITS) - 1
MIX = 0x2C6FE96EE78B6955D9E2D43C6A5BB1D % (1 << _BITS) | 1
_UNMIX = pow(MIX, -1, 1 << _BITS)


def salt_of(key: bytes) -> int:
    """The salt of the namespace that has this key."""
    return int.from_bytes(blake2b(key, digest_size=16, person=b"dovetail-ids").digest(), "big") & _MASK


def id_of(queue: int, sequence: int, salt: int) -> bytes:
    """The sixteen bytes of the id of message `sequence` of `queue`."""
    mixed = (((queue << 64) | sequence) ^ salt) * MIX & _MASK
    mixed = (mixed ^ (mixed >> 61)) * MIX & _MASK
    high, middle, low = mixed >> 74, (mixed >> 62) & 0xFFF, mixed & ((1 << 62) - 1)
    return ((high << 80) | (0x8 << 76) | (middle << 64) | (0b10 << 62) | low).to_bytes(16, "big")


def of_id(identity: bytes, salt: int) -> tuple[int, int]:
    """(queue, sequence) of an id made by `id_of`; nonsense for ids that callers gave, so the result must be checked."""
    value = int.from_bytes(identity, "big")
    mixed = ((value >> 80) << 74) | (((value >> 64) & 0xFFF) << 62) | (value & ((1 << 62) - 1))
    mixed = mixed * _UNMIX & _MASK
    mixed = (mixed ^ (mixed >> 61)) * _UNMIX & _MASK ^ salt
    return mixed >> 64, mixed & ((1 << 64) - 1)


def id_text(identity: bytes) -> str:
    text = identity.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes:
    try:
        identity = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        identity = b""
    if len(identity) != 16:
        raise CodecError(f"not a message id: {text[:64]!r}")
    return identity


class Attribute(NamedTuple):
    """A typed value, as SQS has them: `type` is String, Number or Binary, with an optional label behind a dot."""

    type: str
    value: bytes


def dedup_hash(text: bytes, scope: bytes = b"") -> bytes:
    """The 128 bits by which a repeat is recognised."""
    # A key has at most 64 bytes, and two scopes that begin alike are two scopes.
    return blake2b(text, digest_size=16, key=scope if len(scope) <= 64 else blake2b(scope).digest()).digest()


def encode_attributes(attributes: Mapping[str, Attribute]) -> bytes:
    """u16 count, then for each: u16 name length, u16 type length, u32 value length, name, type, value."""
    if not attributes:
        return b""
    if len(attributes) > ATTRIBUTES_MAX:
        raise LimitExceeded(f"{len(attributes)} attributes; at most {ATTRIBUTES_MAX} are allowed")
    parts = [struct.pack("<H", len(attributes))]
    for name, attribute in attributes.items():
        key, label = name.encode(), attribute.type.encode()
        if not 1 <= len(key) <= ATTRIBUTE_NAME_BYTES_MAX or len(label) > ATTRIBUTE_NAME_BYTES_MAX:
            raise LimitExceeded(f"attribute name {name[:40]!r}: 1 to {ATTRIBUTE_NAME_BYTES_MAX} bytes are allowed")
        parts += (struct.pack("<HHI", len(key), len(label), len(attribute.value)), key, label, attribute.value)
    encoded = b"".join(parts)
    if len(encoded) > ATTRIBUTES_BYTES_MAX:
        raise LimitExceeded(f"attributes of {len(encoded)} bytes; at most {ATTRIBUTES_BYTES_MAX} are allowed")
    return encoded


def decode_attributes(data: bytes) -> dict[str, Attribute]:
    if not data:
        return {}
    try:
        (count,) = struct.unpack_from("<H", data)
        offset, attributes = 2, {}
        for _ in range(count):
            key_len, type_len, value_len = struct.unpack_from("<HHI", data, offset)
            offset += 8
            end = offset + key_len + type_len + value_len
            if end > len(data):
                raise CodecError("attributes are cut short")
            name = data[offset : offset + key_len].decode()
            attributes[name] = Attribute(data[offset + key_len : offset + key_len + type_len].decode(), data[end - value_len : end])
            offset = end
    except (struct.error, UnicodeDecodeError) as error:
        raise CodecError(f"attributes: {error}") from None
    return attributes
