"""What handles ask for, and nothing of who answers: a broker in this process (service/embedded.py), or a node at the other end of a
connection (dovetail.client). Every verb is awaited; durations are milliseconds here.

A place is a queue as the verbs name it: only those that gave it know what is in it. What was handed out is looked at by its names, and may
be made of columns when it is looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from dovetail.core.operation import DEFAULT, Attributes, Published
from dovetail.errors import DovetailError
from dovetail.service.fact import Happened
from dovetail.stores.store import Counts, Number, Outgoing, ReservationFacts, StageFacts, Stored, TapFacts, Tapped, Waiting


class Place(Protocol):
    """A queue."""

    @property
    def queue(self) -> int: ...

    @property
    def attributes(self) -> Attributes:
        """Its rules, as they were when they were last told."""

    def id_of(self, sequence: int) -> bytes:
        """The id of a message that has none of its own."""


class Held(Protocol):
    """A message that was handed out."""

    @property
    def receipt(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def sequence(self) -> int: ...

    @property
    def body(self) -> bytes: ...

    @property
    def group(self) -> bytes: ...

    @property
    def attributes(self) -> bytes: ...

    @property
    def receives(self) -> int: ...

    @property
    def sent_at_ms(self) -> int: ...

    @property
    def first_received_ms(self) -> int: ...

    @property
    def lease_until_ms(self) -> int: ...

    @property
    def source(self) -> int: ...


class Columns(Sequence[Held]):
    """Many of them in columns: what is asked of all is not asked of each."""

    __slots__ = ()

    @property
    def bodies(self) -> list[bytes]:
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of bodies, groups and attributes."""
        raise NotImplementedError


Receipts = Sequence[str | Held]
"""Proofs of deliveries: as texts, or what was handed out itself, which costs nothing to put into words."""


class Stream(Protocol):
    """Messages that come as they become visible, as far as the credit reaches."""

    @property
    def came(self) -> Iterable[Sequence[Held]]:
        """Those that have come and were not asked for yet."""

    async def next(self) -> Sequence[Held]:
        """The next of them, at least one; none once it was stopped."""

    def give(self, messages: int, size: int) -> None:
        """More credit."""

    async def stop(self) -> Sequence[Held]:
        """No more of them. Answers those that had come and were not asked for."""


class Redriving(Protocol):
    """Dead letters on their way back. `status` is running, cancelling, completed, cancelled or failed; `moved` counts."""

    status: str
    moved: int
    error: DovetailError | None

    async def wait(self) -> None:
        """Until it has ended, however it ended."""

    async def cancel(self) -> None:
        """Stop after the step that is under way. What has moved stays moved."""


class Staging(Protocol):
    """A stage that messages are put into."""

    async def put(self, places: Sequence[Any], messages: Sequence[Outgoing]) -> int:
        """How many, once they are durable."""


class Verbs(Protocol):
    @property
    def durability(self) -> str:
        """What an answer to a push has reached: memory, disk, memory×3 or disk×3."""

    @property
    def namespace(self) -> str:
        """Where queues are looked for when no namespace is named."""

    # Queues

    async def find(self, namespace: str, name: str) -> Any:
        """The place of that name, or NoSuchQueue."""

    async def declare(self, namespace: str, name: str, rules: Mapping[str, Any]) -> Any:
        """The same, made if it is missing. A rule that is named must be the one it has, else QueueExists is raised."""

    async def configure(self, place: Any, rules: Mapping[str, Any]) -> None: ...

    async def drop(self, namespace: str, name: str) -> None: ...

    async def names(self, namespace: str, prefix: str) -> list[str]: ...

    def name_of(self, queue: int) -> str | None:
        """Of a queue that dead letters came from."""

    # In

    def push_body(self, place: Any, body: bytes) -> Awaitable[int]:
        """One plain message: the fast road. Answers its sequence."""

    def push_bodies(self, place: Any, bodies: Sequence[bytes]) -> Awaitable[Sequence[int]]:
        """Many of them."""

    def push(self, place: Any, messages: Sequence[Outgoing]) -> Awaitable[Sequence[Stored]]: ...

    def push_all(
        self, places: Sequence[Any], messages: Sequence[Outgoing], number: Number | None = None
    ) -> Awaitable[Sequence[Sequence[Stored]]]:
        """To several queues, all or nothing."""

    def complete_and_push(
        self, place: Any, receipts: Receipts, targets: Sequence[Any], messages: Sequence[Outgoing]
    ) -> Awaitable[Sequence[Sequence[Stored]]]: ...

    # Out

    def receive(
        self, place: Any, most: int, lease_ms: int, *, wait_ms: int = 0, delete: bool = False, attempt: bytes = b""
    ) -> Awaitable[Sequence[Held]]: ...

    def left(self, place: Any, receiving: Awaitable[Sequence[Held]]) -> None:
        """Whoever awaited this receive was cancelled: what it may have got already goes back."""

    def consume(self, place: Any, messages: int, size: int, lease_ms: int, *, delete: bool = False) -> Stream:
        """`messages` and `size` (bytes) are the credit to begin with."""

    def complete(self, place: Any, receipts: Receipts) -> Awaitable[Sequence[int]]:
        """A truth for each; so for the next three."""

    def requeue(self, place: Any, receipts: Receipts, after_ms: int = DEFAULT) -> Awaitable[Sequence[int]]: ...

    def extend(self, place: Any, receipts: Receipts, lease_ms: int = DEFAULT) -> Awaitable[Sequence[int]]: ...

    def release(self, place: Any, receipts: Receipts) -> Awaitable[Sequence[int]]: ...

    # Without a receipt, by an id that the queue made or by sequence

    def cancel(self, place: Any, ids: Sequence[bytes | int]) -> Awaitable[Sequence[int]]: ...

    def reschedule(self, place: Any, ids: Sequence[bytes | int], after_ms: int) -> Awaitable[Sequence[int]]: ...

    def reclaim(self, place: Any, ids: Sequence[bytes | int]) -> Awaitable[Sequence[int]]: ...

    # Looking and ruling

    async def peek(self, place: Any, most: int, after: int) -> Sequence[Waiting]: ...

    async def counts(self, place: Any) -> Counts: ...

    async def purge(self, place: Any) -> int: ...

    async def redrive(self, place: Any, target: Any, rate_per_s: float) -> Redriving: ...

    # Taps

    async def tap_open(self, place: Any, name: str, start: int, age_ms: int, size: int) -> int:
        """Answers its position."""

    async def taps(self, place: Any) -> list[TapFacts]: ...

    async def tap_read(self, place: Any, name: str, most: int, from_sequence: int | None) -> tuple[Sequence[Tapped], int]:
        """(messages, where reading on begins)"""

    async def tap_read_arrow(self, place: Any, name: str, most: int, from_sequence: int | None) -> tuple[bytes, int]:
        """(an Arrow IPC stream, where reading on begins)"""

    async def tap_advance(self, place: Any, name: str, sequence: int) -> int: ...

    async def tap_close(self, place: Any, name: str) -> None: ...

    # Producers

    async def producer_open(self, identity: bytes) -> tuple[bytes, int, int]:
        """(identity to number under, epoch, last number used)"""

    async def producer_skip(self, number: Number) -> None: ...

    # Stages: names and owners have 16 bytes

    def stage(self, name: bytes) -> Staging:
        """It begins with what is put into it first."""

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        """The messages of the stages join their queues, all or none, unless the owner has published this batch, or a later one, before."""

    async def unstage(self, stages: Sequence[bytes], *, kept: bool = False) -> int:
        """Give stages up; how many of them there were. `kept`: by the names that `stages` tells."""

    async def stages(self) -> list[StageFacts]:
        """Those that hold messages for one's own queues, by the names under which they are kept."""

    # Reservations

    async def reserve_open(self, place: Any, name: str) -> tuple[int, int]:
        """(epoch, the last batch that was given out, or -1)"""

    async def reserve(self, place: Any, name: str, epoch: int, batch: int, most: int) -> tuple[int, bool]:
        """(how many messages the batch has, whether they were set aside before)"""

    async def reserved(self, place: Any, name: str, batch: int, start: int, most: int) -> Sequence[Held]:
        """Messages of a batch that is open, from its `start`-th on."""

    async def reserved_arrow(self, place: Any, name: str, batch: int, start: int, most: int) -> tuple[bytes, int]:
        """(an Arrow IPC stream, where in the batch reading on begins)"""

    async def reserve_settle(self, place: Any, name: str, epoch: int, batch: int) -> int: ...

    async def reserve_release(self, place: Any, name: str) -> int: ...

    async def reserve_close(self, place: Any, name: str) -> int: ...

    async def reservations(self, place: Any) -> list[ReservationFacts]: ...

    # Facts

    async def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> int:
        """Answers its position."""

    async def facts_taps(self, namespace: str) -> list[TapFacts]: ...

    async def facts_read(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[Sequence[Happened], int, int]:
        """(facts, where reading on begins, the number that the next fact will get)"""

    async def facts_read_arrow(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[bytes, int]:
        """(an Arrow IPC stream, where reading on begins)"""

    async def facts_advance(self, namespace: str, name: str, number: int) -> int: ...

    async def facts_close(self, namespace: str, name: str) -> None: ...
