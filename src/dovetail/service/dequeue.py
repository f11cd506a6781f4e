"""Receivers that wait: woken by pushes and due times, first come first served, and without busy waiting.

Each queue that somebody waits for has a line. It sleeps until the queue's next due time, is woken earlier by a push or by whatever else
may have made a message visible, and looks every few seconds all the same, in case a hint was missed. A pop for a waiting receiver is
submitted in the very turn in which the push was, so both ride one sync. A receiver that leaves takes no message with it.

Where the lane has a line of its own, in which receivers of several nodes stand, they stand there: a push hands its message over, and
nobody is woken in vain.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dovetail.clock import Clock, Handle
from dovetail.core.operation import DEFAULT
from dovetail.errors import DovetailError, LimitExceeded, OverInFlight
from dovetail.limits import WAIT_MS_MAX
from dovetail.stores.store import Delivery, Handed, Lane, Popping, Standing

T = TypeVar("T")

SWEEP_MS = 5_000


class _Waiter:
    __slots__ = ("lease_ms", "most", "ticket", "turn")

    def __init__(self, ticket: int, most: int, lease_ms: int) -> None:
        self.ticket = ticket
        self.most = most
        self.lease_ms = lease_ms
        self.turn: asyncio.Future[Popping | None] = asyncio.get_running_loop().create_future()

    def __lt__(self, other: _Waiter) -> bool:
        return self.ticket < other.ticket


class _Line:
    """The receivers that wait for one queue, in the order in which they came."""

    def __init__(self, lane: Lane, clock: Clock, now: Callable[[], int]) -> None:
        self._lane = lane
        self._clock = clock
        self._now = now
        self._alarm: Handle | None = None
        self.members = 0
        """Receivers of this line, also those that were called and have not come back yet. At 0 the line is closed."""
        self.waiting: list[_Waiter] = []

    def join(self, waiter: _Waiter) -> None:
        """A receiver that was called in vain comes back to its old place."""
        insort(self.waiting, waiter)
        self._lane.watch(self.hint)
        self._look()

    def leave(self, waiter: _Waiter) -> None:
        # The line is in the order of tickets: with ten thousand in it, looking at each for each that leaves would take seconds.
        place = bisect_left(self.waiting, waiter)
        if place < len(self.waiting) and self.waiting[place] is waiter:
            del self.waiting[place]
        self._rest_if_empty()

    def hint(self, count: int) -> None:
        """So many messages are about to be visible (0: look). Never raises: whoever pushes must not pay for whoever waits."""
        if count:
            self._call(count)
        else:
            self._look()

    def end(self) -> None:
        """Everybody's time is up."""
        for waiter in self.waiting:
            if not waiter.turn.done():
                waiter.turn.set_result(None)
        self.waiting.clear()
        self._rest_if_empty()

    def fail(self, error: DovetailError) -> None:
        """Nobody will be served here any more."""
        for waiter in self.waiting:
            if not waiter.turn.done():
                waiter.turn.set_exception(error)
        self.waiting.clear()
        self._rest_if_empty()

    def _look(self) -> None:
        """Something may be visible: call the next receiver. Each that gets something makes the next one be looked for."""
        called = False
        try:
            if self.waiting and self._lane.has_visible():
                self._call(1)
                called = True
            due = self._lane.next_visible_at() if self.waiting else None
        except DovetailError as error:
            self.fail(error)
            return
        if self.waiting:
            # What became due since the look above is looked at once more at once. After a call it is the pop that looks again.
            now = self._now()
            self._sleep(now + SWEEP_MS if due is None or called else min(max(due, now), now + SWEEP_MS))

    def _call(self, count: int) -> None:
        """Call the first `count` receivers that are still there."""
        while count and self.waiting:
            waiter = self.waiting.pop(0)
            if waiter.turn.done():
                # It has left, or its time is up, and it has had no turn yet to say so.
                continue
            count -= 1
            try:
                waiter.turn.set_result(self._lane.pop(waiter.most, waiter.lease_ms))
            except DovetailError as error:
                waiter.turn.set_exception(error)
        self._rest_if_empty()

    def _rest_if_empty(self) -> None:
        if not self.waiting:
            self._lane.watch(None)
            self._sleep(None)

    def _sleep(self, until: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if until is not None:
            self._alarm = self._clock.call_at(self._clock.boot_ms() + until - self._now(), self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._look()


class Dequeue:
    def __init__(self, clock: Clock, now: Callable[[], int]) -> None:
        self._clock = clock
        self._now = now
        self._lines: dict[int, _Line] = {}
        self._standing: dict[int, dict[Standing, None]] = {}
        """Receivers that stand in the lines of lanes, by queue."""
        self._tickets = 0
        self._waits = True

    def waiting(self, queue: int) -> int:
        line = self._lines.get(queue)
        return (len(line.waiting) if line is not None else 0) + len(self._standing.get(queue, ()))

    def end_waiting(self) -> None:
        """Nobody waits any more, now or later: every wait ends at once, as if its time were up."""
        self._waits = False
        for line in list(self._lines.values()):
            line.end()
        for standing in [one for members in self._standing.values() for one in members]:
            standing.end()

    def close(self, error: DovetailError) -> None:
        """Whoever waits is told so at once. (Those who stand in a lane are told by its store.)"""
        for line in list(self._lines.values()):
            line.fail(error)

    async def receive(
        self, lane: Lane, most: int, lease_ms: int = DEFAULT, *, wait_ms: int = 0, delete: bool = False, attempt: bytes = b""
    ) -> list[Delivery]:
        """Up to `most` messages, as soon as there is one. A receive that finds nothing and does not wait writes nothing."""
        if not 0 <= wait_ms <= WAIT_MS_MAX:
            raise LimitExceeded(f"a wait of {wait_ms} ms; at most {WAIT_MS_MAX} are allowed")
        if attempt or (not self.waiting(lane.queue) and lane.has_visible()):
            got = await _taken(lane.pop(most, lease_ms, delete=delete, attempt=attempt))
            if got:
                return got
        if wait_ms and self._waits:
            return await self._wait(lane, most, lease_ms, wait_ms, lambda popping: self._take(lane, popping, delete))
        if lane.is_full():
            raise OverInFlight
        return []

    async def wait_in_columns(self, lane: Lane, most: int, lease_ms: int, wait_ms: int) -> list[Handed]:
        """The same for a receiver that takes runs, and that found nothing: it stands in line. Nothing is written while it waits."""
        if not wait_ms or not self._waits:
            return []
        return await self._wait(lane, most, lease_ms, wait_ms, _runs)

    async def _wait(self, lane: Lane, most: int, lease_ms: int, wait_ms: int, take: Callable[[Popping], Awaitable[list[T]]]) -> list[T]:
        standing = lane.stand(most, lease_ms, wait_ms)
        if standing is None:
            return await self._wait_here(lane, most, lease_ms, wait_ms, take)
        until = self._clock.boot_ms() + wait_ms
        while True:
            got, over = await self._stand(lane.queue, standing, until, take)
            if got or over or not self._waits:
                return got
            # What it was handed had been taken away again, or could not be kept.
            again = lane.stand(most, lease_ms, until - self._clock.boot_ms())
            if again is None:
                return []
            standing = again

    async def _stand(
        self, queue: int, standing: Standing, until: int, take: Callable[[Popping], Awaitable[list[T]]]
    ) -> tuple[list[T], bool]:
        """What it gets, and whether its time is up."""
        over = False

        def time_is_up() -> None:
            nonlocal over
            over = True
            standing.end()

        members = self._standing.setdefault(queue, {})
        members[standing] = None
        alarm = self._clock.call_at(until, time_is_up)
        try:
            return await take(standing), over
        finally:
            alarm.cancel()
            del members[standing]
            if not members and self._standing.get(queue) is members:
                del self._standing[queue]

    async def _wait_here(
        self, lane: Lane, most: int, lease_ms: int, wait_ms: int, take: Callable[[Popping], Awaitable[list[T]]]
    ) -> list[T]:
        line = self._lines.get(lane.queue)
        if line is None:
            line = self._lines[lane.queue] = _Line(lane, self._clock, self._now)
        line.members += 1
        self._tickets += 1
        ticket, over = self._tickets, False

        def time_is_up() -> None:
            nonlocal over
            over = True
            if not waiter.turn.done():
                waiter.turn.set_result(None)

        waiter = _Waiter(ticket, most, lease_ms)
        alarm = self._clock.call_at(self._clock.boot_ms() + wait_ms, time_is_up)
        try:
            while True:
                line.join(waiter)
                popping = await _called(waiter)
                got = await take(popping) if popping is not None else []
                if got or over or not self._waits:
                    return got
                waiter = _Waiter(ticket, most, lease_ms)
        finally:
            alarm.cancel()
            line.leave(waiter)
            line.members -= 1
            if not line.members:
                self._lines.pop(lane.queue, None)

    async def _take(self, lane: Lane, popping: Popping, delete: bool) -> list[Delivery]:
        """Take what there is. Receive-and-delete gets a lease first and completes it before it answers, so that a receiver that left in the
        meantime takes nothing with it."""
        try:
            got = await _taken(popping)
        except OverInFlight:
            return []
        if delete and got:
            done = await lane.complete([delivery.receipt for delivery in got])
            return [delivery._replace(receipt="") for delivery, mine in zip(got, done, strict=True) if mine]
        return got


async def _runs(popping: Popping) -> list[Handed]:
    try:
        return await popping.runs()
    except OverInFlight:
        return []
    except asyncio.CancelledError:
        popping.abandon()
        raise


async def _called(waiter: _Waiter) -> Popping | None:
    """Until it is the waiter's turn: a pop that was submitted for it, or None when its time is up."""
    try:
        return await waiter.turn
    except asyncio.CancelledError:
        called = waiter.turn.result() if waiter.turn.done() and not waiter.turn.cancelled() else None
        if called is not None:
            called.abandon()
        raise


async def _taken(popping: Popping) -> list[Delivery]:
    try:
        return await popping
    except asyncio.CancelledError:
        popping.abandon()
        raise
