"""The verbs of reservations over a replayed lane: batches of messages that are set aside for a named owner, the same whenever asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from dovetail.core import message, reserving
from dovetail.core import operation as op
from dovetail.core.codec import Item
from dovetail.core.operation import Done, Opened, Outcome, Refusal, Reserved, Taken
from dovetail.core.reservations import Batch
from dovetail.errors import BatchRefused, LimitExceeded, NoSuchReservation
from dovetail.limits import RESERVATION_NAME_BYTES_MAX, RESERVE_MESSAGES_MAX
from dovetail.stores.batches import check_number, error_of
from dovetail.stores.store import Delivery, Handed, Reply, ReservationFacts

if TYPE_CHECKING:
    from dovetail.core.lane import Lane
    from dovetail.stores.replayed import Replayed


class ReplayedReserving:
    """A batch on its way through the committer."""

    def __init__(self, lane: LaneReservations, future: asyncio.Future[Any]) -> None:
        self._lane = lane
        self._future = future

    def __await__(self) -> Generator[Any, None, list[Delivery]]:
        answer = yield from self._future
        return [one for run in self._lane.set_aside(answer) for one in self._lane.deliveries_of(run)]

    async def runs(self) -> list[Handed]:
        return self._lane.set_aside(await self._future)


class LaneReservations:
    """For the lane, which is one of these."""

    if TYPE_CHECKING:
        _store: Replayed
        _lane: Lane

        def _alive(self) -> Lane: ...

        def _run_of(self, run: Taken, at: int, length: int, until: int) -> Handed: ...

    async def reserve_open(self, name: str) -> tuple[int, int]:
        _check_name(name)
        outcome = await self._submitted(op.ReserveOpen(self._alive().queue, name))
        assert isinstance(outcome, Opened)
        return outcome.epoch, outcome.last

    def reserve(self, name: str, epoch: int, batch: int, most: int) -> ReplayedReserving:
        future: asyncio.Future[Any] = self._store.loop.create_future()
        self.reserve_for(future, name, epoch, batch, most)
        return ReplayedReserving(self, future)

    def reserve_for(self, reply: Reply, name: str, epoch: int, batch: int, most: int) -> None:
        if type(most) is not int or not 1 <= most <= RESERVE_MESSAGES_MAX:
            raise LimitExceeded(f"{most!r} messages asked for; 1 to {RESERVE_MESSAGES_MAX} are allowed")
        check_number(batch)
        self._store.committer.submit_for(reply, op.Reserve(self._alive().queue, name, epoch, batch, most))

    def set_aside(self, answer: Reserved | Refusal) -> list[Handed]:
        if isinstance(answer, Refusal):
            raise error_of(answer)
        return [self._run_of(run, 0, run.length, 0) for run in answer.taken]

    def set_aside_count(self, answer: Reserved | Refusal) -> tuple[int, bool]:
        if isinstance(answer, Refusal):
            raise error_of(answer)
        return sum([run.length for run in answer.taken]), answer.again

    def reserved(self, name: str, batch: int, start: int = 0, most: int = -1) -> list[Handed]:
        runs: list[Handed] = []
        for run in self._taken(self._batch(name, batch), start):
            if not most:
                break
            length = run.length if most < 0 else min(run.length, most)
            most -= length if most > 0 else 0
            runs.append(self._run_of(run, 0, length, 0))
        return runs

    def reserved_runs(self, name: str, batch: int, start: int = 0) -> tuple[int, Iterator[Handed]]:
        found = self._batch(name, batch)
        return len(found), (self._run_of(run, 0, run.length, 0) for run in self._taken(found, start))

    def _batch(self, name: str, batch: int) -> Batch:
        known = self._alive().reservations.get(name)
        if known is None:
            raise NoSuchReservation
        found = known.batches.get(batch)
        if found is None:
            raise BatchRefused(f"Batch {batch} of the reservation {name!r} is not open.")
        return found

    def _taken(self, batch: Batch, start: int) -> Iterator[Taken]:
        return reserving.taken(self._lane, batch, start)

    def deliveries_of(self, run: Handed) -> list[Delivery]:
        """The same as objects, without receipts."""
        queue, salt, made = self._lane.queue, self._store.state.salt, []
        for offset in range(run.length):
            item, sequence = Item(run.record, run.item + offset), run.sequence + offset
            identity = item.id if any(item.id) else run.id or message.id_of(queue, sequence, salt)
            times = run.sent_at_ms, run.first_received_ms, 0
            made.append(Delivery("", identity, sequence, item.body, item.group, item.attributes, run.receives, *times, run.source))
        return made

    async def reserve_settle(self, name: str, epoch: int, batch: int) -> int:
        check_number(batch)
        return await self._count(op.ReserveSettle(self._alive().queue, name, epoch, batch))

    async def reserve_release(self, name: str) -> int:
        return await self._count(op.ReserveRelease(self._alive().queue, name))

    async def reserve_close(self, name: str) -> int:
        return await self._count(op.ReserveClose(self._alive().queue, name))

    def reservations(self) -> list[ReservationFacts]:
        return [
            ReservationFacts(name, known.epoch, known.last, known.settled, {number: len(one) for number, one in known.batches.items()})
            for name, known in self._alive().reservations.items()
        ]

    async def _submitted(self, operation: op.Reserving) -> Outcome:
        outcome = await self._store.committer.submit(operation)
        if isinstance(outcome, Refusal):
            raise error_of(outcome)
        return outcome

    async def _count(self, operation: op.Reserving) -> int:
        outcome = await self._submitted(operation)
        assert isinstance(outcome, Done)
        return outcome.value


def _check_name(name: str) -> None:
    if not 1 <= len(name.encode()) <= RESERVATION_NAME_BYTES_MAX:
        raise LimitExceeded(f"a reservation's name has 1 to {RESERVATION_NAME_BYTES_MAX} bytes")
