"""Receipts: proof of one delivery, sealed with the namespace's key so that nobody can make one up.

 0        8          16         24      32
| queue  | sequence | delivery | seal  |      seal = BLAKE2b-64 of the first 24 bytes under the key

Neighbours that were handed out together have consecutive sequences and delivery numbers, and may have one seal for all of them: over queue,
first sequence, first delivery number and length (u64 each), personalised so that neither kind of seal can pass for the other. Who holds it
may name any part of the run, and nothing beyond it.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Any, NamedTuple

from dovetail.errors import ReceiptInvalid

_FIELDS = Struct("<QQQ")
_RUN = Struct("<QQQQ")
_RUN_PERSON = b"dovetail-run"
SEAL_BYTES = 8
_TEXT_CHARS = 43
_LAST = frozenset("AEIMQUYcgkosw048")
"""32 bytes leave two bits of the last letter over. They are zero, so that a receipt has one spelling only."""
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/\xff\xff")


class Receipt(NamedTuple):
    queue: int
    sequence: int
    delivery: int


@lru_cache(maxsize=16)
def _keyed(key: bytes) -> Any:
    """A hash that has taken in the key. Copying it takes half of the time that giving it the key again would."""
    return blake2b(digest_size=8, key=key)


@lru_cache(maxsize=16)
def _keyed_for_runs(key: bytes) -> Any:
    return blake2b(digest_size=SEAL_BYTES, key=key, person=_RUN_PERSON)


def seal(key: bytes, queue: int, sequence: int, delivery: int) -> str:
    return seal_run(key, queue, sequence, delivery, 1)[0]


def seal_run(key: bytes, queue: int, sequence: int, delivery: int, count: int) -> list[str]:
    """The receipts of neighbours that were handed out together."""
    pack, keyed = _FIELDS.pack, _keyed(key).copy
    made = []
    for offset in range(count):
        fields = pack(queue, sequence + offset, delivery + offset)
        mac = keyed()
        mac.update(fields)
        sealed = b2a_base64(fields + mac.digest(), newline=False)
        made.append(sealed.translate(_TO_URL, b"=").decode())
    return made


class Part(NamedTuple):
    """Messages `start` to `end - 1` of a run that was handed out: the run, what is meant of it, and the seal that proves it."""

    sequence: int
    delivery: int
    length: int
    start: int
    end: int
    seal: bytes


def seal_of_run(key: bytes, queue: int, sequence: int, delivery: int, length: int) -> bytes:
    """The one seal of neighbours that were handed out together."""
    mac = _keyed_for_runs(key).copy()
    mac.update(_RUN.pack(queue, sequence, delivery, length))
    sealed: bytes = mac.digest()
    return sealed


def seals_run(key: bytes, queue: int, sequence: int, delivery: int, length: int, sealed: bytes) -> bool:
    """Whether this is that seal."""
    return compare_digest(seal_of_run(key, queue, sequence, delivery, length), sealed)


def check_parts(key: bytes, queue: int, parts: Sequence[Part]) -> None:
    """ReceiptInvalid where one of them was not made with this key, or for another queue or run."""
    for sequence, delivery, length, start, end, sealed in parts:
        if not seals_run(key, queue, sequence, delivery, length, sealed) or not 0 <= start < end <= length:
            raise ReceiptInvalid


def unseal_all(key: bytes, queue: int, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """(sequences, deliveries) of receipts of one queue; ReceiptInvalid where one was not made with this key, or for another queue."""
    sequences, deliveries = [], []
    keyed = _keyed(key).copy
    for text in texts:
        own, sequence, delivery = _opened(keyed, text)
        if own != queue:
            raise ReceiptInvalid("The receipt belongs to another queue.")
        sequences.append(sequence)
        deliveries.append(delivery)
    return sequences, deliveries


def unseal(key: bytes, text: str) -> Receipt:
    """The receipt, or ReceiptInvalid where it was not made with this key."""
    return Receipt(*_opened(_keyed(key).copy, text))


def _opened(keyed: Callable[[], Any], text: str) -> tuple[int, int, int]:
    if len(text) != _TEXT_CHARS or text[-1] not in _LAST:
        raise ReceiptInvalid
    try:
        data = a2b_base64(text.encode().translate(_FROM_URL) + b"=", strict_mode=True)
    except ValueError:
        raise ReceiptInvalid from None
    fields = data[:24]
    mac = keyed()
    mac.update(fields)
    if not compare_digest(mac.digest(), data[24:]):
        raise ReceiptInvalid
    return _FIELDS.unpack(fields)
