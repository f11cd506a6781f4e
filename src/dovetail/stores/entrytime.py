"""The time of a log with one writer: last entry time + boot time elapsed. A start adds the wall time spent down, never less than nothing.

So a wall clock that is set back freezes nothing, and one that is set ahead while the node runs makes no lease lapse. What time destroys
for good waits for a clock that can be trusted: `trusted` holds once entry time, wall clock and boot clock have run together within 5 s
for ten minutes (an hour after a step of over an hour).
"""

from __future__ import annotations

from dovetail.clock import Clock

APART_MS_MAX = 5_000
ALARM_MS = 2_000
TRUST_MS = 600_000
TRUST_AFTER_STEP_MS = 3_600_000
BIG_STEP_MS = 3_600_000


class EntryTime:
    def __init__(self, clock: Clock, last_entry_ms: int, last_ahead_s: int) -> None:
        """`last_ahead_s` says how far the wall clock was ahead when the last entry was written. A new log begins with the wall clock."""
        self._clock = clock
        self._boot = clock.boot_ms()
        wall = clock.wall_ms()
        self._base = last_entry_ms + max(0, wall - last_entry_ms - last_ahead_s * 1000) if last_entry_ms else wall
        self._together_since = self._boot
        self._offset = clock.wall_ms() - self._base
        self._trust_ms = TRUST_MS if abs(self._offset) < BIG_STEP_MS else TRUST_AFTER_STEP_MS

    def now(self) -> int:
        return self._base + self._clock.boot_ms() - self._boot

    def boot_at(self, entry_ms: int) -> int:
        """The boot time at which `now` will be `entry_ms`."""
        return entry_ms - self._base + self._boot

    def ahead_s(self) -> int:
        """As an entry's head has it: whole seconds, within 32 bits."""
        return max(-(1 << 31), min(round(self.drift_ms() / 1000), (1 << 31) - 1))

    def catch_up(self, entry_ms: int) -> None:
        """An operator moved the time of the log forward (Retime)."""
        self._base += max(0, entry_ms - self.now())

    def drift_ms(self) -> int:
        """How far the wall clock is ahead of entry time. Beyond ALARM_MS an operator should look."""
        return self._clock.wall_ms() - self.now()

    def trusted(self) -> bool:
        """To be asked now and then: a step of the wall clock between two questions starts the probation again."""
        drift, boot = self.drift_ms(), self._clock.boot_ms()
        if abs(drift - self._offset) > APART_MS_MAX:
            self._trust_ms = TRUST_MS if abs(drift - self._offset) < BIG_STEP_MS else TRUST_AFTER_STEP_MS
            self._offset, self._together_since = drift, boot
        return abs(drift) <= APART_MS_MAX and boot - self._together_since >= self._trust_ms
