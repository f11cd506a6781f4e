"""A queue is linearizable first in, first out, when no message is lent twice: sends, and receives that take one message for good.

With unique bodies it is enough to look for four bad patterns (Henzinger, Sezgin, Vafeiadis), which a sort finds:

    from nowhere   a message came before it was sent
    repeat         a message came twice
    order          a was sent before b, and b had come before a did (or a never came)
    empty          a receive found nothing although at each moment of it some message was there

A receive of unknown outcome may have taken whatever never came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..history import FOREVER, Call
from .verdict import Verdict, complaint

PROMISE = "first in, first out"


class Span(NamedTuple):
    began: int
    ended: int


NEVER = Span(FOREVER, FOREVER)


def check(calls: Sequence[Call]) -> Verdict:
    """Of receives that delete, and of what was sent to their queues, without a delay."""
    broken: list[str] = []
    count = 0
    receives = [call for call in calls if call.verb == "receive" and call.asked.get("delete")]
    for queue in sorted({call.asked["queue"] for call in receives}):
        sends = {
            call.asked["body"]: Span(call.began, call.ended)
            for call in calls
            if call.verb == "send" and call.asked["queue"] == queue and call.outcome != "fail"
        }
        own = [call for call in receives if call.asked["queue"] == queue]
        taken = [(one["body"], Span(call.began, call.ended)) for call in own if call.ok for one in call.told["messages"]]
        empty = [Span(call.began, call.ended) for call in own if call.ok and not call.told["messages"]]
        unknown = min((call.began for call in own if call.outcome == "info"), default=FOREVER)
        count += len(taken)
        broken += [f"{queue}: {line}" for line in patterns(sends, taken, empty, unknown)]
    return Verdict(PROMISE, broken, {"taken": count})


def patterns(sends: Mapping[str, Span], taken: Sequence[tuple[str, Span]], empty: Sequence[Span], unknown: int = FOREVER) -> list[str]:
    """What is wrong. From `unknown` on somebody may have taken what never came."""
    came: dict[str, Span] = {}
    repeated = []
    for body, span in taken:
        if body in came:
            repeated.append(body)
        came[body] = span
    nowhere = [body for body, span in came.items() if body not in sends or span.ended < sends[body].began]
    gone = Span(unknown, FOREVER)
    left = {body: came.get(body, gone) for body, span in sends.items() if body in came or span.ended < FOREVER}
    broken = complaint("messages from nowhere", nowhere) + complaint("messages twice", repeated)
    broken += complaint("messages passed an earlier one", _passed(sends, came, left))
    return broken + complaint("receives found nothing in a queue that was never empty meanwhile", _not_empty(sends, left, empty))


def _passed(sends: Mapping[str, Span], came: Mapping[str, Span], left: Mapping[str, Span]) -> list[str]:
    """For each message that came: of those whose send had ended before its own began, did the one that left last leave after it?"""
    earlier = sorted(left, key=lambda body: sends[body].ended)
    passed, at, latest = [], 0, -1
    for body in sorted(came.keys() & sends.keys(), key=lambda body: sends[body].began):
        while at < len(earlier) and sends[earlier[at]].ended < sends[body].began:
            latest = max(latest, left[earlier[at]].began)
            at += 1
        if came[body].ended < latest:
            passed.append(body)
    return passed


def _not_empty(sends: Mapping[str, Span], left: Mapping[str, Span], empty: Sequence[Span]) -> list[str]:
    """A message is there for sure from when its send ended until its receive began; such stretches that overlap are one."""
    stretches: list[tuple[int, int]] = []
    for begin, end in sorted((sends[body].ended, span.began) for body, span in left.items() if sends[body].ended < span.began):
        if stretches and begin < stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((begin, end))
    found, at = [], 0
    for span in sorted(empty):
        while at < len(stretches) and stretches[at][1] <= span.began:
            at += 1
        if at < len(stretches) and stretches[at][0] < span.began and span.ended < stretches[at][1]:
            found.append(f"from {span.began} to {span.ended}")
    return found
