"""Receipts: proof of one delivery, sealed with the namespace's key so that nobody can make one up.

 0        8          16         24      32
| queue  | sequence | delivery | seal  |      seal = BLAKE2b-64 of the first 24 bytes under the key
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from dovetail.errors import ReceiptInvalid

_FIELDS = Struct("<QQQ")
_TEXT_CHARS = 43
_LAST = frozenset("AEIMQUYcgkosw048")
"""32 bytes leave two bits of the last letter over. They are zero, so that a receipt has one spelling only."""
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/\xff\xff")


class Receipt(NamedTuple):
    queue: int
    sequence: int
    delivery: int


def seal(key: bytes, queue: int, sequence: int, delivery: int) -> str:
    fields = _FIELDS.pack(queue, sequence, delivery)
    sealed = b2a_base64(fields + blake2b(fields, digest_size=8, key=key).digest(), newline=False)
    return sealed.translate(_TO_URL, b"=").decode()


def seal_run(key: bytes, queue: int, sequence: int, delivery: int, count: int) -> list[str]:
    """The receipts of neighbours that were handed out together."""
    pack = _FIELDS.pack
    made = []
    for offset in range(count):
        fields = pack(queue, sequence + offset, delivery + offset)
        sealed = b2a_base64(fields + blake2b(fields, digest_size=8, key=key).digest(), newline=False)
        made.append(sealed.translate(_TO_URL, b"=").decode())
    return made


def unseal_all(key: bytes, queue: int, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """(sequences, deliveries) of receipts of one queue; ReceiptInvalid where one was not made with this key, or for another queue."""
    sequences, deliveries = [], []
    for text in texts:
        own, sequence, delivery = unseal(key, text)
        if own != queue:
            raise ReceiptInvalid("The receipt belongs to another queue.")
        sequences.append(sequence)
        deliveries.append(delivery)
    return sequences, deliveries


def unseal(key: bytes, text: str) -> Receipt:
    """The receipt, or ReceiptInvalid where it was not made with this key."""
    try:
        data = (
            a2b_base64(text.encode().translate(_FROM_URL) + b"=", strict_mode=True)
            if len(text) == _TEXT_CHARS and text[-1] in _LAST
            else b""
        )
    except ValueError:
        data = b""
    if len(data) != 32 or not compare_digest(blake2b(data[:24], digest_size=8, key=key).digest(), data[24:]):
        raise ReceiptInvalid
    return Receipt(*_FIELDS.unpack_from(data))
