"""What an operator chooses by: the counters of each queue, and the gauges that are read from the store when the page is asked for.

Counting is on the road of every message and costs an addition; looking and rendering is beside it, in steps between which the loop goes
on. Nothing here grows with what callers send: a queue has a fixed number of series, the number of queues that have their own is bounded
(the others share one), and how many different clients a queue has is estimated in 128 bytes. No clock is read here: the store's time is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log

from dovetail.service.lags import Lags
from dovetail.service.metrics import LATENCY_BUCKETS_S, Counter, Family, Gauge, Histogram, Registry
from dovetail.stores.store import Counts, Delivery, Store

QUEUES_SHOWN_MAX = 10_000
"""Queues with series of their own; those that were met later share the label `(others)`."""
STEP_WORK = 200
"""Queues that are looked at before others may run: about a millisecond."""
NEW_QUEUE_WORK = 20
"""What a queue that was not looked at before counts for: its series have to be made."""

CROWD_BITS = 1024
CROWD_SLICE_MS = 30_000

COMMIT_BUCKETS_S = (0.00005, 0.0001, 0.00025, *LATENCY_BUCKETS_S)
"""A fast disk syncs in 50 µs; the usual buckets would show such a node as one bar."""

REQUEST_KINDS_MAX = 1000
"""Pairs of action and outcome; what comes beyond is counted as (other, other), so that no client can make labels."""
REQUEST_LABEL_CHARACTERS_MAX = 64

_OTHERS = ("", "(others)")
_STATES = ("visible", "delayed", "leased", "reserved")


class Crowd:
    """How many different clients were seen in the last half to whole minute, in 128 bytes however many come.

    Linear counting: each client sets one of 1024 bits, and from the share that is still clear follows how many there were. A handful is
    counted exactly but for a collision in a hundred; a thousand within a few percent. (A set would be exact, and would let one client
    with many names fill the memory of the node.)
    """

    __slots__ = ("_before", "_bits", "_slice")

    def __init__(self) -> None:
        self._bits: bytearray | None = None
        self._before: bytearray | None = None
        self._slice = 0

    def see(self, token: str) -> None:
        # A text, because the hash of a text is as good as random; that of numbers in a row is even, and would be counted too high.
        at = hash(token) & (CROWD_BITS - 1)
        bits = self._bits
        if bits is None:
            bits = self._bits = bytearray(CROWD_BITS // 8)
        bits[at >> 3] |= 1 << (at & 7)

    def count(self, now_ms: int) -> int:
        """Looked at less often than every half minute, it tells of the time since the last look."""
        current = now_ms // CROWD_SLICE_MS
        if current != self._slice:
            self._before, self._bits, self._slice = self._bits, None, current
        if self._bits is None and self._before is None:
            return 0
        seen = int.from_bytes(self._bits or b"", "big") | int.from_bytes(self._before or b"", "big")
        clear = max(1, CROWD_BITS - seen.bit_count())
        return round(CROWD_BITS * log(CROWD_BITS / clear))


class Meter:
    """One queue's counters. They count from the first message on; under which label they are shown is settled at the next look."""

    __slots__ = ("bytes", "completed", "consumers", "delivered", "publishers", "pushed", "redelivered", "repeats")

    def __init__(self) -> None:
        self.pushed = Counter()
        self.repeats = Counter()
        self.delivered = Counter()
        self.redelivered = Counter()
        self.completed = Counter()
        self.bytes = Counter()
        self.publishers = Crowd()
        self.consumers = Crowd()

    def seen_publisher(self, token: str) -> None:
        """Somebody sent. The token is whatever tells one client from another: its address, or its access key."""
        self.publishers.see(token)

    def seen_consumer(self, token: str) -> None:
        """Somebody asked for messages, whether or not there were any."""
        self.consumers.see(token)

    def count_delivered(self, got: Sequence[Delivery]) -> None:
        self.delivered.value += len(got)
        for one in got:
            if one.receives > 1:
                self.redelivered.value += 1


class Requests:
    """What was asked of a door, by action and outcome, and how long it took."""

    def __init__(self, registry: Registry) -> None:
        self._counts = registry.counter("dovetail_requests_total", "Requests by action and outcome.", ("action", "code"))
        self._times = registry.histogram("dovetail_request_seconds", "Time to answer, waiting for messages included.", ("action",))
        self._kinds: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def count(self, action: str, code: str, seconds: float) -> None:
        """`code` is `ok` or the protocol's word for the error."""
        kind = self._kinds.get((action, code))
        if kind is None:
            kind = self._kind(action, code)
        kind[0].value += 1
        kind[1].observe(seconds)

    def _kind(self, action: str, code: str) -> tuple[Counter, Histogram]:
        if len(self._kinds) >= REQUEST_KINDS_MAX:
            action = code = "other"
        shown_action, shown_code = action[:REQUEST_LABEL_CHARACTERS_MAX], code[:REQUEST_LABEL_CHARACTERS_MAX]
        made = self._kinds[action, code] = self._counts.of(shown_action, shown_code), self._times.of(shown_action)
        return made


class _Row:
    """One label's gauges, fetched once. Looking ten gauges up for each of ten thousand queues cost half of the look."""

    __slots__ = ("buried", "consumers", "label", "oldest", "publishers", "receivers", "states", "stranded")

    def __init__(self, meters: Meters, label: tuple[str, str]) -> None:
        self.label = label
        self.states = [meters.messages.of(*label, state) for state in _STATES]
        self.oldest = meters.oldest.of(*label)
        self.receivers = meters.receivers.of(*label)
        self.buried = meters.buried.of(*label)
        self.stranded = meters.stranded.of(*label)
        self.publishers = meters.publishers.of(*label)
        self.consumers = meters.consumers.of(*label)

    def set(self, counts: Counts, receivers: int, meter: Meter, now_ms: int) -> None:
        visible, delayed, leased, reserved = self.states
        visible.value, delayed.value, leased.value = counts.visible, counts.delayed, counts.leased
        reserved.value = counts.reserved
        self.oldest.value = counts.oldest_age_ms / 1000
        self.receivers.value = receivers
        self.buried.value = counts.dead_lettered
        self.stranded.value = counts.stranded
        self.publishers.value = meter.publishers.count(now_ms)
        self.consumers.value = meter.consumers.count(now_ms)


class Meters:
    def __init__(self, registry: Registry, queues_max: int = QUEUES_SHOWN_MAX) -> None:
        labels = ("namespace", "queue")
        self.pushed = registry.counter("dovetail_messages_pushed_total", "Messages stored.", labels)
        self.repeats = registry.counter("dovetail_messages_repeated_total", "Sends that were recognised as repeats.", labels)
        self.delivered = registry.counter("dovetail_messages_delivered_total", "Deliveries, repeated ones included.", labels)
        self.redelivered = registry.counter(
            "dovetail_messages_redelivered_total", "Deliveries of messages that had been delivered.", labels
        )
        self.completed = registry.counter("dovetail_messages_completed_total", "Messages completed.", labels)
        self.bytes = registry.counter("dovetail_bytes_pushed_total", "Bytes of bodies sent, repeats included.", labels)
        self.messages = registry.gauge("dovetail_messages", "Messages by state.", (*labels, "state"))
        self.oldest = registry.gauge("dovetail_oldest_message_age_seconds", "Age of the oldest message.", labels)
        self.receivers = registry.gauge("dovetail_receivers_waiting", "Receivers that wait for a message.", labels)
        self.publishers = registry.gauge("dovetail_publishers", "Different senders in the last minute, about.", labels)
        self.consumers = registry.gauge("dovetail_consumers", "Different receivers in the last minute, about.", labels)
        self.buried = registry.gauge("dovetail_messages_dead_lettered", "Messages moved to the dead-letter queue so far.", labels)
        self.stranded = registry.gauge(
            "dovetail_deliveries_past_limit", "Deliveries past the limit: the dead-letter queue is gone.", labels
        )
        self._lags = Lags(registry)
        self.queues = registry.gauge("dovetail_queues", "Queues that there are.").of()
        self.commits = registry.histogram(
            "dovetail_commit_seconds", "From append to durable and applied, of each entry.", bounds=COMMIT_BUCKETS_S
        ).of()
        """Its `observe` is what a store is given to tell how long each commit took."""
        self.quota_refusals = registry.counter("dovetail_quota_refusals_total", "Requests refused by a quota.", ("quota",))
        self.audit_failures = registry.counter("dovetail_audit_failures_total", "Administrative acts that the audit file missed.").of()
        self.count_request = Requests(registry).count
        """`count_request(action, code, seconds)`: for the doors."""
        self._registry = registry
        self._queues_max = queues_max
        self._store: dict[str, Gauge] = {}
        self._by_queue: dict[int, Meter] = {}
        self._rows: dict[int, _Row] = {}
        self._others = Meter()
        self._others_row: _Row | None = None
        self._own = 0

    def of(self, queue: int) -> Meter:
        meter = self._by_queue.get(queue)
        if meter is None:
            if self._own < self._queues_max:
                self._own += 1
                meter = Meter()
            else:
                meter = self._others
            self._by_queue[queue] = meter
        return meter

    async def page(self, store: Store, waiting: Callable[[int], int], beside: Iterable[Registry] = ()) -> bytes:
        """The page, made in steps: however many queues there are, no other caller waits for more than one step. `beside` are registries
        of others (a door's) that go onto the same page, so that megabytes need not be put together twice."""
        for _ in self.steps(store, waiting):
            await asyncio.sleep(0)
        pieces = []
        for registry in (*beside, self._registry):
            for piece in registry.pieces():
                pieces.append(piece.encode())
                await asyncio.sleep(0)
        return b"".join(pieces)

    def look(self, store: Store, waiting: Callable[[int], int]) -> None:
        """Read the gauges of every queue there is, at once; forget those of queues that are gone."""
        for _ in self.steps(store, waiting):
            pass

    def steps(self, store: Store, waiting: Callable[[int], int]) -> Iterator[None]:
        """`look`, step by step. Queues may be made and dropped between two steps: a new one waits for the next look."""
        for name, (value, doc) in store.facts().items():
            if name not in self._store:
                self._store[name] = self._registry.gauge(name, doc).of()
            self._store[name].set(value)
        queues = store.all_queues()
        self.queues.set(len(queues))
        for queue in self._by_queue.keys() - {queue for _, _, queue in queues}:
            self._forget(queue)
        yield
        now_ms = store.now()
        others: list[Counts] = []
        others_waiting = 0
        work = 0
        for space, name, queue in queues:
            lane = store.lane(queue)
            work += 1 if queue in self._rows else NEW_QUEUE_WORK
            if lane is not None:
                meter = self.of(queue)
                if meter is self._others:
                    others.append(lane.counts())
                    others_waiting += waiting(queue)
                else:
                    self._row(queue, (space, name), meter).set(lane.counts(), waiting(queue), meter, now_ms)
                    self._lags.look(space, name, lane)
            if work >= STEP_WORK:
                work = 0
                yield
        self._lags.look_at_facts(store)
        self._lags.looked()
        if others or self._others_row is not None:
            self._look_at_others(others, others_waiting, now_ms)

    def _row(self, queue: int, label: tuple[str, str], meter: Meter) -> _Row:
        row = self._rows.get(queue)
        if row is None:
            row = self._rows[queue] = self._shown(label, meter)
        return row

    def _shown(self, label: tuple[str, str], meter: Meter) -> _Row:
        for family, counter in self._counters(meter):
            family.adopt(counter, *label)
        return _Row(self, label)

    def _counters(self, meter: Meter) -> list[tuple[Family[Counter], Counter]]:
        return [
            (self.pushed, meter.pushed),
            (self.repeats, meter.repeats),
            (self.delivered, meter.delivered),
            (self.redelivered, meter.redelivered),
            (self.completed, meter.completed),
            (self.bytes, meter.bytes),
        ]

    def _look_at_others(self, found: Sequence[Counts], receivers: int, now_ms: int) -> None:
        """The queues beyond the bound, in one row: sums, and the oldest message of all."""
        if self._others_row is None:
            self._others_row = self._shown(_OTHERS, self._others)
        sums = [sum(column) for column in zip(*found, strict=True)] or [0] * len(Counts._fields)
        total = Counts(*sums)._replace(oldest_age_ms=max((one.oldest_age_ms for one in found), default=0))
        self._others_row.set(total, receivers, self._others, now_ms)

    def _forget(self, queue: int) -> None:
        meter = self._by_queue.pop(queue)
        if meter is not self._others:
            self._own -= 1
        row = self._rows.pop(queue, None)
        if row is None:
            return
        for family, _ in self._counters(meter):
            family.forget(*row.label)
        for gauge in (self.oldest, self.receivers, self.buried, self.stranded, self.publishers, self.consumers):
            gauge.forget(*row.label)
        for state in _STATES:
            self.messages.forget(*row.label, state)
