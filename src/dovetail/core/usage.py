"""Who uses how much of a lane's processing time: integer sums over fixed buckets of entry time. It knows neither names nor messages.

A row is a tenant's number; row 0 is the whole lane. A message is *processed* from its hand-out until it is settled, given back or lapses,
and counts while it lasts, not when it ends: one lease of twelve hours weighs at most the window. The window is the bucket of now and the
29 before it, ten seconds each: five minutes, and up to ten seconds less.

No time is noted with a message. What a row uses is what it has in flight times the time since `since`; it is booked when a hand-out changes
what it has in flight, or when somebody asks. What ends books its own share alone, so leases that lapsed may be told in any order.
"""

from __future__ import annotations

from array import array

BUCKET_MS = 10_000
BUCKETS = 30
ALL = 0
"""The row of the whole lane."""


class Bucket:
    """What was used (ms) and handed out within ten seconds, by row. A row that did nothing then is not in it."""

    __slots__ = ("handed", "used")

    def __init__(self) -> None:
        self.used: dict[int, int] = {}
        self.handed: dict[int, int] = {}


class Usage:
    """`used` and `handed` are the sums over the window, of what has been booked."""

    __slots__ = ("bucket", "buckets", "handed", "in_flight", "since", "used")

    def __init__(self, now: int, in_flight: int) -> None:
        self.buckets: dict[int, Bucket] = {}
        self.bucket = now // BUCKET_MS
        self.in_flight = array("I", (in_flight,))
        self.since = array("Q", (now,))
        self.used = array("Q", (0,))
        self.handed = array("I", (0,))

    def add_row(self) -> None:
        self.in_flight.append(0)
        self.since.append(0)
        self.used.append(0)
        self.handed.append(0)

    def idle(self, row: int) -> bool:
        """Nothing in flight and nothing in the window: the row may be given to somebody else."""
        return not (self.in_flight[row] or self.used[row] or self.handed[row])

    def begin(self, row: int, count: int, now: int) -> None:
        """`count` messages are handed out. The window has passed to `now`."""
        self.book(row, now)
        self.in_flight[row] += count
        if row != ALL:
            handed = (self.buckets.get(self.bucket) or self._begin(self.bucket)).handed
            handed[row] = handed.get(row, 0) + count
            self.handed[row] += count

    def end(self, row: int, count: int, time: int) -> None:
        """`count` messages were settled, or lapsed, at `time`; no later `begin` or `book` of this row has been told."""
        since = self.since[row]
        if since < time:
            self._spread(row, count, since, time)
        self.in_flight[row] -= count

    def book(self, row: int, now: int) -> None:
        """Whatever the row has used until now is in its sum. The window has passed to `now`."""
        since = self.since[row]
        if since != now:
            if self.in_flight[row]:
                self._spread(row, self.in_flight[row], since, now)
            self.since[row] = now

    def _spread(self, row: int, weight: int, start: int, end: int) -> None:
        """`weight` messages over the time from `start` to `end`, as far as the window knows it."""
        start = max(start, (self.bucket - BUCKETS + 1) * BUCKET_MS)
        while start < end:
            number = start // BUCKET_MS
            stop = min(end, (number + 1) * BUCKET_MS)
            amount = weight * (stop - start)
            used = (self.buckets.get(number) or self._begin(number)).used
            used[row] = used.get(row, 0) + amount
            self.used[row] += amount
            start = stop

    def _begin(self, number: int) -> Bucket:
        bucket = self.buckets[number] = Bucket()
        return bucket

    def pass_to(self, number: int) -> list[int]:
        """The bucket of now has this number: old ones leave the window. Returns the rows that were in one, some perhaps more than once."""
        self.bucket = number
        left: list[int] = []
        for old in sorted(key for key in self.buckets if key <= number - BUCKETS):
            bucket = self.buckets.pop(old)
            for row, amount in bucket.used.items():
                self.used[row] -= amount
            for row, count in bucket.handed.items():
                self.handed[row] -= count
            left += bucket.used
            left += bucket.handed
        return left
