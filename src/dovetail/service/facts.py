"""Facts taps, as people hold them: one set of names for embedded use and for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.core.operation import EARLIEST, LATEST
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.limits import FACTS_BYTES_DEFAULT
from dovetail.service.fact import Happened
from dovetail.service.values import ArrowBatch, FactsBatch, ms, utf8
from dovetail.service.verbs import Verbs
from dovetail.stores.store import TapFacts

_DAY_S = 86_400
READ_FACTS_MAX = 100_000
"""Of one read."""


class Facts:
    """A named, durable reader of what happened to the queues of a namespace. Facts are kept while one asks, and as long as it does."""

    __slots__ = ("_verbs", "name", "namespace", "position")

    def __init__(self, verbs: Verbs, namespace: str, name: str, position: int) -> None:
        self._verbs = verbs
        self.namespace = namespace
        self.name = name
        self.position = position
        """Where it stood when this handle opened or advanced it."""

    async def read(self, max: int = 1000, from_number: int | None = None) -> FactsBatch:
        """Facts from the tap's position (or a later number) on. Reading again gives the same; `advance` lets go of them."""
        _check(max, from_number)
        facts: list[Happened] = []
        following = from_number
        while len(facts) < max:
            found, reached, end = await self._verbs.facts_read(self.namespace, self.name, max - len(facts), following)
            facts += found
            if reached == following or reached >= end:
                return FactsBatch(facts, reached)
            following = reached
        return FactsBatch(facts, following or 0)

    async def read_arrow(self, max: int = 1000, from_number: int | None = None) -> ArrowBatch:
        """The same as an Arrow IPC stream: the next `max` numbers, as far as one answer takes them. Needs pyarrow where the node runs."""
        _check(max, from_number)
        return ArrowBatch(*await self._verbs.facts_read_arrow(self.namespace, self.name, max, from_number))

    async def advance(self, number: int) -> int:
        """Everything below `number` is no longer needed."""
        if number < 0:
            raise BadRequest(f"{number} is no number of a fact")
        self.position = await self._verbs.facts_advance(self.namespace, self.name, number)
        return self.position

    async def close(self) -> None:
        await self._verbs.facts_close(self.namespace, self.name)


class Chronicled:
    """For the node, which is one of these."""

    if TYPE_CHECKING:
        verbs: Verbs

    async def facts(
        self,
        name: str,
        *,
        namespace: str | None = None,
        start: str | int = "earliest",
        age_s: float = 7 * _DAY_S,
        bytes_max: int = FACTS_BYTES_DEFAULT,
    ) -> Facts:
        """Open a facts tap, or the one that has that name. The first begins with what happens next; a later one may begin with what others
        keep. Past `age_s` or `bytes_max` it is cut."""
        utf8(name)
        if type(start) is not int and start not in ("earliest", "latest"):
            raise BadRequest(f"a facts tap starts at earliest, latest or a number, not {start!r}")
        begin = start if isinstance(start, int) else EARLIEST if start == "earliest" else LATEST
        if begin < 0 or bytes_max < 0:
            raise BadRequest("a facts tap's start and its bound in bytes are not negative")
        space = self.verbs.namespace if namespace is None else namespace
        return Facts(self.verbs, space, name, await self.verbs.facts_open(space, name, begin, ms(age_s), bytes_max))

    async def facts_taps(self, *, namespace: str | None = None) -> list[TapFacts]:
        return await self.verbs.facts_taps(self.verbs.namespace if namespace is None else namespace)


def _check(most: int, number: int | None) -> None:
    if type(most) is not int or not 1 <= most <= READ_FACTS_MAX:
        raise LimitExceeded(f"{most!r} facts asked for; 1 to {READ_FACTS_MAX} are allowed")
    if number is not None and (type(number) is not int or number < 0):
        raise BadRequest(f"{number!r} is no number of a fact")
