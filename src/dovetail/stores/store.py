"""The store seam: queues on an engine. Small on purpose; every engine pays for each verb.

Ids and receipts are opaque here and above. Every call answers for each item; an error is `Refused` (nothing happened) or `Unknown`
(it may have happened). A store states its `Promises`, and one contract suite holds every store to what it states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dovetail.core.operation import DEFAULT, Attributes


@dataclass(frozen=True, slots=True)
class Promises:
    """What a store keeps, in words that the contract suite and a queue's maker read."""

    order: str
    """strict · almost · none"""
    duplicates: str
    """none · rare: may a message be delivered again although its lease has not ended?"""
    fencing: bool
    """an old receipt is refused"""
    durability: str
    """memory · disk · memory×3 · disk×3"""
    groups: bool
    taps: bool
    transactions: bool
    """complete-and-push is one step"""
    numbering: bool
    dedup_scope: str
    """queue · none"""
    bytes_max: int
    fresh_counts: bool


class Outgoing(NamedTuple):
    """A message on its way in. `attributes` and `dedup` are bytes already (core/message.py)."""

    body: bytes
    delay_ms: int = DEFAULT
    group: bytes = b""
    attributes: bytes = b""
    dedup: bytes = b""
    id: bytes = b""


class Stored(NamedTuple):
    """A message that is durable. A repeat was stored before, and says where if that is still known (else sequence 0)."""

    id: bytes
    sequence: int
    repeat: bool


class Delivery(NamedTuple):
    """A message handed out."""

    receipt: str
    id: bytes
    sequence: int
    body: bytes
    group: bytes
    attributes: bytes
    receives: int
    sent_at_ms: int
    first_received_ms: int
    lease_until_ms: int
    source: int
    """The queue it was moved from, or 0."""


class Waiting(NamedTuple):
    """A message that was looked at without receiving it."""

    id: bytes
    sequence: int
    body: bytes
    group: bytes
    attributes: bytes
    receives: int
    sent_at_ms: int
    state: str
    """visible · delayed · leased"""


class Tapped(NamedTuple):
    """A message as a tap reads it."""

    sequence: int
    id: bytes
    body: bytes
    group: bytes
    attributes: bytes
    time_ms: int


class TapFacts(NamedTuple):
    name: str
    next: int
    end: int
    lost_first: int
    lost_count: int


class Counts(NamedTuple):
    """How many messages a queue has, and how old the oldest is."""

    visible: int
    delayed: int
    leased: int
    oldest_age_ms: int
    pushed: int
    dead_lettered: int
    stranded: int
    """Deliveries of messages that should have moved to a dead-letter queue which is gone."""


class Number(NamedTuple):
    """The number that a producer gives to a message."""

    producer: bytes
    epoch: int
    number: int


class Popping(Protocol):
    """A pop on its way: submitted when it was made, awaited when it suits."""

    def __await__(self) -> Generator[Any, None, list[Delivery]]: ...

    def add_done_callback(self, done: Callable[[], None]) -> None:
        """For those who do not await."""

    def result(self) -> list[Delivery]:
        """Once it is done: what was taken, or the error."""

    def abandon(self) -> None:
        """The receiver has left: it takes no message with it."""


class Lane(Protocol):
    """One ordered physical queue."""

    @property
    def queue(self) -> int: ...

    @property
    def attributes(self) -> Attributes: ...

    def push(self, messages: Sequence[Outgoing], number: Number | None = None) -> Awaitable[list[Stored]]: ...

    def push_bodies(self, bodies: Sequence[bytes]) -> Awaitable[Sequence[int]]:
        """Plain messages, nothing but bodies: the fast road. Answers their sequences."""

    def id_of(self, sequence: int) -> bytes:
        """The id that the lane made for a message without one of its own."""

    def pop(self, most: int, lease_ms: int = DEFAULT, *, delete: bool = False, attempt: bytes = b"") -> Popping: ...

    def complete(self, receipts: Sequence[str]) -> Awaitable[list[bool]]: ...

    def requeue(self, receipts: Sequence[str], after_ms: int = DEFAULT) -> Awaitable[list[bool]]: ...

    def extend(self, receipts: Sequence[str], lease_ms: int = DEFAULT) -> Awaitable[list[bool]]: ...

    def release(self, receipts: Sequence[str]) -> Awaitable[list[bool]]: ...

    def exists(self, receipts: Sequence[str]) -> list[bool]:
        """Whether each receipt's message is still there, in whoever's hands."""

    def reclaim(self, ids: Sequence[bytes | int]) -> Awaitable[list[bool]]:
        """By an id that the lane made, or by sequence; so for `cancel` and `reschedule`."""

    def cancel(self, ids: Sequence[bytes | int]) -> Awaitable[list[bool]]: ...

    def reschedule(self, ids: Sequence[bytes | int], after_ms: int) -> Awaitable[list[bool]]: ...

    def purge(self) -> Awaitable[int]: ...

    def move(self, target: int, most: int) -> Awaitable[int]: ...

    def peek(self, most: int, after: int = 0) -> list[Waiting]: ...

    def counts(self) -> Counts: ...

    def has_visible(self) -> bool:
        """Would a pop find something now? NoSuchQueue once the queue was dropped."""

    def is_full(self) -> bool:
        """As many messages are in flight as may be."""

    def next_visible_at(self) -> int | None:
        """In the store's time (`Store.now`)."""

    def watch(self, changed: Callable[[int], None] | None) -> None:
        """A hint: so many messages are about to be visible (0: look yourself). It may be missed: whoever waits looks now and then too."""

    def tap_open(self, name: str, start: int, age_ms: int, size: int) -> Awaitable[int]: ...

    def tap_advance(self, name: str, sequence: int) -> Awaitable[int]: ...

    def tap_close(self, name: str) -> Awaitable[None]: ...

    def tap_read(self, name: str, most: int, from_sequence: int | None = None) -> list[Tapped]: ...

    def taps(self) -> list[TapFacts]: ...


class Store(Protocol):
    promises: Promises

    def now(self) -> int:
        """The store's time in ms: what leases and delays are judged by."""

    def on_commit(self, observe: Callable[[float], None]) -> None:
        """From now on tell `observe` how many seconds each commit took until it was durable."""

    def facts(self) -> Mapping[str, tuple[float, str]]:
        """Figures of the store itself for an operator: name → (value, what it is)."""

    def lane(self, queue: int) -> Lane | None: ...

    def find(self, namespace: str, name: str) -> int | None: ...

    def queues(self, namespace: str) -> Iterator[tuple[str, int]]: ...

    def all_queues(self) -> list[tuple[str, str, int]]:
        """(namespace, name, queue) of every queue."""

    def name_of(self, queue: int) -> tuple[str, str] | None: ...

    def create(self, namespace: str, name: str, attributes: Attributes) -> Awaitable[int]:
        """Idempotent: the id of the queue of that name, made now or before."""

    def configure(self, queue: int, attributes: Attributes) -> Awaitable[None]: ...

    def drop(self, queue: int) -> Awaitable[None]: ...

    def push_all(
        self, queues: Sequence[int], messages: Sequence[Outgoing], number: Number | None = None
    ) -> Awaitable[list[list[Stored]]]: ...

    def complete_and_push(
        self, receipts: Sequence[str], queues: Sequence[int], messages: Sequence[Outgoing]
    ) -> Awaitable[list[list[Stored]]]: ...

    def producer_open(self, producer: bytes) -> Awaitable[tuple[int, int]]:
        """(epoch, last number used)"""

    def producer_skip(self, number: Number) -> Awaitable[None]: ...
