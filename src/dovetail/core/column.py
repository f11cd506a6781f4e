"""A column of byte strings: one blob and where each string begins. Batches travel, rest and are read in columns, so that a hundred
messages cost one object and not a hundred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate


class Column:
    """Byte strings laid back to back; the i-th is `blob[offsets[i] : offsets[i + 1]]`."""

    __slots__ = ("blob", "offsets")

    def __init__(self, offsets: Sequence[int], blob: bytes | memoryview) -> None:
        self.offsets = offsets
        self.blob = blob

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Column:
        if len(strings) == 1:
            return cls((0, len(strings[0])), strings[0])
        return cls((0, *accumulate(map(len, strings))), b"".join(strings))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.blob[self.offsets[index] : self.offsets[index + 1]])

    def __iter__(self) -> Iterator[bytes]:
        blob = bytes(self.blob)
        offsets = self.offsets
        for index in range(len(offsets) - 1):
            yield blob[offsets[index] : offsets[index + 1]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Column({list(self)!r})"

    __hash__ = None  # type: ignore[assignment]  # a column is compared by value and its offsets may be a list
