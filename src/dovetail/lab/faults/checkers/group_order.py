"""In a queue with groups the members of a group go one behind the other.

While a member is out, or waits for its time, nobody gets a later one: a delivery is out of order if an earlier member of its group was
completed only after the delivery was answered, or never. Members that one receive takes together are in order among themselves. Whoever
went to the dead letters has left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from ..history import FOREVER, Call
from .verdict import Delivery, Verdict, complaint, deliveries, settles

PROMISE = "the members of a group go one behind the other"


def check(calls: Sequence[Call]) -> Verdict:
    groups = {
        (call.asked["queue"], call.asked["body"]): call.asked["group"] for call in calls if call.verb == "send" and "group" in call.asked
    }
    began: dict[tuple[str, str], int] = {}
    for call in settles(calls, "complete"):
        message = call.asked["queue"], call.asked["body"]
        began[message] = min(began.get(message, FOREVER), call.began)
    homes: dict[str, set[str]] = defaultdict(set)
    lines: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    receives: dict[tuple[str, str], dict[tuple[int, int], list[Delivery]]] = defaultdict(lambda: defaultdict(list))
    for one in deliveries(calls):
        homes[one.body].add(one.queue)
        group = groups.get((one.queue, one.body))
        if group is not None:
            line = one.queue, group
            lines[line][one.sequence] = one.body
            receives[line][one.call.process, one.call.began].append(one)
    broken: list[str] = []
    for (queue, group), members in lines.items():
        order = sorted(members)
        place = {sequence: index for index, sequence in enumerate(order)}
        moved = [len(homes[members[sequence]]) > 1 for sequence in order]
        done = [0 if gone else began.get((queue, members[at]), FOREVER) for at, gone in zip(order, moved, strict=True)]
        latest = [0, *accumulate(done, max)]
        for taken in receives[queue, group].values():
            places = [place[one.sequence] for one in taken]
            if places != sorted(places):
                broken.append(f"{group}: {', '.join(one.body for one in taken)} in one receive")
            first, answered = min(places), taken[0].call.ended
            passed = [order[first - 1]] if latest[first] > answered else []
            passed += [order[index] for index in set(range(first, max(places))).difference(places) if done[index] > answered]
            if passed:
                broken.append(f"{group}: {members[order[first]]} came while an earlier one was not done")
    figures = {"groups": len(lines), "messages": sum(map(len, lines.values())), "out of order": len(broken)}
    return Verdict(PROMISE, complaint("deliveries out of order", broken), figures)
