"""The driver seam: five verbs by which a workload speaks to a queue, ours or a peer's. A driver measures nothing and traces nothing.

A peer is driven by the leanest client there is, with as many connections as there are workers; a slow client would flatter us.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Received(NamedTuple):
    body: bytes
    sequence: int
    """The place in its queue, or 0 where the engine has no such number."""
    token: Any
    """What `complete` needs."""


class PeerMissing(Exception):
    """The peer is not installed here."""


class Driver(Protocol):
    name: str

    async def open(self, queues: int, workers: int) -> str:
        """Get ready for calls of `workers` workers to empty queues 0 to `queues` - 1; returns the engine's version."""

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        """Store; returns when it is durable, with the sequences, or nothing where the engine has none."""

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        """Up to `most`, waiting a little for the first; none where there was none."""

    async def complete(self, worker: int, queue: int, tokens: Sequence[Any]) -> None: ...

    async def close(self) -> None:
        """Stop what was started and remove what was written."""
