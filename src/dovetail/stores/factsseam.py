"""The part of the store seam that is about facts: what happened to queues, by number. A store that keeps none says so in its promises."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dovetail.core.chronicle import Page

if TYPE_CHECKING:
    from dovetail.stores.store import TapFacts


class FactsRead(NamedTuple):
    """What one read of a facts tap gives: facts of one namespace in columns, where reading on begins, the number that the next fact will
    get, and the names of queues."""

    page: Page
    next: int
    end: int
    names: Mapping[int, str]


class FactsStore(Protocol):
    """Facts taps are named readers of what happened to the queues of a namespace."""

    def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> Awaitable[int]:
        """Its position: that of a new tap, or of the one that has the name."""

    def facts_advance(self, namespace: str, name: str, number: int) -> Awaitable[int]: ...

    def facts_close(self, namespace: str, name: str) -> Awaitable[None]: ...

    def facts_read(self, namespace: str, name: str, most: int, from_number: int | None = None) -> FactsRead: ...

    def facts_taps(self, namespace: str | None = None) -> list[tuple[str, TapFacts]]:
        """(namespace, tap) of one namespace, or of all."""

    def facts_age_ms(self, namespace: str, name: str) -> int:
        """How long ago the first fact happened that the tap has not let go of, about; 0 where there is none."""

    @property
    def facts_bytes(self) -> int:
        """Of the facts that are kept."""
