"""What the oracle knows: plain objects in plain lists, and the few questions that everything else asks of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dovetail.core.operation import Attributes, Handout, Origin, Push

MINUTES_5 = 300_000
HOUR = 3_600_000


@dataclass(eq=False)
class Message:
    sequence: int
    group: bytes
    place: tuple[int, int]
    pushed: int
    visible_at: int
    origin: Origin | None = None
    first_visible: int = 0
    handed: bool = False
    """Its last change was a hand-out; it is leased as long as visible_at lies ahead."""
    delivery: int = 0
    receives: int = 0
    first_received: int = 0
    moved_at: int = -1
    """The entry that moved it here: it moves at most once in each."""
    tenant: bytes = b""
    """Its name in a queue without groups; in one with groups the name is in `group`."""
    reserved: bool = False
    span: Span | None = None
    """The last delivery, until it is known how it ended."""


@dataclass(eq=False)
class Span:
    """One delivery. Without an end it lasts until its lease does."""

    tenant: bytes
    start: int
    message: Message
    end: int | None = None


@dataclass
class Waiter:
    writer: bytes
    address: int
    most: int
    lease_ms: int
    until: int
    attempt: bytes
    once: bool = False


@dataclass
class Tap:
    next: int
    lost: tuple[int, int] = (0, 0)


@dataclass
class Reservation:
    epoch: int = 0
    batches: dict[int, list[Message]] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    """Every number that was ever given to a batch."""
    settled: int = -1
    released: int = -1


@dataclass
class Queue:
    number: int
    rules: Attributes
    messages: list[Message] = field(default_factory=list)
    next: int = 1
    next_delivery: int = 1
    dedup: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    attempts: dict[bytes, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)
    taps: dict[str, Tap] = field(default_factory=dict)
    noted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    noted_until: dict[int, int] = field(default_factory=dict)
    """Where the run ends that a sequence joined in: as long as one of a run is needed, all of it can be read."""
    """What taps may read: sequence → (address, item, time)."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    epochs: int = 0
    spans: list[Span] = field(default_factory=list)
    noisy: set[bytes] = field(default_factory=set)
    last_push: dict[bytes, int] = field(default_factory=dict)
    named_since: int | None = None
    """When the first message with a tenant came: processing time is counted from there."""
    spells_at: int | None = None
    under_way: dict[tuple[int, int], Message] = field(default_factory=dict)
    """(target, number) → a message that has left for another log, and is reserved here."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Target → the last number that was given."""
    unreachable: set[int] = field(default_factory=set)
    """Targets that have refused a message."""

    def find(self, sequence: int) -> Message | None:
        return next((m for m in self.messages if m.sequence == sequence), None)


@dataclass
class Producer:
    epoch: int = 0
    results: list[Any] = field(default_factory=list)
    """The outcome of every number from 1 on: {queue: sequence}, or why it was refused."""


@dataclass
class Writer:
    last: int = 0
    named: int = 0
    silent_ms: int = 0
    seen: int = 0
    fresh: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Hand-outs that it may not have seen: (position, queue, sequence, delivery)."""


class Facts:
    def __init__(self) -> None:
        self.time = 0
        self.position = 0
        self.key = b""
        self.names: dict[int, tuple[str, str]] = {}
        self.next_queue = 1
        self.queues: dict[int, Queue] = {}
        self.dropped: set[int] = set()
        self.producers: dict[bytes, Producer] = {}
        self.writers: dict[bytes, Writer] = {}
        self.closed: set[bytes] = set()
        self.writer = b""
        self.stages: dict[bytes, tuple[int, list[tuple[int, Push]]]] = {}
        """stage → (when it began, [(address, push)])"""
        self.owners: dict[bytes, int] = {}
        self.logs, self.place = 1, 0
        self.judged: dict[tuple[int, int], dict[int, int]] = {}
        """(source, target) → number → sequence here, or 0: every judgement there ever was."""
        self.lows: dict[tuple[int, int], int] = {}
        self.handouts: list[Handout] = []
        self.line: list[int] = []
        """Queues at which somebody waits, in the order in which that began."""

    def elsewhere(self, queue: int) -> bool:
        return queue > 0 and (queue - 1) % self.logs != self.place

    def may_leave(self, queue: Queue, target: int) -> bool:
        return self.elsewhere(target) and target not in queue.unreachable

    def depart(self, queue: Queue, message: Message, target: int) -> None:
        queue.numbers[target] = queue.numbers.get(target, 0) + 1
        queue.under_way[target, queue.numbers[target]] = message
        message.reserved, message.handed, message.delivery = True, False, 0

    def leased(self, message: Message) -> bool:
        return message.handed and message.visible_at > self.time

    def full(self, queue: Queue) -> bool:
        return bool(queue.rules.in_flight_max) and sum(map(self.leased, queue.messages)) >= queue.rules.in_flight_max

    def available(self, queue: Queue) -> list[Message]:
        """What a receive could begin with, lowest first."""
        free = []
        met: set[bytes] = set()
        busy = {message.group for message in queue.messages if self.leased(message) or message.reserved}
        for message in queue.messages:
            blocked = message.group and (message.group in met or message.group in busy)
            met.add(message.group)
            if message.visible_at <= self.time and not message.reserved and not blocked:
                free.append(message)
        return free

    def counts(self, number: int, now: int) -> tuple[int, int, int]:
        messages = self.queues[number].messages
        later = [m for m in messages if m.visible_at > now]
        leased = sum(m.handed for m in later)
        return len(messages) - len(later) - sum(m.reserved for m in messages), len(later) - leased, leased
