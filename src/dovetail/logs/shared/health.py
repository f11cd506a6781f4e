"""What an engine says of itself to whoever looks, and does not join: nothing is made, nothing is written.

An engine need not be able to: `Inspected` is the seam and more. Those that a URL names are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .engine import Engine


class Copy(NamedTuple):
    """One server that keeps the log."""

    server: str
    leads: bool
    current: bool
    """It has what was acknowledged, and is there."""
    behind: int | None
    """Entries that it has not got yet; None where the engine does not say."""


class Health(NamedTuple):
    log: str
    """For people: what it is and where, without passwords."""
    version: str
    durability: str
    copies: Sequence[Copy]
    first: int
    """The number of the oldest entry that is kept; what lies below was trimmed."""
    next: int
    bytes: int | None
    """None where the engine does not say."""
    wrong: Sequence[str]
    """Settings that nodes would refuse, each with what it must be, and copies that are not as they should be."""
    blobs: Sequence[tuple[str, int]]
    """(name, bytes)"""


class Inspected(Engine, Protocol):
    async def health(self) -> Health | None:
        """None where there is no log yet."""
