"""What a checker says, and the few questions about calls that several of them ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..history import Call

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """`broken` has one line for each way in which the promise was broken, with examples; where it is empty the promise held."""

    promise: str
    broken: Sequence[str] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not self.broken

    def text(self) -> str:
        figures = " · ".join(f"{name} {value}" for name, value in self.figures.items())
        lines = [f"{'held  ' if self.held else 'BROKEN'}  {self.promise}: {figures}", *[f"        {line}" for line in self.broken]]
        return "\n".join(lines)


def complaint(what: str, examples: Iterable[Any]) -> list[str]:
    """No line, or one that counts and shows the first few."""
    found = list(examples)
    if not found:
        return []
    shown = ", ".join(map(str, found[:EXAMPLES]))
    return [f"{len(found)} {what}: {shown}{', …' if len(found) > EXAMPLES else ''}"]


class Delivery(NamedTuple):
    """One message of one receive that was answered."""

    call: Call
    queue: str
    body: str
    sequence: int
    receives: int
    receipt: str

    @property
    def message(self) -> tuple[str, int]:
        return self.queue, self.sequence


def deliveries(calls: Iterable[Call]) -> Iterator[Delivery]:
    for call in calls:
        if call.verb == "receive" and call.ok:
            for one in call.told["messages"]:
                yield Delivery(call, call.asked["queue"], one["body"], one["sequence"], one["receives"], one["receipt"])


def settles(calls: Iterable[Call], *verbs: str) -> Iterator[Call]:
    """Calls with a receipt that took effect, or may have."""
    for call in calls:
        if call.verb in verbs and (call.outcome == "info" or (call.ok and call.told["done"])):
            yield call
