"""The native door: what all its connections share. Which verb a frame is for, who may call and do what, what is counted and noted.

frame ──► verb ──► the broker's lane, in columns ──► slot ──► frame
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.clock import Clock
from dovetail.doors.native import (
    answers,
    chronicling,
    consuming,
    pulling,
    pushing,
    queues,
    refusals,
    requests,
    reserving,
    settling,
    short,
    staging,
    tapping,
)
from dovetail.doors.native.bounds import REQUEST_BYTES_MAX, Bounds
from dovetail.doors.native.frames import Frame, Kind
from dovetail.doors.native.greeting import Caller, Greeting
from dovetail.doors.native.lent import Lent
from dovetail.doors.native.opened import ALL, Opened, rights_of
from dovetail.doors.native.room import Room
from dovetail.errors import DovetailError, OverQuota
from dovetail.limits import BATCH_MESSAGES_MAX
from dovetail.service.accounts import Accounts, Key, Quota
from dovetail.service.audit import Audit
from dovetail.service.broker import Broker, Lane
from dovetail.service.quotas import Quotas, StoreLedger

if TYPE_CHECKING:
    from dovetail.doors.native.arrow import Streams
    from dovetail.doors.native.connection import Connection

log = logging.getLogger("dovetail.native")

Verb = Callable[["Connection", Frame], None]
Make = Callable[[], Coroutine[Any, Any, answers.Answer]]
Permits = Callable[[str, Lane, str], Collection[str]]
"""(account, queue, address of the caller) → the actions that the queue's owner and its policy leave to this account."""
NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator decides about this door."""

    auth: str = "open"
    """open · any · signed"""
    account: str = "000000000000"
    region: str = "us-east-1"
    """Of the namespace in which the queues of an account are: the same as at the SQS door."""
    namespace: str = "default"
    """Where queues are on an open node: the same as for a program that has the node inside."""
    name: str = "dovetail"
    version: str = ""
    account_quota: Quota = NO_QUOTA
    queue_quota: Quota = NO_QUOTA
    staged_bytes_max: int = 0
    """In stages that are open, of all accounts together; 0 is no limit."""


def ping(connection: Connection, frame: Frame) -> None:
    requests.decode(frame)
    connection.tell(answers.Pong(connection.door.broker.store.now()), frame.number)


VERBS: dict[int, Verb] = {
    Kind.PING: ping,
    Kind.OPEN: queues.open_queue,
    Kind.DECLARE: queues.declare,
    Kind.CONFIGURE: queues.configure,
    Kind.DROP: queues.drop,
    Kind.LIST: queues.list_queues,
    Kind.NAME: queues.name,
    Kind.PUSH: pushing.push,
    Kind.PULL: pulling.pull,
    Kind.CONSUME: consuming.consume,
    Kind.CREDIT: consuming.credit,
    Kind.STOP: pulling.stop,
    Kind.COMPLETE: settling.complete,
    Kind.REQUEUE: settling.settle,
    Kind.EXTEND: settling.settle,
    Kind.RELEASE: settling.settle,
    Kind.COMPLETE_PULL: pulling.complete_pull,
    Kind.COMPLETE_PUSH: pushing.complete_push,
    Kind.CANCEL: settling.by_sequence,
    Kind.RESCHEDULE: settling.by_sequence,
    Kind.RECLAIM: settling.by_sequence,
    Kind.PURGE: settling.purge,
    Kind.COUNTS: queues.counts,
    Kind.PEEK: queues.peek,
    Kind.REDRIVE: queues.redrive,
    Kind.REDRIVE_STATUS: queues.redrive_status,
    Kind.REDRIVE_CANCEL: queues.redrive_cancel,
    Kind.PRODUCER: queues.producer,
    Kind.SKIP: queues.skip,
    Kind.TAP_OPEN: tapping.tap_open,
    Kind.TAP_LIST: tapping.tap_list,
    Kind.TAP_READ: tapping.tap_read,
    Kind.TAP_ADVANCE: tapping.tap_advance,
    Kind.TAP_CLOSE: tapping.tap_close,
    Kind.STAGE: staging.stage,
    Kind.PUBLISH: staging.publish,
    Kind.UNSTAGE: staging.unstage,
    Kind.STAGES: staging.stages,
    Kind.RESERVE_OPEN: reserving.reserve_open,
    Kind.RESERVE: reserving.reserve,
    Kind.RESERVE_READ: reserving.reserve_read,
    Kind.RESERVE_SETTLE: reserving.reserve_settle,
    Kind.RESERVE_RELEASE: reserving.reserve_release,
    Kind.RESERVE_CLOSE: reserving.reserve_release,
    Kind.RESERVE_LIST: reserving.reserve_list,
    Kind.FACTS_OPEN: chronicling.facts_open,
    Kind.FACTS_LIST: chronicling.facts_list,
    Kind.FACTS_READ: chronicling.facts_read,
    Kind.FACTS_ADVANCE: chronicling.facts_advance,
    Kind.FACTS_CLOSE: chronicling.facts_close,
}


class Door:
    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        options: Options,
        accounts: Accounts | None = None,
        audit: Audit | None = None,
        permits: Permits | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.broker = broker
        self.options = options
        self.bounds = bounds or Bounds()
        self.verbs = {int(kind): verb for kind, verb in VERBS.items()}
        self.roads = short.ROADS
        self.salt = broker.store.salt
        self.durability = answers.DURABILITY.index(broker.store.promises.durability)
        self.count_request = broker.meters.count_request
        self.draining = False
        self.tasks: set[asyncio.Task[Any]] = set()
        """What is done for clients beside their connections."""
        self.addresses: list[str] = []
        """By which nodes can be reached from elsewhere; told in WELCOME."""
        self._clock = clock
        self._accounts = accounts
        self._audit = audit or Audit(clock)
        self._permits = permits
        self.has_arrow = importlib.util.find_spec("pyarrow") is not None
        self.streams: Streams | None = None
        """What makes Arrow streams, once somebody has asked for one."""
        self._loading: asyncio.Task[None] | None = None
        self.lent = Lent(clock.boot_ms)
        self.room = Room(self.bounds.staging_bytes_max, self.bounds.staging_bytes_all_max)
        self._quotas = Quotas(
            StoreLedger(broker.store, broker.meters),
            account_default=options.account_quota,
            queue_default=options.queue_quota,
            refused=lambda name: broker.meters.quota_refusals.of(name).add(),
        )
        self.accounts_changed()

    # Who calls

    def greet(self) -> Greeting:
        return Greeting(self)

    def find_key(self, access_key_id: str) -> Key | None:
        """The key, if it may be used now."""
        key = self._accounts.find(access_key_id) if self._accounts is not None else None
        if key is None or (key.expires_s is not None and key.expires_s * 1000 <= self._clock.wall_ms()):
            return None
        return key

    def still_valid(self, caller: Caller) -> bool:
        if not caller.signed:
            return True
        key = self.find_key(caller.key)
        return key is not None and key.account == caller.account

    def accounts_changed(self) -> None:
        """Keys are looked up as they are now, also those of open connections; quotas are told."""
        self._quotas.set_accounts({one.id: one.quota for one in self._accounts or ()})

    def welcome(self, caller: Caller, proof: bytes) -> answers.Welcome:
        store, bounds, options = self.broker.store, self.bounds, self.options
        return answers.Welcome(
            proof,
            self.salt,
            store.now(),
            REQUEST_BYTES_MAX,
            store.record_bytes_max,
            BATCH_MESSAGES_MAX,
            bounds.in_flight_max,
            bounds.waits_max,
            round(bounds.idle_s * 1000),
            answers.ARROW_FEATURE * self.has_arrow
            | answers.STAGE_FEATURE
            | answers.RESERVE_FEATURE
            | answers.FACTS_FEATURE * (store.promises.facts and self.has_arrow)
            | answers.UNNUMBERED_FEATURE * (not store.promises.numbering),
            caller.account,
            caller.namespace,
            store.promises.durability,
            options.name,
            options.version,
            self.addresses,
        )

    # Who may do what

    def rights(self, connection: Connection, lane: Lane) -> int:
        """What the caller of this connection may do to a queue."""
        caller = connection.caller
        assert caller is not None
        if not caller.signed:
            return ALL
        if self._permits is not None:
            return rights_of(self._permits(caller.account, lane, connection.peer))
        place = self.broker.store.name_of(lane.queue)
        return ALL if place is not None and caller.owns(place[0]) else 0

    def look_again(self, connection: Connection, opened: Opened) -> None:
        """The rules of a queue have changed, and its policy perhaps."""
        opened.attributes = opened.lane.attributes
        opened.rights = self.rights(connection, opened.lane)

    @property
    def limited(self) -> bool:
        """Whether anything must be asked about quotas."""
        return self._quotas.active

    def check_caller(self, caller: Caller) -> None:
        """May the account ask once more in this second?"""
        self._quotas.request(caller.account, 0, self._clock.boot_ms())

    def check_queue(self, queue: int) -> None:
        """May the queue be asked once more in this second?"""
        self._quotas.request_of_queue(queue, self._clock.boot_ms())

    def check_push(self, queue: int, count: int, size: int) -> None:
        """May the queue and its account hold this much more?"""
        place = self.broker.store.name_of(queue)
        if place is not None:
            self._quotas.push(place[0].partition("/")[0], queue, count, size, self._clock.boot_ms())

    def check_stage(self, size: int) -> None:
        """May stages hold so much more? What nobody publishes stays for a day, and the disk is everybody's."""
        most = self.options.staged_bytes_max
        held = self.broker.store.staged_bytes
        if most and held + self.room.bytes + size > most:
            self.broker.meters.quota_refusals.of("staged_bytes").add()
            text = f"Stages hold {held} bytes and may hold {most}: publish some or give them up."
            raise OverQuota(text, quota="staged_bytes")

    def check_create(self, caller: Caller) -> None:
        """May the account have one more queue?"""
        if self._quotas.active:
            self._quotas.create(caller.account, self._clock.boot_ms())

    # What is noted

    def noted(self, connection: Connection, action: str, queue: Opened | str, make: Make) -> Make:
        """The same work, and afterwards a line of the audit log, refused or not. Its actions have one name at every door."""

        async def work() -> answers.Answer:
            outcome = "ok"
            try:
                return await make()
            except DovetailError as error:
                outcome = refusals.code_of(error)
                raise
            finally:
                caller = connection.caller
                name = queue if isinstance(queue, str) else known
                account, key = (caller.account, caller.key) if caller is not None else ("", "")
                self._audit.act(action, account=account, key_id=key, queue=name, outcome=outcome)

        known = "" if isinstance(queue, str) else (self.broker.catalog.name_of(queue.lane.queue) or "")
        return work

    # Arrow

    def load_arrow(self) -> asyncio.Future[None] | None:
        """What to wait for before `streams` is there; None where it is, or never will be. pyarrow takes a fifth of a second to load: it is
        loaded when the first stream is asked for, in a thread, so that nobody else waits for it."""
        if self.streams is not None or not self.has_arrow:
            return None
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load_arrow())
        return self._loading

    async def _load_arrow(self) -> None:
        try:
            arrow = await asyncio.to_thread(importlib.import_module, "dovetail.doors.native.arrow")
            self.streams = arrow.Streams()
        except Exception:
            self.has_arrow = False
            log.exception("pyarrow is there and cannot be loaded: taps are read in plain columns only")
        self._loading = None
