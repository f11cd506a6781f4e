"""Where time comes from. Everything that needs it is given a clock; nothing else reads one.

`wall_ms` is what people call the time and may jump; `boot_ms` only ever goes on, also while the machine sleeps. `call_at` wakes somebody
up at a boot time, on the running loop: one wake-up for whoever is due first, never one per message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def wall_ms(self) -> int: ...

    def boot_ms(self) -> int: ...

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> Handle: ...


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return (
            time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns() // 1_000_000
        )

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> Handle:
        # Half a millisecond more: the loop's clock and ours round differently, and waking too early would only mean waking twice.
        delay_s = max(0.0, (boot_ms - self.boot_ms()) / 1000) + 0.0005
        return asyncio.get_running_loop().call_later(delay_s, wake)


class ManualClock:
    """A clock that tests move: five minutes pass in a millisecond, and whoever slept is woken."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boot_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._wakes: list[tuple[int, int, _Wake]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def boot_ms(self) -> int:
        return self._boot_ms

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> Handle:
        made = _Wake(wake)
        self._count += 1
        heappush(self._wakes, (boot_ms, self._count, made))
        return made

    def advance(self, seconds: float) -> None:
        """Let time pass, waking sleepers in their order."""
        target = self._boot_ms + round(seconds * 1000)
        while self._wakes and self._wakes[0][0] <= target:
            at, _, wake = heappop(self._wakes)
            if not wake.cancelled:
                self._pass(max(0, at - self._boot_ms))
                wake.call()
        self._pass(target - self._boot_ms)

    def step_wall(self, seconds: float) -> None:
        """The wall clock is set; no time passes."""
        self._wall_ms += round(seconds * 1000)

    def _pass(self, ms: int) -> None:
        self._boot_ms += ms
        self._wall_ms += ms


class _Wake:
    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
