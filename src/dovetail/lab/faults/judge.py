"""All checkers over one history, and whether enough happened for it to mean anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checkers import dead_letters, delay, drained, fencing, group_order, settled, stored_once, total_queue
from .checkers.verdict import Verdict
from .history import Call
from .work import DEAD

SLACK_MS = 700
"""Between our clock and the log's: what a restarted node adds for the time it was down is known to half a second."""
LATE_MS = 10_000
ACKED_PER_S_MIN = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    plan: str
    attacks: str
    verdicts: Sequence[Verdict]
    too_little: Sequence[str]
    """Why the run proves nothing, whatever the verdicts say."""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not self.too_little and all(verdict.held for verdict in self.verdicts)

    def text(self) -> str:
        figures = " · ".join(f"{name} {value}" for name, value in self.figures.items())
        lines = [f"{self.plan}: {self.attacks}", f"  {figures}", *[f"  {verdict.text()}" for verdict in self.verdicts]]
        return "\n".join([*lines, *[f"  TOO LITTLE  {line}" for line in self.too_little], "  held" if self.held else "  NOT KEPT"])

    def json(self) -> str:
        verdicts = [{"promise": one.promise, "held": one.held, "broken": list(one.broken), **one.figures} for one in self.verdicts]
        return json.dumps(
            {"plan": self.plan, "held": self.held, "figures": dict(self.figures), "verdicts": verdicts, "too_little": list(self.too_little)}
        )


def verdicts(calls: Sequence[Call], *, calm: int = 0, held_ms: int | None = None) -> list[Verdict]:
    return [
        total_queue.check(calls),
        settled.check(calls),
        stored_once.check(calls),
        fencing.check(calls, slack_ms=SLACK_MS, held_ms=held_ms),
        group_order.check(calls),
        delay.check(calls, slack_ms=SLACK_MS, late_ms=LATE_MS, calm=calm),
        dead_letters.check(calls, DEAD),
        drained.check(calls),
    ]


def too_little(calls: Sequence[Call], seconds: float, events: int) -> list[str]:
    """A run in which little was acknowledged, or nothing broken, is no evidence."""
    acked = sum(call.verb == "send" and call.ok for call in calls)
    done = sum(call.verb == "complete" and call.ok for call in calls)
    found = []
    if acked < ACKED_PER_S_MIN * seconds:
        found.append(f"{acked} acknowledged sends in {seconds:g} s")
    if done < acked / 4:
        found.append(f"{done} completes for {acked} sends")
    if not events:
        found.append("nothing was broken")
    return found
