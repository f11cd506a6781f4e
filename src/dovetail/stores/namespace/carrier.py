"""Who carries messages from log to log: each node, for the logs that it serves. The steps are in core/moves.py.

    source log   a Leave, or a Pop that met a dead letter        (set aside, under a number)
    target log   Arrive                                          (judged once)
    source log   MoveSettle                                      (gone, or back)
    target log   Forget                                          (when nothing up to there is under way any more)

The keeper of the source's log does it at once. A move that makes no progress for PATIENCE_MS is carried on by whoever serves that log: the
keeper may have died in the middle, and a log in which nobody writes has no time by which it would be silent. Every step may be said twice,
so nobody asks who does what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.core import operation as op
from dovetail.core.codec import Item
from dovetail.core.column import Column
from dovetail.core.lane import Lane
from dovetail.core.operation import Done, Push, Refusal
from dovetail.errors import Closed, Damaged, DovetailError
from dovetail.limits import ENTRY_BYTES_TARGET
from dovetail.stores.batches import error_of

if TYPE_CHECKING:
    from dovetail.stores.namespace.log import NamespaceLane, NamespaceLog
    from dovetail.stores.namespace.store import NamespaceStore

PATIENCE_MS = 2_000
SWEEP_MS = 500
BATCH_MESSAGES = 256
FORGET_BATCHES = 16
AWAITED_MS = 10_000

_logger = logging.getLogger("dovetail.stores.namespace")

Pair = tuple[int, int]


class Carrier:
    def __init__(self, namespace: NamespaceStore) -> None:
        self._namespace = namespace
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Pair, asyncio.Task[None]] = {}
        self._since: dict[Pair, tuple[int, int]] = {}
        """The lowest number that is under way, and since when that is so."""
        self._news: asyncio.Future[None] | None = None
        self._looking: set[NamespaceLog] = set()
        self._sweep: asyncio.Task[None] | None = self._loop.create_task(self._look_now_and_then())
        self._error: DovetailError | None = None
        self.carried = 0

    async def stop(self) -> None:
        tasks = [*self._tasks.values(), *([self._sweep] if self._sweep is not None else [])]
        self._sweep = None
        self.fail(Closed())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fail(self, error: DovetailError) -> None:
        """Whoever waits for a move waits no longer; it goes on where another node serves the log."""
        self._error = error
        self._tell()

    # When

    def applied(self, store: NamespaceLog) -> None:
        """An entry was applied. What it set off is looked at once, behind all that come in this turn."""
        if (store.state.leaving or self._news is not None) and store not in self._looking:
            self._looking.add(store)
            self._loop.call_soon(self._look, store)

    async def _look_now_and_then(self) -> None:
        clock = self._namespace.clock
        while True:
            woken = asyncio.Event()
            handle = clock.call_at(clock.boot_ms() + SWEEP_MS, woken.set)
            try:
                await woken.wait()
            finally:
                handle.cancel()
            for store in self._namespace.opened():
                self._look(store)

    def _look(self, store: NamespaceLog) -> None:
        self._looking.discard(store)
        self._tell()
        if self._sweep is None or store.failed is not None:
            return
        now, keeper = self._namespace.clock.boot_ms(), store.chores.keeper()
        for pair in store.state.leaving:
            lowest = store.state.lanes[pair[0]].departures[pair[1]].settled()
            if self._since.get(pair, (-1, 0))[0] != lowest:
                self._since[pair] = lowest, now
            if pair not in self._tasks and (keeper or now - self._since[pair][1] >= PATIENCE_MS):
                self._tasks[pair] = self._loop.create_task(self._carry(store, pair))

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    # Carrying

    async def _carry(self, store: NamespaceLog, pair: Pair) -> None:
        """All that is under way between two queues, batch by batch."""
        progress = True
        try:
            there = await self._namespace.open_for(pair[1])
            batches = 0
            while progress and pair in store.state.leaving:
                progress = await self._carry_some(store, there, *pair)
                batches += 1
                if not batches % FORGET_BATCHES:
                    # Where more keeps coming there is no end, and every judgement would stay in the state.
                    await self._forget(store, there, *pair)
            await self._forget(store, there, *pair)
        except DovetailError as error:
            progress = False
            if self._sweep is not None:
                _logger.info("moves from queue %d to %d go on later: %s", *pair, error)
        finally:
            del self._tasks[pair]
        if progress:
            self.applied(store)

    async def _carry_some(self, store: NamespaceLog, there: NamespaceLog, source: int, target: int) -> bool:
        """The lowest numbers that are under way; False where the target answers none of them, because they are settled already."""
        arriving = list(self._arriving(store, store.state.lanes[source], target))
        answers = await asyncio.gather(*[there.committer.submit(one) for one in arriving], return_exceptions=True)
        told = [(one.number, answer.value) for one, answer in zip(arriving, answers, strict=True) if isinstance(answer, Done)]
        if told:
            self.carried += len(told)
            await store.committer.submit(op.MoveSettle(source, target, [number for number, _ in told], [at for _, at in told]))
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return bool(told)

    def _arriving(self, store: NamespaceLog, lane: Lane, target: int) -> Iterator[op.Arrive]:
        size = 0
        for number, leaving in list(lane.departures[target].under_way.items())[:BATCH_MESSAGES]:
            place = lane.find(leaving.sequence)
            assert place is not None
            address, item = place[0].place(place[1])
            record = store.log.fetch(address)
            if record is None:
                raise Damaged(f"the record at address {address} of queue {lane.queue} is not in the log")
            one, origin = Item(record, item), place[0].origin_from(place[1], lane.queue)
            push = Push(
                (target,),
                Column.of([one.body]),
                groups=Column.of([one.group]) if one.group else None,
                ids=one.id or None,
                attributes=Column.of([one.attributes]) if one.attributes else None,
            )
            yield op.Arrive(lane.queue, number, origin.queue, origin.sequence, origin.time, push)
            size += len(one.body) + len(one.attributes)
            if size >= ENTRY_BYTES_TARGET:
                return

    async def _forget(self, store: NamespaceLog, there: NamespaceLog, source: int, target: int) -> None:
        lane, known = store.state.lanes.get(source), there.state.arrivals.get((source, target))
        if lane is not None and known is not None and target in lane.departures:
            settled = lane.departures[target].settled()
            if settled > known.low:
                await there.committer.submit(op.Forget(source, target, settled))

    # Redrive

    async def move(self, handle: NamespaceLane, store: NamespaceLog, target: int, most: int) -> int:
        """As a lane moves messages, wherever the target lies; without one, each to where it came from. Answers when they are there, or
        after AWAITED_MS: they have set out and will arrive, but a log that cannot be had must not hold whoever asked, or the node's end."""
        source = handle.queue
        moved = 0 if target and store.elsewhere(target) else await handle.move_here(target, most)
        targets = [target] if target else self._origins(store, source)
        numbers: dict[int, int] = {}
        for one in [one for one in targets if store.elsewhere(one)]:
            if moved < most:
                outcome = await store.committer.submit(op.Leave(source, one, most - moved, returning=not target))
                if isinstance(outcome, Refusal) and target:
                    raise error_of(outcome)
                moved += outcome.value if isinstance(outcome, Done) else 0
                lane = store.state.lanes.get(source)
                if lane is not None and one in lane.departures:
                    numbers[one] = lane.departures[one].next - 1
        clock = self._namespace.clock
        until = clock.boot_ms() + AWAITED_MS
        alarm = clock.call_at(until, self._tell)
        try:
            while self._under_way(store, source, numbers) and clock.boot_ms() < until:
                await self._changed(store)
        finally:
            alarm.cancel()
        return moved

    @staticmethod
    def _origins(store: NamespaceLog, source: int) -> Sequence[int]:
        """The queues from which its messages came, as far as there are some from elsewhere."""
        lane = store.state.lanes.get(source)
        chunks = lane.chunks.values() if lane is not None else ()
        return sorted({queue for chunk in chunks if chunk.origins is not None for queue in chunk.origins[2] if queue})

    @staticmethod
    def _under_way(store: NamespaceLog, source: int, numbers: dict[int, int]) -> bool:
        lane = store.state.lanes.get(source)
        return lane is not None and any(lane.departures[target].settled() < number for target, number in numbers.items())

    async def _changed(self, store: NamespaceLog) -> None:
        """Until something was applied, here or there."""
        if self._error is not None:
            raise self._error
        if store.failed is not None or store.log.cut is not None:
            raise store.log.cut or Closed()
        if self._news is None:
            self._news = self._loop.create_future()
        await asyncio.shield(self._news)
