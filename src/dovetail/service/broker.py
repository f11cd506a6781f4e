"""The broker: the verbs that every door calls. It puts the rooms of the service together and counts what goes through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from dovetail.clock import Clock
from dovetail.core.message import dedup_hash
from dovetail.core.operation import DEFAULT, Published
from dovetail.errors import BadRequest, Closed, DovetailError, LimitExceeded
from dovetail.limits import ATTEMPT_BYTES_MAX, BATCH_MESSAGES_MAX, DELAY_MS_MAX, LEASE_MS_MAX
from dovetail.service.catalog import Catalog
from dovetail.service.dequeue import Dequeue
from dovetail.service.meters import Meter, Meters
from dovetail.service.metrics import Registry
from dovetail.service.redrive import Redrive
from dovetail.stores.store import Delivery, FactsRead, Handed, Landed, Lane, Noted, Number, One, Outgoing, Reply, Store, Stored, Waiting

__all__ = [
    "Broker",
    "Delivery",
    "FactsRead",
    "Handed",
    "Landed",
    "Lane",
    "Noted",
    "Number",
    "One",
    "Outgoing",
    "Reply",
    "Stored",
    "Waiting",
    "dedup_hash",
]
"""With the words of the seam that doors use: they know the broker, and no store."""


class Broker:
    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.catalog = Catalog(store)
        self.dequeue = Dequeue(clock, store.now)
        self.metrics = Registry()
        self._clock = clock
        self._redrives: dict[int, Redrive] = {}
        self.meters = Meters(self.metrics)
        self._giving_up: set[asyncio.Task[None]] = set()
        store.on_commit(self.meters.commits.observe)

    async def push(self, lane: Lane, messages: Sequence[Outgoing], number: Number | None = None) -> list[Stored]:
        _check_delays(messages)
        stored = await lane.push(messages, number)
        self._count_pushed(lane, messages, stored)
        return stored

    async def push_bodies(self, lane: Lane, bodies: Sequence[bytes]) -> Sequence[int]:
        """Plain messages by their bodies alone; answers their sequences."""
        sequences = await lane.push_bodies(bodies)
        meter = self.meter(lane)
        meter.pushed.add(len(sequences))
        meter.bytes.add(sum(map(len, bodies)))
        return sequences

    async def push_all(self, lanes: Sequence[Lane], messages: Sequence[Outgoing], number: Number | None = None) -> list[list[Stored]]:
        """To several queues, stored once; all or nothing."""
        _check_delays(messages)
        answers = await self.store.push_all([lane.queue for lane in lanes], messages, number)
        for lane, stored in zip(lanes, answers, strict=True):
            self._count_pushed(lane, messages, stored)
        return answers

    async def receive(
        self, lane: Lane, most: int, lease_ms: int = DEFAULT, *, wait_ms: int = 0, delete: bool = False, attempt: bytes = b""
    ) -> list[Delivery]:
        if lease_ms != DEFAULT and not 0 <= lease_ms <= LEASE_MS_MAX:
            raise LimitExceeded(f"a lease of {lease_ms} ms; 0 to {LEASE_MS_MAX} are allowed")
        if len(attempt) > ATTEMPT_BYTES_MAX:
            raise LimitExceeded(f"an attempt id has at most {ATTEMPT_BYTES_MAX} bytes")
        if type(most) is not int or not 1 <= most <= BATCH_MESSAGES_MAX:
            raise LimitExceeded(f"{most!r} messages asked for; 1 to {BATCH_MESSAGES_MAX} are allowed")
        got = await self.dequeue.receive(lane, most, lease_ms, wait_ms=wait_ms, delete=bool(delete), attempt=attempt)
        if got:
            self.meter(lane).count_delivered(got)
        return got

    async def complete(self, lane: Lane, receipts: Sequence[str]) -> list[bool]:
        done = await lane.complete(receipts)
        self.meter(lane).completed.add(sum(done))
        return done

    def give_up(self, lane: Lane, receipts: Sequence[str]) -> None:
        """The receiver left before it could be answered: the deliveries are undone, as if they had never been."""

        async def release() -> None:
            with contextlib.suppress(DovetailError):  # The lease ends by itself then.
                await lane.release(receipts)

        task = asyncio.get_running_loop().create_task(release())
        self._giving_up.add(task)
        task.add_done_callback(self._giving_up.discard)

    async def complete_and_push(
        self, lane: Lane, receipts: Sequence[str], targets: Sequence[Lane], messages: Sequence[Outgoing]
    ) -> list[list[Stored]]:
        """Complete and send in one step: all of it happens, or none."""
        _check_delays(messages)
        answers = await self.store.complete_and_push(receipts, [target.queue for target in targets], messages)
        self.meter(lane).completed.add(len(receipts))
        for target, stored in zip(targets, answers, strict=True):
            self._count_pushed(target, messages, stored)
        return answers

    async def requeue(self, lane: Lane, receipts: Sequence[str], after_ms: int = DEFAULT) -> list[bool]:
        _check_duration("delay", after_ms, DELAY_MS_MAX)
        return await lane.requeue(receipts, after_ms)

    async def extend(self, lane: Lane, receipts: Sequence[str], lease_ms: int = DEFAULT) -> list[bool]:
        _check_duration("lease", lease_ms, LEASE_MS_MAX)
        return await lane.extend(receipts, lease_ms)

    async def reschedule(self, lane: Lane, ids: Sequence[bytes | int], after_ms: int) -> list[bool]:
        _check_duration("delay", after_ms, DELAY_MS_MAX)
        return await lane.reschedule(ids, max(after_ms, 0))

    # Stages and reservations

    async def stage(self, stage: bytes, lanes: Sequence[Lane], messages: Sequence[Outgoing]) -> int:
        """Put messages by, to be published with others; how many."""
        _check_delays(messages)
        return await self.store.stage(stage, [lane.queue for lane in lanes], messages)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        """Everything that was staged there joins its queues now, or nothing does. Messages count as sent from here on."""
        published = await self.store.publish(stages, owner, batch)
        for joined in published.joined:
            meter = self.meters.of(joined.queue)
            meter.pushed.add(joined.messages)
            meter.bytes.add(joined.bytes)
            if joined.repeats:
                meter.repeats.add(joined.repeats)
        return published

    async def unstage(self, stages: Sequence[bytes]) -> int:
        return await self.store.unstage(stages)

    async def reserve_open(self, lane: Lane, name: str) -> tuple[int, int]:
        """(epoch, the last batch that was given out, or -1)"""
        return await lane.reserve_open(name)

    async def reserve(self, lane: Lane, name: str, epoch: int, batch: int, most: int) -> list[Delivery]:
        """The messages of a batch, the same whenever it is asked for. They have no receipts: the batch is settled as a whole."""
        got = await lane.reserve(name, epoch, batch, most)
        self.meter(lane).delivered.add(len(got))
        return got

    async def set_aside(self, lane: Lane, name: str, epoch: int, batch: int, most: int) -> tuple[int, bool]:
        """The same without a look at them: (how many they are, whether they were set aside before)."""
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        lane.reserve_for(told, name, epoch, batch, most)
        count, again = lane.set_aside_count(await told)
        if not again:
            self.meter(lane).delivered.add(count)
        return count, again

    async def reserve_settle(self, lane: Lane, name: str, epoch: int, batch: int) -> int:
        """Done with all batches up to this one."""
        count = await lane.reserve_settle(name, epoch, batch)
        self.meter(lane).completed.add(count)
        return count

    async def reserve_release(self, lane: Lane, name: str) -> int:
        """An operator's: everything that is set aside goes back, and the owner is refused from now on."""
        return await lane.reserve_release(name)

    async def reserve_close(self, lane: Lane, name: str) -> int:
        """The same, and the name is forgotten."""
        return await lane.reserve_close(name)

    def redrive(self, source: Lane, target: Lane | None, rate_per_s: float) -> Redrive:
        """Start moving dead letters back. One task at a time for each source."""
        running = self._redrives.get(source.queue)
        if running is not None and running.active:
            raise LimitExceeded("A redrive of this queue is under way; cancel it first.")
        if target is not None and target.attributes.grouped != source.attributes.grouped:
            raise BadRequest("Messages of a queue with groups go to a queue with groups, and others to one without.")
        made = Redrive(source, target.queue if target is not None else 0, rate_per_s, self._sleep)
        self._redrives[source.queue] = made
        return made

    def redrive_of(self, source: Lane) -> Redrive | None:
        """The last one of this queue that was started since the node was."""
        return self._redrives.get(source.queue)

    def stop_waiting(self) -> None:
        """The node is about to stop: whoever waits for messages is answered now, without any."""
        self.dequeue.end_waiting()

    def fail(self, error: DovetailError) -> None:
        """The store has stopped: nobody waits in vain."""
        self.dequeue.close(error)

    async def close(self) -> None:
        self.dequeue.close(Closed())
        for task in self._redrives.values():
            if task.active:
                await task.cancel()

    async def _sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        handle = self._clock.call_at(self._clock.boot_ms() + round(seconds * 1000), woken.set)
        try:
            await woken.wait()
        finally:
            handle.cancel()

    def meter(self, lane: Lane) -> Meter:
        return self.meters.of(lane.queue)

    def render_metrics(self) -> str:
        """Everything that is counted, and the depth of every queue as it is now."""
        self.meters.look(self.store, self.dequeue.waiting)
        return self.metrics.render()

    async def metrics_page(self, beside: Sequence[Registry] = ()) -> bytes:
        """The same in small steps, together with what others count: with thousands of queues nobody is held up."""
        return await self.meters.page(self.store, self.dequeue.waiting, beside)

    def _count_pushed(self, lane: Lane, messages: Sequence[Outgoing], stored: Sequence[Stored]) -> None:
        meter = self.meter(lane)
        repeats = sum(one.repeat for one in stored)
        meter.pushed.add(len(stored) - repeats)
        meter.bytes.add(sum(len(one.body) for one in messages))
        if repeats:
            meter.repeats.add(repeats)


def _check_delays(messages: Sequence[Outgoing]) -> None:
    for message in messages:
        _check_duration("delay", message.delay_ms, DELAY_MS_MAX)


def _check_duration(what: str, value: int, most: int) -> None:
    if value != DEFAULT and not 0 <= value <= most:
        raise LimitExceeded(f"a {what} of {value} ms; 0 to {most} are allowed")
