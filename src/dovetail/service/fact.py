"""A fact, as people look at it. Programs that read many take Arrow, whose columns have these names."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.chronicle import COUNTED, DELIVERED, DONE, MOVED, NONE, OUTCOMES, RESERVING, UNKNOWN, WORDS, Fact, Row, rows_of
from dovetail.stores.store import FactsRead

SETTING = (Fact.PUSH, Fact.DELIVERY, Fact.REQUEUE, Fact.EXTEND, Fact.RESCHEDULE)
"""They set a time, where they have a duration."""


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that happened to a queue. What a kind does not have is None; docs/spark.md has the kinds and what each says."""

    number: int
    position: int
    """The log's position behind the entry: what has the same one became durable together."""
    index: int
    """Of the operation in its entry."""
    time_ms: int
    kind: str
    outcome: str
    """done · repeat: it was there before · refused: nothing happened"""
    queue: str | None
    queue_id: int
    sequence: int | None
    count: int
    delivery: int | None
    receives: int | None
    duration_ms: int | None
    due_ms: int | None
    size: int | None
    """Of the body. (Arrow says `bytes`.)"""
    target: str | None
    target_sequence: int | None
    producer: bytes | None
    producer_number: int | None
    owner: str | None
    batch: int | None


def happened(read: FactsRead) -> list[Happened]:
    return [_happened(row, read) for row in rows_of(read.page)]


def _happened(row: Row, read: FactsRead) -> Happened:
    kind, named = row.kind, bool(row.label)
    sets = row.duration != NONE and kind in SETTING
    return Happened(
        row.number,
        row.position,
        row.step,
        row.time,
        WORDS[kind],
        OUTCOMES[row.outcome],
        read.names.get(row.queue),
        row.queue,
        row.sequence or None,
        row.third if kind in COUNTED else 1,
        row.second if kind in DELIVERED else None,
        row.third if kind is Fact.DELIVERY or kind is Fact.TAKE else None,
        row.duration if sets else None,
        row.time + row.duration if sets and (row.outcome == DONE or kind is Fact.DELIVERY) else None,
        row.third if kind is Fact.PUSH and row.third != UNKNOWN else None,
        read.names.get(row.target) if kind in MOVED else None,
        row.second if kind in MOVED else None,
        row.label if named and kind is Fact.PUSH else None,
        row.mark if named and kind is Fact.PUSH else None,
        row.label.decode() if named and kind in RESERVING else None,
        row.mark if named and kind in RESERVING else None,
    )
