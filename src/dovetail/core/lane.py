"""A lane: one ordered queue as an index of (visible_at, message). It knows sequences, addresses and times; it does not know bodies.

| what happens | before | after |
| --- | --- | --- |
| push | | READY, or LATER with a delay, or HELD behind its group or its tenant's others |
| time passes visible_at | LATER, LEASED | READY or HELD |
| pop | READY | LEASED until now + lease (mode *delete*: GONE) |
| complete | LEASED, or lapsed and not handed out again | GONE |
| requeue, extend | LEASED | READY or LATER; LEASED until a later time |
| release, reclaim | LEASED | READY, as if it had not been delivered; READY |
| cancel, reschedule | READY, HELD, LATER | GONE; LATER |
| expire, purge | all but LEASED and RESERVED; all but RESERVED | GONE |
| reserve | READY | RESERVED, whatever time it is |
| settle, release of a reservation | RESERVED | GONE; READY, or HELD |
| leaving for another log; it arrived there, or was refused | READY, HELD | RESERVED; GONE, READY or HELD |

Everything that settles or gives back is in core/settling.py, what clears a lane in core/clearing.py, reservations are in core/reserving.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from dovetail.core.chunk import GONE, HELD, LATER, LEASED, MASK, READY, SHIFT, SIZE, TOMB, Chunk
from dovetail.core.consecutive import consecutive
from dovetail.core.deduplication import Deduplication
from dovetail.core.fair import Tenants
from dovetail.core.groups import Groups
from dovetail.core.moves import Departures
from dovetail.core.operation import DEFAULT, Attributes, Origin, Taken
from dovetail.core.reservations import Reservation
from dovetail.core.taps import Run, Runs, Taps
from dovetail.core.timeindex import TimeIndex
from dovetail.core.waiting import Attempts, Waiters
from dovetail.limits import RECEIVES_COUNTED_MAX

_LEASED_RUN = bytes((LEASED,)) * SIZE

Bury = Callable[["Lane", Chunk, int], None]
"""Moves a message that was received too often to the dead letters."""


class Lane:
    __slots__ = (
        "attempts",
        "attributes",
        "buried",
        "chunks",
        "dedup",
        "delayed",
        "delivery",
        "departures",
        "epochs",
        "groups",
        "index",
        "leased",
        "live",
        "next",
        "queue",
        "ready_chunks",
        "reservations",
        "reserved",
        "stranded",
        "tail",
        "taps",
        "tenants",
        "waiters",
    )

    def __init__(self, queue: int, attributes: Attributes) -> None:
        self.queue = queue
        self.attributes = attributes
        self.chunks: dict[int, Chunk] = {}
        self.tail: Chunk | None = None
        self.ready_chunks: list[int] = []
        self.index = TimeIndex()
        self.next = 1
        self.delivery = 1
        self.live = self.leased = self.delayed = 0
        self.buried = self.stranded = 0
        self.groups = Groups() if attributes.grouped else None
        self.tenants: Tenants | None = None
        """From the first name on that a message of a lane without groups carries."""
        self.dedup = Deduplication()
        self.taps = Taps()
        self.waiters = Waiters()
        self.attempts = Attempts()
        self.reservations: dict[str, Reservation] = {}
        self.departures: dict[int, Departures] = {}
        """Target → what is on its way to it, in another log."""
        self.reserved = 0
        """Set aside, for a reservation or to move into another log."""
        self.epochs = 0
        """The last epoch that a reservation got. No other gets it again, so that a fence holds also after a name was forgotten."""

    # Time

    def advance(self, now: int) -> None:
        """Everything with visible_at ≤ now becomes visible."""
        if self.tenants is not None:
            self.tenants.pass_to(now)
        if now < self.index.earliest:
            return
        for time, sequence in self.index.take_due(now):
            found = self.waiting_until(time, sequence)
            if found is not None:
                self.appear(*found, time)

    def waiting_until(self, time: int, sequence: int) -> tuple[Chunk, int] | None:
        """The message, if it still waits for exactly that moment (else the entry of the time index is stale)."""
        chunk = self.chunks.get(sequence >> SHIFT)
        at = sequence & MASK
        if chunk is not None and chunk.states[at] in (LATER, LEASED) and chunk.waits_for(at, time):
            return chunk, at
        return None

    def appear(self, chunk: Chunk, at: int, time: int) -> None:
        """A delayed or leased message is visible again since `time`, in its old place."""
        was_leased = chunk.states[at] == LEASED
        name = chunk.named(at)
        if was_leased:
            self.end_lease(name, 1, time)
        else:
            self.delayed -= 1
        if not name:
            self.make_ready(chunk, at)
            return
        chunk.states[at] = HELD
        if self.groups is not None:
            self.groups.reconsider(self, name)
        elif self.tenants is not None:
            self.tenants.show(self, chunk, at, name)

    def end_lease(self, name: int, count: int, time: int) -> None:
        """`count` messages of a group or tenant are no longer leased since `time`; what becomes of them is said separately."""
        self.leased -= count
        if self.tenants is not None:
            self.tenants.end(name, count, time)
        elif name and self.groups is not None:
            self.groups.busy[name] -= count

    def has_ready(self) -> bool:
        """Is something visible whatever the time?"""
        return self.first_ready() is not None

    def has_visible(self, now: int) -> bool:
        """Would a pop at this time find something? Changes no outcome."""
        if self.first_ready() is not None or (self.tenants is not None and self.tenants.first_in_line()):
            return True
        # A member of a group may stay behind others: this says yes all the same, and the pop itself decides.
        return self.index.any_due(now, lambda time, sequence: self.waiting_until(time, sequence) is not None)

    def next_visible_at(self, now: int) -> int | None:
        """When to look again, if nothing else happens before: `now` if something is visible, None if nothing waits."""
        return now if self.has_visible(now) else self.index.next_due(now)

    # Joining

    def push(
        self,
        now: int,
        count: int,
        address: int,
        item: int = 0,
        delays: Sequence[int] | None = None,
        groups: Sequence[bytes] | None = None,
        origin: Origin | None = None,
    ) -> int:
        """`count` messages of one record, from its `item`-th on; returns the first sequence. They take consecutive ones."""
        first = self.next
        if self.taps.open:
            home = (origin.queue, origin.sequence) if origin is not None else (0, 0)
            self.taps.recent.append(Run(first, count, address, item, now, *home))
        default = self.attributes.delay_ms
        uniform = delays[0] if delays is not None and len(delays) == 1 else default if delays is None else None
        if uniform == DEFAULT:
            uniform = default
        if groups is not None and self.groups is None and self.tenants is None and any(groups):
            self.tenants = Tenants(now, self.leased)
        order = self.order
        done = 0
        while done < count:
            chunk = self.tail
            if chunk is None or len(chunk.states) == SIZE:
                chunk = self._new_chunk(now)
            room = min(count - done, SIZE - len(chunk.states))
            at = chunk.append(room, READY if uniform == 0 else LATER, address, item + done, now)
            self.next += room
            self.live += room
            if uniform == 0:
                if not chunk.listed:
                    chunk.listed = True
                    heappush(self.ready_chunks, chunk.base >> SHIFT)
            elif uniform is not None:
                self._delay(chunk, at, room, now, uniform)
            else:
                assert delays is not None
                for offset in range(room):
                    delay = delays[done + offset]
                    self._delay(chunk, at + offset, 1, now, default if delay == DEFAULT else delay)
            if order is not None and groups is not None:
                for offset in range(room):
                    order.join(self, chunk, at + offset, groups[done + offset])
            done += room
        return first

    def _new_chunk(self, now: int) -> Chunk:
        if self.tail is not None:
            self.tail.seal()
            self.drop_if_empty(self.tail)
        base = self.next & ~MASK
        self.tail = self.chunks[base >> SHIFT] = chunk = Chunk(base, self.next - base, now)
        return chunk

    def _delay(self, chunk: Chunk, at: int, count: int, now: int, delay: int) -> None:
        """`count` messages that were just appended as LATER wait for `delay`."""
        if delay <= 0:
            for index in range(at, at + count):
                self.make_ready(chunk, index)
            return
        chunk.wait(at, count, now + delay, now)
        chunk.set_born(at, count, now + delay)
        self.delayed += count
        self.index.add_run(now + delay, chunk.base + at, count, now)

    def make_ready(self, chunk: Chunk, at: int) -> None:
        chunk.states[at] = READY
        chunk.ready += 1
        if at < chunk.low:
            chunk.low = at
        if not chunk.listed:
            chunk.listed = True
            heappush(self.ready_chunks, chunk.base >> SHIFT)

    def hold(self, chunk: Chunk, at: int) -> None:
        chunk.states[at] = HELD
        chunk.ready -= 1

    # Leaving

    def first_ready(self) -> Chunk | None:
        chunks = self.ready_chunks
        while chunks:
            chunk = self.chunks.get(chunks[0])
            if chunk is not None and chunk.ready:
                return chunk
            heappop(chunks)
            if chunk is not None:
                chunk.listed = False
        return None

    def pop(self, now: int, most: int, lease_ms: int, delete: bool, bury: Bury | None) -> list[Taken]:
        """Take up to `most` visible messages, lowest sequence first, a group's members one behind the other. `bury` is None where there
        is nowhere to move dead letters to: they are delivered then, and counted."""
        taken: list[Taken] = []
        until = now + lease_ms
        receives_max = self.attributes.receives_max if self.attributes.dead_letter else 0
        alone: list[int] = []
        tenants = self.tenants
        if tenants is not None:
            tenants.begin_pop(self)
        while most > 0:
            chunk = self.first_ready()
            if chunk is None and tenants is not None:
                chunk = tenants.offer(self)
            if chunk is None:
                break
            at = chunk.states.find(READY, chunk.low)
            chunk.low = at
            if tenants is not None and tenants.refuses(self, chunk, at):
                continue
            if receives_max and chunk.received(at) >= receives_max:
                if bury is not None:
                    bury(self, chunk, at)
                    self.buried += 1
                    continue
                self.stranded += 1
            if self.groups is not None and chunk.named(at):
                run = self._take_group(chunk, at, now, until, most, delete, receives_max if bury is not None else 0)
                taken += run
                most -= len(run)
                continue
            count = 1 if most == 1 or self.groups is not None else chunk.ready_stretch(at, most)
            if count == 1 and not delete:
                taken.append(self._take_one(chunk, at, now, until))
                alone.append(chunk.base + at)
            else:
                taken.append(self._take(chunk, at, count, now, until, delete))
            most -= count
        if alone:
            self.index.add_all(until, alone, now)
        return taken

    def _take(self, chunk: Chunk, at: int, count: int, now: int, until: int, delete: bool) -> Taken:
        """`count` READY neighbours of one record are handed out."""
        address, item = chunk.place(at)
        time = chunk.pushed_at(at)
        end = at + count
        if delete:
            receives: Sequence[int] = [min(chunk.received(index) + 1, RECEIVES_COUNTED_MAX) for index in range(at, end)]
            taken = Taken(chunk.base + at, count, 0, address, item, receives, time, now, chunk.origin(at))
            for index in range(at, end):
                self.remove(chunk, index)
            return taken
        if count == 1:
            self.index.add(until, chunk.base + at, now)
            return self._take_one(chunk, at, now, until)
        deliveries, received = chunk.need_lease()
        delivery = self.delivery
        self.delivery += count
        deliveries[at:end] = array("Q", consecutive(delivery, count))
        chunk.received_first(at, count, now - time)
        received[at:end] = array("H", (1,)) * count
        receives = received[at:end]
        chunk.states[at:end] = _LEASED_RUN[:count]
        self.index.add_run(until, chunk.base + at, count, now)
        chunk.wait(at, count, until, now)
        chunk.ready -= count
        if chunk.low == at:
            chunk.low = end
        self.leased += count
        if self.tenants is not None:
            self.tenants.take(self, chunk, at, count)
        # Neighbours that go together were never delivered before: this is the first time for all of them.
        return Taken(chunk.base + at, count, delivery, address, item, receives, time, now, chunk.origin(at))

    def _take_one(self, chunk: Chunk, at: int, now: int, until: int) -> Taken:
        """One READY message is handed out. Its end is not in the time index yet: whoever takes several puts them there together."""
        address, item = chunk.place(at)
        time = chunk.pushed_at(at)
        deliveries, received, first = chunk.deliveries, chunk.receives, chunk.first_received
        if deliveries is None or received is None or first is None or len(deliveries) <= at:
            deliveries, received = chunk.need_lease()
            first = chunk.first_received
            assert first is not None
        delivery = deliveries[at] = self.delivery
        self.delivery += 1
        seen = received[at]
        if not seen:
            chunk.received_first(at, 1, now - time)
            since = now
        else:
            since = time + first[at]
        if seen < RECEIVES_COUNTED_MAX:
            seen += 1
            received[at] = seen
        chunk.states[at] = LEASED
        chunk.wait(at, 1, until, now)
        chunk.ready -= 1
        if chunk.low == at:
            chunk.low = at + 1
        self.leased += 1
        if self.tenants is not None:
            self.tenants.take(self, chunk, at, 1)
        origin = chunk.origin(at) if chunk.origins is not None else None
        return Taken(chunk.base + at, 1, delivery, address, item, (seen,), time, since, origin)

    def _take_group(self, chunk: Chunk, at: int, now: int, until: int, most: int, delete: bool, receives_max: int) -> list[Taken]:
        """The lowest of a group and, as far as they are visible and not due for the dead letters, those behind it."""
        groups = self.groups
        assert groups is not None
        group = chunk.named(at)
        taken: list[Taken] = []
        while True:
            behind = groups.next_visible(self, chunk.base + at) if len(taken) + 1 < most else None
            if chunk.states[at] == HELD:
                self.make_ready(chunk, at)
            taken.append(self._take(chunk, at, 1, now, until, delete))
            if not delete:
                groups.busy[group] += 1
            if behind is None or (receives_max and behind[0].received(behind[1]) >= receives_max):
                return taken
            chunk, at = behind

    def remove(self, chunk: Chunk, at: int) -> None:
        """The message leaves for good, whatever its state was."""
        state = chunk.states[at]
        name = chunk.named(at) if chunk.groups is not None else 0
        if state == READY:
            chunk.ready -= 1
        elif state == LEASED:
            self.end_lease(name, 1, self.tenants.now if self.tenants is not None else 0)
        elif state == LATER:
            self.delayed -= 1
        chunk.states[at] = GONE
        chunk.live -= 1
        self.live -= 1
        if name and self.groups is not None:
            self.groups.leave(self, chunk, at, name)
            if self.groups.names[name]:
                self.groups.reconsider(self, name)
            return
        if name and self.tenants is not None:
            self.tenants.leave(self, chunk, at, name)
        self.drop_if_empty(chunk)

    def drop_if_empty(self, chunk: Chunk) -> None:
        if not chunk.live and not chunk.tombs and chunk is not self.tail:
            self.chunks.pop(chunk.base >> SHIFT, None)

    # Looking

    @property
    def order(self) -> Groups | Tenants | None:
        """What gives the names of messages their meaning here."""
        return self.groups if self.groups is not None else self.tenants

    def lease_for(self, lease_ms: int) -> int:
        """The lease that is asked for, or the queue's, and never more than the queue allows."""
        rules = self.attributes
        lease = rules.lease_ms if lease_ms == DEFAULT else lease_ms
        return min(lease, rules.lease_max_ms) if rules.lease_max_ms else lease

    def find(self, sequence: int) -> tuple[Chunk, int] | None:
        """A live message by its sequence."""
        chunk = self.chunks.get(sequence >> SHIFT)
        at = sequence & MASK
        if chunk is None or at >= len(chunk.states) or chunk.states[at] in (GONE, TOMB):
            return None
        return chunk, at

    def walk(self, after: int = 0) -> Iterator[tuple[Chunk, int]]:
        """Live messages in order, from the first above `after`."""
        for number, chunk in self.chunks.items():
            if number < after >> SHIFT:
                continue
            for at, state in enumerate(chunk.states):
                if state not in (GONE, TOMB) and chunk.base + at > after:
                    yield chunk, at

    def oldest(self) -> tuple[Chunk, int] | None:
        return next(self.walk(), None)

    def counts(self, now: int) -> tuple[int, int, int]:
        """(visible, delayed, leased) at this time; what is reserved is none of them. Changes nothing."""
        delayed, leased = self.delayed, self.leased
        met: set[int] = set()
        for time, sequence in self.index.peek_due(now):
            found = self.waiting_until(time, sequence)
            # A message that waited for the same moment twice has two entries there.
            if found is not None and sequence not in met:
                met.add(sequence)
                if found[0].states[found[1]] == LEASED:
                    leased -= 1
                else:
                    delayed -= 1
        return self.live - delayed - leased - self.reserved, delayed, leased

    def taken(self, chunk: Chunk, at: int) -> Taken:
        """A message that is leased already, as it was handed out."""
        address, item = chunk.place(at)
        deliveries, received = chunk.need_lease()
        time = chunk.pushed_at(at)
        first = time + chunk.first_received[at] if chunk.first_received is not None else time
        return Taken(chunk.base + at, 1, deliveries[at], address, item, (received[at],), time, first, chunk.origin(at))

    def tap_live(self, below: int) -> None:
        """A tap opens at the earliest: note what waits now and is not noted yet, so that it can be read even after it is settled."""
        noted = Runs()
        for chunk, at in self.walk():
            if chunk.base + at >= below:
                break
            origin = chunk.origin(at)
            home = (origin.queue, origin.sequence) if origin is not None else (0, 0)
            noted.append(Run(chunk.base + at, 1, *chunk.place(at), chunk.pushed_at(at), *home))
        self.taps.recent = noted.followed_by(self.taps.recent)

    def adopt(self, now: int, address: int, item: int, group: bytes, origin: Origin) -> int:
        """A message that was moved here from another lane; its record stays where it is."""
        sequence = self.push(now, 1, address, item, (0,), (group,), origin)
        assert self.tail is not None
        self.tail.set_origin(sequence & MASK, origin)
        return sequence
