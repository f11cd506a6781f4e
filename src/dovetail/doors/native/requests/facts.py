"""Requests about facts taps: named readers of what happened to the queues of a namespace."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Walk
from dovetail.doors.native.frames import Kind

FACTS_POSITION = (1 << 64) - 1
"""In place of a number: where the tap stands."""

_OPEN = Struct("<QQQ")
_READ = Struct("<QII")
_ADVANCE = Struct("<Q")


class FactsOpen(NamedTuple):
    """`start` is the number of a fact, 0 for the earliest that is kept, 2^64 - 1 for the next. An empty namespace is the caller's."""

    name: str
    start: int
    age_ms: int
    bytes_max: int
    namespace: str = ""

    def encode(self) -> bytes:
        return _OPEN.pack(self.start, self.age_ms, self.bytes_max) + fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> FactsOpen:
        start, age_ms, size = walk.fixed(_OPEN)
        namespace = walk.text()
        return cls(walk.text(), start, age_ms, size, namespace)


class FactsRead(NamedTuple):
    """The next `most` numbers from one on, or from where the tap stands: ARROW."""

    name: str
    from_number: int
    most: int
    namespace: str = ""

    def encode(self) -> bytes:
        return _READ.pack(self.from_number, self.most, 0) + fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> FactsRead:
        number, most, zero = walk.fixed(_READ)
        fields.reserved(zero)
        namespace = walk.text()
        return cls(walk.text(), number, most, namespace)


class FactsAdvance(NamedTuple):
    """What lies below `number` is no longer needed."""

    name: str
    number: int
    namespace: str = ""

    def encode(self) -> bytes:
        return _ADVANCE.pack(self.number) + fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> FactsAdvance:
        (number,) = walk.fixed(_ADVANCE)
        namespace = walk.text()
        return cls(walk.text(), number, namespace)


class FactsAbout(NamedTuple):
    """FACTS_LIST, without a name, and FACTS_CLOSE."""

    kind: Kind
    name: str = ""
    namespace: str = ""

    def encode(self) -> bytes:
        return fields.text(self.namespace) + fields.text(self.name)

    @classmethod
    def decoder(cls, kind: Kind) -> Callable[[Walk, int], FactsAbout]:
        def decode(walk: Walk, flags: int) -> FactsAbout:
            namespace = walk.text()
            return cls(kind, walk.text(), namespace)

        return decode
