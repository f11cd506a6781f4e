"""A reservation in somebody's hands: a job's share of a queue that others receive from as well.

    job = await orders.reservation("my job")           whoever had opened it before is refused from now on
    count = await job.reserve(7, max=10_000)           the messages of batch 7: the same whenever it is asked for
    for message in await job.read(7): ...              in one go or in ranges, here or elsewhere
    await job.settle(7)                                done with everything up to batch 7

A job that restarts opens it again, reserves the batch that it was at, and gets the same messages in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.core import message as identity
from dovetail.core.message import decode_attributes
from dovetail.errors import BadRequest, LimitExceeded
from dovetail.limits import RESERVE_MESSAGES_MAX
from dovetail.service.values import ArrowBatch, Reserved, utf8
from dovetail.service.verbs import Held, Verbs
from dovetail.stores.store import ReservationFacts


class Reservation:
    """Opened by `queue.reservation(name)`. It belongs to this handle until somebody opens it again or an operator releases it; then its
    calls end with Fenced."""

    __slots__ = ("epoch", "last", "name", "queue")

    def __init__(self, queue: Reservable, name: str, epoch: int, last: int) -> None:
        self.queue = queue
        self.name = name
        self.epoch = epoch
        self.last = last
        """The last batch that was given out when this handle opened it, or -1."""

    async def reserve(self, batch: int, max: int = 1000) -> int:
        """Set messages aside: those that the batch got before, or, if it is new, up to `max` visible ones. How many they are, which may be
        none. Numbers only grow."""
        if type(max) is not int or not 1 <= max <= RESERVE_MESSAGES_MAX:
            raise LimitExceeded(f"{max!r} messages asked for; 1 to {RESERVE_MESSAGES_MAX} are allowed")
        return (await self.queue.verbs.reserve(self.queue.lane, self.name, self.epoch, batch, max))[0]

    async def read(self, batch: int, start: int = 0, max: int = RESERVE_MESSAGES_MAX) -> list[Reserved]:
        """As queue.reserved."""
        return await self.queue.reserved(self.name, batch, start, max)

    async def settle(self, batch: int) -> int:
        """Done with all batches up to this one. How many messages left; said again it finds none."""
        return await self.queue.verbs.reserve_settle(self.queue.lane, self.name, self.epoch, batch)

    def __repr__(self) -> str:
        return f"Reservation({self.name!r})"


class Reservable:
    """For the queue, which is one of these."""

    __slots__ = ()

    if TYPE_CHECKING:
        verbs: Verbs
        lane: Any

    async def reservation(self, name: str) -> Reservation:
        """Open a reservation. Whoever had opened it before is refused from now on; what it had set aside stays so, for whoever asks for the
        same batches."""
        utf8(name)
        return Reservation(self, name, *await self.verbs.reserve_open(self.lane, name))

    async def reserved(self, name: str, batch: int, start: int = 0, max: int = RESERVE_MESSAGES_MAX) -> list[Reserved]:
        """The messages of a batch that is open, from its `start`-th on. Whoever may receive may read it, also beside its owner."""
        held = await self.verbs.reserved(self.lane, *_range(name, batch, start, max))
        return [_reserved_of(self.verbs, one) for one in held]

    async def reserved_arrow(self, name: str, batch: int, start: int = 0, max: int = RESERVE_MESSAGES_MAX) -> ArrowBatch:
        """As many of the same as one frame takes, as an Arrow IPC stream; `next` counts within the batch."""
        return ArrowBatch(*await self.verbs.reserved_arrow(self.lane, *_range(name, batch, start, max)))

    async def reservations(self) -> list[ReservationFacts]:
        return await self.verbs.reservations(self.lane)

    async def release_reservation(self, name: str) -> int:
        """An operator's: everything that is set aside goes back to its place, and the owner is refused from now on. How many messages."""
        return await self.verbs.reserve_release(self.lane, name)

    async def close_reservation(self, name: str) -> int:
        """The same, and the name is forgotten."""
        return await self.verbs.reserve_close(self.lane, name)


def _reserved_of(verbs: Verbs, held: Held) -> Reserved:
    return Reserved(
        held.sequence,
        identity.id_text(held.id),
        held.body,
        held.group.decode() or None,
        decode_attributes(held.attributes),
        held.receives,
        held.sent_at_ms,
        held.first_received_ms,
        verbs.name_of(held.source) if held.source else None,
    )


def _range(name: str, batch: int, start: int, most: int) -> tuple[str, int, int, int]:
    utf8(name)
    if type(batch) is not int:
        raise BadRequest(f"{batch!r} is no batch: they are numbered from 0")
    if type(start) is not int or not 0 <= start <= RESERVE_MESSAGES_MAX:
        raise BadRequest(f"{start!r} is no place in a batch: they are counted from 0, up to {RESERVE_MESSAGES_MAX}")
    if type(most) is not int or not 1 <= most <= RESERVE_MESSAGES_MAX:
        raise LimitExceeded(f"{most!r} messages asked for; 1 to {RESERVE_MESSAGES_MAX} are allowed")
    return name, batch, start, most
