"""Writers of a shared log: entries are numbered per writer, so that an append of unknown outcome can be repeated and takes effect once.

| an entry of a writer with number | is |
| --- | --- |
| last + 1 | applied |
| ≤ last | skipped: a repeat |
| > last + 1, or the writer is not open | void |

A copy of an entry may have other bytes (a process that was cloned writes under its twin's name): whatever they are, the first one counts
everywhere, and the process that meets its own number with bytes of somebody else has to stop.

A writer that has been silent for three seconds of entry time, each step counted as at most one (an election does not make all look dead),
loses its waiters and what was handed out to it unseen; after an hour of silence, or when its process has opened anew, it is closed, and
loses the same. Copies are no sign of life. `local` has one writer and none of this: there position is the number.
"""

from __future__ import annotations

from dovetail.core.outcome import Fate
from dovetail.limits import WRITER_CLOSE_MS, WRITER_SILENCE_MS, WRITER_STEP_MS_MAX


class Writer:
    __slots__ = ("applied", "handed", "last", "seen", "silent_ms", "version")

    def __init__(self, version: int, now: int) -> None:
        self.version = version
        self.last = 0
        self.applied = 0
        self.silent_ms = 0
        self.seen = now
        self.handed: list[tuple[int, int, int, int]] = []
        """(position, queue, sequence, delivery) of hand-outs above the position that the writer has named."""


Handed = list[tuple[int, int, int, int]]


class Writers:
    __slots__ = ("by_id", "closed")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Writer] = {}
        self.closed: dict[bytes, None] = {}
        """Remembered, so that a late copy of an Open cannot make old entries count again."""

    def open(self, identity: bytes, version: int, now: int) -> bool:
        if identity in self.closed:
            return False
        if identity not in self.by_id:
            self.by_id[identity] = Writer(version, now)
        return True

    def close(self, identity: bytes, applied: int) -> Handed:
        """Its process goes on under another name, and has applied everything up to `applied`. Answers what was handed out above that."""
        self.closed[identity] = None
        writer = self.by_id.pop(identity, None)
        return [hand for hand in writer.handed if hand[0] > applied] if writer is not None else []

    def judge(self, identity: bytes, number: int) -> Fate:
        """May this entry take effect? If so its number is used."""
        writer = self.by_id.get(identity)
        if writer is None or number > writer.last + 1:
            return Fate.VOID
        if number <= writer.last:
            return Fate.AGAIN
        writer.last = number
        return Fate.TAKEN

    def heard(self, identity: bytes, applied: int, now: int) -> None:
        writer = self.by_id[identity]
        writer.silent_ms = 0
        writer.seen = now
        writer.applied = max(writer.applied, applied)
        if writer.handed:
            writer.handed = [hand for hand in writer.handed if hand[0] > applied]

    def pass_time(self, step_ms: int, speaker: bytes, now: int) -> list[tuple[bytes, Handed]]:
        """Entry time went on by `step_ms`. Answers the writers that fell silent, or were closed, with this step, with what was handed out
        to them unseen."""
        silent: list[tuple[bytes, Handed]] = []
        for identity, writer in list(self.by_id.items()):
            if identity == speaker:
                continue
            before = writer.silent_ms
            writer.silent_ms += min(step_ms, WRITER_STEP_MS_MAX)
            over = now - writer.seen >= WRITER_CLOSE_MS
            if before < WRITER_SILENCE_MS and (over or writer.silent_ms >= WRITER_SILENCE_MS):
                silent.append((identity, writer.handed))
                writer.handed = []
            if over:
                del self.by_id[identity]
                self.closed[identity] = None
        return silent

    def lowest_version(self) -> int | None:
        return min((writer.version for writer in self.by_id.values()), default=None)
