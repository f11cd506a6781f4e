"""A chunk: the facts of 1024 neighbouring sequences of one lane, in columns outside the object heap.

A Python object per message costs 130 to 460 bytes and makes the garbage collector stop the process; columns cost what they hold.
Some are always there; the others are made when the first message of the chunk needs them, and grow only as far as they are needed.

    always     states      1 B   GONE, READY, HELD, LATER, LEASED, TOMB or RESERVED
               runs        10 B for each record: where it begins (u16), its address in the log (u64)
               marks       6 B for each change of time (u16, u32): when the messages were pushed
    if needed  items       4 B for each run that begins inside its record
               visible     4 B   the low half of visible_at, to tell a stale entry of the time index
               born        4 B   first visible time, of delayed messages (ms after the push)
               deliveries  8 B   the number of the last delivery: the fence of receipts
               receives    2 B   and first_received 4 B (ms after the push)
               groups      4 B   and nexts 4 B: the chain of a group (core/groups.py) or of a tenant (core/fair.py)
               origins     4 × 8 B of messages that were moved here

Columns of times are four bytes wide as long as four bytes tell the truth, and eight from the first value on for which they would not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from dovetail.core.operation import Origin

SHIFT = 10
SIZE = 1 << SHIFT
MASK = SIZE - 1
LOW32 = (1 << 32) - 1
NEAR_MS = 1 << 31
"""Times nearer than this are told apart by their low half: an older entry of the index with the same low half has been taken by then."""

GONE, READY, HELD, LATER, LEASED, TOMB, RESERVED = range(7)
"""READY may be taken now; HELD is visible, but its group or tenant gives it later; LATER is delayed; TOMB is gone, but a chain goes through
it; RESERVED is set aside without a time."""

_READY_RUN = bytes((READY,)) * SIZE


class Chunk:
    __slots__ = (
        "addresses",
        "base",
        "born",
        "deliveries",
        "first_received",
        "groups",
        "items",
        "listed",
        "live",
        "low",
        "mark_at",
        "mark_ms",
        "nexts",
        "origins",
        "ready",
        "receives",
        "starts",
        "states",
        "time",
        "tombs",
        "visible",
    )

    def __init__(self, base: int, filled: int, time: int) -> None:
        """Sequences `base` to `base + filled - 1` are gone already; the next one pushed comes behind them, not before `time`."""
        self.base = base
        self.states = bytearray(filled)
        self.starts = array("H")
        self.addresses = array("Q")
        self.items: array[int] | None = None
        self.time = time
        self.mark_at = array("H")
        self.mark_ms = array("I")
        self.live = self.ready = self.tombs = 0
        self.listed = False
        self.low = filled
        self.visible: array[int] | None = None
        self.born: array[int] | None = None
        self.deliveries: array[int] | None = None
        self.receives: array[int] | None = None
        self.first_received: array[int] | None = None
        self.groups: array[int] | None = None
        self.nexts: array[int] | None = None
        self.origins: tuple[array[int], array[int], array[int], array[int]] | None = None

    def append(self, count: int, state: int, address: int, item: int, time: int) -> int:
        """Room for `count` more messages of one record; returns the index of the first."""
        index = len(self.states)
        if count == 1:
            self.states.append(state)
        else:
            self.states += bytes((state,)) * count
        self.starts.append(index)
        self.addresses.append(address)
        if item and self.items is None:
            self.items = array("I", bytes(4 * (len(self.starts) - 1)))
        if self.items is not None:
            self.items.append(item)
        if not self.mark_ms or time - self.time != self.mark_ms[-1]:
            self._mark(index, time - self.time)
        self.live += count
        if state == READY:
            self.ready += count
            if index < self.low:
                self.low = index
        return index

    def _mark(self, index: int, elapsed: int) -> None:
        if elapsed > LOW32:
            self.mark_ms = wide(self.mark_ms)
        self.mark_at.append(index)
        self.mark_ms.append(elapsed)

    def seal(self) -> None:
        """The chunk is full: give back what its growing columns had taken in advance."""
        self.starts = self.starts[:]
        self.addresses = self.addresses[:]
        self.mark_at = self.mark_at[:]
        self.mark_ms = self.mark_ms[:]
        if self.items is not None:
            self.items = self.items[:]
        if self.visible is not None:
            self.visible = self.visible[:]
        if self.born is not None:
            self.born = self.born[:]
        if self.groups is not None and self.nexts is not None:
            self.groups, self.nexts = self.groups[:], self.nexts[:]
        self.states = self.states[:]

    def run(self, index: int) -> int:
        """Which run the message is in."""
        starts = self.starts
        if len(starts) == len(self.states):
            return index
        return bisect_right(starts, index) - 1

    def place(self, index: int) -> tuple[int, int]:
        """(address of the record, index of the message in it)."""
        run = self.run(index)
        item = index - self.starts[run]
        return self.addresses[run], item + self.items[run] if self.items is not None else item

    def run_end(self, run: int) -> int:
        return self.starts[run + 1] if run + 1 < len(self.starts) else len(self.states)

    def pushed_at(self, index: int) -> int:
        return self.time + self.mark_ms[bisect_right(self.mark_at, index) - 1]

    def split(self, index: int, address: int, item: int) -> None:
        """The message at `index` lies at another address now (it was carried): cut its run so that it is a run of its own."""
        run = self.run(index)
        start, end = self.starts[run], self.run_end(run)
        old_address, old_item = self.addresses[run], self.items[run] if self.items is not None else 0
        if self.items is None:
            self.items = array("I", bytes(4 * len(self.starts)))
        pieces = [(index, address, item)]
        if start < index:
            pieces.insert(0, (start, old_address, old_item))
        if index + 1 < end:
            pieces.append((index + 1, old_address, old_item + index + 1 - start))
        self.starts[run : run + 1] = array("H", [piece[0] for piece in pieces])
        self.addresses[run : run + 1] = array("Q", [piece[1] for piece in pieces])
        self.items[run : run + 1] = array("I", [piece[2] for piece in pieces])

    def wait(self, at: int, count: int, until: int, now: int) -> None:
        """`count` messages wait until then. All that wait already have a time above `now`."""
        column = self.visible
        if column is None or len(column) < len(self.states):
            column = grown(array("I") if column is None else column, len(self.states))
        if until - now >= NEAR_MS and column.typecode == "I":
            column = array("Q", [now + ((low - now) & LOW32) for low in column])
        value = until if column.typecode == "Q" else until & LOW32
        if count == 1:
            column[at] = value
        else:
            column[at : at + count] = array(column.typecode, (value,)) * count
        self.visible = column

    def waits_for(self, at: int, time: int) -> bool:
        """Is this the moment that a LATER or LEASED message waits for?"""
        return self.visible is not None and self.visible[at] == (time if self.visible.typecode == "Q" else time & LOW32)

    def visible_at(self, at: int, now: int) -> int:
        """When a LATER or LEASED message becomes visible; `now` is any time within 24 days of that."""
        if self.visible is None or self.visible.typecode == "Q":
            return self.visible[at] if self.visible is not None else 0
        return now + ((self.visible[at] - now + NEAR_MS) & LOW32) - NEAR_MS

    def set_born(self, at: int, count: int, first_visible: int) -> None:
        """When these messages, pushed together, were or will be visible for the first time."""
        delay = first_visible - self.pushed_at(at)
        column = grown(self.born if self.born is not None else array("I"), len(self.states))
        if delay > LOW32:
            column = wide(column)
        column[at : at + count] = array(column.typecode, (delay,)) * count
        self.born = column

    def born_at(self, at: int) -> int:
        """First visible time; the push itself where there was no delay."""
        return self.pushed_at(at) + (self.born[at] if self.born is not None and at < len(self.born) else 0)

    def received_first(self, at: int, count: int, elapsed: int) -> None:
        assert self.first_received is not None
        if elapsed > LOW32:
            self.first_received = wide(self.first_received)
        if count == 1:
            self.first_received[at] = elapsed
        else:
            self.first_received[at : at + count] = array(self.first_received.typecode, (elapsed,)) * count

    def need_lease(self) -> tuple[array[int], array[int]]:
        """(deliveries, receives), and first_received too, long enough for every message of the chunk."""
        if self.deliveries is None or self.receives is None or self.first_received is None:
            self.deliveries, self.receives, self.first_received = array("Q"), array("H"), array("I")
        end = len(self.states)
        grown(self.first_received, end)
        return grown(self.deliveries, end), grown(self.receives, end)

    def need_groups(self) -> tuple[array[int], array[int]]:
        if self.groups is None or self.nexts is None:
            self.groups, self.nexts = array("I"), array("I")
        return grown(self.groups, len(self.states)), grown(self.nexts, len(self.states))

    def named(self, index: int) -> int:
        """The number of its group or tenant; 0 for a message without a name."""
        return self.groups[index] if self.groups is not None and index < len(self.groups) else 0

    def ready_stretch(self, at: int, most: int) -> int:
        """How many neighbours from `at` on are READY, lie in one record, have no names, and were neither moved nor delivered before."""
        if self.states[at + 1 : at + 2] != _READY_RUN[:1] or self.origins is not None or self.groups is not None:
            return 1
        count = min(self.run_end(self.run(at)) - at, most)
        if count > 1 and self.states[at : at + count] != _READY_RUN[:count]:
            count = next(offset for offset in range(1, count) if self.states[at + offset] != READY)
        if count > 1 and self.receives is not None and any(self.receives[at : at + count]):
            # What was delivered before has a history of its own and goes alone.
            return 1
        return count

    def alike(self, at: int, most: int) -> int:
        """How many neighbours from `at` on lie in one record and have the same to tell: never delivered, never moved."""
        count = min(self.run_end(self.run(at)) - at, most)
        if self.origins is not None or (self.receives is not None and any(self.receives[at : at + count])):
            return 1
        return count

    def end_receipts(self, at: int, count: int) -> None:
        """No receipt of these messages counts any more."""
        if self.deliveries is not None and at < len(self.deliveries):
            end = min(at + count, len(self.deliveries))
            self.deliveries[at:end] = array("Q", bytes(8 * (end - at)))

    def set_origin(self, index: int, origin: Origin) -> None:
        if self.origins is None:
            self.origins = array("Q"), array("Q"), array("Q"), array("Q")
        for column, value in zip(self.origins, origin, strict=True):
            grown(column, len(self.states))[index] = value

    def origin(self, index: int) -> Origin | None:
        if self.origins is None or index >= len(self.origins[0]) or not self.origins[0][index]:
            return None
        return Origin(*(column[index] for column in self.origins))

    def origin_from(self, index: int, queue: int) -> Origin:
        """What a message of `queue` takes along when it moves on: where it began, and that it came from here."""
        known = self.origin(index)
        if known is not None:
            return known._replace(source=queue)
        return Origin(queue, self.base + index, queue, self.pushed_at(index))

    def delivery(self, index: int) -> int:
        return self.deliveries[index] if self.deliveries is not None and index < len(self.deliveries) else 0

    def received(self, index: int) -> int:
        return self.receives[index] if self.receives is not None and index < len(self.receives) else 0


def wide(column: array[int]) -> array[int]:
    return column if column.typecode == "Q" else array("Q", column)


def grown(column: array[int], end: int) -> array[int]:
    if len(column) < end:
        column.frombytes(bytes((end - len(column)) * column.itemsize))
    return column
