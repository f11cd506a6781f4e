"""A delayed message is not there before its time, and soon after it.

Early: a receive was answered with it before the send was asked plus the delay. Late: it first came more than `late_ms` after its time, or
after `calm` (the moment from which nothing was broken any more), whichever is later. Needs receivers that always wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..history import MS, Call
from .verdict import Verdict, complaint, deliveries

PROMISE = "a delayed message comes at its time and not before"


def check(calls: Sequence[Call], *, slack_ms: int = 50, late_ms: int = 5_000, calm: int = 0) -> Verdict:
    delayed = {
        (call.asked["queue"], call.asked["body"]): call
        for call in calls
        if call.verb == "send" and call.outcome != "fail" and call.asked.get("delay_ms")
    }
    first: dict[tuple[str, str], int] = {}
    for one in deliveries(calls):
        message = one.queue, one.body
        if message in delayed:
            first[message] = min(first.get(message, one.call.ended), one.call.ended)
    early, late, worst = [], [], 0
    for message, came in first.items():
        send = delayed[message]
        delay = int(send.asked["delay_ms"]) * MS
        if came < send.began + delay - slack_ms * MS:
            early.append(f"{message[1]} by {(send.began + delay - came) // MS} ms")
        if send.ok:
            lateness = came - max(send.ended + delay, calm)
            worst = max(worst, lateness // MS)
            if lateness > late_ms * MS:
                late.append(f"{message[1]} by {lateness // MS} ms")
    broken = complaint("delayed messages came early", early) + complaint("delayed messages came late", late)
    return Verdict(PROMISE, broken, {"delayed": len(delayed), "came": len(first), "latest ms": worst})
