"""Assembly: the only file that knows every room. A store's URL becomes a log, a store, a broker, and a node that holds them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.clock import Clock, SystemClock
from dovetail.core.operation import Attributes
from dovetail.errors import BadRequest, Closed, QueueExists
from dovetail.logs.log import Log
from dovetail.logs.memory import MemoryLog
from dovetail.service.broker import Broker
from dovetail.service.handles import Producer, Queue
from dovetail.service.values import Outgoing, Sent, outgoing, queue_rules
from dovetail.settings import Settings
from dovetail.stores.replayed import Replayed

if TYPE_CHECKING:
    from dovetail.doors.sqs import Door
    from dovetail.service.accounts import Accounts

NAMESPACE = "default"


class Node:
    """One running Dovetail. Made by `open`."""

    def __init__(self, store: Replayed, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.broker = Broker(store, clock)
        store.on_fail = self.broker.fail
        self._closed = False

    @property
    def ready(self) -> bool:
        """It takes messages. Turns false for good when the log had to stop."""
        return not self._closed and self.store.failed is None

    @property
    def durability(self) -> str:
        return self.store.promises.durability

    # Queues

    async def queue(
        self,
        name: str,
        *,
        namespace: str = NAMESPACE,
        lease_s: float | None = None,
        delay_s: float | None = None,
        retention_s: float | None = None,
        max_receives: int | None = None,
        dead_letter: Queue | str | None = None,
        deduplication_s: float | None = None,
        groups: bool | None = None,
        in_flight_max: int | None = None,
        backoff_s: float | None = None,
        backoff_max_s: float | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Queue:
        """The queue of that name, made if it is missing. A rule that is named must be the one it has, else QueueExists is raised."""
        changes = queue_rules(
            lease_s=lease_s,
            delay_s=delay_s,
            retention_s=retention_s,
            max_receives=max_receives,
            deduplication_s=deduplication_s,
            groups=groups,
            in_flight_max=in_flight_max,
            backoff_s=backoff_s,
            backoff_max_s=backoff_max_s,
            extra=extra,
        )
        catalog = self.broker.catalog
        if dead_letter is not None:
            target = catalog.get(namespace, dead_letter) if isinstance(dead_letter, str) else dead_letter.lane
            changes["dead_letter"] = target.queue
        lane = catalog.find(namespace, name)
        if lane is None or any(getattr(lane.attributes, rule) != value for rule, value in changes.items()):
            try:
                lane = await catalog.create(namespace, name, Attributes(**changes))
            except QueueExists:
                # Somebody made it in the same moment; what counts are the rules that were named here.
                lane = catalog.get(namespace, name)
                if any(getattr(lane.attributes, rule) != value for rule, value in changes.items()):
                    raise
        return Queue(self.broker, lane, namespace, name)

    async def queues(self, prefix: str = "", *, namespace: str = NAMESPACE) -> list[str]:
        return sorted(self.broker.catalog.names(namespace, prefix))

    async def drop(self, name: str, *, namespace: str = NAMESPACE) -> None:
        """Remove the queue with everything in it."""
        await self.broker.catalog.drop(namespace, name)

    async def send_to(self, names: Sequence[str | Queue], body: bytes | Outgoing, *, namespace: str = NAMESPACE) -> list[Sent]:
        """One message to several queues: stored once, and in all of them or in none."""
        lanes = [self.broker.catalog.get(namespace, name) if isinstance(name, str) else name.lane for name in names]
        answers = await self.broker.push_all(lanes, [outgoing(body)])
        return [Queue(self.broker, lane, namespace, "").sent(stored)[0] for lane, stored in zip(lanes, answers, strict=True)]

    async def producer(self, name: str) -> Producer:
        """Open a numbered producer. Whoever opened it before under this name can no longer use it."""
        identity = Producer.identity_of(name)
        return Producer(self.broker, identity, *await self.store.producer_open(identity))

    # Doors

    def sqs_door(self, settings: Settings, accounts: Accounts | None = None) -> Door:
        """The SQS door onto this node; `door.handle` answers requests of an HTTP edge."""
        from dovetail.doors.sqs import Door, Options
        from dovetail.service.accounts import Quota
        from dovetail.service.audit import Audit, AuditFile

        quota = settings.quota
        options = Options(
            auth=settings.auth,
            account=settings.account,
            region=settings.sqs.region,
            cooldowns=settings.cooldowns == "on",
            beyond=settings.sqs.beyond == "on",
            scheme="https" if settings.tls.cert else "http",
            advertise=settings.advertise or str(settings.http),
            account_quota=Quota(requests_per_s=quota.account_requests or None, queues_max=quota.account_queues or None),
            queue_quota=Quota(quota.queue_messages or None, quota.queue_bytes or None, quota.queue_requests or None),
        )
        failed = self.broker.meters.audit_failures.add
        audit = Audit(self.clock, AuditFile(Path(settings.audit)), failed) if settings.audit else Audit(self.clock)
        return Door(self.broker, self.clock, options, accounts, audit)

    # Operation

    def metrics(self) -> str:
        """In the Prometheus text format."""
        return self.broker.render_metrics()

    async def snapshot(self) -> None:
        """Write a snapshot now, and trim what it makes unnecessary."""
        if self._closed:
            raise Closed
        await self.store.chores.snapshot()

    async def retime(self) -> int:
        """After the machine's clock was set right: move the node's time forward to it; returns by how many milliseconds."""
        return await self.store.retime()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.broker.close()
            await self.store.close()


@contextlib.asynccontextmanager
async def open(url: str = "local:./data", *, settings: Settings | None = None, clock: Clock | None = None) -> AsyncIterator[Node]:
    """A node on the store that `url` names: `local:DIR` or `memory:`."""
    node = await start(url, settings=settings, clock=clock)
    try:
        yield node
    finally:
        await node.close()


async def start(url: str, *, settings: Settings | None = None, clock: Clock | None = None) -> Node:
    """As `open`, for those who close by themselves."""
    settings = settings or Settings()
    clock = clock or SystemClock()
    log = _log(url, settings)
    try:
        store = await Replayed.open(log, clock, snapshot_bytes=settings.local.snapshot_bytes)
    except BaseException:
        log.close()
        raise
    return Node(store, clock)


def _log(url: str, settings: Settings) -> Log:
    kind, colon, place = url.partition(":")
    if kind == "memory" and colon and not place:
        return MemoryLog()
    if kind == "local" and place:
        from dovetail.logs.local.commitlog import CommitLog

        options: dict[str, Any] = {"segment_bytes": settings.local.segment_bytes, "sync": settings.local.sync}
        return CommitLog(place, **options)
    raise BadRequest(f"{url!r} names no store; this version has local:DIR and memory:")
