"""Writers of a shared log: entries are numbered per writer, so that an append of unknown outcome can be repeated and takes effect once.

| an entry of a writer with number | is |
| --- | --- |
| last + 1 | applied |
| ≤ last | skipped: a repeat |
| > last + 1, or the writer is not open | void |

A writer that has been silent for three seconds of entry time, each step counted as at most one (an election does not make all look dead),
loses its waiters and what was handed out to it unseen; after an hour of silence it is closed. `local` has one writer and none of this:
there position is the number.
"""

from __future__ import annotations

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

    def judge(self, identity: bytes, number: int) -> bool:
        """May this entry take effect?"""
        writer = self.by_id.get(identity)
        if writer is None or number != writer.last + 1:
            return False
        writer.last = number
        return True

    def heard(self, identity: bytes, applied: int, now: int) -> None:
        writer = self.by_id[identity]
        writer.silent_ms = 0
        writer.seen = now
        writer.applied = max(writer.applied, applied)
        if writer.handed:
            writer.handed = [hand for hand in writer.handed if hand[0] > applied]

    def pass_time(self, step_ms: int, speaker: bytes, now: int) -> list[tuple[bytes, Handed]]:
        """Entry time went on by `step_ms`. Answers the writers that fell silent with this step, with what was handed out to them unseen,
        and closes those silent for an hour."""
        silent: list[tuple[bytes, Handed]] = []
        for identity, writer in list(self.by_id.items()):
            if identity == speaker:
                continue
            before = writer.silent_ms
            writer.silent_ms += min(step_ms, WRITER_STEP_MS_MAX)
            if before < WRITER_SILENCE_MS <= writer.silent_ms:
                silent.append((identity, writer.handed))
                writer.handed = []
            if now - writer.seen >= WRITER_CLOSE_MS:
                del self.by_id[identity]
                self.closed[identity] = None
        return silent

    def lowest_version(self) -> int | None:
        return min((writer.version for writer in self.by_id.values()), default=None)
