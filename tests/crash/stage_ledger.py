"""The ledger of stages and reservations: what was published is there once and whole, or not at all; a batch that was given out stays the
same until it is settled, and nobody else gets its messages. It believes nothing but what it hears.
"""

from __future__ import annotations

from typing import Any

from tests.crash.ledger import LawBroken, Ledger

SINK = "sink"
"""The queue into which everything is published."""


class StageLedger(Ledger):
    def __init__(self) -> None:
        super().__init__()
        self.publishes: dict[int, list[str]] = {}
        """batch → keys of every publish that was ever asked for."""
        self.published = -1
        self.batches: dict[int, list[str]] = {}
        """batch → keys, of everything that was ever told to be reserved."""
        self.taken: dict[str, int] = {}
        self.asked_batch = self.asked_settle = self.settled = -1

    def hear(self, word: str, *rest: Any) -> None:
        match word:
            case "publish?":
                batch, *keys = rest
                self.publishes[batch] = keys
                self.asked.update(dict.fromkeys(keys, SINK))
            case "publish":
                self.published = max(self.published, rest[0])
                self.acked.update(self.publishes[rest[0]])
            case "reserve?":
                self.asked_batch = max(self.asked_batch, rest[0])
            case "reserve":
                batch, *keys = rest
                self._reserved(batch, keys)
            case "settle?":
                self.asked_settle = max(self.asked_settle, rest[0])
                self.leaving.update(key for batch, keys in self.batches.items() if batch <= rest[0] for key in keys)
            case "settle":
                self.settled = max(self.settled, rest[0])
                self.left.update(key for batch, keys in self.batches.items() if batch <= rest[0] for key in keys)
            case "got" if rest[0] in self.taken:
                raise LawBroken(f"{rest[0]} is reserved in batch {self.taken[rest[0]]} and was handed to somebody else")
        super().hear(word, *rest)

    def _reserved(self, batch: int, keys: list[str]) -> None:
        known = self.batches.setdefault(batch, keys)
        if known != keys:
            raise LawBroken(f"batch {batch} was {known} and is {keys}")
        for key in keys:
            if self.taken.setdefault(key, batch) != batch:
                raise LawBroken(f"{key} is in the batches {self.taken[key]} and {batch}")
            if key in self.left and batch > self.settled:
                raise LawBroken(f"{key} was completed and is reserved")

    def doubt(self) -> dict[str, Any]:
        """What the next life asks for again: the publish whose outcome is not known, the same of a settle, and every batch behind that."""
        unknown = [[batch, keys] for batch, keys in self.publishes.items() if batch > self.published]
        settle = self.asked_settle if self.asked_settle > self.settled else None
        batches = [max(self.settled, self.asked_settle) + 1, self.asked_batch]
        return {
            "publish": unknown[-1] if unknown else None,
            "settle": settle,
            "batches": batches,
            "next": max(self.publishes, default=-1) + 1,
        }

    def judge(self, found: dict[str, list[str]]) -> None:
        super().judge(found)
        there = set(found.get(SINK, ())) | self.left | self.leaving
        for batch, keys in self.publishes.items():
            present = [key for key in keys if key in there]
            if present and len(present) < len(keys):
                raise LawBroken(f"of batch {batch} there are {len(present)} of {len(keys)}")
        for key in found.get(SINK, ()):
            if key.startswith("abandoned"):
                raise LawBroken(f"{key} was staged and never published")
