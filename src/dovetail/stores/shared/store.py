"""The replayed store on a shared log. Nodes do not know one another: each appends, replays all, answers from the replay.

Joining: the newest snapshot, checked, or the next older one; then the whole log that is kept, so that every body is at hand
(logs/shared/spool), applied from the snapshot on; then an Open of our own. Once that is applied this node has seen everything that was
acknowledged before it came, and serves.

What a node reads without writing may be late. So a lane that shows nothing visible is believed only for FRESH_S after the replay was known
to be at the tail; after that whoever looks appends a Pop, which finds what there is. A node that is cut off from its log says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Self

from dovetail.clock import Clock
from dovetail.core import crossing
from dovetail.core import operation as op
from dovetail.core.chunk import LEASED
from dovetail.core.operation import Attributes, Done, Head, Operation, Outcome, Refusal, Why
from dovetail.core.state import State
from dovetail.core.versions import WAITING_VERSION
from dovetail.errors import BadRequest, Closed, DovetailError, StorageError
from dovetail.logs.log import Entry
from dovetail.logs.shared.log import SharedLog
from dovetail.logs.shared.packet import SHIFT
from dovetail.stores.batches import error_of
from dovetail.stores.chores import Chores
from dovetail.stores.committer import Committer
from dovetail.stores.entrytime import EntryTime
from dovetail.stores.lanes import ReplayedLane, check_most
from dovetail.stores.replayed import Replay, Replayed
from dovetail.stores.shared.chores import SharedChores, SharedSnapshots
from dovetail.stores.shared.committer import SharedCommitter
from dovetail.stores.shared.time import SharedTime
from dovetail.stores.shared.waits import Wait, Waits
from dovetail.stores.store import Waiting

FRESH_S = 1.0
FIRST_NUMBER = 1

_logger = logging.getLogger("dovetail.stores.shared")


class SharedLane(ReplayedLane):
    """A lane that others change too."""

    _store: SharedStore
    _watched = False

    def has_visible(self) -> bool:
        """Also where it is not known: a pop then finds out. Whoever is watching is woken by what is replayed, and need not ask again."""
        self._store.check_reach()
        return super().has_visible() or not (self._watched or self._store.fresh())

    def watch(self, changed: Callable[[int], None] | None) -> None:
        self._watched = changed is not None
        super().watch(changed)

    def stand(self, most: int, lease_ms: int, wait_ms: int) -> Wait | None:
        store = self._store
        store.check_reach()
        check_most(most)
        self._alive()
        return store.waits.join(self, most, lease_ms, wait_ms) if store.state.version >= WAITING_VERSION else None

    def holds(self, sequence: int, delivery: int) -> bool:
        """Is the message with that receiver still?"""
        found = self._lane.find(sequence)
        return found is not None and found[0].states[found[1]] == LEASED and found[0].delivery(found[1]) == delivery

    def peek(self, most: int, after: int = 0) -> list[Waiting]:
        self._store.check_reach()
        return super().peek(most, after)


class SharedStore(Replayed):
    """Join with `await SharedStore.join(log, clock)`, end with `await close()`."""

    _lane_type = SharedLane
    log: SharedLog
    time: SharedTime
    committer: SharedCommitter
    chores: SharedChores
    snapshots: SharedSnapshots

    def __init__(self, log: SharedLog, clock: Clock, snapshot_bytes: int, state: State) -> None:
        self._loaded = state
        super().__init__(log, clock, snapshot_bytes)
        self.fresh_s = FRESH_S
        self.waits = Waits(self)
        self.on_cut: Callable[[DovetailError], None] = lambda error: None

    @classmethod
    async def join(
        cls, log: SharedLog, clock: Clock, *, snapshot_bytes: int, begin: Callable[[Self], Awaitable[None]] | None = None
    ) -> Self:
        """`begin`: what is said first, where the log is one of several."""
        store = await cls.prepared(log, clock, snapshot_bytes)
        log.on_cut, log.on_back = store._cut_off, store.committer.back
        began = monotonic()
        log.start(store.committer.deliver, store._fail, store.state.position)
        await log.caught_up()
        store.replay = store.replay._replace(entries=(log.tail >> SHIFT) - (log.first >> SHIFT), seconds=monotonic() - began)
        await store.committer.open_writer()
        await (begin(store) if begin is not None else store.begin_alone())
        store.chores.start()
        return store

    @classmethod
    async def prepared(cls, log: SharedLog, clock: Clock, snapshot_bytes: int) -> Self:
        """With the newest snapshot, and nothing read yet."""
        await log.open()
        snapshots = SharedSnapshots(log)
        state = await snapshots.newest_there(log.first)
        if state is None:
            if log.first > FIRST_NUMBER << SHIFT:
                raise StorageError(f"The log begins with entry {log.first >> SHIFT} and there is no snapshot that reaches it.")
            state = State()
            # The version that all nodes begin with, whatever they speak themselves: one state must come of one log.
            state.version = 1
        store = cls(log, clock, snapshot_bytes, state)
        store.snapshots = snapshots
        return store

    async def begin_alone(self) -> None:
        if not self.state.key:
            # Several nodes may begin a log in the same moment: the first one counts, and it is everybody's.
            await self.committer.submit(op.Begin(os.urandom(32)))
        await self.chores.upgrade()

    def _replay(self) -> tuple[State, Replay, int]:
        return self._loaded, Replay(self._loaded.position, 0, 0, 0.0), 0

    def _rooms(self, snapshot_bytes: int) -> tuple[EntryTime, Committer, Chores]:
        time = SharedTime(self.clock, self.state.time)
        committer = SharedCommitter(self.log, time, self._applied, self.state)
        return time, committer, SharedChores(self, snapshot_bytes)

    @property
    def facts_leave_memory(self) -> bool:
        return False

    async def close(self) -> None:
        self.waits.fail(Closed())
        # What that withdraws is submitted in the next turn.
        await asyncio.sleep(0)
        await super().close()
        self.waits.close()
        await self.log.shut()

    # Replaying

    def _applied(self, entry: Entry, head: Head, operations: Sequence[Operation]) -> Sequence[Outcome]:
        applied = self.state.apply(entry.after, head, operations, entry.addresses[1:], entry.stamp)
        self.time.applied(self.state.time)
        self._look_at(entry, operations)
        for operation, outcome in zip(operations, applied.outcomes, strict=True):
            if isinstance(operation, op.Trim) and isinstance(outcome, Done):
                self.log.let_go(self.state.trimmed)
        self.waits.applied(entry, operations, applied)
        lines = self.waits.lines
        if lines:
            for queue in self._touched(operations, lines):
                line = lines.get(queue)
                if line is not None:
                    line.look()
        return applied.outcomes

    async def retime(self) -> int:
        raise BadRequest("The time of a shared log is the log's own and its writers'; set the clocks of nodes and engine right.")

    # How late it may be

    def fresh(self) -> bool:
        """The replay was at the log's tail a moment ago."""
        return monotonic() - self.committer.at_tail < self.fresh_s

    @property
    def cut(self) -> DovetailError | None:
        """Why the log cannot be had at this moment."""
        return self.log.cut

    def check_reach(self) -> None:
        if self.log.cut is not None:
            raise self.log.cut

    def elsewhere(self, queue: int) -> bool:
        return crossing.elsewhere(self.state, queue)

    async def confirm(self) -> bool:
        """By an append that comes back: no question to the engine would do, for whoever leads may have lost it and not know yet."""
        await self.committer.submit(op.Tick())
        return True

    def _cut_off(self, error: DovetailError) -> None:
        self.committer.cut_off(error)
        # The writer under which they stand is given up: the one that follows it closes it, and they leave.
        self.waits.fail(error)
        self.on_cut(error)

    def _fail(self, error: BaseException) -> None:
        self.waits.fail(error if isinstance(error, DovetailError) else StorageError(str(error)))
        super()._fail(error)

    def facts(self) -> Mapping[str, tuple[float, str]]:
        at_tail = self.committer.at_tail
        return {
            **super().facts(),
            "dovetail_log_connected": (self.log.connected and self.log.cut is None, "1 while the node reaches its log."),
            "dovetail_log_under_way": (self.log.under_way, "Entries of this node that were published and not replayed yet."),
            "dovetail_log_resent": (self.log.resent, "Entries published again, because they did not come back in time or out of order."),
            "dovetail_replay_age_seconds": (monotonic() - at_tail, "How long ago the replay was last known to be at the log's tail."),
            "dovetail_log_position": (self.state.position >> SHIFT, "The entry that is due next: compare nodes."),
            "dovetail_log_reconnects": (self.log.reconnects, "How often the line to the log was lost and made again."),
            "dovetail_log_writer": (
                int.from_bytes(self.committer.writer[:4]),
                "The first 32 bits of the name under which this node writes; `dovetail cluster status` knows it by that.",
            ),
            "dovetail_chores_keeper": (self.chores.keeper(), "1 where this node makes snapshots and trims for all."),
        }

    # Queues

    async def create(self, namespace: str, name: str, attributes: Attributes) -> int:
        """As on one node. A name whose lane was dropped, by a node that did not come to take the name away too, is taken away here."""
        while True:
            outcome = await self.committer.submit(op.Register(namespace, name))
            if isinstance(outcome, Refusal):
                if outcome.why is not Why.NAME_TAKEN:
                    raise error_of(outcome)
                queue = int(outcome.detail)
            else:
                assert isinstance(outcome, Done)
                queue = outcome.value
            created = await self.committer.submit(op.Create(queue, attributes))
            if not isinstance(created, Refusal):
                return queue
            if created.why is not Why.DROPPED_ID:
                raise error_of(created)
            await self.committer.submit(op.Unregister(queue))
