"""What is received too often becomes a dead letter, once, and nothing else does: each message ends in one of the two places.

Needs a history at whose end both queues were drained. `letters` says where the dead letters of a queue go and after how many receives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..history import Call
from .verdict import Verdict, complaint, deliveries, settles

PROMISE = "each message is completed or becomes one dead letter"


def check(calls: Sequence[Call], letters: Mapping[str, tuple[str, int]]) -> Verdict:
    acked = {
        (call.asked["queue"], call.asked["body"]) for call in calls if call.verb == "send" and call.ok and call.asked["queue"] in letters
    }
    done = {(call.asked["queue"], call.asked["body"]): call.ok for call in settles(calls, "complete")}
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    often: list[str] = []
    for one in deliveries(calls):
        places[one.queue, one.body].add(one.sequence)
        if one.queue in letters and one.receives > letters[one.queue][1]:
            often.append(f"{one.body} {one.receives} times")
    both, doubled, nowhere, dead = [], [], [], 0
    for queue, (target, _) in letters.items():
        bodies = {body for name, body in [*acked, *places] if name == queue}
        for body in sorted(bodies):
            sequences = places.get((target, body), set())
            dead += bool(sequences)
            if sequences and done.get((queue, body)):
                both.append(body)
            if len(sequences) > 1:
                doubled.append(body)
            if (queue, body) in acked and not sequences and (queue, body) not in done:
                nowhere.append(body)
    broken = complaint("messages were received too often", often) + complaint("messages were completed and became dead letters", both)
    broken += complaint("messages became two dead letters", doubled) + complaint("messages ended nowhere", nowhere)
    return Verdict(PROMISE, broken, {"messages": len(acked), "dead letters": dead, "too often": len(often), "nowhere": len(nowhere)})
