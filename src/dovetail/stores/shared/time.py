"""The time of a shared log, as one node sees it: what the next entry of this node will be given, as well as that can be known before.

An entry's time is max(previous, min(the log's stamp, the writer's stamp)). This node's stamp is its wall clock, less what that was ahead of
the log's at the last entry, but never less than the last entry's time and what has passed here since. So a wall clock that is set back
freezes nothing, one that is ahead is held back by the log's, and when all nodes were down the time went on all the same.
"""

from __future__ import annotations

from dovetail.clock import Clock
from dovetail.stores.entrytime import EntryTime


class SharedTime(EntryTime):
    def __init__(self, clock: Clock, last_entry_ms: int) -> None:
        super().__init__(clock, 0, 0)
        self._last_ms = last_entry_ms
        self._last_boot = clock.boot_ms()
        self._wall_ahead_ms = 0

    def now(self) -> int:
        wall = self._clock.wall_ms() - self._wall_ahead_ms
        return max(wall, self._last_ms + self._clock.boot_ms() - self._last_boot) if self._last_ms else wall

    def boot_at(self, entry_ms: int) -> int:
        return entry_ms - self.now() + self._clock.boot_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def boot_ms(self) -> int:
        return self._clock.boot_ms()

    def applied(self, entry_ms: int) -> None:
        """The last entry's time."""
        self._last_ms, self._last_boot = entry_ms, self._clock.boot_ms()

    def stamped(self, wall_ms: int, log_ms: int) -> None:
        """An entry that was written here at this wall time got that stamp of the log's, which is later unless our clock is ahead."""
        self._wall_ahead_ms = max(0, wall_ms - log_ms)

    def catch_up(self, entry_ms: int) -> None:
        self.applied(max(entry_ms, self._last_ms))
