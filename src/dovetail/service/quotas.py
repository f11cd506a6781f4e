"""Quotas: how much one account, and one queue, may have and ask for. A quota that is reached refuses with its name and its limit.

    requests_per_s   a bucket that holds one second's worth and is filled as time passes
    messages_max     messages that wait, in whatever state
    bytes_max        bytes of their bodies, estimated by the mean of what was sent
    queues_max       queues of an account

It knows no clock (`now_ms` is a parameter and only goes on), no door and no engine: what waits is asked of a `Ledger`. How much waits is
looked up now and then and not on each send; between two looks what was admitted is added. So a quota can be passed by what was on its way
during the look, and one that was reached refuses a moment longer than it must. Where no quota is set nothing is looked up at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from dovetail.errors import OverQuota, Throttled
from dovetail.service.accounts import QUOTA_NAMES, Quota
from dovetail.service.meters import Meters
from dovetail.stores.store import Lane, Store

LOOK_MS = 100
"""How long a look at one queue is good for. A look at a thousand is good for a second: looking costs a fraction of a percent at most."""
SAMPLE_MESSAGES = 16
KEPT_MAX = 20_000
"""Accounts, and queues, whose buckets are remembered. Whoever is forgotten begins with a full one."""


NONE = Quota()


class Waiting(NamedTuple):
    """What waits in a queue."""

    messages: int
    bytes: int


class Ledger(Protocol):
    """Where quotas look. Asked now and then, never on each request."""

    def queues(self, account: str) -> list[int]: ...

    def waiting(self, queue: int) -> Waiting: ...


class Bucket:
    """Tokens for requests: one second's worth at most, a thousandth of a token per millisecond and request per second."""

    __slots__ = ("_at_ms", "_rate", "_thousandths")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._thousandths = rate * 1000
        self._at_ms = now_ms

    def take(self, now_ms: int) -> int:
        """0: taken. Otherwise in how many milliseconds there will be one."""
        passed = now_ms - self._at_ms
        if passed > 0:
            self._thousandths = min(self._rate * 1000, self._thousandths + passed * self._rate)
            self._at_ms = now_ms
        if self._thousandths >= 1000:
            self._thousandths -= 1000
            return 0
        return -(-(1000 - self._thousandths) // self._rate) if self._rate else 1000


class _Holder:
    """An account or a queue with its quota: its bucket, and what waits as far as is known."""

    __slots__ = ("bounded", "bucket", "bytes", "looked_ms", "messages", "name", "quota", "valid_ms")

    def __init__(self, name: str, quota: Quota, now_ms: int) -> None:
        self.name = name
        self.quota = quota
        self.bucket = Bucket(quota.requests_per_s, now_ms) if quota.requests_per_s is not None else None
        self.bounded = quota.messages_max is not None or quota.bytes_max is not None
        self.messages = 0
        self.bytes = 0
        self.looked_ms = now_ms
        self.valid_ms = -1

    def request(self, now_ms: int) -> None:
        wait_ms = self.bucket.take(now_ms) if self.bucket is not None else 0
        if wait_ms:
            text = f"{self.name} may make {self.quota.requests_per_s} requests a second; try again in {wait_ms} ms."
            raise Throttled(text, quota="requests_per_s", retry_after_ms=wait_ms)

    def check(self, messages: int, size: int, look: Callable[[], tuple[Waiting, int]], now_ms: int) -> None:
        quota = self.quota
        if not self.bounded:
            return
        if not 0 <= now_ms - self.looked_ms <= self.valid_ms:
            (self.messages, self.bytes), looked_at = look()
            self.looked_ms, self.valid_ms = now_ms, max(LOOK_MS, looked_at)
        if quota.messages_max is not None and self.messages + messages > quota.messages_max:
            text = f"{self.name} has about {self.messages} messages and may have {quota.messages_max}."
            raise OverQuota(text, quota="messages_max")
        if quota.bytes_max is not None and self.bytes + size > quota.bytes_max:
            raise OverQuota(f"{self.name} has about {self.bytes} bytes of messages and may have {quota.bytes_max}.", quota="bytes_max")

    def admit(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class Quotas:
    """What doors ask before they do. Each question answers with nothing, or raises `OverQuota` (`Throttled` for requests)."""

    def __init__(
        self,
        ledger: Ledger,
        accounts: Mapping[str, Quota] | None = None,
        *,
        account_default: Quota = NONE,
        queue_default: Quota = NONE,
        queue_quota: Callable[[int], Quota] | None = None,
        refused: Callable[[str], None] = lambda quota: None,
    ) -> None:
        """What an account or a queue (`queue_quota`) has no value for is taken from the default. `refused` is told the quota's name."""
        self._ledger = ledger
        self._account_default = account_default
        self._queue_default = queue_default
        self._queue_quota = queue_quota
        self._refused = refused
        self._accounts: dict[str, _Holder] = {}
        self._queues: dict[int, _Holder] = {}
        self.set_accounts(accounts or {})

    def set_accounts(self, quotas: Mapping[str, Quota]) -> None:
        """The accounts' quotas, at the start and whenever they change. Everybody begins with a full bucket."""
        self._by_account = dict(quotas)
        self._accounts.clear()
        self.active = self._queue_quota is not None or any(
            quota != NONE for quota in (self._account_default, self._queue_default, *quotas.values())
        )
        """Whether anything is set for anybody; else every question is answered by one look at this."""

    def request(self, account: str, queue: int, now_ms: int) -> None:
        """One request of any kind. `queue` is 0 where the request names none."""
        if not self.active:
            return
        try:
            self._account(account, now_ms).request(now_ms)
            if queue:
                self._queue(queue, now_ms).request(now_ms)
        except OverQuota as error:
            self._refused(error.quota)
            raise

    def request_of_queue(self, queue: int, now_ms: int) -> None:
        """One request about this queue, whoever makes it; that of its account is asked before."""
        try:
            self._queue(queue, now_ms).request(now_ms)
        except OverQuota as error:
            self._refused(error.quota)
            raise

    def push(self, account: str, queue: int, messages: int, size: int, now_ms: int) -> None:
        """So many messages of so many bytes in all. `account` is the one that the queue belongs to, whoever sends."""
        if not self.active:
            return
        holder, lane = self._account(account, now_ms), self._queue(queue, now_ms)
        if not holder.bounded and not lane.bounded:
            return
        try:
            lane.check(messages, size, lambda: (self._ledger.waiting(queue), 1), now_ms)
            holder.check(messages, size, lambda: self._look(account), now_ms)
        except OverQuota as error:
            self._refused(error.quota)
            raise
        lane.admit(messages, size)
        holder.admit(messages, size)

    def create(self, account: str, now_ms: int) -> None:
        """One more queue."""
        if not self.active:
            return
        most = self._account(account, now_ms).quota.queues_max
        if most is not None and len(self._ledger.queues(account)) >= most:
            self._refused("queues_max")
            raise OverQuota(f"The account {account} has {most} queues and may have no more.", quota="queues_max")

    def _look(self, account: str) -> tuple[Waiting, int]:
        queues = self._ledger.queues(account)
        found = [self._ledger.waiting(queue) for queue in queues]
        return Waiting(sum(one.messages for one in found), sum(one.bytes for one in found)), len(queues)

    def _account(self, account: str, now_ms: int) -> _Holder:
        holder = self._accounts.get(account)
        if holder is None:
            _make_room(self._accounts)
            quota = _merged(self._by_account.get(account, NONE), self._account_default)
            holder = self._accounts[account] = _Holder(f"The account {account}", quota, now_ms)
        return holder

    def _queue(self, queue: int, now_ms: int) -> _Holder:
        holder = self._queues.get(queue)
        if holder is None:
            _make_room(self._queues)
            quota = self._queue_default if self._queue_quota is None else _merged(self._queue_quota(queue), self._queue_default)
            holder = self._queues[queue] = _Holder("The queue", quota, now_ms)
        return holder


class StoreLedger:
    """The ledger of a node: counts from the store, mean sizes from the meters."""

    def __init__(
        self, store: Store, meters: Meters, account_of: Callable[[str], str] = lambda namespace: namespace.partition("/")[0]
    ) -> None:
        self._store = store
        self._meters = meters
        self._account_of = account_of
        """The account that a namespace belongs to."""

    def queues(self, account: str) -> list[int]:
        return [queue for space, _, queue in self._store.all_queues() if self._account_of(space) == account]

    def waiting(self, queue: int) -> Waiting:
        lane = self._store.lane(queue)
        if lane is None:
            return Waiting(0, 0)
        counts = lane.counts()
        messages = counts.visible + counts.delayed + counts.leased + counts.reserved
        return Waiting(messages, messages * self._mean_bytes(queue, lane) if messages else 0)

    def _mean_bytes(self, queue: int, lane: Lane) -> int:
        """Of what was sent since the start; where that is nothing, of the first few that wait."""
        meter = self._meters.of(queue)
        sent = meter.pushed.value + meter.repeats.value
        if sent:
            return round(meter.bytes.value / sent)
        sample = lane.peek(SAMPLE_MESSAGES)
        return sum(len(one.body) for one in sample) // len(sample) if sample else 0


def _merged(own: Quota, default: Quota) -> Quota:
    values = {name: getattr(own, name) for name in QUOTA_NAMES}
    return Quota(**{name: getattr(default, name) if value is None else value for name, value in values.items()})


def _make_room(holders: dict[Any, _Holder]) -> None:
    if len(holders) >= KEPT_MAX:
        for oldest in list(holders)[: KEPT_MAX // 2]:
            del holders[oldest]
