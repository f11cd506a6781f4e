"""Nothing acknowledged is lost, and nothing comes that nobody sent.

Needs a history at whose end everything was drained. Bodies are unique. A send that failed did not happen: if its message comes, that is
*unexpected*; one of unknown outcome may have happened: if its message comes it is *recovered*. What was acknowledged and never came is
*lost*, at the beginning, in the middle or at the end of what its sender sent: which of the three tells a truncated log from a torn page.
Messages that come twice are counted (leases lapse); whether they may is for others to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from ..history import Call
from .verdict import Verdict, complaint, deliveries

PROMISE = "nothing acknowledged is lost"


def check(calls: Sequence[Call]) -> Verdict:
    sends = [call for call in calls if call.verb == "send"]
    acked = [call for call in sends if call.ok]
    unknown = {call.asked["body"] for call in sends if call.outcome == "info"}
    possible = unknown | {call.asked["body"] for call in acked}
    came = Counter(delivery.body for delivery in deliveries(calls))
    lost = {call.asked["body"] for call in acked if call.asked["body"] not in came}
    perhaps_taken = _perhaps_taken(calls)
    parts = _parts(acked, lost)
    unexpected = sorted(body for body in came if body not in possible)
    broken = complaint("messages that nobody sent, or that were refused", unexpected)
    if len(lost) > perhaps_taken:
        for part, bodies in parts.items():
            broken += complaint(f"acknowledged messages lost {part}", bodies)
    figures: dict[str, Any] = {
        "sent": len(sends),
        "acknowledged": len(acked),
        "unknown": len(unknown),
        "came": len(came),
        "lost": len(lost),
        **{f"lost {part}": len(bodies) for part, bodies in parts.items() if bodies},
        "unexpected": len(unexpected),
        "duplicated": sum(count > 1 for count in came.values()),
        "recovered": len(unknown & came.keys()),
    }
    return Verdict(PROMISE, broken, figures)


def _perhaps_taken(calls: Sequence[Call]) -> int:
    """Receive-and-delete is at most once: one whose answer was lost took with it what it got."""
    unknown = [call for call in calls if call.verb == "receive" and call.outcome == "info" and call.asked.get("delete")]
    return sum(int(call.asked["most"]) for call in unknown)


def _parts(acked: Sequence[Call], lost: set[str]) -> dict[str, list[str]]:
    """Where in what its sender sent a lost message was. A sender that went on as another process is the same one, if it says `sender`."""
    lines: dict[tuple[str, Any], list[str]] = {}
    for call in sorted(acked, key=lambda call: call.began):
        lines.setdefault((call.asked["queue"], call.asked.get("sender", call.process)), []).append(call.asked["body"])
    parts: dict[str, list[str]] = {"at the beginning": [], "in the middle": [], "at the end": []}
    for bodies in lines.values():
        if not lost.intersection(bodies):
            continue
        first = list(takewhile(lost.__contains__, bodies))
        last = list(takewhile(lost.__contains__, reversed(bodies[len(first) :])))[::-1]
        between = bodies[len(first) : len(bodies) - len(last)]
        parts["at the beginning"] += first
        parts["in the middle"] += [body for body in between if body in lost]
        parts["at the end"] += last
    return parts
