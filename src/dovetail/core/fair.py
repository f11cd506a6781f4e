"""The fair discipline: a quiet tenant's messages overtake the backlog of a noisy one. It knows tenants and their messages, not bodies.

In a lane without groups the name that a message carries is its tenant; a message without one is its own tenant and always quiet.

| a tenant | when |
| --- | --- |
| turns noisy | one of its messages is next, and it has ≥ 30 in flight and > 10 % of the lane's; or it was handed ≥ 30 within the window |
| | of core/usage.py and used > 10 % of the processing time there (30 again, lest one slow consumer make everybody noisy whom it served) |
| turns quiet | its last message leaves; or, looked at in the first pop of each ten seconds, it pushed nothing for five minutes and |
| | neither of the above holds |

A pop takes the lowest visible message of a quiet tenant; where there is none, of the noisy tenant with the fewest in flight (of two such,
the one whose message is lower). Nothing is blocked: noisy tenants that are alone get everything. Each message that a pop takes is judged
anew, so that one large pop is as fair as many small ones.

Each tenant has its own line from the push on, so that nobody ever walks a backlog:

    front     its lowest visible message: READY if the tenant is quiet, else HELD and known to `line`
    chain     what was visible when it was pushed, by distance (`Chunk.nexts`, from `heads` to `tails`): HELD
    returned  a heap of what became visible later and is not the front: HELD
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dovetail.core.chunk import GONE, HELD, LOW32, MASK, READY, SHIFT, TOMB
from dovetail.core.usage import ALL, BUCKET_MS, Usage

if TYPE_CHECKING:
    from dovetail.core.chunk import Chunk
    from dovetail.core.lane import Lane

NOISY_MIN = 30
"""In flight, or handed out within the window: with fewer nobody is noisy."""

NOISY_SHARE = 10
"""Noisy is who has more than one in so many."""

SILENCE_MS = 300_000
_STALE_MIN = 64


class Tenants:
    """Columns by tenant number; 0 is nobody. `now` is the time to which the lane has advanced."""

    __slots__ = (
        "free",
        "fronts",
        "heads",
        "line",
        "live",
        "names",
        "noisy",
        "now",
        "numbers",
        "pushed",
        "returned",
        "spells_at",
        "tails",
        "usage",
    )

    def __init__(self, now: int, leased: int) -> None:
        self.now = now
        self.usage = Usage(now, leased)
        self.numbers: dict[bytes, int] = {}
        self.names: list[bytes] = [b""]
        self.free: list[int] = []
        self.live = array("Q", (0,))
        self.pushed = array("Q", (0,))
        self.fronts = array("Q", (0,))
        self.heads = array("Q", (0,))
        self.tails = array("Q", (0,))
        self.returned: dict[int, list[int]] = {}
        self.noisy: dict[int, None] = {}
        self.line: list[tuple[int, int, int]] = []
        """A heap of (in flight, front, tenant) of the noisy; an entry that is no longer true is passed over."""
        self.spells_at = -1
        """The ten seconds in which it was last asked who is quiet again."""

    def name_of(self, chunk: Chunk, at: int) -> bytes:
        return self.names[chunk.named(at)]

    # Joining

    def join(self, lane: Lane, chunk: Chunk, at: int, name: bytes) -> None:
        """A message was pushed; its state has been set as if it were alone."""
        if not name:
            return
        tenant = self.numbers.get(name) or self._begin(name)
        chunk.need_groups()[0][at] = tenant
        self.live[tenant] += 1
        self.pushed[tenant] = self.now
        if chunk.states[at] != READY:
            return
        sequence = chunk.base + at
        if self.fronts[tenant]:
            lane.hold(chunk, at)
            self._chain(lane, tenant, sequence)
            return
        self.fronts[tenant] = sequence
        if tenant in self.noisy:
            lane.hold(chunk, at)
            self._stand_in_line(tenant)

    def _begin(self, name: bytes) -> int:
        if self.free:
            tenant = self.free.pop()
            self.names[tenant] = name
        else:
            tenant = len(self.names)
            self.names.append(name)
            for column in (self.live, self.pushed, self.fronts, self.heads, self.tails):
                column.append(0)
            self.usage.add_row()
        self.numbers[name] = tenant
        return tenant

    def _chain(self, lane: Lane, tenant: int, sequence: int) -> None:
        tail = self.tails[tenant]
        if not self.heads[tenant]:
            self.heads[tenant] = sequence
        elif sequence - tail > LOW32:
            # Too far for four bytes: it waits where the chain is not needed.
            heappush(self.returned.setdefault(tenant, []), sequence)
            return
        else:
            lane.chunks[tail >> SHIFT].need_groups()[1][tail & MASK] = sequence - tail
        self.tails[tenant] = sequence

    # Visible and not

    def show(self, lane: Lane, chunk: Chunk, at: int, tenant: int) -> None:
        """A message is visible again, or for the first time after a delay; it is HELD."""
        sequence, front = chunk.base + at, self.fronts[tenant]
        if front:
            before = lane.chunks[front >> SHIFT]
            if sequence < front and before.states[front & MASK] == READY:
                lane.hold(before, front & MASK)
            heap = self.returned.setdefault(tenant, [])
            heappush(heap, max(front, sequence))
            if len(heap) > 2 * self.live[tenant] + _STALE_MIN:
                # A message that was rescheduled again and again is in there several times.
                self.returned[tenant] = sorted({one for one in heap if self._is_held(lane, one)})
            if front < sequence:
                return
        self.fronts[tenant] = sequence
        self._put_forward(lane, tenant)

    def hide(self, lane: Lane, chunk: Chunk, at: int, tenant: int) -> None:
        """A message is no longer visible: its state says so already."""
        if self.fronts[tenant] == chunk.base + at:
            self._next_front(lane, tenant)

    def _next_front(self, lane: Lane, tenant: int) -> None:
        """The front has gone: the lowest of the chain and of what returned is the front now, if there is any."""
        head = self._first_chained(lane, tenant)
        heap = self.returned.get(tenant)
        while heap and not self._is_held(lane, heap[0]):
            heappop(heap)
        if heap and not (head and head < heap[0]):
            front = heappop(heap)
        else:
            front = head
            if head:
                self._unchain(lane, tenant)
        if heap is not None and not heap:
            del self.returned[tenant]
        self.fronts[tenant] = front
        if front:
            self._put_forward(lane, tenant)

    def _put_forward(self, lane: Lane, tenant: int) -> None:
        if tenant in self.noisy:
            self._stand_in_line(tenant)
        else:
            front = self.fronts[tenant]
            lane.make_ready(lane.chunks[front >> SHIFT], front & MASK)

    @staticmethod
    def _is_held(lane: Lane, sequence: int) -> bool:
        chunk = lane.chunks.get(sequence >> SHIFT)
        return chunk is not None and chunk.states[sequence & MASK] == HELD

    def _first_chained(self, lane: Lane, tenant: int) -> int:
        """The lowest of the chain that is visible; what is before it (removed, rescheduled) leaves the chain."""
        while (head := self.heads[tenant]) and not self._is_held(lane, head):
            self._unchain(lane, tenant)
        return head

    def _unchain(self, lane: Lane, tenant: int) -> None:
        head = self.heads[tenant]
        chunk, at = lane.chunks[head >> SHIFT], head & MASK
        assert chunk.nexts is not None
        self.heads[tenant] = 0 if head == self.tails[tenant] else head + chunk.nexts[at]
        if chunk.states[at] == TOMB:
            chunk.states[at] = GONE
            chunk.tombs -= 1
            lane.drop_if_empty(chunk)

    # Leases

    def take(self, lane: Lane, chunk: Chunk, at: int, count: int) -> None:
        """`count` messages were leased; several only where none of them has a name."""
        self.usage.begin(ALL, count, self.now)
        tenant = chunk.named(at)
        if tenant:
            self.usage.begin(tenant, 1, self.now)
            if self.fronts[tenant] == chunk.base + at:
                self._next_front(lane, tenant)
            else:
                self._stand_in_line(tenant)

    def end(self, tenant: int, count: int, time: int) -> None:
        """A lease ended at `time`; the message itself is told separately."""
        self.usage.end(ALL, count, time)
        if tenant:
            self.usage.end(tenant, count, time)
            self._stand_in_line(tenant)

    def leave(self, lane: Lane, chunk: Chunk, at: int, tenant: int) -> None:
        """A message is GONE for the lane; a TOMB stays where the chain goes through."""
        sequence, head = chunk.base + at, self.heads[tenant]
        if head and sequence >= head and (sequence == self.tails[tenant] or (chunk.nexts is not None and chunk.nexts[at])):
            chunk.states[at] = TOMB
            chunk.tombs += 1
        self.live[tenant] -= 1
        self.hide(lane, chunk, at, tenant)
        if not self.live[tenant]:
            self.noisy.pop(tenant, None)
            self._forget(tenant)

    def pass_to(self, now: int) -> None:
        """Time passes, before anything else is told of this moment."""
        self.now = now
        bucket = now // BUCKET_MS
        if bucket != self.usage.bucket:
            for tenant in self.usage.pass_to(bucket):
                self._forget(tenant)

    def _forget(self, tenant: int) -> None:
        """Nothing alive and nothing in the window: the name goes, and its number is free."""
        name = self.names[tenant]
        if name and not self.live[tenant] and self.usage.idle(tenant):
            del self.numbers[name]
            self.names[tenant] = b""
            self.free.append(tenant)

    # Judging

    def begin_pop(self, lane: Lane) -> None:
        """Who is quiet again? Asked once in ten seconds, so that many noisy tenants do not make a pop dear."""
        if self.spells_at == self.usage.bucket:
            return
        self.spells_at = self.usage.bucket
        for tenant in list(self.noisy):
            if self.now - self.pushed[tenant] >= SILENCE_MS and not self._is_loud(tenant):
                del self.noisy[tenant]
                if self.fronts[tenant]:
                    self._put_forward(lane, tenant)

    def _is_loud(self, tenant: int) -> bool:
        usage = self.usage
        in_flight = usage.in_flight[tenant]
        if in_flight >= NOISY_MIN and in_flight * NOISY_SHARE > usage.in_flight[ALL]:
            return True
        if usage.handed[tenant] < NOISY_MIN:
            return False
        usage.book(tenant, self.now)
        usage.book(ALL, self.now)
        return usage.used[tenant] * NOISY_SHARE > usage.used[ALL]

    def refuses(self, lane: Lane, chunk: Chunk, at: int) -> bool:
        """The lowest READY message is of a tenant that turns noisy just now: it is HELD instead."""
        tenant = chunk.named(at)
        if not tenant or tenant in self.noisy or not self._is_loud(tenant):
            # READY and noisy is only what `offer` has put forward.
            return False
        self.noisy[tenant] = None
        lane.hold(chunk, at)
        self._stand_in_line(tenant)
        return True

    def offer(self, lane: Lane) -> Chunk | None:
        """Nothing of a quiet tenant is visible: the front of the noisy one with the fewest in flight is READY, to be taken at once."""
        tenant = self.first_in_line()
        if not tenant:
            return None
        front = self.fronts[tenant]
        chunk = lane.chunks[front >> SHIFT]
        lane.make_ready(chunk, front & MASK)
        return chunk

    def first_in_line(self) -> int:
        """The noisy tenant whose turn it is; 0 if none of them has anything visible."""
        line = self.line
        while line:
            in_flight, front, tenant = line[0]
            if tenant in self.noisy and self.fronts[tenant] == front and self.usage.in_flight[tenant] == in_flight:
                return tenant
            heappop(line)
        return 0

    def _stand_in_line(self, tenant: int) -> None:
        """What counts for the turn of a noisy tenant has changed."""
        if tenant not in self.noisy or not self.fronts[tenant]:
            return
        if len(self.line) > 4 * len(self.noisy) + _STALE_MIN:
            self.line_up()
        else:
            heappush(self.line, (self.usage.in_flight[tenant], self.fronts[tenant], tenant))

    def line_up(self) -> None:
        """The line anew, without what is no longer true."""
        self.line = [(self.usage.in_flight[tenant], self.fronts[tenant], tenant) for tenant in self.noisy if self.fronts[tenant]]
        heapify(self.line)
