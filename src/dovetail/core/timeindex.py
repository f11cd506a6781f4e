"""When does what become visible? The one index of time of a lane: pairs (visible_at, sequence), earliest first.

Delayed and leased messages wait here together. An entry is eight bytes: the low 20 bits of its time above 44 bits of sequence,
in a bucket that knows the rest of the time. Entries are not looked for and removed when a message is settled: they are left behind
*stale*, and whoever takes what is due asks the message whether it still waits for that moment. So adding is an append, cancelling
costs nothing here, and there is no timer per message.

    wide    {time >> 20: entries}     17 minutes each, for what is more than a day away
    narrow  {time >> 10: entries}     about a second each
    due     the sorted entries of the one narrow bucket that time has reached

A narrow bucket is sorted only when its second has come (10,000 entries take 2 ms); a wide one is dealt out into narrow ones little by
little during the hour before, so that no single step is long. A heap of all entries would be simpler and costs 40 bytes an entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, nsmallest

from dovetail.core.consecutive import consecutive

_SEQUENCE_BITS = 44
_SEQUENCE_MASK = (1 << _SEQUENCE_BITS) - 1
_TIME_MASK = (1 << 20) - 1
_WIDE_BEYOND_MS = 1 << 27
_DEAL_AHEAD_MS = 1 << 22
_DEAL_STEP = 4096

NEVER = 1 << 62


class TimeIndex:
    """`earliest` is a lower bound of every time in the index: before it there is nothing to take."""

    __slots__ = ("_due", "_due_at", "_due_key", "_narrow", "_narrow_keys", "_wide", "_wide_keys", "earliest")

    def __init__(self) -> None:
        self._narrow: dict[int, array[int]] = {}
        self._narrow_keys: list[int] = []
        self._wide: dict[int, array[int]] = {}
        self._wide_keys: list[int] = []
        self._due: list[int] = []
        self._due_at = 0
        self._due_key = -1
        self.earliest = NEVER

    def add(self, time: int, sequence: int, now: int) -> None:
        """Put down one entry. `time` lies after the last `take_due`."""
        if time < self.earliest:
            self.earliest = time
        entry = (time & _TIME_MASK) << _SEQUENCE_BITS | sequence
        if time >> 10 == self._due_key:
            insort(self._due, entry, self._due_at)
        else:
            self._bucket(time, now).append(entry)

    def add_run(self, time: int, first: int, count: int, now: int) -> None:
        """Put down `count` consecutive sequences that share one time."""
        if count == 1 or time >> 10 == self._due_key:
            for sequence in range(first, first + count):
                self.add(time, sequence, now)
            return
        if time < self.earliest:
            self.earliest = time
        base = (time & _TIME_MASK) << _SEQUENCE_BITS | first
        self._bucket(time, now).frombytes(consecutive(base, count))

    def add_all(self, time: int, sequences: Sequence[int], now: int) -> None:
        """Put down several sequences that share one time."""
        if len(sequences) == 1 or time >> 10 == self._due_key:
            for sequence in sequences:
                self.add(time, sequence, now)
            return
        if time < self.earliest:
            self.earliest = time
        high = (time & _TIME_MASK) << _SEQUENCE_BITS
        self._bucket(time, now).extend([high | sequence for sequence in sequences])

    def _bucket(self, time: int, now: int) -> array[int]:
        if time - now > _WIDE_BEYOND_MS:
            buckets, keys, key = self._wide, self._wide_keys, time >> 20
        else:
            buckets, keys, key = self._narrow, self._narrow_keys, time >> 10
        bucket = buckets.get(key)
        if bucket is None:
            bucket = buckets[key] = array("Q")
            heappush(keys, key)
        return bucket

    def take_due(self, now: int) -> Iterator[tuple[int, int]]:
        """Every (time, sequence) with time ≤ now leaves the index; stale ones too. To be run to its end."""
        if self._wide_keys:
            self._deal(now)
        second = now >> 10
        if self._due_key < second:
            yield from self._take_sorted(len(self._due))
            self._due, self._due_at, self._due_key = [], 0, -1
            keys = self._narrow_keys
            while keys and keys[0] < second:
                key = heappop(keys)
                high = (key << 10) & ~_TIME_MASK
                for entry in self._narrow.pop(key):
                    yield high | entry >> _SEQUENCE_BITS, entry & _SEQUENCE_MASK
            if keys and keys[0] == second:
                self._due_key = heappop(keys)
                self._due = sorted(self._narrow.pop(self._due_key))
        if self._due_key == second:
            yield from self._take_sorted(bisect_right(self._due, self._limit(now), self._due_at))
        self.earliest = self._lower_bound()

    @staticmethod
    def _limit(now: int) -> int:
        return ((now & _TIME_MASK) << _SEQUENCE_BITS) | _SEQUENCE_MASK

    def _take_sorted(self, end: int) -> Iterator[tuple[int, int]]:
        due, start = self._due, self._due_at
        self._due_at = end
        high = (self._due_key << 10) & ~_TIME_MASK
        for index in range(start, end):
            entry = due[index]
            yield high | entry >> _SEQUENCE_BITS, entry & _SEQUENCE_MASK

    def _lower_bound(self) -> int:
        if self._due_at < len(self._due):
            return (self._due_key << 10) & ~_TIME_MASK | self._due[self._due_at] >> _SEQUENCE_BITS
        bound = self._narrow_keys[0] << 10 if self._narrow_keys else NEVER
        return min(bound, self._wide_keys[0] << 20) if self._wide_keys else bound

    def _deal(self, now: int) -> None:
        """Deal wide buckets out into narrow ones: all that begins within 17 minutes, and a small step of what comes within the hour."""
        while self._wide_keys:
            key = self._wide_keys[0]
            start = key << 20
            if start > now + _DEAL_AHEAD_MS:
                return
            bucket = self._wide[key]
            step = len(bucket) if start <= now + (1 << 20) else _DEAL_STEP
            for entry in bucket[-step:]:
                time = start | entry >> _SEQUENCE_BITS
                if time >> 10 == self._due_key:
                    insort(self._due, entry, self._due_at)
                else:
                    # `now = time` makes it a narrow bucket.
                    self._bucket(time, time).append(entry)
            del bucket[-step:]
            if bucket:
                return
            heappop(self._wide_keys)
            del self._wide[key]

    def next_due(self, now: int) -> int | None:
        """When to look again: never later than the earliest entry above `now` (what lies at or below it is `any_due`'s). Changes nothing.

        Far from its time a bucket answers with its own start, so a sleeper wakes at most once more than needed.
        """
        second, found = now >> 10, []
        if self._due_key == second:
            index = bisect_right(self._due, self._limit(now), self._due_at)
            if index < len(self._due):
                return (self._due_key << 10) & ~_TIME_MASK | self._due[index] >> _SEQUENCE_BITS
        for keys, buckets, shift in ((self._narrow_keys, self._narrow, 10), (self._wide_keys, self._wide, 20)):
            if keys and keys[0] << shift > now:
                found.append(keys[0] << shift)
            elif keys:
                # A bucket that time has reached and nobody has opened: rare, since whatever is applied opens it.
                high = (keys[0] << shift) & ~_TIME_MASK
                later = [high | entry >> _SEQUENCE_BITS for entry in buckets[keys[0]] if high | entry >> _SEQUENCE_BITS > now]
                found += [min(later)] if later else [key << shift for key in nsmallest(2, keys)[1:]]
        return max(min(found), now + 1) if found else None

    def any_due(self, now: int, waits: Callable[[int, int], bool]) -> bool:
        """Is an entry due for which `waits(time, sequence)` still holds? Stale ones met on the way are dropped, which changes no outcome
        and keeps a queue that is only asked, never changed, from looking at them again and again."""
        if now < self.earliest:
            return False
        high = (self._due_key << 10) & ~_TIME_MASK
        end = bisect_right(self._due, self._limit(now), self._due_at) if self._due_key == now >> 10 else len(self._due)
        while self._due_at < end:
            entry = self._due[self._due_at]
            if waits(high | entry >> _SEQUENCE_BITS, entry & _SEQUENCE_MASK):
                return True
            self._due_at += 1
        keys = self._narrow_keys
        while keys and keys[0] <= now >> 10:
            key = keys[0]
            high, bucket = (key << 10) & ~_TIME_MASK, self._narrow[key]
            if key == now >> 10:
                return any(
                    high | entry >> _SEQUENCE_BITS <= now and waits(high | entry >> _SEQUENCE_BITS, entry & _SEQUENCE_MASK)
                    for entry in bucket
                )
            while bucket:
                if waits(high | bucket[-1] >> _SEQUENCE_BITS, bucket[-1] & _SEQUENCE_MASK):
                    return True
                bucket.pop()
            heappop(keys)
            del self._narrow[key]
        return any(
            (key << 20) | entry >> _SEQUENCE_BITS <= now and waits((key << 20) | entry >> _SEQUENCE_BITS, entry & _SEQUENCE_MASK)
            for key in self._wide_keys
            if key << 20 <= now
            for entry in self._wide[key]
        )

    def peek_due(self, now: int) -> Iterator[tuple[int, int]]:
        """What `take_due` would take. Changes nothing."""
        if now < self.earliest:
            return
        for start, bucket in self.buckets():
            base = -start - 1 if start < 0 else start
            if base <= now:
                high = base & ~_TIME_MASK
                for entry in bucket:
                    time = high | entry >> _SEQUENCE_BITS
                    if time <= now:
                        yield time, entry & _SEQUENCE_MASK

    def __len__(self) -> int:
        """Entries, stale ones included."""
        return len(self._due) - self._due_at + sum(map(len, self._narrow.values())) + sum(map(len, self._wide.values()))

    def buckets(self) -> Iterator[tuple[int, array[int]]]:
        """(start, entries) of every bucket, for a snapshot; the start of a wide one is given as -start - 1."""
        if self._due_at < len(self._due):
            yield self._due_key << 10, array("Q", self._due[self._due_at :])
        for key, bucket in self._narrow.items():
            yield key << 10, bucket
        for key, bucket in self._wide.items():
            yield -(key << 20) - 1, bucket

    @classmethod
    def of(cls, buckets: Iterable[tuple[int, array[int]]]) -> TimeIndex:
        """The index that gave these buckets."""
        index = cls()
        for start, entries in buckets:
            if start < 0:
                index._wide[(-start - 1) >> 20] = entries
            else:
                index._narrow[start >> 10] = entries
        index._wide_keys, index._narrow_keys = list(index._wide), list(index._narrow)
        heapify(index._wide_keys)
        heapify(index._narrow_keys)
        index.earliest = index._lower_bound()
        return index
