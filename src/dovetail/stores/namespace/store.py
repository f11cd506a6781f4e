"""The store of a namespace with several logs. It keeps the seam of stores/store.py by handing each verb to the log whose queue it is about.

    log 0      the catalog: which names there are, and into how many logs the namespace is divided; and queues like any other
    log 1 …    queues. A queue lies in log (id − 1) mod logs, from its making to its end

A node replays the catalog, and of the other logs those whose queues somebody here has asked for (or whose messages go there): they are
joined then, and kept. What a node knows of a log is what it has replayed of it; nothing is remembered beside that.

What one step does, it does in one log. So a push to several queues, complete-and-push and a publish are refused where the queues lie in
several; dead letters and redrive are moves (carrier.py). Numbers of producers and facts taps count over all queues, and are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dovetail.clock import Clock
from dovetail.core import operation as op
from dovetail.core import receipts
from dovetail.core.moves import log_of
from dovetail.core.operation import Attributes, Done, Push, Refusal, Why
from dovetail.core.receipts import Part
from dovetail.errors import BadRequest, DovetailError, NoSuchQueue, ReceiptInvalid, StorageError
from dovetail.stores.batches import error_of
from dovetail.stores.namespace.carrier import Carrier
from dovetail.stores.namespace.log import UNNUMBERED, NamespaceLane, NamespaceLog
from dovetail.stores.namespace.parts import NamespaceStages, NoFacts, together
from dovetail.stores.records import push_of_record
from dovetail.stores.store import Landed, Number, Outgoing, Reply, Stored

Join = Callable[[int, bytes, int], Awaitable[NamespaceLog]]
"""(place, key, logs) → that log, joined."""
MISSED_MAX = 1_000
COPIES = "×3"


class NamespaceStore(NamespaceStages, NoFacts):
    """Made of its catalog, which is joined already; end with `await close()`."""

    def __init__(self, catalog: NamespaceLog, join: Join, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock
        self.logs = catalog.state.logs
        self.promises = replace(catalog.promises, transactions=False, numbering=False, facts=False)
        self.failed: BaseException | None = None
        self.on_fail: Callable[[DovetailError], None] | None = None
        self.on_cut: Callable[[DovetailError], None] = lambda error: None
        self._join = join
        self._stores: dict[int, NamespaceLog] = {}
        self._joining: dict[int, asyncio.Task[NamespaceLog]] = {}
        self._missed: dict[tuple[str, str], None] = {}
        self._observe: Callable[[float], None] | None = None
        self._closed = False
        self.carrier = Carrier(self)
        self._take_in(0, catalog)

    async def close(self) -> None:
        self._closed = True
        await self.carrier.stop()
        for task in self._joining.values():
            task.cancel()
        await asyncio.gather(*self._joining.values(), return_exceptions=True)
        for store in reversed(self._stores.values()):
            await store.close()

    # Logs

    def opened(self) -> list[NamespaceLog]:
        """Those that this node replays, in their order."""
        return [self._stores[place] for place in sorted(self._stores)]

    def store_of(self, queue: int) -> NamespaceLog | None:
        """The log of this queue, if this node replays it."""
        return self._stores.get(log_of(queue, self.logs))

    async def open_for(self, queue: int) -> NamespaceLog:
        """The log of this queue, which this node replays from now on."""
        place = log_of(queue, self.logs)
        if place not in self._stores:
            task = self._joining.get(place)
            if task is None:
                task = self._joining[place] = asyncio.get_running_loop().create_task(self._joined(place))
                # Nobody may be left who wants to know why it failed.
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            # Others wait for it too: who leaves takes nothing away.
            await asyncio.shield(task)
        return self._stores[place]

    async def _joined(self, place: int) -> NamespaceLog:
        try:
            store = await self._join(place, self.catalog.state.key, self.logs)
            promised, kept = self.promises.durability, store.promises.durability
            weaker = promised.endswith(COPIES) and not kept.endswith(COPIES)
            if self._closed or weaker:
                await store.close()
            if weaker:
                raise StorageError(
                    f"{store.log.engine.name} keeps {kept}, and answers of this namespace name {promised}: give it as many copies."
                )
            if not self._closed:
                self._take_in(place, store)
            return store
        finally:
            del self._joining[place]

    def _take_in(self, place: int, store: NamespaceLog) -> None:
        self._stores[place] = store
        store.namespace = self
        store.on_fail = self._fail
        store.on_cut = lambda error: self.on_cut(error)
        store.fresh_s = self.catalog.fresh_s
        if self._observe is not None:
            store.on_commit(self._observe)
        self.carrier.applied(store)
        if isinstance(store.failed, DovetailError):
            self._fail(store.failed)

    def _fail(self, error: DovetailError) -> None:
        """A node that has lost one of its logs for good answers for none: whoever starts it again gets all of them."""
        self.failed = error
        self.carrier.fail(error)
        for store in self.opened():
            store.waits.fail(error)
        if self.on_fail is not None:
            self.on_fail(error)

    @property
    def cut(self) -> DovetailError | None:
        return next((store.cut for store in self.opened() if store.cut is not None), None)

    async def reach(self, queue: int) -> None:
        if queue > 0:
            await self.open_for(queue)

    async def snapshot(self) -> None:
        for store in self.opened():
            await store.snapshot()

    async def settled(self) -> None:
        for store in self.opened():
            await store.settled()

    async def retime(self) -> int:
        return await self.catalog.retime()

    @property
    def rules_version(self) -> int:
        return sum(store.rules_version + 1 for store in self._stores.values())

    def now(self) -> int:
        return self.catalog.now()

    def on_commit(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        for store in self.opened():
            store.on_commit(observe)

    def facts(self) -> Mapping[str, tuple[float, str]]:
        """Of all logs that are replayed here: sums; of what says how late, or how far off, the worst."""
        stores = self.opened()
        made = together([store.facts() for store in stores])
        under_way = sum(
            len(store.state.lanes[source].departures[target].under_way) for store in stores for source, target in store.state.leaving
        )
        made["dovetail_logs"] = (len(stores), "Logs of the namespace that this node replays.")
        made["dovetail_moves_under_way"] = (under_way, "Messages that have left for another log and are not settled.")
        made["dovetail_moves_carried"] = (self.carrier.carried, "Steps of moves that this node has brought to their target and back.")
        return made

    # Queues

    def lane(self, queue: int) -> NamespaceLane | None:
        store = self.store_of(queue)
        return store.lane(queue) if store is not None else None  # type: ignore[return-value]  # NamespaceLog makes no others

    async def confirm(self) -> bool:
        """Also of the logs whose queues were looked for and not found: they may not be replayed here yet."""
        missed, self._missed = self._missed, {}
        await self.catalog.confirm()
        places = {log_of(queue, self.logs) for queue in map(self.catalog.state.catalog.by_name.get, missed) if queue is not None}
        for place in sorted(places - {0}):
            if place in self._stores:
                await self._stores[place].confirm()
            else:
                await self.open_for(place + 1)
        return True

    def find(self, namespace: str, name: str) -> int | None:
        queue = self.catalog.find(namespace, name)
        if queue is None or self.lane(queue) is None:
            if len(self._missed) >= MISSED_MAX:
                del self._missed[next(iter(self._missed))]
            self._missed[namespace, name] = None
        return queue

    def queues(self, namespace: str) -> Iterator[tuple[str, int]]:
        return self.catalog.queues(namespace)

    def all_queues(self) -> list[tuple[str, str, int]]:
        return self.catalog.all_queues()

    def name_of(self, queue: int) -> tuple[str, str] | None:
        return self.catalog.name_of(queue)

    async def create(self, namespace: str, name: str, attributes: Attributes) -> int:
        """Catalog first, then the lane, in its log. Every step can be repeated, by any node."""
        while True:
            outcome = await self.catalog.committer.submit(op.Register(namespace, name))
            if isinstance(outcome, Refusal):
                if outcome.why is not Why.NAME_TAKEN:
                    raise error_of(outcome)
                queue = int(outcome.detail)
            else:
                assert isinstance(outcome, Done)
                queue = outcome.value
            created = await (await self.open_for(queue)).committer.submit(op.Create(queue, attributes))
            if not isinstance(created, Refusal):
                return queue
            if created.why is not Why.DROPPED_ID:
                raise error_of(created)
            await self.catalog.committer.submit(op.Unregister(queue))

    async def configure(self, queue: int, attributes: Attributes) -> None:
        await (await self.open_for(queue)).configure(queue, attributes)

    async def drop(self, queue: int) -> None:
        """Lane first, then catalog; a caller that leaves in between does not leave a name without a lane."""
        await asyncio.shield(self._dropped(queue))

    async def _dropped(self, queue: int) -> None:
        outcome = await (await self.open_for(queue)).committer.submit(op.Drop(queue))
        if isinstance(outcome, Refusal):
            raise error_of(outcome)
        await self.catalog.committer.submit(op.Unregister(queue))

    # Across lanes

    def one_log(self, queues: Sequence[int]) -> NamespaceLog:
        """The log in which all of these queues lie."""
        if not queues:
            return self.catalog
        if len({log_of(queue, self.logs) for queue in queues}) > 1:
            raise BadRequest("The queues lie in several logs of the namespace, and one step is in one log: send to each of them.")
        store = self.store_of(queues[0])
        if store is None:
            raise NoSuchQueue
        return store

    async def push_all(self, queues: Sequence[int], messages: Sequence[Outgoing], number: Number | None = None) -> list[list[Stored]]:
        if number is not None:
            raise BadRequest(UNNUMBERED)
        return await self.one_log(queues).push_all(queues, messages)

    async def complete_and_push(self, texts: Sequence[str], queues: Sequence[int], messages: Sequence[Outgoing]) -> list[list[Stored]]:
        if not texts:
            raise ReceiptInvalid("The receipts of one step belong to one queue.")
        completed = receipts.unseal(self.catalog.state.key, texts[0]).queue
        return await self.one_log([completed, *queues]).complete_and_push(texts, queues, messages)

    async def producer_open(self, producer: bytes) -> tuple[int, int]:
        raise BadRequest(UNNUMBERED)

    async def producer_skip(self, number: Number) -> None:
        raise BadRequest(UNNUMBERED)

    # In columns

    @property
    def salt(self) -> bytes:
        return self.catalog.salt

    @property
    def record_bytes_max(self) -> int:
        return self.catalog.record_bytes_max

    @staticmethod
    def push_of_record(record: bytes) -> Push:
        return push_of_record(record)

    def push_record_for(self, reply: Reply, push: Push, record: bytes) -> None:
        if push.numbered is not None:
            raise BadRequest(UNNUMBERED)
        self.one_log(push.queues).push_record_for(reply, push, record)

    def complete_and_push_record_for(self, reply: Reply, queue: int, parts: Sequence[Part], push: Push, record: bytes) -> None:
        if push.numbered is not None:
            raise BadRequest(UNNUMBERED)
        self.one_log([queue, *push.queues]).complete_and_push_record_for(reply, queue, parts, push, record)

    def landed(self, outcome: Any, push: Push) -> list[Landed]:
        return self.one_log(push.queues).landed(outcome, push)
