"""Receivers that wait inside the state of a lane (shared logs), and receive attempts that may be repeated.

A Pop that finds nothing and may wait stays here. After every operation the lane serves its waiters in order; no later Pop overtakes;
one with count left goes to the end, unless it takes once; the same attempt replaces its waiter; one whose time is over leaves, and so does
one that its writer withdraws.
On `local` waiters live in the node's memory instead and this stays empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from dovetail.limits import ATTEMPT_KEPT_MS


class Waiter(NamedTuple):
    writer: bytes
    waiter: int
    """The address of the Pop, which names it for ever."""
    most: int
    lease_ms: int
    delete: bool
    until: int
    attempt: bytes
    once: bool = False


class Waiters:
    __slots__ = ("first_over", "line")

    def __init__(self, line: Iterable[Waiter] = ()) -> None:
        self.line = deque(line)
        self.first_over = min((waiter.until for waiter in self.line), default=0)
        """Before then nobody's time is over: a lower bound, so that a lane that is looked at does not look at everybody in its line."""

    def join(self, waiter: Waiter) -> None:
        if waiter.attempt:
            self.line = deque(other for other in self.line if other.attempt != waiter.attempt)
        self.first_over = min(self.first_over, waiter.until) if self.line else waiter.until
        self.line.append(waiter)

    def leave_late(self, now: int) -> None:
        if self.line and self.first_over <= now:
            self.line = deque(waiter for waiter in self.line if waiter.until > now)
            self.first_over = min((waiter.until for waiter in self.line), default=0)

    def leave_with(self, writer: bytes) -> None:
        if any(waiter.writer == writer for waiter in self.line):
            self.line = deque(waiter for waiter in self.line if waiter.writer != writer)

    def withdraw(self, writer: bytes, waiters: Collection[int]) -> int:
        """Those of this writer that are named leave; answers how many there were."""
        before = len(self.line)
        self.line = deque(waiter for waiter in self.line if waiter.waiter not in waiters or waiter.writer != writer)
        return before - len(self.line)

    def __bool__(self) -> bool:
        return bool(self.line)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self.line)


class Attempt(NamedTuple):
    time: int
    sequences: tuple[int, ...]
    deliveries: tuple[int, ...]


class Attempts:
    """Receive attempts of the last five minutes, oldest first."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: dict[bytes, Attempt] = {}

    def get(self, attempt: bytes, now: int) -> Attempt | None:
        while self.kept:
            oldest = next(iter(self.kept))
            if self.kept[oldest].time + ATTEMPT_KEPT_MS > now:
                break
            del self.kept[oldest]
        return self.kept.get(attempt)

    def put(self, attempt: bytes, made: Attempt) -> None:
        self.kept.pop(attempt, None)
        self.kept[attempt] = made

    def clear(self) -> None:
        self.kept.clear()
