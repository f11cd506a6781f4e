"""A message is one receiver's until its lease ends, and an old receipt changes nothing.

*Two at once*: of one message a later delivery was handed out before the earlier one's lease can have ended. The earlier lease began, at
the earliest, when its receive was asked, or when it was last extended; the later one was handed out, at the latest, when its receive was
answered. Whatever may have given the message back in between (a requeue, a release) ends the lease.

*Stale*: a receipt was honoured although a later delivery of the message had been answered before, or although it had been given back.
*Both*: two deliveries of one message were completed. Deliveries of a message are in the order of their receive counts where these differ.

On a shared log what a dead node's waiting receivers were handed is undone after three seconds, seen or not: `held_ms` says for how long a
delivery holds at least, whatever its lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ..history import FOREVER, MS, Call
from .verdict import Delivery, Verdict, complaint, deliveries, settles

PROMISE = "one receiver at a time, and old receipts change nothing"


def check(calls: Sequence[Call], *, slack_ms: int = 50, held_ms: int | None = None) -> Verdict:
    by_message: dict[tuple[str, int], list[Delivery]] = defaultdict(list)
    for delivery in deliveries(calls):
        by_message[delivery.message].append(delivery)
    returned: dict[str, int] = {}
    for call in settles(calls, "requeue", "release"):
        returned[call.asked["receipt"]] = min(returned.get(call.asked["receipt"], FOREVER), call.began)
    given_back = {call.asked["receipt"]: call.ended for call in settles(calls, "requeue", "release") if call.ok}
    extended: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.verb == "extend" and call.ok and call.told["done"]:
            extended[call.asked["receipt"]].append(call)
    completed: dict[str, Call] = {call.asked["receipt"]: call for call in settles(calls, "complete") if call.ok}

    together: list[str] = []
    stale: list[str] = []
    both: list[str] = []
    again = 0
    for line in by_message.values():
        line.sort(key=lambda one: (one.receives, one.call.ended))
        again += len(line) - 1
        both += [line[0].body] if sum(one.receipt in completed for one in {one.receipt: one for one in line}.values()) > 1 else []
        latest_first: int = FOREVER
        for earlier, later in reversed(list(pairwise(line))):
            if earlier.receipt == later.receipt or earlier.receives == later.receives:
                continue  # A repeated attempt has the same receipt; a release takes its receive count back, so who was first is not said.
            latest_first = min(latest_first, later.call.ended)
            if later.call.ended < min(_lease_end(earlier, extended, held_ms) - slack_ms * MS, returned.get(earlier.receipt, FOREVER)):
                together.append(f"{earlier.body} at process {earlier.call.process} and {later.call.process}")
            use = completed.get(earlier.receipt)
            if use is not None and use.began > latest_first:
                stale.append(earlier.body)
    stale += [call.asked["body"] for receipt, call in completed.items() if given_back.get(receipt, FOREVER) < call.began]
    broken = complaint("messages were two receivers' at once", together)
    broken += complaint("old receipts were honoured", stale) + complaint("messages were completed under two receipts", both)
    return Verdict(
        PROMISE, broken, {"messages": len(by_message), "handed out again": again, "two at once": len(together), "stale": len(stale)}
    )


def _lease_end(delivery: Delivery, extended: dict[str, list[Call]], held_ms: int | None) -> int:
    """Before then the lease has not ended by itself."""

    def end(call: Call) -> int:
        lease_ms = int(call.asked["lease_ms"])
        return call.began + (lease_ms if held_ms is None else min(lease_ms, held_ms)) * MS

    return max([end(delivery.call), *map(end, extended.get(delivery.receipt, ()))])
