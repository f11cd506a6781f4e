"""The discipline of groups: one group's messages in order, other groups in parallel.

A group gives nothing while one of its members is leased, or while its lowest live member is not visible; then it gives the lowest first.
That needs no index of its own: the message that a group would give next is READY, its other visible members are HELD, and the lane takes
the lowest READY as it always does. Members are chained by distance (`nexts`), so a group costs eight bytes a message and a
few words for itself.

| what happened | what the group does |
| --- | --- |
| a member joins | it is chained; READY if it is the first and visible, else HELD or LATER |
| a member is leased | the group is busy; nothing of it is READY |
| a lease ends in any way | when the last has ended, the lowest member is READY if it is visible |
| the lowest leaves | the next live member is the lowest |
| another leaves | it stays in the chain as a TOMB until the lowest has passed it |
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from dovetail.core.chunk import GONE, HELD, MASK, READY, SHIFT, TOMB

if TYPE_CHECKING:
    from dovetail.core.chunk import Chunk
    from dovetail.core.lane import Lane


class Groups:
    __slots__ = ("busy", "free", "heads", "names", "numbers", "tails")

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.names: list[bytes] = [b""]
        self.heads = array("Q", (0,))
        self.tails = array("Q", (0,))
        self.busy = array("I", (0,))
        self.free: list[int] = []

    def name_of(self, chunk: Chunk, index: int) -> bytes:
        if chunk.groups is None or index >= len(chunk.groups):
            return b""
        return self.names[chunk.groups[index]]

    def join(self, lane: Lane, chunk: Chunk, index: int, name: bytes) -> None:
        """A message without a name stands for itself; the others are chained. Its state has been set as if it were alone."""
        if not name:
            return
        sequence = chunk.base + index
        group = self.numbers.get(name)
        if group is None:
            group = self._begin(name, sequence)
        else:
            tail = self.tails[group]
            tail_chunk = lane.chunks[tail >> SHIFT]
            tail_chunk.need_groups()[1][tail & MASK] = sequence - tail
            self.tails[group] = sequence
        chunk.need_groups()[0][index] = group
        if chunk.states[index] == READY and (self.heads[group] != sequence or self.busy[group]):
            lane.hold(chunk, index)

    def _begin(self, name: bytes, sequence: int) -> int:
        if self.free:
            group = self.free.pop()
            self.names[group] = name
            self.heads[group] = self.tails[group] = sequence
        else:
            group = len(self.names)
            self.names.append(name)
            self.heads.append(sequence)
            self.tails.append(sequence)
            self.busy.append(0)
        self.numbers[name] = group
        return group

    def number(self, chunk: Chunk, index: int) -> int:
        return chunk.groups[index] if chunk.groups is not None and index < len(chunk.groups) else 0

    def reconsider(self, lane: Lane, group: int) -> None:
        """Make the lowest member READY if the group may give it."""
        if self.busy[group]:
            return
        head = self.heads[group]
        chunk = lane.chunks.get(head >> SHIFT)
        if chunk is not None and chunk.states[head & MASK] == HELD:
            lane.make_ready(chunk, head & MASK)

    def next_visible(self, lane: Lane, sequence: int) -> tuple[Chunk, int] | None:
        """The member behind `sequence`, if it is visible: what the same receive may take next."""
        while True:
            chunk = lane.chunks[sequence >> SHIFT]
            distance = chunk.nexts[sequence & MASK] if chunk.nexts is not None and sequence & MASK < len(chunk.nexts) else 0
            if not distance:
                return None
            sequence += distance
            chunk = lane.chunks[sequence >> SHIFT]
            state = chunk.states[sequence & MASK]
            if state != TOMB:
                return (chunk, sequence & MASK) if state == HELD else None

    def leave(self, lane: Lane, chunk: Chunk, index: int, group: int) -> None:
        """The message at `index` is GONE for the lane; unchain it, or leave a TOMB where the chain must go on."""
        sequence = chunk.base + index
        if self.heads[group] != sequence:
            chunk.states[index] = TOMB
            chunk.tombs += 1
            return
        while sequence != self.tails[group]:
            assert chunk.nexts is not None
            sequence += chunk.nexts[sequence & MASK]
            behind = lane.chunks[sequence >> SHIFT]
            lane.drop_if_empty(chunk)
            chunk = behind
            if chunk.states[sequence & MASK] != TOMB:
                self.heads[group] = sequence
                return
            chunk.states[sequence & MASK] = GONE
            chunk.tombs -= 1
        lane.drop_if_empty(chunk)
        del self.numbers[self.names[group]]
        self.names[group] = b""
        self.busy[group] = 0
        self.free.append(group)
