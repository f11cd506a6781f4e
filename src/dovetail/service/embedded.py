"""The verbs of a node in this process: the broker, the catalog and the store, in the words of the handles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from dovetail.core.operation import DEFAULT, Attributes, Published
from dovetail.errors import BadRequest, QueueExists
from dovetail.limits import BATCH_MESSAGES_MAX, WAIT_MS_MAX
from dovetail.service.broker import Broker
from dovetail.service.fact import Happened, happened
from dovetail.service.redrive import Redrive
from dovetail.service.verbs import Held, Receipts
from dovetail.stores.store import Counts, Delivery, Lane, Number, Outgoing, ReservationFacts, StageFacts, Stored, TapFacts, Tapped, Waiting

NAMESPACE = "default"
_NO_ARROW = "Arrow is what a server answers with: it spares its clients the objects. In the same process there is %s."
PAUSE_S = 0.05
"""Between two receives that got nothing. They wait for an hour each, except in a node that is about to stop."""


class Embedded:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._catalog = broker.catalog
        self._store = broker.store
        self.namespace = NAMESPACE

    @property
    def durability(self) -> str:
        return self._store.promises.durability

    # Queues

    async def find(self, namespace: str, name: str) -> Lane:
        if self._catalog.find(namespace, name) is None:
            await self._store.confirm()
        return self._catalog.get(namespace, name)

    async def declare(self, namespace: str, name: str, rules: Mapping[str, Any]) -> Lane:
        lane = self._catalog.find(namespace, name)
        if lane is None or _differ(lane, rules):
            try:
                return await self._catalog.create(namespace, name, Attributes(**rules))
            except QueueExists:
                # Somebody made it in the same moment; what counts are the rules that were named here.
                lane = self._catalog.get(namespace, name)
                if _differ(lane, rules):
                    raise
        return lane

    async def configure(self, place: Lane, rules: Mapping[str, Any]) -> None:
        await self._catalog.configure(place, **rules)

    async def drop(self, namespace: str, name: str) -> None:
        await self._catalog.drop(namespace, name)

    async def names(self, namespace: str, prefix: str) -> list[str]:
        return list(self._catalog.names(namespace, prefix))

    def name_of(self, queue: int) -> str | None:
        return self._catalog.name_of(queue)

    # In

    async def push_body(self, place: Lane, body: bytes) -> int:
        return (await self._broker.push_bodies(place, (body,)))[0]

    def push_bodies(self, place: Lane, bodies: Sequence[bytes]) -> Awaitable[Sequence[int]]:
        return self._broker.push_bodies(place, bodies)

    def push(self, place: Lane, messages: Sequence[Outgoing]) -> Awaitable[Sequence[Stored]]:
        return self._broker.push(place, messages)

    def push_all(
        self, places: Sequence[Lane], messages: Sequence[Outgoing], number: Number | None = None
    ) -> Awaitable[Sequence[Sequence[Stored]]]:
        return self._broker.push_all(places, messages, number)

    def complete_and_push(
        self, place: Lane, receipts: Receipts, targets: Sequence[Lane], messages: Sequence[Outgoing]
    ) -> Awaitable[Sequence[Sequence[Stored]]]:
        return self._broker.complete_and_push(place, _texts(receipts), targets, messages)

    # Out

    def receive(
        self, place: Lane, most: int, lease_ms: int, *, wait_ms: int = 0, delete: bool = False, attempt: bytes = b""
    ) -> Awaitable[list[Delivery]]:
        return self._broker.receive(place, most, lease_ms, wait_ms=wait_ms, delete=delete, attempt=attempt)

    def left(self, place: Lane, receiving: Awaitable[Sequence[Held]]) -> None:
        """A receive that is cancelled sees to it by itself."""

    def consume(self, place: Lane, messages: int, size: int, lease_ms: int, *, delete: bool = False) -> Pulled:
        return Pulled(self._broker, place, messages, size, lease_ms, delete)

    def complete(self, place: Lane, receipts: Receipts) -> Awaitable[list[bool]]:
        return self._broker.complete(place, _texts(receipts))

    def requeue(self, place: Lane, receipts: Receipts, after_ms: int = DEFAULT) -> Awaitable[list[bool]]:
        return self._broker.requeue(place, _texts(receipts), after_ms)

    def extend(self, place: Lane, receipts: Receipts, lease_ms: int = DEFAULT) -> Awaitable[list[bool]]:
        return self._broker.extend(place, _texts(receipts), lease_ms)

    def release(self, place: Lane, receipts: Receipts) -> Awaitable[list[bool]]:
        return place.release(_texts(receipts))

    def cancel(self, place: Lane, ids: Sequence[bytes | int]) -> Awaitable[list[bool]]:
        return place.cancel(ids)

    def reschedule(self, place: Lane, ids: Sequence[bytes | int], after_ms: int) -> Awaitable[list[bool]]:
        return self._broker.reschedule(place, ids, after_ms)

    def reclaim(self, place: Lane, ids: Sequence[bytes | int]) -> Awaitable[list[bool]]:
        return place.reclaim(ids)

    # Looking and ruling

    async def peek(self, place: Lane, most: int, after: int) -> list[Waiting]:
        return place.peek(most, after)

    async def counts(self, place: Lane) -> Counts:
        return place.counts()

    async def purge(self, place: Lane) -> int:
        return await place.purge()

    async def redrive(self, place: Lane, target: Lane | None, rate_per_s: float) -> Redrive:
        return self._broker.redrive(place, target, rate_per_s)

    # Taps

    async def tap_open(self, place: Lane, name: str, start: int, age_ms: int, size: int) -> int:
        return await place.tap_open(name, start, age_ms, size)

    async def taps(self, place: Lane) -> list[TapFacts]:
        return place.taps()

    async def tap_read(self, place: Lane, name: str, most: int, from_sequence: int | None) -> tuple[list[Tapped], int]:
        found = place.tap_read(name, most, from_sequence)
        if found:
            return found, found[-1].sequence + 1
        return found, next((tap.next for tap in place.taps() if tap.name == name), 0) if from_sequence is None else from_sequence

    async def tap_read_arrow(self, place: Lane, name: str, most: int, from_sequence: int | None) -> tuple[bytes, int]:
        raise BadRequest(_NO_ARROW % "Tap.read")

    async def tap_advance(self, place: Lane, name: str, sequence: int) -> int:
        return await place.tap_advance(name, sequence)

    async def tap_close(self, place: Lane, name: str) -> None:
        await place.tap_close(name)

    # Producers

    async def producer_open(self, identity: bytes) -> tuple[bytes, int, int]:
        return identity, *await self._store.producer_open(identity)

    async def producer_skip(self, number: Number) -> None:
        await self._store.producer_skip(number)

    # Stages

    def stage(self, name: bytes) -> Put:
        return Put(self._broker, name)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        return await self._broker.publish(stages, owner, batch)

    async def unstage(self, stages: Sequence[bytes], *, kept: bool = False) -> int:
        return await self._broker.unstage(stages)

    async def stages(self) -> list[StageFacts]:
        return self._store.stages()

    # Reservations

    async def reserve_open(self, place: Lane, name: str) -> tuple[int, int]:
        return await self._broker.reserve_open(place, name)

    async def reserve(self, place: Lane, name: str, epoch: int, batch: int, most: int) -> tuple[int, bool]:
        return await self._broker.set_aside(place, name, epoch, batch, most)

    async def reserved(self, place: Lane, name: str, batch: int, start: int, most: int) -> list[Delivery]:
        return [one for run in place.reserved(name, batch, start, most) for one in place.deliveries_of(run)]

    async def reserved_arrow(self, place: Lane, name: str, batch: int, start: int, most: int) -> tuple[bytes, int]:
        raise BadRequest(_NO_ARROW % "Reservation.read")

    async def reserve_settle(self, place: Lane, name: str, epoch: int, batch: int) -> int:
        return await self._broker.reserve_settle(place, name, epoch, batch)

    async def reserve_release(self, place: Lane, name: str) -> int:
        return await self._broker.reserve_release(place, name)

    async def reserve_close(self, place: Lane, name: str) -> int:
        return await self._broker.reserve_close(place, name)

    async def reservations(self, place: Lane) -> list[ReservationFacts]:
        return place.reservations()

    # Facts

    async def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> int:
        return await self._store.facts_open(namespace, name, start, age_ms, size)

    async def facts_taps(self, namespace: str) -> list[TapFacts]:
        return [tap for _, tap in self._store.facts_taps(namespace)]

    async def facts_read(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[list[Happened], int, int]:
        read = self._store.facts_read(namespace, name, most, from_number)
        return happened(read), read.next, read.end

    async def facts_read_arrow(self, namespace: str, name: str, most: int, from_number: int | None) -> tuple[bytes, int]:
        raise BadRequest(_NO_ARROW % "Facts.read")

    async def facts_advance(self, namespace: str, name: str, number: int) -> int:
        return await self._store.facts_advance(namespace, name, number)

    async def facts_close(self, namespace: str, name: str) -> None:
        await self._store.facts_close(namespace, name)


class Put:
    """A stage. Nothing is cut off in the same process, so nothing is numbered."""

    def __init__(self, broker: Broker, name: bytes) -> None:
        self._broker = broker
        self._name = name

    async def put(self, places: Sequence[Lane], messages: Sequence[Outgoing]) -> int:
        return await self._broker.stage(self._name, places, messages)


class Pulled:
    """Messages that come as they become visible, by receives that wait. Nothing is taken before somebody asks for it."""

    def __init__(self, broker: Broker, lane: Lane, messages: int, size: int, lease_ms: int, delete: bool) -> None:
        self._broker = broker
        self._lane = lane
        self._messages, self._size = messages, size
        self._lease_ms = lease_ms
        self._delete = delete
        self._given = asyncio.Event()
        self.came = ()
        self._waiting: asyncio.Future[list[Delivery]] | None = None
        self._stopped = False

    async def next(self) -> Sequence[Held]:
        while self._going():
            if self._messages <= 0 or self._size <= 0:
                self._given.clear()
                await self._given.wait()
                continue
            most = min(self._messages, BATCH_MESSAGES_MAX)
            receive = self._broker.receive(self._lane, most, self._lease_ms, wait_ms=WAIT_MS_MAX, delete=self._delete)
            self._waiting = asyncio.ensure_future(receive)
            try:
                got = await self._waiting
            except asyncio.CancelledError:
                # Cancelled with it, the receive takes no message with it. If it was `stop` that did so, there are no more.
                if self._going():
                    raise
                return ()
            if got:
                return await self._within(got)
            await asyncio.sleep(PAUSE_S)
        return ()

    def _going(self) -> bool:
        return not self._stopped

    async def _within(self, got: list[Delivery]) -> list[Delivery]:
        """As many as the credit of bytes allows, and one in any case; the others go back as if they had not been taken."""
        for kept, one in enumerate(got):
            if self._size <= 0 and kept and not self._delete:
                await self._lane.release([delivery.receipt for delivery in got[kept:]])
                got = got[:kept]
                break
            self._size -= len(one.body) + len(one.group) + len(one.attributes)
        self._messages -= len(got)
        return got

    def give(self, messages: int, size: int) -> None:
        self._messages += messages
        self._size += size
        self._given.set()

    async def stop(self) -> Sequence[Held]:
        self._stopped = True
        self._given.set()
        if self._waiting is not None:
            self._waiting.cancel()
        return ()


def _texts(receipts: Receipts) -> list[str]:
    return [one if isinstance(one, str) else one.receipt for one in receipts]


def _differ(lane: Lane, rules: Mapping[str, Any]) -> bool:
    return any(getattr(lane.attributes, rule) != value for rule, value in rules.items())
