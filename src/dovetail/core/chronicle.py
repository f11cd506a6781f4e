"""The chronicle: what happened to queues, fact by fact, numbered from 1; noted while a facts tap is open, and for as long as one asks.

The log holds what was asked for; which messages a Pop took is what apply makes of it. So facts are noted where apply makes them
(core/noting.py), in columns, and nothing is noted twice: a replay gives the same facts under the same numbers. They need no record of
the log, so the log is trimmed as if nobody read them.

A *step* is what the facts of one operation have in common; a fact is a row:

    steps   start u64 (number of its first fact) · rows u32 · position u64 (behind the entry) · index u32 (of the operation) · time u64
            · kind u8 · queue u64 · duration i64 · target u64 · label u32 · mark i64                                        69 bytes
    rows    first u64 (sequence) · second u64 (delivery, or sequence in the target) · third u32 (by kind) · outcome u8       21 bytes

A *page* has some ten thousand of them. At a snapshot all pages are written once, as a *stretch*, and leave memory.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from dovetail.core.taps import Tap
from dovetail.errors import CodecError

PAGE_ROWS = 16_384
NONE = -1
"""Of a duration or a mark: there is none."""
UNKNOWN = (1 << 32) - 1
"""Of a size: the bodies of staged messages lie in the log and were not looked at."""
REFUSED, DONE, REPEAT = range(3)
OUTCOMES = ("refused", "done", "repeat")

_HEAD = Struct("<QIIIIQ")


class Fact(IntEnum):
    """A number is never given to another meaning."""

    PUSH = 1
    DELIVERY = 2
    TAKE = 3
    COMPLETE = 4
    REQUEUE = 5
    EXTEND = 6
    RELEASE = 7
    RECLAIM = 8
    CANCEL = 9
    RESCHEDULE = 10
    DEAD_LETTER = 11
    REDRIVE = 12
    EXPIRE = 13
    PURGE = 14
    RESERVE = 15
    SETTLE = 16
    UNRESERVE = 17
    CREATE = 18
    CONFIGURE = 19
    DROP = 20


WORDS = ("", *(kind.name.lower().replace("_", "-") for kind in Fact))
"""A kind as readers see it."""
DELIVERED = (Fact.DELIVERY, Fact.COMPLETE, Fact.REQUEUE, Fact.EXTEND, Fact.RELEASE)
"""Their second is a delivery number."""
MOVED = (Fact.DEAD_LETTER, Fact.REDRIVE)
"""Theirs is the sequence in the target."""
RESERVING = (Fact.RESERVE, Fact.SETTLE, Fact.UNRESERVE)
"""Their label is the name of a reservation, and the mark its batch. A push has a producer there, and its number."""
COUNTED = (*RESERVING, Fact.EXPIRE, Fact.PURGE, Fact.DROP)
"""Their third says of how many messages they tell. That of a push is a size, that of a delivery how often the message was received."""

STEP_BYTES, ROW_BYTES = 69, 21


class Page:
    """Facts in columns. `labels` are byte strings that steps name by their index."""

    __slots__ = (
        "counts", "durations", "firsts", "indexes", "kinds", "labels", "marks", "outcomes", "positions", "queues", "seconds", "starts",
        "step_labels", "targets", "thirds", "times",
    )  # fmt: skip

    def __init__(self) -> None:
        self.starts, self.counts, self.positions, self.indexes, self.times = array("Q"), array("I"), array("Q"), array("I"), array("Q")
        self.kinds, self.queues, self.durations, self.targets = array("B"), array("Q"), array("q"), array("Q")
        self.step_labels, self.marks = array("I"), array("q")
        self.firsts, self.seconds, self.thirds, self.outcomes = array("Q"), array("Q"), array("I"), array("B")
        self.labels: list[bytes] = [b""]

    def steps(self) -> tuple[array[int], ...]:
        return (
            self.starts, self.counts, self.positions, self.indexes, self.times, self.kinds, self.queues, self.durations, self.targets,
            self.step_labels, self.marks,
        )  # fmt: skip

    def rows(self) -> tuple[array[int], ...]:
        return self.firsts, self.seconds, self.thirds, self.outcomes

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def first(self) -> int:
        return self.starts[0] if self.starts else 0

    @property
    def end(self) -> int:
        return self.starts[-1] + self.counts[-1] if self.starts else 0

    @property
    def size(self) -> int:
        return STEP_BYTES * len(self.starts) + ROW_BYTES * len(self.firsts)

    def cut(self, start: int, end: int, keeps: Callable[[int], bool] = lambda queue: True) -> Page:
        """The facts `start` … `end - 1` of the queues that are kept. Only a page without holes can be cut."""
        made = Page()
        if start >= min(end, self.end) or end <= self.first:
            return made
        start, end = max(start, self.first), min(end, self.end)
        low, high = bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)
        for into, column in zip(made.steps(), self.steps(), strict=True):
            into.extend(column[low:high])
        at = start - self.first
        for into, column in zip(made.rows(), self.rows(), strict=True):
            into.extend(column[at : at + end - start])
        made.labels = self.labels
        # The first and the last step may reach beyond.
        skipped = start - made.starts[0]
        made.starts[0] += skipped
        made.counts[0] -= skipped
        if made.marks[0] != NONE and made.kinds[0] == Fact.PUSH:
            made.marks[0] += skipped
        made.counts[-1] = end - made.starts[-1]
        kept = {queue: keeps(queue) for queue in set(made.queues)}
        return made if all(kept.values()) else made._only(kept)

    def _only(self, kept: dict[int, bool]) -> Page:
        made, at = Page(), 0
        made.labels = self.labels
        for step, count in enumerate(self.counts):
            if kept[self.queues[step]]:
                for into, column in zip(made.steps(), self.steps(), strict=True):
                    into.append(column[step])
                for into, column in zip(made.rows(), self.rows(), strict=True):
                    into.extend(column[at : at + count])
            at += count
        return made

    def join(self, other: Page) -> None:
        """The facts of another page, behind these."""
        moved = {0: 0}
        for index in set(other.step_labels) - {0}:
            self.labels.append(other.labels[index])
            moved[index] = len(self.labels) - 1
        for into, column in zip((*self.steps(), *self.rows()), (*other.steps(), *other.rows()), strict=True):
            into.extend(column)
        if len(moved) > 1:
            begun = len(self.step_labels) - len(other.step_labels)
            self.step_labels[begun:] = array("I", [moved[index] for index in other.step_labels])

    def time_of(self, number: int) -> int:
        return self.times[bisect_right(self.starts, number) - 1]

    def number_at(self, time: int) -> int:
        """The first fact at this time or later."""
        step = bisect_left(self.times, time)
        return self.starts[step] if step < len(self.starts) else self.end

    # As bytes

    def dump(self) -> bytes:
        labels = json.dumps([label.hex() for label in self.labels]).encode()
        body = b"".join([column.tobytes() for column in (*self.steps(), *self.rows())]) + labels
        last = self.times[-1] if self.times else 0
        return _HEAD.pack(self.first, len(self.starts), len(self.firsts), len(labels), crc32(body), last) + body

    @classmethod
    def load(cls, data: memoryview) -> Page:
        """The page that `data` begins with; CodecError where it is damaged."""
        head = PageHead.of(data, 0)
        body = data[_HEAD.size : head.end]
        if len(body) != head.end - _HEAD.size or crc32(body) != head.checksum:
            raise CodecError("a page of facts is damaged")
        page, at = cls(), 0
        for column, count in [*((one, head.steps) for one in page.steps()), *((one, head.rows) for one in page.rows())]:
            size = column.itemsize * count
            column.frombytes(body[at : at + size])
            at += size
        page.labels = [bytes.fromhex(label) for label in json.loads(bytes(body[at:]))]
        return page


class PageHead(NamedTuple):
    """What a page says of itself, where it lies in a blob at `at`."""

    at: int
    first: int
    steps: int
    rows: int
    checksum: int
    time: int
    """Of its last fact."""
    end: int
    """Where in the blob it ends."""

    @property
    def size(self) -> int:
        return STEP_BYTES * self.steps + ROW_BYTES * self.rows

    @classmethod
    def of(cls, data: memoryview, at: int) -> PageHead:
        first, steps, rows, labels, checksum, time = _HEAD.unpack_from(data, at)
        return cls(at, first, steps, rows, checksum, time, at + _HEAD.size + STEP_BYTES * steps + ROW_BYTES * rows + labels)


class Row(NamedTuple):
    """One fact, as it is noted: what `second`, `third`, `label` and `mark` are depends on its kind."""

    number: int
    position: int
    step: int
    time: int
    kind: Fact
    queue: int
    duration: int
    target: int
    label: bytes
    mark: int
    sequence: int
    second: int
    third: int
    outcome: int


def rows_of(page: Page) -> Iterator[Row]:
    """For those who look at few of them: columns are for the others."""
    at = 0
    for start, count, position, index, time, kind, queue, duration, target, label, mark in zip(*page.steps(), strict=True):
        for offset in range(count):
            own = mark + offset if kind == Fact.PUSH and mark != NONE else mark
            given = (page.firsts[at], page.seconds[at], page.thirds[at], page.outcomes[at])
            yield Row(start + offset, position, index, time, Fact(kind), queue, duration, target, page.labels[label], own, *given)
            at += 1


class FactStretch(NamedTuple):
    """Pages that were written to a blob beside the log."""

    blob: str
    first: int
    end: int
    bytes: int
    time: int
    """Of its first fact."""


class Chronicle:
    __slots__ = ("_labelled", "_labels", "names", "next", "open", "pages", "stretches", "taps")

    def __init__(self) -> None:
        self.taps: dict[tuple[str, str], Tap] = {}
        """(namespace, name) → reader."""
        self.open = False
        """Somebody asks. Looked at with every operation."""
        self.next = 1
        self.pages: list[Page] = []
        self.stretches: list[FactStretch] = []
        self.names: dict[int, tuple[str, str, int]] = {}
        """Of queues that are gone: namespace, name, and the number of the next fact when they went."""
        self._labels: dict[bytes, int] = {}
        self._labelled: Page | None = None
        """The page whose labels these are."""

    def note(
        self,
        position: int,
        index: int,
        time: int,
        kind: Fact,
        queue: int,
        rows: tuple[Any, Any, Any, Any],
        duration: int = NONE,
        target: int = 0,
        label: bytes = b"",
        mark: int = NONE,
        *,
        again: bool = False,
    ) -> None:
        """Facts of one operation: sequences, seconds, thirds and outcomes. `again`: they may belong to the step before."""
        page = self.pages[-1] if self.pages else None
        if page is None or len(page) >= PAGE_ROWS:
            page = Page()
            self.pages.append(page)
        # Written out: with every operation this is run, and a loop over columns takes three times as long.
        firsts, seconds, thirds, outcomes = rows
        before = len(page.firsts)
        page.firsts.extend(firsts)
        page.seconds.extend(seconds)
        page.thirds.extend(thirds)
        page.outcomes.extend(outcomes)
        count = len(page.firsts) - before
        if not count:
            return
        number = self._label(page, label) if label else 0
        if again and before:
            step = (position, index, time, kind, queue, duration, target, number, mark)
            if step == tuple([column[-1] for column in page.steps()[2:]]):
                page.counts[-1] += count
                self.next += count
                return
        page.starts.append(self.next)
        page.counts.append(count)
        page.positions.append(position)
        page.indexes.append(index)
        page.times.append(time)
        page.kinds.append(kind)
        page.queues.append(queue)
        page.durations.append(duration)
        page.targets.append(target)
        page.step_labels.append(number)
        page.marks.append(mark)
        self.next += count

    def _label(self, page: Page, label: bytes) -> int:
        if self._labelled is not page:
            self._labels, self._labelled = {one: index for index, one in enumerate(page.labels)}, page
        known = self._labels.get(label)
        if known is None:
            page.labels.append(label)
            known = self._labels[label] = len(page.labels) - 1
        return known

    def changed(self) -> None:
        """A tap came, moved or went: let go of what none of them needs any more."""
        self.open = bool(self.taps)
        lowest = self.lowest()
        self.stretches = [stretch for stretch in self.stretches if stretch.end > lowest]
        self.pages = [page for page in self.pages if page.end > lowest]
        self.names = {queue: name for queue, name in self.names.items() if name[2] > lowest} if self.open else {}

    def lowest(self) -> int:
        """The first fact that a tap still needs. It is what a new one can begin with: how pages were cut must not matter to apply."""
        return min((tap.next for tap in self.taps.values()), default=self.next)

    def left(self, queue: int, namespace: str, name: str) -> None:
        """A queue's name is free again."""
        if self.open:
            self.names[queue] = (namespace, name, self.next)

    def written(self, stretch: FactStretch) -> None:
        """`stretch` is durable: its facts leave memory. What was noted behind it meanwhile stays."""
        self.stretches.append(stretch)
        self.pages = [
            page if page.first >= stretch.end else page.cut(stretch.end, page.end) for page in self.pages if page.end > stretch.end
        ]
        self.changed()

    @property
    def rows(self) -> int:
        """How many facts are in memory."""
        return sum(map(len, self.pages))

    def dump(self) -> Iterator[bytes]:
        return (page.dump() for page in self.pages if len(page))

    # In a snapshot

    def facts(self) -> dict[str, Any]:
        return {
            "next": self.next,
            "taps": [[*key, tap.next, tap.age_ms, tap.bytes, tap.lost_first, tap.lost_count] for key, tap in self.taps.items()],
            "stretches": self.stretches,
            "names": [[queue, *name] for queue, name in self.names.items()],
        }

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Chronicle:
        made = cls()
        made.next = facts["next"]
        for namespace, name, following, age_ms, size, lost_first, lost_count in facts["taps"]:
            tap = made.taps[namespace, name] = Tap(following, age_ms, size)
            tap.lost_first, tap.lost_count = lost_first, lost_count
        made.open = bool(made.taps)
        made.stretches = [FactStretch(*stretch) for stretch in facts["stretches"]]
        made.names = {queue: (namespace, name, number) for queue, namespace, name, number in facts["names"]}
        return made
