"""What was sent once, however often the wire repeated it, is stored once; and one place holds one message.

Bodies are unique, so a body that comes under two sequences of one queue was stored twice. An answer names the place at which the message
comes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..history import Call
from .verdict import Verdict, complaint, deliveries

PROMISE = "a send is stored once"


def check(calls: Sequence[Call]) -> Verdict:
    sequences: dict[tuple[str, str], set[int]] = defaultdict(set)
    bodies: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in deliveries(calls):
        sequences[one.queue, one.body].add(one.sequence)
        bodies[one.queue, one.sequence].add(one.body)
    for call in calls:
        if call.verb == "send" and call.ok:
            sequences[call.asked["queue"], call.asked["body"]].add(call.told["sequence"])
            bodies[call.asked["queue"], call.told["sequence"]].add(call.asked["body"])
    twice = [f"{body} as {sorted(places)}" for (_, body), places in sequences.items() if len(places) > 1]
    shared = [f"{queue} {sequence}: {sorted(found)}" for (queue, sequence), found in bodies.items() if len(found) > 1]
    broken = complaint("messages were stored twice", twice) + complaint("places hold two messages", shared)
    return Verdict(PROMISE, broken, {"messages": len(sequences), "stored twice": len(twice)})
