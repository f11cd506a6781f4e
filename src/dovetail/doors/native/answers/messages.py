"""Answers with messages. They travel in columns and runs: what neighbours have in common stands once, their bodies lie back to back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.core.column import Column
from dovetail.doors.native import fields
from dovetail.doors.native.fields import Malformed, Walk
from dovetail.doors.native.frames import Data

IDS, GROUPS, ATTRIBUTES, HISTORY = 1, 2, 4, 8
"""Flags of DELIVERIES and MESSAGES: which columns there are. HISTORY (receives and states) is for looks at a queue only."""

STATES = ("visible", "delayed", "leased", "reserved")
DURABILITY = ("", "memory", "disk", "memory×3", "disk×3")
STORED, REPEAT, REFUSED = 0, 1, 2
"""The verdict on one pushed message. REFUSED is a number that was refused or skipped once and stays so."""

PUSHED = Struct("<BBHI")
LANE = Struct("<QII")
DELIVERIES = Struct("<QII")
RUN = Struct("<QQIIQQQQ8s")
MESSAGES = Struct("<QQQII")


class Lane(NamedTuple):
    """What a push did in one queue."""

    sequences: Sequence[int]
    verdicts: bytes = b""
    """STORED, REPEAT or REFUSED for each message; empty where all were stored."""
    ids: bytes = b""
    """16 bytes for each message whose id is not made of its sequence (zeros for the others); empty where there is none to tell."""


class Pushed(NamedTuple):
    """What a push did, in the order of its queues, and the durability that was reached."""

    durability: int
    lanes: Sequence[Lane]

    def encode(self) -> bytes:
        parts = [PUSHED.pack(self.durability, 0, 0, len(self.lanes))]
        for lane in self.lanes:
            sequences = lane.sequences
            count = len(sequences)
            if not lane.verdicts and not lane.ids and isinstance(sequences, range) and sequences.step == 1:
                parts.append(LANE.pack(sequences.start, count, 0))
                continue
            parts.append(LANE.pack(0, count, 3 if lane.ids else 1))
            parts += (array("Q", sequences).tobytes(), lane.ids, lane.verdicts or bytes(count), bytes(-count & 7))
        return b"".join(parts)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Pushed:
        durability, _, _, count = walk.fixed(PUSHED)
        lanes = []
        for _ in range(count):
            first, messages, form = walk.fixed(LANE)
            if not form:
                if first + messages > 1 << 64:
                    raise Malformed("sequences beyond their end")
                lanes.append(Lane(range(first, first + messages)))
                continue
            sequences = walk.numbers(messages)
            ids = bytes(walk.take(16 * messages)) if form & 2 else b""
            verdicts = bytes(walk.take(messages))
            walk.take(-messages & 7)
            lanes.append(Lane(sequences, verdicts, ids))
        return cls(durability, lanes)


class Run(NamedTuple):
    """Neighbours that were handed out together: consecutive sequences and delivery numbers."""

    sequence: int
    delivery: int
    """0 where the messages are gone already (receive-and-delete)."""
    length: int
    receives: int
    pushed_ms: int
    first_received_ms: int
    lease_until_ms: int
    source: int
    """The queue that dead letters came from last, else 0."""
    seal: bytes


class Deliveries(NamedTuple):
    """Messages handed out. `ids` has 16 bytes for each message, zeros where the id is made of queue and sequence."""

    queue: int
    runs: Sequence[Run]
    bodies: Column
    ids: Data | None = None
    groups: Column | None = None
    attributes: Column | None = None

    def encode(self) -> bytes:
        parts: list[Data] = [DELIVERIES.pack(self.queue, len(self.bodies), len(self.runs)), *(RUN.pack(*run) for run in self.runs)]
        return b"".join(_columns(parts, self.ids, self.groups, self.attributes, self.bodies))

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Deliveries:
        queue, count, run_count = walk.fixed(DELIVERIES)
        runs = [Run(*values) for values in RUN.iter_unpack(walk.take(RUN.size * run_count))]
        if sum(run.length for run in runs) != count:
            raise Malformed("the runs do not hold as many messages as there are")
        return cls(queue, runs, *_read_columns(walk, count, flags))


class Settled(NamedTuple):
    """One truth for each message named: did it change anything?"""

    done: bytes

    def encode(self) -> bytes:
        return self.done

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Settled:
        return cls(bytes(walk.take(len(walk.data))))


class Messages(NamedTuple):
    """Messages that were looked at (PEEK) or read by a tap, in columns."""

    queue: int
    next: int
    """Reading on begins here."""
    end: int
    """The sequence that the next push will get."""
    sequences: Sequence[int]
    times: Sequence[int]
    bodies: Column
    ids: Data | None = None
    groups: Column | None = None
    attributes: Column | None = None
    receives: Sequence[int] | None = None
    states: Data | None = None
    """Indexes into STATES."""

    def encode(self) -> bytes:
        count = len(self.sequences)
        parts: list[Data] = [
            MESSAGES.pack(self.queue, self.next, self.end, count, 0),
            array("Q", self.sequences).tobytes(),
            array("Q", self.times).tobytes(),
        ]
        if self.receives is not None and self.states is not None:
            parts += (array("I", self.receives).tobytes(), self.states, bytes(-count & 3))
        return b"".join(_columns(parts, self.ids, self.groups, self.attributes, self.bodies))

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Messages:
        queue, following, end, count, _ = walk.fixed(MESSAGES)
        sequences, times = walk.numbers(count), walk.numbers(count)
        receives = states = None
        if flags & HISTORY:
            receives = walk.take(4 * count).cast("I")
            states = walk.take(count)
            walk.take(-count & 3)
            if any(state >= len(STATES) for state in states):
                raise Malformed("a state that is not known")
        bodies, ids, groups, attributes = _read_columns(walk, count, flags)
        return cls(queue, following, end, sequences, times, bodies, ids, groups, attributes, receives, states)


class Arrow(NamedTuple):
    """The same as an Arrow IPC stream."""

    queue: int
    next: int
    end: int
    messages: int
    stream: Data

    def encode(self) -> bytes:
        return MESSAGES.pack(self.queue, self.next, self.end, self.messages, 0) + self.stream

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Arrow:
        queue, following, end, count, _ = walk.fixed(MESSAGES)
        return cls(queue, following, end, count, walk.take(len(walk.data) - walk.at))


def _columns(parts: list[Data], ids: Data | None, groups: Column | None, attributes: Column | None, bodies: Column) -> list[Data]:
    if ids is not None:
        parts.append(ids)
    parts += [fields.column(column) for column in (groups, attributes, bodies) if column is not None]
    return parts


def _read_columns(walk: Walk, count: int, flags: int) -> tuple[Column, memoryview | None, Column | None, Column | None]:
    """(bodies, ids, groups, attributes)"""
    ids = walk.take(16 * count) if flags & IDS else None
    groups = walk.column(count) if flags & GROUPS else None
    attributes = walk.column(count) if flags & ATTRIBUTES else None
    return walk.column(count), ids, groups, attributes
