"""The store seam: queues on an engine. Small on purpose; every engine pays for each verb.

Ids and receipts are opaque here and above. Every call answers for each item; an error is `Refused` (nothing happened) or `Unknown`
(it may have happened). A store states its `Promises`, and one contract suite holds every store to what it states.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dovetail.core.operation import DEFAULT, Attributes, Kind, Published, Push
from dovetail.core.receipts import Part
from dovetail.stores.factsseam import FactsRead as FactsRead
from dovetail.stores.factsseam import FactsStore
from dovetail.stores.popping import Popping as Popping
from dovetail.stores.popping import Standing as Standing


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
    """complete-and-push, and whatever names several queues, is one step"""
    numbering: bool
    dedup_scope: str
    """queue · none"""
    bytes_max: int
    fresh_counts: bool
    facts: bool = False
    """what happened to queues can be read as a table"""


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
    """visible · delayed · leased · reserved"""


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
    reserved: int = 0
    """Set aside in batches of reservations: none of the three above."""


class StageFacts(NamedTuple):
    """A stage that is open."""

    stage: bytes
    began_ms: int
    messages: int
    bytes: int
    queues: tuple[int, ...] = ()
    """For which there are messages in it."""


class ReservationFacts(NamedTuple):
    """`last` and `settled` are batches, -1 where there is none yet; epoch 0 says that nobody owns it."""

    name: str
    epoch: int
    last: int
    settled: int
    batches: Mapping[int, int]
    """Those that are open: number → messages."""


class Number(NamedTuple):
    """The number that a producer gives to a message."""

    producer: bytes
    epoch: int
    number: int


class Reply(Protocol):
    """Who is told an outcome by a plain call, in the turn in which it is known: a future is one. Doors have lighter ones for what is asked
    thousands of times a second; those must not raise, and must not wait."""

    def done(self) -> bool:
        """Nobody wants to be told any more; a pop then takes no message for it."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Handed(NamedTuple):
    """Neighbours that were handed out together, as they lie in the log: whoever answers cuts what it needs out of the record."""

    sequence: int
    delivery: int
    """Of the first; 0 after receive-and-delete."""
    length: int
    receives: int
    sent_at_ms: int
    first_received_ms: int
    lease_until_ms: int
    source: int
    record: memoryview
    item: int
    """Where in the record the first of them is."""
    id: bytes
    """Of a message that was moved here, made where it began; empty where it is made of queue and sequence."""


One = tuple[int, int, int, int, int, int, memoryview]
"""A plain message that was handed out alone: sequence, delivery, receives, sent at, first received at, lease until (ms), body."""


class Noted(NamedTuple):
    """Neighbours that a tap reads, as they lie in the log."""

    sequence: int
    length: int
    time_ms: int
    record: memoryview
    item: int
    id: bytes
    """Of a message that was moved here, made where it began; empty where it is made of queue and sequence."""


class Landed(NamedTuple):
    """What a push in columns did in one lane. `repeats` and `refused` are indexes."""

    queue: int
    sequences: Sequence[int]
    repeats: Collection[int]
    refused: Collection[int]
    ids: bytes
    """16 bytes for each message, where a repeat is of one that had an id of its own; else empty."""


class Reserving(Protocol):
    """A batch on its way: submitted when it was made, awaited when it suits."""

    def __await__(self) -> Generator[Any, None, list[Delivery]]:
        """Deliveries without receipts: a batch is settled as a whole."""

    def runs(self) -> Awaitable[list[Handed]]:
        """Awaited in place of it: the same in columns."""


class Lane(Protocol):
    """One ordered physical queue."""

    @property
    def queue(self) -> int: ...

    @property
    def attributes(self) -> Attributes: ...

    def push(self, messages: Sequence[Outgoing], number: Number | None = None) -> Awaitable[list[Stored]]: ...

    def push_bodies(self, bodies: Sequence[bytes]) -> Awaitable[Sequence[int]]:
        """Plain messages, nothing but bodies: the fast road. Answers their sequences."""

    def push_for(self, reply: Reply, bodies: Sequence[bytes]) -> None:
        """The same, and the reply is told the sequences."""

    def pop_for(self, reply: Reply, most: int, lease_ms: int = DEFAULT) -> None:
        """A pop whose reply is told what `taken` turns into deliveries."""

    def taken(self, answer: Any, lease_ms: int = DEFAULT) -> list[Delivery]:
        """What a reply was told of a pop, as deliveries; or its refusal, raised."""

    def give_up(self, answer: Any) -> None:
        """The receiver had left when its reply was told: the pop is undone."""

    def complete_for(self, reply: Reply, receipts: Sequence[str]) -> None:
        """As `complete`, and the reply is told."""

    # In columns: no object for each message, replies are told

    def take_for(self, reply: Reply, most: int, lease_ms: int = DEFAULT, *, delete: bool = False, attempt: bytes = b"") -> None:
        """A pop whose reply is told what `handed` turns into runs, in the turn in which it is told."""

    def handed(self, answer: Any, lease_ms: int = DEFAULT) -> list[Handed]: ...

    def one(self, answer: Any, lease_ms: int = DEFAULT) -> One | None:
        """What a reply was told of a pop of one message, where that is nothing but a body. None where it is not, or where nothing came, or
        where it is not known so quickly: `handed` says it then."""

    def complete_one_for(self, reply: Reply, sequence: int, delivery: int, length: int, at: int, seal: bytes) -> None:
        """As `settle_for` completes the `at`-th message of a run; ReceiptInvalid where the seal does not hold."""

    def complete_and_take_one_for(
        self, reply: Reply, sequence: int, delivery: int, length: int, at: int, seal: bytes, lease_ms: int = DEFAULT
    ) -> None:
        """That, and a pop of one behind it. The reply is told both outcomes, in either order: a list of one truth, and what `one` reads."""

    def seal_run(self, sequence: int, delivery: int, length: int) -> bytes:
        """What proves that these neighbours were handed out."""

    def take_back(self, runs: Sequence[tuple[int, int, int]]) -> Future[Any] | None:
        """(sequence, delivery, length) of what did not reach its receiver: undone, as if it had never been handed out. Done when they are
        back; None where there is nothing to wait for."""

    def settle_for(self, reply: Reply, kind: Kind, parts: Sequence[Part], parameter: int = 0) -> None:
        """Complete, requeue, extend or release parts of runs; the reply is told what `settled` reads."""

    def settled(self, answer: Any) -> bytes:
        """One byte for each message: did it change anything?"""

    def id_of(self, sequence: int) -> bytes:
        """The id that the lane made for a message without one of its own."""

    def pop(self, most: int, lease_ms: int = DEFAULT, *, delete: bool = False, attempt: bytes = b"") -> Popping: ...

    def stand(self, most: int, lease_ms: int, wait_ms: int) -> Standing | None:
        """Wait in the lane itself, first come first served among the receivers of all nodes. None where receivers wait in memory: then
        they are told by `watch`."""

    def complete(self, receipts: Sequence[str]) -> Awaitable[list[bool]]: ...

    def requeue(self, receipts: Sequence[str], after_ms: int = DEFAULT) -> Awaitable[list[bool]]: ...

    def extend(self, receipts: Sequence[str], lease_ms: int = DEFAULT) -> Awaitable[list[bool]]: ...

    def release(self, receipts: Sequence[str]) -> Awaitable[list[bool]]: ...

    def exists(self, receipts: Sequence[str]) -> list[bool]:
        """Whether each receipt's message is still there, in whoever's hands."""

    def held_ms(self, receipt: str) -> int:
        """At least how long ago this delivery was handed out, to a minute; 0 where the node does not know."""

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

    def tap_runs(self, name: str, from_sequence: int | None = None) -> tuple[int, Iterator[Noted]]:
        """The same in columns: (where reading begins, runs as far as somebody looks at them in this turn)."""

    def taps(self) -> list[TapFacts]: ...

    def tap_age_ms(self, name: str) -> int:
        """How long ago the first message was pushed that the tap has not let go of, about; 0 where there is none."""

    # Reservations

    def reserve_open(self, name: str) -> Awaitable[tuple[int, int]]:
        """(epoch, the last batch that was given out, or -1). Whoever had opened it before is refused from now on."""

    def reserve(self, name: str, epoch: int, batch: int, most: int) -> Reserving:
        """The messages of a batch: those that it got before, or up to `most` visible ones if it is new."""

    def reserve_for(self, reply: Reply, name: str, epoch: int, batch: int, most: int) -> None:
        """The same, and the reply is told what `set_aside` turns into runs."""

    def set_aside(self, answer: Any) -> list[Handed]: ...

    def set_aside_count(self, answer: Any) -> tuple[int, bool]:
        """(how many messages, whether they were set aside before), without a look at them."""

    def reserved(self, name: str, batch: int, start: int = 0, most: int = -1) -> list[Handed]:
        """The messages of a batch that is open, from its `start`-th on. Looking changes nothing, and anybody may who knows the name."""

    def reserved_runs(self, name: str, batch: int, start: int = 0) -> tuple[int, Iterator[Handed]]:
        """(how many messages the batch has, its runs as far as somebody looks at them in this turn)"""

    def deliveries_of(self, run: Handed) -> list[Delivery]:
        """A run as deliveries, without receipts."""

    def reserve_settle(self, name: str, epoch: int, batch: int) -> Awaitable[int]:
        """Done with all batches up to this one; how many messages left. It may be said again."""

    def reserve_release(self, name: str) -> Awaitable[int]:
        """An operator's: everything that is set aside goes back to its place, and the owner is refused from now on."""

    def reserve_close(self, name: str) -> Awaitable[int]:
        """The same, and the name is forgotten."""

    def reservations(self) -> list[ReservationFacts]: ...


class Store(FactsStore, Protocol):
    promises: Promises

    @property
    def rules_version(self) -> int:
        """Grows with every queue that is made, changed or dropped: what was kept about queues under an older one is to be asked again."""

    def now(self) -> int:
        """The store's time in ms: what leases and delays are judged by."""

    def on_commit(self, observe: Callable[[float], None]) -> None:
        """From now on tell `observe` how many seconds each commit took until it was durable."""

    def facts(self) -> Mapping[str, tuple[float, str]]:
        """Figures of the store itself for an operator: name → (value, what it is)."""

    def lane(self, queue: int) -> Lane | None: ...

    def reach(self, queue: int) -> Awaitable[None]:
        """From now on `lane` knows the queue, if there is one, also where a node keeps only those that it is asked for."""

    async def confirm(self) -> bool:
        """To be awaited before "there is none": then what other nodes were told, and `find` missed, is known. False: there are none."""

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

    # In columns

    @property
    def salt(self) -> bytes:
        """By which ids are made of queues and sequences, 16 bytes, big-endian."""

    @property
    def record_bytes_max(self) -> int: ...

    def push_of_record(self, record: bytes) -> Push:
        """The push in a record that a caller made; refused where we would not have made it so."""

    def push_record_for(self, reply: Reply, push: Push, record: bytes) -> None:
        """The record goes to the log as it is; the reply is told what `landed` reads."""

    def complete_and_push_record_for(self, reply: Reply, queue: int, parts: Sequence[Part], push: Push, record: bytes) -> None: ...

    def landed(self, outcome: Any, push: Push) -> list[Landed]: ...

    # Stages: names and owners have 16 bytes

    def stage(self, stage: bytes, queues: Sequence[int], messages: Sequence[Outgoing]) -> Awaitable[int]:
        """Put messages by; how many. They join their queues, in this order, when the stage is published. Said again they are there twice:
        where the outcome is not known, another stage is begun."""

    def stage_record_for(self, reply: Reply, stage: bytes, push: Push, record: bytes, number: int = 0) -> None:
        """The same with a record that a caller made (see `push_of_record`); the reply is told an outcome for `staged`. With a number, from
        1 on, it may be said again; a number that is not the next one is refused."""

    def staged(self, outcome: Any) -> int: ...

    def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Awaitable[Published]:
        """The messages of the stages join their queues, all or none, unless the owner has published this batch, or a later one, before."""

    def unstage(self, stages: Sequence[bytes]) -> Awaitable[int]:
        """Give stages up; how many of them there were."""

    def stages(self) -> list[StageFacts]:
        """Those that are open, in the order of their names."""

    def stages_behind(self, after: bytes) -> Iterator[StageFacts]:
        """Those with names behind this one, as far as somebody looks at them in this turn."""

    @property
    def staged_bytes(self) -> int:
        """Of bodies, in all stages that are open."""

    def staged_for(self, stages: Sequence[bytes]) -> Mapping[int, tuple[int, int]]:
        """What these stages hold for each queue: (messages, bytes). Those that are not there hold nothing."""

    def published_last(self, owner: bytes) -> int:
        """The owner's last batch, or -1."""

    def producer_open(self, producer: bytes) -> Awaitable[tuple[int, int]]:
        """(epoch, last number used)"""

    def producer_skip(self, number: Number) -> Awaitable[None]: ...
