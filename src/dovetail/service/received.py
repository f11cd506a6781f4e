"""Messages that were received: one in hand, and what one receive gave.

What was handed out stays what it is (`Held`: a delivery, or a row of columns); a Message is made of it when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, overload

from dovetail.core import message as identity
from dovetail.core.message import Attribute, decode_attributes
from dovetail.service.values import Outgoing, Sent, ms, outgoing
from dovetail.service.verbs import Columns, Held

if TYPE_CHECKING:
    from dovetail.service.handles import Queue


class Keeper(Protocol):
    """Who prolongs the lease of what it gave out, and wants to know when that is over: a consumer."""

    def over(self, index: int) -> None: ...

    def all_over(self) -> None: ...

    def forgotten(self, index: int) -> None:
        """Nobody can settle it any more, for nobody has it. Said from whatever thread had it last."""


class Message:
    """A message that was received. It is yours until its lease ends; complete it, or give it back.

    async with message:                   completes it at the end, and requeues it if the block raises
        handle(message.body)
    """

    __slots__ = ("_held", "queue", "settled")

    def __init__(self, queue: Queue, held: Held) -> None:
        self.queue = queue
        self._held = held
        self.settled = False
        """Something became of it by this handle: it was completed or given back, or it was too late for that."""

    @property
    def id(self) -> str:
        return identity.id_text(self._held.id)

    @property
    def sequence(self) -> int:
        return self._held.sequence

    @property
    def body(self) -> bytes:
        return self._held.body

    @property
    def attributes(self) -> dict[str, Attribute]:
        return decode_attributes(self._held.attributes)

    @property
    def group(self) -> str | None:
        return self._held.group.decode() or None

    @property
    def receives(self) -> int:
        """How often it has been handed out, this time included."""
        return self._held.receives

    @property
    def receipt(self) -> str:
        """Proof of this delivery; empty after receive-and-delete."""
        return self._held.receipt

    @property
    def sent_at_ms(self) -> int:
        return self._held.sent_at_ms

    @property
    def first_received_ms(self) -> int:
        return self._held.first_received_ms

    @property
    def lease_until_ms(self) -> int:
        return self._held.lease_until_ms

    @property
    def source(self) -> str | None:
        """The queue that a dead letter came from."""
        return self.queue.verbs.name_of(self._held.source) if self._held.source else None

    async def complete(self) -> bool:
        """Done with it. False: too late, the message was handed out again or is gone."""
        queue = self.queue
        done = (await queue.verbs.complete(queue.lane, (self._held,)))[0]
        self.over()
        return bool(done)

    async def requeue(self, delay_s: float | None = None) -> bool:
        """Give it back, to be delivered again at once, after `delay_s`, or (None) as the queue's back-off says."""
        queue = self.queue
        done = (await queue.verbs.requeue(queue.lane, (self._held,), ms(delay_s)))[0]
        self.over()
        return bool(done)

    async def extend(self, lease_s: float | None = None) -> bool:
        """Keep it longer: the lease ends `lease_s` from now."""
        return bool((await self.queue.verbs.extend(self.queue.lane, (self._held,), ms(lease_s)))[0])

    async def release(self) -> bool:
        """Give it back as if it had not been delivered."""
        queue = self.queue
        done = (await queue.verbs.release(queue.lane, (self._held,)))[0]
        self.over()
        return bool(done)

    async def complete_and_send(self, queue: Queue, body: bytes | Outgoing, *more: bytes | Outgoing) -> list[Sent]:
        """Complete this one and send others, in one step: both happen or neither. Raises ReceiptInvalid if this delivery is over."""
        messages = [outgoing(one) for one in (body, *more)]
        answers = await self.queue.verbs.complete_and_push(self.queue.lane, (self._held,), [queue.lane], messages)
        self.over()
        return queue.sent(answers[0])

    @property
    def held(self) -> Held:
        """What was handed out, as the verbs take it."""
        return self._held

    def over(self) -> None:
        """Let go of it: a consumer no longer prolongs its lease and asks for another in its place. Settling does this by itself."""
        self.settled = True

    async def __aenter__(self) -> Message:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.settled:
            return
        try:
            await (self.complete() if kind is None else self.requeue())
        finally:
            # Where even that fails, its lease is left to end by itself, and it comes again.
            self.over()

    def __repr__(self) -> str:
        return f"Message({self.id}, queue={self.queue.name!r}, receives={self.receives}, body={self.body[:40]!r})"


class Kept(Message):
    """One that a consumer gave out."""

    __slots__ = ("_index", "_keeper")

    def __init__(self, queue: Queue, held: Held, keeper: Keeper, index: int, settled: bool = False) -> None:
        self.queue = queue
        self._held = held
        self.settled = settled
        self._keeper = keeper
        self._index = index

    def over(self) -> None:
        self.settled = True
        self._keeper.over(self._index)

    def __del__(self) -> None:
        if not self.settled:
            self._keeper.forgotten(self._index)


class Messages(Sequence[Message]):
    """What one receive gave, in order. Each message is made when it is looked at; the verbs here settle all of them in one step."""

    __slots__ = ("_keeper", "held", "queue")

    def __init__(self, queue: Queue, held: Sequence[Held], keeper: Keeper | None = None) -> None:
        self.queue = queue
        self.held = held
        self._keeper = keeper

    @property
    def bodies(self) -> list[bytes]:
        return self.held.bodies if isinstance(self.held, Columns) else [one.body for one in self.held]

    async def complete(self) -> list[bool]:
        return await self.queue.complete(self)

    async def requeue(self, delay_s: float | None = None) -> list[bool]:
        return await self.queue.requeue(self, delay_s)

    async def extend(self, lease_s: float | None = None) -> list[bool]:
        return await self.queue.extend(self, lease_s)

    async def release(self) -> list[bool]:
        return await self.queue.release(self)

    def over(self) -> None:
        if self._keeper is not None:
            self._keeper.all_over()

    def __len__(self) -> int:
        return len(self.held)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self.held)))]
        held = self.held[index]
        if self._keeper is None:
            return Message(self.queue, held)
        return Kept(self.queue, held, self._keeper, index if index >= 0 else index + len(self.held))

    def __iter__(self) -> Iterator[Message]:
        if self._keeper is None:
            return map(Message, repeat(self.queue), self.held)
        return map(Kept, repeat(self.queue), self.held, repeat(self._keeper), count())

    def __eq__(self, other: object) -> bool:
        """Equal to itself, and to whatever else holds nothing: `await queue.receive() == []`."""
        return self is other or (isinstance(other, Sequence) and not self.held and not other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __add__(self, other: Sequence[Message]) -> list[Message]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Message]) -> list[Message]:
        return [*other, *self]

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"
