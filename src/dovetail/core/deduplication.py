"""Which messages were seen before: 128-bit hash → sequence, outside the object heap.

A repeat is judged by entry time: a hash counts for `window_ms` after it was stored, also when the message is long gone. Entries are never
deleted one by one. Two generations of tables exist; when the newer one spans a window, the older one is dropped whole.
A table has 256 parts by the hash's first byte, so that growing one part moves a few thousand slots and never a million.
"""

from __future__ import annotations

from collections.abc import Iterator

_SLOT = 32
_HASH = 16
_PARTS = 256
_EMPTY = bytes(_HASH)


class _Table:
    """Open addressing in byte arrays: each slot holds hash (16), sequence (8) and time (8)."""

    __slots__ = ("began", "counts", "parts")

    def __init__(self, began: int) -> None:
        self.began = began
        self.parts: list[bytearray | None] = [None] * _PARTS
        self.counts = [0] * _PARTS

    def get(self, key: bytes) -> tuple[int, int] | None:
        part = self.parts[key[0]]
        if part is None:
            return None
        slots = len(part) // _SLOT
        slot = int.from_bytes(key[1:8], "little") % slots
        while True:
            at = slot * _SLOT
            found = part[at : at + _HASH]
            if found == key:
                return int.from_bytes(part[at + 16 : at + 24], "little"), int.from_bytes(part[at + 24 : at + 32], "little")
            if found == _EMPTY:
                return None
            slot = (slot + 1) % slots

    def put(self, key: bytes, sequence: int, time: int) -> None:
        number = key[0]
        part = self.parts[number]
        if part is None:
            part = self.parts[number] = bytearray(_SLOT * 8)
        elif self.counts[number] * 3 >= len(part) // _SLOT * 2:
            part = self._grow(number, part)
        self.counts[number] += _insert(part, key, sequence.to_bytes(8, "little") + time.to_bytes(8, "little"))

    def _grow(self, number: int, old: bytearray) -> bytearray:
        part = bytearray(len(old) * 2)
        for at in range(0, len(old), _SLOT):
            key = bytes(old[at : at + _HASH])
            if key != _EMPTY:
                _insert(part, key, bytes(old[at + _HASH : at + _SLOT]))
        self.parts[number] = part
        return part


def _insert(part: bytearray, key: bytes, value: bytes) -> int:
    slots = len(part) // _SLOT
    slot = int.from_bytes(key[1:8], "little") % slots
    while True:
        at = slot * _SLOT
        found = part[at : at + _HASH]
        if found in (_EMPTY, key):
            part[at : at + _SLOT] = key + value
            return int(found != key)
        slot = (slot + 1) % slots


class Deduplication:
    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: list[_Table] = []

    def seen(self, key: bytes, now: int, window_ms: int) -> int | None:
        """The sequence that this hash got within the window, or None."""
        for table in reversed(self.tables):
            found = table.get(key)
            if found is not None:
                return found[0] if found[1] + window_ms > now else None
        return None

    def put(self, key: bytes, sequence: int, now: int, window_ms: int) -> None:
        if not self.tables or self.tables[-1].began + window_ms <= now:
            self.tables = [*self.tables[-1:], _Table(now)]
        self.tables[-1].put(key, sequence, now)

    def clear(self) -> None:
        self.tables = []

    def __len__(self) -> int:
        return sum(sum(table.counts) for table in self.tables)

    def dump(self) -> Iterator[tuple[int, int, bytes]]:
        """(generation, part with its count in the low byte order, bytes) of everything, for a snapshot."""
        for generation, table in enumerate(self.tables):
            yield generation, -1, table.began.to_bytes(8, "little")
            for number, part in enumerate(table.parts):
                if part is not None:
                    yield generation, number, table.counts[number].to_bytes(8, "little") + part

    def load(self, generation: int, number: int, data: bytes) -> None:
        head = int.from_bytes(data[:8], "little")
        if number < 0:
            self.tables.append(_Table(head))
        else:
            self.tables[generation].counts[number] = head
            self.tables[generation].parts[number] = bytearray(data[8:])
