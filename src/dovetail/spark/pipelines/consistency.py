"""The measures of a queue kept up while it is used: what is known after each fact is what a batch over all the facts would say. Plain
Python; knows no Arrow, no Spark and no clock.

What is kept of a queue is bounded, whatever passes through it:

    out of order    The longest increasing subsequence grows by patience: the smallest last number of a subsequence of each length. Numbers
                    that can no longer be undercut are as good as counted: when every number below `low` was delivered or is gone, none of
                    them comes any more, so the lengths that end below `low` are a count. What is kept is what was delivered ahead of the
                    oldest message that was not, which is nothing where a queue is read in order.
    displacement    The same: below `low` every message's place among its neighbours is settled; above it stands in the window.
    the window      holds WINDOW numbers. Where one message is stuck while so many others pass, `low` moves on without it. If it then
                    comes, it is counted as `beyond`: out of order by itself, so that the rate is an upper bound, and exact while `beyond`
                    is 0. (`exact` says so.)
    latency         When a message was pushed follows from its sequence, for times never fall along sequences: steps, of which every second
                    one of the older half goes when there are more than STEPS. `latency_about_ms` says by how much that may mislead.
    delays          DELAYED messages whose time is to come; of more the latest are followed. As many whose delivery was undone.
    minutes         the last MINUTES, with latencies in buckets that are 1.6 % wide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, NamedTuple

WINDOW = 10_000
STEPS = 20_000
DELAYED = 20_000
MINUTES = 60
_FINE_BITS = 6
_MINUTE_MS = 60_000


class Event(NamedTuple):
    kind: str
    time_ms: int
    sequence: int
    receives: int = 1
    """Of a delivery; of a purge: how many messages were left."""
    due_ms: int | None = None
    """Of a push that is delayed."""


class Order:
    """Out-of-order rate and displacement of numbers as they come, each once; 1, 2, 3 … is right. `gone`: a number that will not come."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.low = 1
        """Every number below it was delivered or is gone, or has been given up."""
        self.count = 0
        self.beyond = 0
        self._settled = 0
        """Delivered below `low`."""
        self._lengths = 0
        """Lengths whose subsequence ends below `low`."""
        self._tails: list[int] = []
        self._moved = 0
        """The displacement that is settled."""
        self._numbers: list[int] = []
        self._places: dict[int, int] = {}
        self._gone: list[tuple[int, int]] = []
        """Stretches (first, end) from `low` on, in order."""

    def came(self, number: int) -> bool:
        """Whether it is the first time, as far as can be known."""
        if number in self._places:
            return False
        place, self.count = self.count, self.count + 1
        if number < self.low:
            self.beyond += 1
            self._moved += max(0, place - self._settled)
            return True
        at = bisect_left(self._tails, number)
        self._tails[at : at + 1] = [number]
        if number == self.low and not self._numbers:
            # The usual case, and the fast one.
            self._settle(place)
            self.low = number + 1
            self._count_tails()
            if self._gone:
                self._advance()
            return True
        insort(self._numbers, number)
        self._places[number] = place
        if number == self.low:
            self._advance()
        elif len(self._numbers) > self.window:
            self.low = self._numbers[0]
            self._advance()
        return True

    def gone(self, first: int, end: int) -> None:
        """The numbers of this stretch do not come any more; those that came already mind nothing."""
        if end <= self.low:
            return
        insort(self._gone, (max(first, self.low), end))
        if len(self._gone) > self.window:
            self.low = self._gone[0][1]
        self._advance()

    def _advance(self) -> None:
        settled = 0
        while True:
            if settled < len(self._numbers) and self._numbers[settled] <= self.low:
                number = self._numbers[settled]
                self._settle(self._places.pop(number))
                self.low = max(self.low, number + 1)
                settled += 1
            elif self._gone and self._gone[0][0] <= self.low:
                self.low = max(self.low, self._gone.pop(0)[1])
            else:
                break
        del self._numbers[:settled]
        self._count_tails()

    def _settle(self, place: int) -> None:
        self._moved += abs(place - self._settled)
        self._settled += 1

    def _count_tails(self) -> None:
        ended = bisect_left(self._tails, self.low)
        self._lengths += ended
        del self._tails[:ended]

    @property
    def out_of_order(self) -> float:
        return 1 - (self._lengths + len(self._tails)) / self.count if self.count else 0.0

    @property
    def displacement(self) -> float:
        waiting = sum(abs(self._places[number] - self._settled - at) for at, number in enumerate(self._numbers))
        return (self._moved + waiting) / self.count if self.count else 0.0

    def told(self) -> dict[str, Any]:
        kept = {"low": self.low, "count": self.count, "beyond": self.beyond, "settled": self._settled, "lengths": self._lengths}
        return {
            **kept,
            "moved": self._moved,
            "tails": self._tails,
            "numbers": self._numbers,
            "gone": self._gone,
            "places": [self._places[number] for number in self._numbers],
        }

    @classmethod
    def of(cls, told: Mapping[str, Any], window: int = WINDOW) -> Order:
        made = cls(window)
        made.low, made.count, made.beyond = told["low"], told["count"], told["beyond"]
        made._settled, made._lengths, made._moved = told["settled"], told["lengths"], told["moved"]
        made._tails, made._numbers = list(told["tails"]), list(told["numbers"])
        made._places = dict(zip(made._numbers, told["places"], strict=True))
        made._gone = [(first, end) for first, end in told["gone"]]
        return made


def bucket_of(value: int) -> int:
    """0, 1, 2 … each by itself at first, then 64 buckets for each power of two."""
    value = max(0, value)
    shift = max(0, value.bit_length() - _FINE_BITS - 1)
    return (shift << _FINE_BITS) + (value >> shift)


def ceiling(bucket: int) -> int:
    """The largest value of a bucket."""
    shift = max(0, (bucket >> _FINE_BITS) - 1)
    return ((bucket - (shift << _FINE_BITS) + 1) << shift) - 1


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """The smallest value that this share does not exceed, to the ceiling of its bucket."""
    total = sum(buckets.values())
    if not total:
        return None
    need, seen = ceil(share * (total - 1)), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen > need:
            return float(ceiling(bucket))
    return None


Counts = dict[str, Any]


def _counts() -> Counts:
    return {"sent": 0, "delivered": 0, "completed": 0, "doubled": 0, "latency": {}, "late": {}}


class Consistency:
    """What is known of one queue. `fold` takes the next events, in order; `told` and `of` are its way to the disk and back."""

    def __init__(self, window: int = WINDOW) -> None:
        self.order = Order(window)
        self.total = _counts()
        self.minutes: dict[int, Counts] = {}
        self.left = 0
        """Messages that left for good, however."""
        self.discarded = 0
        self.about_ms = 0
        self.first_ms = self.last_ms = 0
        self.queue_id = 0
        self._firsts: list[int] = []
        self._times: list[int] = []
        self._due: dict[int, int] = {}
        self._undone: dict[int, None] = {}

    def fold(self, events: Iterable[Event]) -> None:
        minute, counts, ends_ms = 0, self.total, -1
        total = self.total
        for kind, time_ms, sequence, receives, due_ms in events:
            if time_ms >= ends_ms:
                minute = time_ms // _MINUTE_MS
                ends_ms = (minute + 1) * _MINUTE_MS
                counts = self.minutes.setdefault(minute, _counts())
                self.first_ms = self.first_ms or time_ms
            self.last_ms = time_ms
            match kind:
                case "push":
                    total["sent"] += 1
                    counts["sent"] += 1
                    self._pushed(sequence, time_ms, due_ms)
                case "delivery" | "take" | "reserve":
                    if receives > 1 or self._was_undone(sequence) or not self.order.came(sequence):
                        total["doubled"] += 1
                        counts["doubled"] += 1
                    else:
                        total["delivered"] += 1
                        counts["delivered"] += 1
                        self._delivered(sequence, time_ms, counts)
                    if kind == "take":
                        self._completed(counts)
                case "complete" | "settle":
                    self._completed(counts)
                case "cancel" | "dead-letter" | "redrive" | "expire":
                    self._discarded(sequence, sequence + 1, 1)
                case "purge" | "drop":
                    self._discarded(0, sequence + 1, receives)
                case "release" | "unreserve":
                    self._undone[sequence] = None
                    if len(self._undone) > DELAYED:
                        del self._undone[next(iter(self._undone))]
                case _:
                    pass
        for old in sorted(self.minutes)[:-MINUTES]:
            del self.minutes[old]

    def _was_undone(self, sequence: int) -> bool:
        """It counts as the first delivery that it had, and this one as one more."""
        if sequence not in self._undone:
            return False
        del self._undone[sequence]
        return True

    def _completed(self, counts: Counts) -> None:
        self.total["completed"] += 1
        counts["completed"] += 1
        self.left += 1

    def _discarded(self, first: int, end: int, count: int) -> None:
        self.order.gone(first, end)
        self.left += count
        self.discarded += count

    def _pushed(self, sequence: int, time_ms: int, due_ms: int | None) -> None:
        if not self._times or time_ms > self._times[-1]:
            self._firsts.append(sequence)
            self._times.append(time_ms)
            if len(self._times) > STEPS:
                self._thin()
        if due_ms is not None and due_ms > time_ms:
            self._due[sequence] = due_ms
            if len(self._due) > DELAYED:
                del self._due[next(iter(self._due))]

    def _thin(self) -> None:
        """Every second step of the older half goes; what stood in it is then taken for pushed with the step before."""
        half = len(self._times) // 2
        self.about_ms = max(self.about_ms, max(self._times[at] - self._times[at - 1] for at in range(1, half, 2)))
        keep = [*range(0, half, 2), *range(half, len(self._times))]
        self._firsts, self._times = [self._firsts[at] for at in keep], [self._times[at] for at in keep]

    def _delivered(self, sequence: int, time_ms: int, counts: Counts) -> None:
        at = bisect_right(self._firsts, sequence) - 1
        if at >= 0:
            _add(self.total["latency"], counts["latency"], time_ms - self._times[at])
        due_ms = self._due.pop(sequence, None)
        if due_ms is not None:
            _add(self.total["late"], counts["late"], time_ms - due_ms)

    def report(self, queue: str) -> dict[str, Any]:
        total, order = self.total, self.order
        known = max(1, total["sent"])
        seconds = max(1e-3, (self.last_ms - self.first_ms) / 1000)
        return {
            "queue": queue,
            **{name: total[name] for name in ("sent", "delivered", "completed", "doubled")},
            "depth": max(0, total["sent"] - self.left),
            "discarded": self.discarded,
            "duplication": total["doubled"] / known,
            "out_of_order": order.out_of_order,
            "displacement": order.displacement,
            "exact": order.beyond == 0,
            "beyond": order.beyond,
            "sent_per_s": total["sent"] / seconds,
            "delivered_per_s": total["delivered"] / seconds,
            **_percentiles(total),
            "latency_about_ms": self.about_ms,
            "minutes": [
                {"minute": minute * 60, **{name: one[name] for name in ("sent", "delivered", "completed", "doubled")}, **_percentiles(one)}
                for minute, one in sorted(self.minutes.items())
            ],
        }

    def told(self) -> dict[str, Any]:
        return {
            "version": 1,
            "queue_id": self.queue_id,
            "left": self.left,
            "discarded": self.discarded,
            "about_ms": self.about_ms,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "firsts": self._firsts,
            "times": self._times,
            "due": list(self._due.items()),
            "undone": list(self._undone),
            "total": self.total,
            "minutes": list(self.minutes.items()),
            "order": self.order.told(),
        }

    @classmethod
    def of(cls, told: Mapping[str, Any], window: int = WINDOW) -> Consistency:
        made = cls(window)
        made.queue_id, made.left, made.discarded, made.about_ms = (told[name] for name in ("queue_id", "left", "discarded", "about_ms"))
        made.first_ms, made.last_ms = told["first_ms"], told["last_ms"]
        made._firsts, made._times = list(told["firsts"]), list(told["times"])
        made._due = dict(told["due"])
        made._undone = dict.fromkeys(told["undone"])
        made.total = _kept(told["total"])
        made.minutes = {minute: _kept(counts) for minute, counts in told["minutes"]}
        made.order = Order.of(told["order"], window)
        return made


def _add(one: dict[int, int], other: dict[int, int], value: int) -> None:
    bucket = bucket_of(value)
    one[bucket] = one.get(bucket, 0) + 1
    other[bucket] = other.get(bucket, 0) + 1


def _percentiles(counts: Counts) -> dict[str, float | None]:
    return {f"{name}_p{round(100 * share)}_ms": percentile(counts[name], share) for name in ("latency", "late") for share in (0.5, 0.99)}


def _kept(told: Mapping[str, Any]) -> Counts:
    """JSON has made texts of the buckets."""
    histograms = {name: {int(bucket): count for bucket, count in told[name].items()} for name in ("latency", "late")}
    return {**told, **histograms}
