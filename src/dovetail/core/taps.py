"""Taps: named readers of everything that was pushed to a lane, each with its own position, independent of consumers.

A tap reads accepted pushes by sequence. The lane's chunks forget what is settled, so while a lane has a tap it also notes each pushed
run in columns here. At a snapshot those notes are written once, as a *stretch*, and leave memory; what is kept of a stretch is its
name and bounds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """`length` consecutive sequences from `first` on, in one record, pushed at one time."""

    first: int
    length: int
    address: int
    item: int
    time: int
    home_queue: int = 0
    home_sequence: int = 0
    """What made the id of a message that was moved here; 0 where the lane itself did."""


class Stretch(NamedTuple):
    """Runs that were written to a blob beside the log."""

    blob: str
    first: int
    end: int
    address: int
    """The lowest address in it: what the log must keep for its readers."""
    time: int = 0
    """When its first message was pushed; 0 in a snapshot that was written before this was noted."""


class Tap:
    __slots__ = ("age_ms", "bytes", "lost_count", "lost_first", "next")

    def __init__(self, start: int, age_ms: int, size: int) -> None:
        self.next = start
        self.age_ms = age_ms
        self.bytes = size
        self.lost_first = 0
        self.lost_count = 0


class Runs:
    """Columns of runs, in the order of their sequences: 48 bytes each."""

    __slots__ = ("addresses", "counts", "firsts", "home_queues", "home_sequences", "items", "times")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.counts = array("I")
        self.addresses = array("Q")
        self.items = array("I")
        self.times = array("Q")
        self.home_queues = array("Q")
        self.home_sequences = array("Q")

    def columns(self) -> tuple[array[int], ...]:
        """In the order of the fields of a Run."""
        return self.firsts, self.counts, self.addresses, self.items, self.times, self.home_queues, self.home_sequences

    def append(self, run: Run) -> None:
        for column, value in zip(self.columns(), run, strict=True):
            column.append(value)

    def followed_by(self, others: Runs) -> Runs:
        for column, more in zip(self.columns(), others.columns(), strict=True):
            column.extend(more)
        return self

    def __len__(self) -> int:
        return len(self.firsts)

    def since(self, sequence: int) -> Iterator[Run]:
        """Runs that hold `sequence` or anything above it."""
        for index in range(max(bisect_right(self.firsts, sequence) - 1, 0), len(self.firsts)):
            if self.firsts[index] + self.counts[index] > sequence:
                yield Run(*(column[index] for column in self.columns()))

    def time_of(self, sequence: int) -> int | None:
        """When it was pushed, or the first one behind it that is noted here; None where there is none."""
        index = bisect_right(self.firsts, sequence) - 1
        if index < 0 or self.firsts[index] + self.counts[index] <= sequence:
            index += 1
        return self.times[index] if index < len(self.times) else None

    def drop_between(self, first: int, end: int) -> None:
        """Forget runs that begin in `first` … `end - 1`."""
        low, high = bisect_left(self.firsts, first), bisect_left(self.firsts, end)
        for column in self.columns():
            del column[low:high]

    def drop_below(self, sequence: int) -> None:
        """Forget runs that lie wholly below `sequence`."""
        keep = bisect_right(self.firsts, sequence)
        if keep and self.firsts[keep - 1] + self.counts[keep - 1] > sequence:
            keep -= 1
        for column in self.columns():
            del column[:keep]


class Taps:
    __slots__ = ("by_name", "recent", "stretches")

    def __init__(self) -> None:
        self.by_name: dict[str, Tap] = {}
        self.recent = Runs()
        self.stretches: list[Stretch] = []

    @property
    def open(self) -> bool:
        return bool(self.by_name)

    def lowest(self) -> int | None:
        """The lowest sequence that a tap still needs."""
        return min((tap.next for tap in self.by_name.values()), default=None)

    def floor(self, following: int) -> int:
        """The lowest sequence that can still be read; `following` where there is none."""
        noted = [stretch.first for stretch in self.stretches]
        return min([*noted, self.recent.firsts[0] if len(self.recent) else following])

    def time_of(self, sequence: int) -> int | None:
        """When the first message from `sequence` on was pushed; None where there is none. Within a stretch, whose notes lie on the disk, it
        is when the stretch began: a little too early, and no file is read for it."""
        recent = self.recent.time_of(sequence)
        known = [stretch.time for stretch in self.stretches if stretch.end > sequence and stretch.time]
        return min([*known, *([recent] if recent is not None else [])], default=None)

    def forget(self) -> None:
        """Let go of what no tap needs any more."""
        lowest = self.lowest()
        if lowest is None:
            self.recent, self.stretches = Runs(), []
            return
        self.stretches = [stretch for stretch in self.stretches if stretch.end > lowest]
        if len(self.recent) and self.recent.firsts[0] + self.recent.counts[0] <= lowest:
            self.recent.drop_below(lowest)

    def written(self, stretch: Stretch) -> None:
        """`stretch` is durable: its runs leave memory. What was noted below it meanwhile (a tap opened at the earliest) stays."""
        self.stretches.append(stretch)
        self.recent.drop_between(stretch.first, stretch.end)

    def needed_address(self) -> int | None:
        """The lowest address that a tap may still ask for. (A dead letter's record lies lower than its neighbours'.)"""
        lowest = self.lowest()
        if lowest is None:
            return None
        needed = [stretch.address for stretch in self.stretches if stretch.end > lowest]
        if len(self.recent) and self.recent.firsts[-1] + self.recent.counts[-1] > lowest:
            needed.append(min(self.recent.addresses))
        return min(needed, default=None)
