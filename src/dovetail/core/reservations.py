"""Reservations: named owners of messages that are set aside in batches, until the owner settles them. A batch is kept as runs of sequences
in the order in which they were taken, so that it costs by the run and not by the message.

| a batch | when | asked for again |
| --- | --- | --- |
| open | reserved, also with nothing in it | the same messages in the same order |
| settled | the owner settled it or a later one | refused |
| released | an operator gave everything back | refused, and so is settling it: its messages are with others |
| passed over | a later one was reserved first | refused |
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

NO_BATCH = -1


class Batch:
    """Runs of consecutive sequences, eight and four bytes each."""

    __slots__ = ("counts", "firsts")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.counts = array("I")

    def add(self, first: int, count: int) -> None:
        """What was taken next; right behind the last run it makes that longer."""
        if self.firsts and self.firsts[-1] + self.counts[-1] == first:
            self.counts[-1] += count
        else:
            self.firsts.append(first)
            self.counts.append(count)

    def runs(self) -> Iterator[tuple[int, int]]:
        return zip(self.firsts, self.counts, strict=True)

    def __len__(self) -> int:
        """Messages."""
        return sum(self.counts)


class Reservation:
    __slots__ = ("batches", "epoch", "last", "released", "settled")

    def __init__(self) -> None:
        self.epoch = 0
        """Of the owner; 0 while there is none."""
        self.batches: dict[int, Batch] = {}
        """Those that are open, by number, lowest first."""
        self.last = NO_BATCH
        """The highest number that was given out."""
        self.settled = NO_BATCH
        """Everything up to here is settled, but for what was released before."""
        self.released = NO_BATCH
        """The highest number that was given out when an operator released everything."""

    def __len__(self) -> int:
        """Messages that are set aside."""
        return sum(map(len, self.batches.values()))
