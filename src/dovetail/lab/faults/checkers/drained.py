"""When everything is healed and consumers go on, queues become empty: nothing is left visible, delayed or leased."""

from __future__ import annotations

from collections.abc import Sequence

from ..history import Call
from .verdict import Verdict

PROMISE = "healed, queues are drained to nothing"


def check(calls: Sequence[Call]) -> Verdict:
    last = {call.asked["queue"]: call.told for call in calls if call.verb == "counts" and call.ok}
    queues = {call.asked["queue"] for call in calls if "queue" in call.asked}
    broken = [f"{queue} was never counted" for queue in sorted(queues - last.keys())]
    broken += [f"{queue} still holds {dict(left)}" for queue, left in sorted(last.items()) if any(left.values())]
    return Verdict(PROMISE, broken, {"queues": len(queues), "empty": sum(not any(left.values()) for left in last.values())})
