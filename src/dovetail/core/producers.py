"""Numbered producers: a number has one outcome, stored or refused, and is never used again.

A producer opens (apply gives it an epoch, which ends the one before) and numbers its messages from 1. A repeat is answered with the
first outcome as long as it is among the last 64, and later with "stored before". A gap, and a producer that is not open, are refused
without using the number.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.operation import Pushed, Why
from dovetail.limits import PRODUCER_RESULTS_KEPT

Result = tuple[tuple[int, int], ...] | Why
"""(queue, sequence) of each lane, or why it was refused."""


class Producer:
    __slots__ = ("epoch", "last", "results")

    def __init__(self) -> None:
        self.epoch = 0
        self.last = 0
        self.results: list[Result] = []
        """Of the numbers that end with `last`."""

    def settle(self, results: Sequence[Result], count: int | None = None) -> None:
        """The next numbers, as many as there are results, or `count` of which these are the last, have these outcomes."""
        self.last += len(results) if count is None else count
        self.results = [*self.results, *results][-PRODUCER_RESULTS_KEPT:]

    def result(self, number: int) -> Result | None:
        """The outcome of a number that was used; None where it is older than what is kept."""
        index = number - (self.last - len(self.results)) - 1
        return self.results[index] if 0 <= index < len(self.results) else None


def results_of(lanes: Sequence[Pushed], count: int) -> list[Result]:
    """The outcomes that are kept of a push of `count` new messages: those of the last."""
    columns = [[(lane.queue, sequence) for sequence in lane.sequences[max(0, count - PRODUCER_RESULTS_KEPT) :]] for lane in lanes]
    return list(zip(*columns, strict=True))


class Producers:
    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[bytes, Producer] = {}

    def open(self, identity: bytes) -> tuple[int, int]:
        """(new epoch, last number used)."""
        producer = self.by_id.setdefault(identity, Producer())
        producer.epoch += 1
        return producer.epoch, producer.last

    def judge(self, identity: bytes, epoch: int, number: int) -> Producer | Why:
        producer = self.by_id.get(identity)
        if producer is None or producer.epoch != epoch:
            return Why.NOT_OPEN
        if number > producer.last + 1 or number < 1:
            return Why.GAP
        return producer
