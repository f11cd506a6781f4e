"""A workload is data: what is sent, by how many, how large, how delayed. It does nothing; load.py plays it against a driver."""

from __future__ import annotations

import random
from dataclasses import dataclass

NUMBER_BYTES = 8
"""A body begins with its payload number, little-endian, so that whoever receives it knows which message it was."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Delays drawn evenly between two bounds; both 0 is no delay."""

    least_ms: int = 0
    most_ms: int = 0

    def draw(self, chance: random.Random) -> int:
        return chance.randint(self.least_ms, self.most_ms)


@dataclass(frozen=True, slots=True)
class Workload:
    """Each sender and each receiver has one call under way at a time, so `senders` is the number of sends in flight."""

    queues: int = 1
    senders: int = 1
    receivers: int = 0
    seconds: float | None = None
    """Stop after so long …"""
    messages: int | None = None
    """… or after so many, whichever comes first."""
    body_bytes: int = 100
    batch: int = 1
    rate_per_s: float | None = None
    """Sends per second over all senders, evenly paced; None is as fast as answers come."""
    delay: Delay = Delay()
    seed: int = 1

    def __post_init__(self) -> None:
        assert self.seconds is not None or self.messages is not None, "a workload ends"
        assert self.body_bytes >= NUMBER_BYTES and self.batch >= 1 and self.queues >= 1 and self.senders >= 1

    def body(self, number: int) -> bytes:
        return number.to_bytes(NUMBER_BYTES, "little") + b"x" * (self.body_bytes - NUMBER_BYTES)


def number_of(body: bytes) -> int:
    return int.from_bytes(body[:NUMBER_BYTES], "little")
