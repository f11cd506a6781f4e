"""A completed message never comes back, and is completed once."""

from __future__ import annotations

from collections.abc import Sequence

from ..history import FOREVER, Call
from .verdict import Verdict, complaint, deliveries, settles

PROMISE = "a completed message never comes back"


def check(calls: Sequence[Call]) -> Verdict:
    done: dict[tuple[str, str], int] = {}
    twice: list[str] = []
    for call in settles(calls, "complete"):
        if not call.ok:
            continue
        message = call.asked["queue"], call.asked["body"]
        if message in done:
            twice.append(call.asked["body"])
        done[message] = min(done.get(message, FOREVER), call.ended)
    # The receive began when everybody could know that the message was gone.
    back = [one.body for one in deliveries(calls) if one.call.began > done.get((one.queue, one.body), FOREVER)]
    broken = complaint("messages came after they were completed", back) + complaint("messages were completed twice", twice)
    return Verdict(PROMISE, broken, {"completed": len(done), "back": len(back), "twice": len(twice)})
