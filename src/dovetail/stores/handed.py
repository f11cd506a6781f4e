"""When deliveries were handed out, to a minute, in 16 bytes a minute: for doors whose rules count from there (SQS: 12 hours in all).

Delivery numbers of a lane only grow, so a mark now and then tells when any of them was given. The marks live in memory and no outcome in
the log depends on them: after a restart, and for what another node handed out, nothing is known, and nothing is refused.
"""

from __future__ import annotations

from bisect import bisect_right

STEP_MS = 60_000
MARKS_MAX = 1_440
"""A day, which is longer than any rule asks about."""


class HandedOut:
    __slots__ = ("_deliveries", "_times")

    def __init__(self) -> None:
        self._deliveries: list[int] = []
        self._times: list[int] = []

    def note(self, delivery: int, now: int) -> None:
        """`delivery` was handed out now, and so were those behind it until the next mark. 0 is none: it was deleted at once."""
        if delivery and (not self._times or now - self._times[-1] >= STEP_MS):
            self._deliveries.append(delivery)
            self._times.append(now)
            if len(self._times) > MARKS_MAX:
                del self._deliveries[0], self._times[0]

    def held_ms(self, delivery: int, now: int) -> int:
        """At least so long ago it was handed out; 0 where that is not known."""
        at = bisect_right(self._deliveries, delivery) - 1
        if at < 0:
            return 0
        latest = self._times[at] + STEP_MS
        if at + 1 < len(self._times):
            latest = min(latest, self._times[at + 1])
        return max(0, now - latest)
