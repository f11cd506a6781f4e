"""The replayed store: the core over any log. The state is what replaying the log gives; a reply states what apply said.

Opening: the newest snapshot whose checksum holds, or the next older one, then the log from there to its tail; then one Open of our own, and
the store is ready. A trimmed log without a usable snapshot is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from dovetail.clock import Clock
from dovetail.core import codec, moved, receipts
from dovetail.core import operation as op
from dovetail.core.lane import Lane as CoreLane
from dovetail.core.operation import Attributes, Done, Head, Opened, Operation, Outcome, Refusal, Why
from dovetail.core.state import State
from dovetail.core.taps import Run
from dovetail.core.versions import APPLY_VERSION
from dovetail.errors import CodecError, Damaged, DovetailError, LimitExceeded, NoSuchQueue, ReceiptInvalid, StorageError
from dovetail.limits import BODY_BYTES_MAX, ENTRY_BYTES_MIN, QUEUES_PER_PUSH_MAX
from dovetail.logs.log import Entry, Log
from dovetail.stores.batches import check_batch, error_of, push_of, pushed_to, stored
from dovetail.stores.chores import Chores
from dovetail.stores.columns import StoreColumns
from dovetail.stores.committer import Committer
from dovetail.stores.entrytime import EntryTime
from dovetail.stores.facts import StoreFacts
from dovetail.stores.lanes import ReplayedLane
from dovetail.stores.snapshots import Snapshots, tap_stretch
from dovetail.stores.stages import StoreStages
from dovetail.stores.store import Number, Outgoing, Promises, Stored

_logger = logging.getLogger("dovetail.stores")

OPERATION_COST_BYTES = 3000
"""Replaying an operation costs 20 to 35 µs, about what reading this many bytes costs: a tail of tiny operations is due for a snapshot
earlier. (At 1,000 the longest tail of single operations took 6 s to replay.)"""


class Replay(NamedTuple):
    """What opening found."""

    snapshot_position: int
    entries: int
    operations: int
    seconds: float


class Replayed(StoreColumns, StoreStages, StoreFacts):
    """Open with `await Replayed.open(log, clock)`, end with `await close()`."""

    _lane_type = ReplayedLane

    def __init__(self, log: Log, clock: Clock, snapshot_bytes: int) -> None:
        StoreColumns.__init__(self)
        StoreFacts.__init__(self)
        if log.entry_bytes_max < ENTRY_BYTES_MIN:
            raise StorageError(f"The log takes entries of {log.entry_bytes_max} bytes; at least {ENTRY_BYTES_MIN} are needed.")
        self.log = log
        self.clock = clock
        self.promises = Promises(
            order="strict",
            duplicates="none",
            fencing=True,
            durability=log.durability,
            groups=True,
            taps=True,
            transactions=True,
            numbering=True,
            dedup_scope="queue",
            bytes_max=BODY_BYTES_MAX,
            fresh_counts=True,
            facts=True,
        )
        self.snapshots = Snapshots(log)
        self.watchers: dict[int, Callable[[int], None]] = {}
        self.failed: BaseException | None = None
        self.on_fail: Callable[[DovetailError], None] | None = None
        self._lanes: dict[int, ReplayedLane] = {}
        self.state, self.replay, self.tail_cost = self._replay()
        self.loop = asyncio.get_running_loop()
        self.time, self.committer, self.chores = self._rooms(snapshot_bytes)

    def _rooms(self, snapshot_bytes: int) -> tuple[EntryTime, Committer, Chores]:
        """A store on a shared log has others."""
        time = EntryTime(self.clock, self.state.time, self.state.ahead_s)
        return time, Committer(self.log, time, self._applied), Chores(self, snapshot_bytes)

    @classmethod
    async def open(cls, log: Log, clock: Clock, *, snapshot_bytes: int) -> Replayed:
        store = cls(log, clock, snapshot_bytes)
        log.start(store.committer.deliver, store._fail)
        if not store.state.key:
            await store.committer.submit(op.Begin(os.urandom(32)))
        outcome = await store.committer.submit(op.Open(os.urandom(16), APPLY_VERSION))
        if isinstance(outcome, Refusal):
            raise StorageError(f"This node speaks apply version {APPLY_VERSION}; the log has gone on to {store.state.version}.")
        await store._finish_queues()
        store.chores.start()
        return store

    async def close(self) -> None:
        """Answer what is under way, then let go of the log."""
        await self.chores.stop()
        await self.committer.drain()
        self.committer.close()
        self.log.close()

    # Replaying

    def _replay(self) -> tuple[State, Replay, int]:
        began = time.perf_counter()
        state = self.snapshots.newest(self.log.first)
        if state is None:
            if self.log.first > 0:
                raise StorageError(f"The log begins at position {self.log.first} and there is no snapshot that reaches it.")
            state = State()
        start, entries, operations, cost = state.position, 0, 0, 0
        for entry in self.log.read(max(start, self.log.first)):
            decoded = self._decoded(entry, state.key)
            self._apply(state, entry, *decoded)
            entries += 1
            operations += len(decoded[1])
            cost += sum(map(len, entry.records)) + OPERATION_COST_BYTES * len(decoded[1])
        seconds = time.perf_counter() - began
        _logger.info("replayed %d entries (%d operations) from %d in %.2f s", entries, operations, start, seconds)
        return state, Replay(start, entries, operations, seconds), cost

    @staticmethod
    def _decoded(entry: Entry, key: bytes) -> tuple[Head, list[Operation]]:
        try:
            first, *operations = entry.records
            head = codec.decode_head(first)
            if moved.passed(head, entry.records, key):
                return head, []
            return head, [codec.decode(record) for record in operations]
        except CodecError as error:
            raise Damaged(f"the entry at position {entry.position} cannot be read: {error}") from None

    @staticmethod
    def _apply(state: State, entry: Entry, head: Head, operations: Sequence[Operation]) -> Sequence[Outcome]:
        return state.apply(entry.after, head, operations, entry.addresses[1:]).outcomes

    def _applied(self, entry: Entry, head: Head, operations: Sequence[Operation]) -> Sequence[Outcome]:
        outcomes = self._apply(self.state, entry, head, operations)
        self._look_at(entry, operations)
        return outcomes

    def _look_at(self, entry: Entry, operations: Sequence[Operation]) -> None:
        """It was applied: what else there is to do."""
        self.chores.count(sum(map(len, entry.records)) + OPERATION_COST_BYTES * len(operations))
        if self.watchers:
            for queue in self._touched(operations, self.watchers):
                changed = self.watchers.get(queue)
                if changed is not None:
                    # Something may be visible now.
                    changed(0)

    def _touched(self, operations: Sequence[Operation], watched: Mapping[int, object]) -> list[int]:
        """Those of the watched queues that these operations may have changed."""
        touched: list[int] = []
        for operation in operations:
            if isinstance(operation, op.Push):
                touched += operation.queues
            elif isinstance(operation, op.CompletePush):
                touched += (operation.complete.queue, *operation.push.queues)
            elif isinstance(operation, op.Pop):
                lane = self.state.lanes.get(operation.queue)
                touched += (operation.queue, lane.attributes.dead_letter if lane is not None else 0)
            elif isinstance(operation, op.Arrive):
                touched += operation.push.queues
            elif isinstance(operation, op.MoveSettle):
                touched.append(operation.source)
            elif isinstance(operation, op.Move | op.Publish):
                # Each message may have gone back to another queue; stages may have named any.
                touched += watched
            else:
                touched.append(getattr(operation, "queue", 0))
        return [queue for queue in touched if queue in watched]

    def pushing(self, queue: int, count: int) -> None:
        """A push was submitted: whoever waits for it may submit a pop now, and both share one sync."""
        changed = self.watchers.get(queue)
        if changed is not None:
            changed(count)

    def _fail(self, error: BaseException) -> None:
        self.failed = error
        self.committer.fail(error)
        if self.on_fail is not None:
            self.on_fail(error if isinstance(error, DovetailError) else StorageError(str(error)))

    def on_commit(self, observe: Callable[[float], None]) -> None:
        self.committer.on_commit = observe

    def facts(self) -> Mapping[str, tuple[float, str]]:
        chores = self.chores
        return {
            "dovetail_log_bytes": (self.log.bytes_kept, "Bytes of log that are kept."),
            "dovetail_log_entries": (self.committer.entries, "Entries committed since the start."),
            "dovetail_log_refused_full": (self.committer.refused_full, "Entries refused because the disk was full."),
            "dovetail_snapshots": (chores.snapshots, "Snapshots made since the start."),
            "dovetail_snapshot_failures": (chores.failures, "Snapshots that could not be made."),
            "dovetail_messages_carried": (chores.carried, "Messages written again so that old log could be trimmed."),
            **self.stage_facts(),
            "dovetail_facts_bytes": (self.facts_bytes, "Bytes of facts that are kept for facts taps, in memory and beside the log."),
            "dovetail_replay_seconds": (self.replay.seconds, "How long the last start replayed the log."),
            "dovetail_clock_ahead_seconds": (self.time.drift_ms() / 1000, "Wall clock less entry time; look when it leaves ±2."),
        }

    @property
    def rules_version(self) -> int:
        return self.state.rules_version

    # Time

    def now(self) -> int:
        return self.time.now()

    async def retime(self) -> int:
        """Move the log's time forward to the wall clock, after a clock that was wrong has been set right; returns by how much."""
        ahead = self.time.drift_ms()
        if ahead <= 0:
            return 0
        await self.committer.submit(op.Retime(self.now() + ahead))
        self.time.catch_up(self.state.time)
        return ahead

    # Queues

    async def _finish_queues(self) -> None:
        """A crash between a queue's name and its lane leaves a name without a lane: nobody was told, so the name goes."""
        for queue in [queue for queue in self.state.catalog.by_id if queue not in self.state.lanes]:
            await self.committer.submit(op.Unregister(queue))

    def lane(self, queue: int) -> ReplayedLane | None:
        lane = self.state.lanes.get(queue)
        if lane is None:
            self._lanes.pop(queue, None)
            return None
        known = self._lanes.get(queue)
        if known is None:
            known = self._lanes[queue] = self._lane_type(self, lane)
        return known

    async def reach(self, queue: int) -> None:
        """Everything is at hand."""

    async def snapshot(self) -> None:
        await self.chores.snapshot()

    async def confirm(self) -> bool:
        return False

    def find(self, namespace: str, name: str) -> int | None:
        return self.state.catalog.get(namespace, name)

    def queues(self, namespace: str) -> Iterator[tuple[str, int]]:
        return iter([(name, queue) for (space, name), queue in self.state.catalog.by_name.items() if space == namespace])

    def all_queues(self) -> list[tuple[str, str, int]]:
        return [(space, name, queue) for (space, name), queue in self.state.catalog.by_name.items()]

    def name_of(self, queue: int) -> tuple[str, str] | None:
        return self.state.catalog.by_id.get(queue)

    async def create(self, namespace: str, name: str, attributes: Attributes) -> int:
        """Catalog first, then the lane. Both steps can be repeated, so two callers that make the same queue get the same one."""
        outcome = await self.committer.submit(op.Register(namespace, name))
        if isinstance(outcome, Refusal):
            if outcome.why is not Why.NAME_TAKEN:
                raise error_of(outcome)
            queue = int(outcome.detail)
        else:
            assert isinstance(outcome, Done)
            queue = outcome.value
        created = await self.committer.submit(op.Create(queue, attributes))
        if isinstance(created, Refusal):
            raise error_of(created)
        return queue

    async def configure(self, queue: int, attributes: Attributes) -> None:
        outcome = await self.committer.submit(op.Configure(queue, attributes))
        if isinstance(outcome, Refusal):
            raise error_of(outcome)

    async def drop(self, queue: int) -> None:
        """Lane first, then catalog; a caller that leaves in between does not leave a name without a lane."""
        await asyncio.shield(self._dropped(queue, self.committer.submit(op.Drop(queue))))

    async def _dropped(self, queue: int, submitted: asyncio.Future[Outcome]) -> None:
        outcome = await submitted
        if isinstance(outcome, Refusal):
            raise error_of(outcome)
        await self.committer.submit(op.Unregister(queue))
        self._lanes.pop(queue, None)

    # Across lanes

    async def push_all(self, queues: Sequence[int], messages: Sequence[Outgoing], number: Number | None = None) -> list[list[Stored]]:
        self._check_queues(queues, exist=number is None)
        check_batch(messages)
        submitted = self.committer.submit(push_of(queues, messages, number))
        for queue in queues:
            self.pushing(queue, len(messages))
        outcome = await submitted
        return [stored(pushed, messages, self.state.salt) for pushed in pushed_to(outcome)]

    async def complete_and_push(self, texts: Sequence[str], queues: Sequence[int], messages: Sequence[Outgoing]) -> list[list[Stored]]:
        self._check_queues(queues)
        check_batch(messages)
        opened = [receipts.unseal(self.state.key, text) for text in texts]
        if not opened or any(receipt.queue != opened[0].queue for receipt in opened):
            raise ReceiptInvalid("The receipts of one step belong to one queue.")
        complete = op.Complete(opened[0].queue, [receipt.sequence for receipt in opened], [receipt.delivery for receipt in opened])
        submitted = self.committer.submit(op.CompletePush(complete, push_of(queues, messages, None)))
        for queue in queues:
            self.pushing(queue, len(messages))
        outcome = await submitted
        return [stored(pushed, messages, self.state.salt) for pushed in pushed_to(outcome)]

    def _check_queues(self, queues: Sequence[int], *, exist: bool = True) -> None:
        """A numbered push to a queue that is gone is left to apply: its number has an outcome then."""
        if not 1 <= len(set(queues)) == len(queues) <= QUEUES_PER_PUSH_MAX:
            raise LimitExceeded(f"a push names 1 to {QUEUES_PER_PUSH_MAX} different queues")
        if exist and any(queue not in self.state.lanes for queue in queues):
            raise NoSuchQueue

    async def producer_open(self, producer: bytes) -> tuple[int, int]:
        outcome = await self.committer.submit(op.ProducerOpen(producer))
        assert isinstance(outcome, Opened)
        return outcome.epoch, outcome.last

    async def producer_skip(self, number: Number) -> None:
        outcome = await self.committer.submit(op.Skip(*number))
        if isinstance(outcome, Refusal):
            raise error_of(outcome)

    # Taps

    def tap_runs(self, lane: CoreLane, start: int) -> Iterator[Run]:
        """Runs from `start` on, in order: those that were written beside the log and those still in memory."""
        written = [tap_stretch(self.log, stretch.blob, lane.queue, start) for stretch in lane.taps.stretches if stretch.end > start]
        return merge(*written, lane.taps.recent.since(start))

    async def settled(self) -> None:
        """Let whatever was submitted be committed (for tests and tools)."""
        await self.committer.drain()
        await asyncio.sleep(0)
