"""Pops that are on their way, for whoever asked for them."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dovetail.stores.store import Delivery, Handed


class Popping(Protocol):
    """A pop on its way: submitted when it was made, awaited when it suits."""

    def __await__(self) -> Generator[Any, None, list[Delivery]]: ...

    def runs(self) -> Awaitable[list[Handed]]:
        """Awaited in place of it: the same in columns."""

    def abandon(self) -> None:
        """The receiver has left: it takes no message with it."""


class Standing(Popping, Protocol):
    """A pop of a receiver that stands in the lane's own line, until it gets something or somebody ends it."""

    def end(self) -> None:
        """Its time is up: it gets what is on its way, or nothing."""
