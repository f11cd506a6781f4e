"""Assembly: the only file that knows every room. A store's URL becomes a log, a store, a broker, and a node that holds them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.clock import Clock, SystemClock
from dovetail.errors import BadRequest, Closed
from dovetail.logs.log import Log
from dovetail.logs.memory import MemoryLog
from dovetail.logs.shared.engine import Engine
from dovetail.logs.shared.health import Inspected
from dovetail.logs.shared.log import SharedLog
from dovetail.logs.shared.place import place_of
from dovetail.service.broker import Broker
from dovetail.service.embedded import NAMESPACE, Embedded
from dovetail.service.handles import Queues
from dovetail.settings import Settings
from dovetail.stores.namespace.log import NamespaceLog
from dovetail.stores.namespace.store import NamespaceStore
from dovetail.stores.replayed import Replayed
from dovetail.stores.shared.store import SharedStore

if TYPE_CHECKING:
    from dovetail.doors.native.door import Door as NativeDoor
    from dovetail.doors.sqs import Door
    from dovetail.service.accounts import Accounts, Quota
    from dovetail.service.audit import Audit
    from dovetail.stores.migration.run import Summary
    from dovetail.stores.shared.report import LogReport

__all__ = ["NAMESPACE", "Node", "join", "join_namespace", "look", "migrate", "open", "start"]

_CLIENTS = {"kafka": "confluent-kafka", "nats": "nats-py"}
"""Engines of shared logs, and the package that each needs."""


class Node(Queues):
    """One running Dovetail. Made by `open`."""

    def __init__(self, store: Replayed | NamespaceStore, clock: Clock) -> None:
        self.store: Any = store
        """Whoever asks for more than the seam knows which of the two it is."""
        self.clock = clock
        self.broker = Broker(store, clock)
        super().__init__(Embedded(self.broker))
        store.on_fail = self.broker.fail
        if isinstance(store, SharedStore | NamespaceStore):
            # Whoever waits here could wait in vain: another node may serve it.
            store.on_cut = self.broker.fail
        self._closed = False

    @property
    def ready(self) -> bool:
        """It takes messages. Turns false for good when the log had to stop."""
        return not self._closed and self.store.failed is None

    @property
    def reachable(self) -> bool:
        """It takes messages at this moment: a node that is cut off from a log that it shares does not, and comes back by itself."""
        return self.ready and not (isinstance(self.store, SharedStore | NamespaceStore) and self.store.cut is not None)

    # Doors

    def sqs_door(self, settings: Settings, accounts: Accounts | None = None) -> Door:
        """The SQS door onto this node; `door.handle` answers requests of an HTTP edge."""
        from dovetail.doors.sqs import Door, Options

        options = Options(
            auth=settings.auth,
            account=settings.account,
            region=settings.sqs.region,
            cooldowns=settings.cooldowns == "on",
            beyond=settings.sqs.beyond == "on",
            scheme="https" if settings.tls.cert else "http",
            advertise=settings.advertise or str(settings.http),
            account_quota=_account_quota(settings),
            queue_quota=_queue_quota(settings),
        )
        return Door(self.broker, self.clock, options, accounts, self._audit(settings))

    def native_door(self, settings: Settings, accounts: Accounts | None = None, sqs: Door | None = None) -> NativeDoor:
        """The native door onto this node, for a server of its own. What the policies of queues allow is asked of the SQS door."""
        from dovetail import __version__
        from dovetail.doors.native.door import Door as NativeDoor
        from dovetail.doors.native.door import Options
        from dovetail.doors.sqs.rights import allowed

        options = Options(
            auth=settings.auth,
            account=settings.account,
            region=settings.sqs.region,
            namespace=NAMESPACE,
            version=__version__,
            account_quota=_account_quota(settings),
            queue_quota=_queue_quota(settings),
            staged_bytes_max=settings.quota.staged_bytes,
        )
        permits = partial(allowed, sqs, secure=bool(settings.tls.cert)) if sqs is not None else None
        return NativeDoor(self.broker, self.clock, options, accounts, self._audit(settings), permits)

    def _audit(self, settings: Settings) -> Audit:
        from dovetail.service.audit import Audit, AuditFile

        failed = self.broker.meters.audit_failures.add
        return Audit(self.clock, AuditFile(Path(settings.audit)), failed) if settings.audit else Audit(self.clock)

    # Operation

    def metrics(self) -> str:
        """In the Prometheus text format."""
        return self.broker.render_metrics()

    async def snapshot(self) -> None:
        """Write a snapshot now, and trim what it makes unnecessary."""
        if self._closed:
            raise Closed
        await self.store.snapshot()

    async def retime(self) -> int:
        """After the machine's clock was set right: move the node's time forward to it; returns by how many milliseconds."""
        return int(await self.store.retime())

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.broker.close()
            await self.store.close()


@contextlib.asynccontextmanager
async def open(url: str = "local:./data", *, settings: Settings | None = None, clock: Clock | None = None) -> AsyncIterator[Node]:
    """A node on the store that `url` names: `local:DIR`, `memory:`, `nats://HOST:PORT,…/NAMESPACE` or `kafka://HOST:PORT,…/NAMESPACE`."""
    node = await start(url, settings=settings, clock=clock)
    try:
        yield node
    finally:
        await node.close()


async def start(url: str, *, settings: Settings | None = None, clock: Clock | None = None) -> Node:
    """As `open`, for those who close by themselves."""
    settings = settings or Settings()
    clock = clock or SystemClock()
    if url.partition("://")[0] in _CLIENTS:
        engines, logs = _engines(url)
        cache = Path(settings.shared.cache) if settings.shared.cache else None
        return await join_namespace(
            lambda log: SharedLog(engines(log), cache), logs, clock=clock, snapshot_bytes=settings.shared.snapshot_bytes
        )
    log = _log(url, settings)
    try:
        store = await Replayed.open(log, clock, snapshot_bytes=settings.local.snapshot_bytes)
    except BaseException:
        log.close()
        raise
    return Node(store, clock)


async def join(engine: Engine, *, settings: Settings | None = None, clock: Clock | None = None) -> Node:
    """A node more on the log that this engine keeps."""
    settings, clock = settings or Settings(), clock or SystemClock()
    log = SharedLog(engine, Path(settings.shared.cache) if settings.shared.cache else None)
    try:
        return Node(await SharedStore.join(log, clock, snapshot_bytes=settings.shared.snapshot_bytes), clock)
    except BaseException:
        await log.shut()
        raise


async def look(url: str) -> LogReport:
    """What can be said of a shared log without joining it (`dovetail cluster status`)."""
    from dovetail.stores.shared.report import report

    if url.partition(":")[0] in ("local", "memory"):
        raise BadRequest(f"{url} is one node's own; `dovetail inspect` looks into a data folder")
    engine = _engines(url)[0](0)
    try:
        health = await engine.health()
        if health is None:
            raise BadRequest(f"{engine.name}: there is no log; the first node that is started makes it")
        return await report(engine, health, SystemClock().wall_ms())
    finally:
        await engine.close()


async def migrate(source: str, target: str, say: Callable[[str], None], *, settings: Settings | None = None) -> Summary:
    """Everything that is on the store `source` goes to the store `target`, which nobody has used (`dovetail migrate`)."""
    from dovetail.stores.migration.run import run
    from dovetail.stores.migration.source import SharedSource, Source, local
    from dovetail.stores.migration.target import LocalTarget, SharedTarget, Target

    settings, clock = settings or Settings(), SystemClock()
    cache = Path(settings.shared.cache) if settings.shared.cache else None
    if source.startswith("memory:") or target.startswith("memory:"):
        raise BadRequest("memory: is a node's own and goes with it; nothing can be moved from there or kept there")
    from_place, to_place = (url.removeprefix("local:") if url.startswith("local:") else None for url in (source, target))
    filled: Target = LocalTarget(to_place, settings.local.segment_bytes) if to_place else SharedTarget(SharedLog(_engine(target), cache))
    emptied: Source | None = None
    try:
        emptied = local(from_place) if from_place else SharedSource(SharedLog(_engine(source), cache))
        return await run(emptied, filled, clock, say)
    finally:
        if emptied is not None:
            await emptied.close()
        await filled.close()


def _engines(url: str) -> tuple[Callable[[int], Inspected], int]:
    """(the engine of each log of the namespace, how many they are by the URL: 0 where it does not say)"""
    kind = url.partition(":")[0]
    if kind not in _CLIENTS:
        raise _no_store(url)
    try:
        if kind == "kafka":
            from dovetail.logs.kafka.engine import Kafka

            return partial(Kafka, url), place_of(url).logs
        from dovetail.logs.nats.engine import JetStream

        return partial(JetStream, url), place_of(url).logs
    except ImportError:
        raise BadRequest(f"{kind}:// needs the package {_CLIENTS[kind]}: pip install 'dovetail[{kind}]'") from None


def _no_store(url: str) -> BadRequest:
    return BadRequest(f"{url!r} names no store; this version has local:DIR, memory:, nats:// and kafka://HOST:PORT,…/NAMESPACE")


def _engine(url: str) -> Inspected:
    """Of a namespace with one log."""
    engines, logs = _engines(url)
    if logs > 1:
        raise BadRequest("A namespace of several logs cannot be moved.")
    return engines(0)


async def join_namespace(
    log: Callable[[int], SharedLog], logs: int = 0, *, clock: Clock, snapshot_bytes: int, kind: type[NamespaceLog] = NamespaceLog
) -> Node:
    """A node more on a namespace. `log` gives its logs, which are not open yet; `logs`: how many they are or shall be; 0: as made."""

    async def joined(place: int, begin: Callable[[NamespaceLog], Awaitable[None]]) -> NamespaceLog:
        one = log(place)
        try:
            return await kind.join(one, clock, snapshot_bytes=snapshot_bytes, begin=begin)
        except BaseException:
            await one.shut()
            raise

    async def catalog(store: NamespaceLog) -> None:
        await store.begin_alone()
        if logs > 1 or (logs and store.state.logs > 1):
            await store.divide(logs, 0)

    def another(place: int, key: bytes, count: int) -> Awaitable[NamespaceLog]:
        return joined(place, lambda store: store.begin(key, count, place))

    first = await joined(0, catalog)
    if first.state.logs > 1:
        return Node(NamespaceStore(first, another, clock), clock)
    first.single = True
    return Node(first, clock)


def _account_quota(settings: Settings) -> Quota:
    from dovetail.service.accounts import Quota

    quota = settings.quota
    return Quota(requests_per_s=quota.account_requests or None, queues_max=quota.account_queues or None)


def _queue_quota(settings: Settings) -> Quota:
    from dovetail.service.accounts import Quota

    quota = settings.quota
    return Quota(quota.queue_messages or None, quota.queue_bytes or None, quota.queue_requests or None)


def _log(url: str, settings: Settings) -> Log:
    kind, colon, place = url.partition(":")
    if kind == "memory" and colon and not place:
        return MemoryLog()
    if kind == "local" and place:
        from dovetail.logs.local.commitlog import CommitLog

        options: dict[str, Any] = {"segment_bytes": settings.local.segment_bytes, "sync": settings.local.sync}
        return CommitLog(place, **options)
    raise _no_store(url)
