"""What is counted for each queue, and the gauges that are read from the store when the page is asked for."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.service.metrics import Gauge, Registry
from dovetail.stores.store import Store


class Meter:
    """One queue's counters, looked up once."""

    __slots__ = ("bytes", "completed", "delivered", "pushed", "repeats")

    def __init__(self, meters: Meters, name: str) -> None:
        self.pushed = meters.pushed.of(name)
        self.repeats = meters.repeats.of(name)
        self.delivered = meters.delivered.of(name)
        self.completed = meters.completed.of(name)
        self.bytes = meters.bytes.of(name)


class Meters:
    def __init__(self, registry: Registry) -> None:
        labels = ("queue",)
        self.pushed = registry.counter("dovetail_messages_pushed_total", "Messages stored.", labels)
        self.repeats = registry.counter("dovetail_messages_repeated_total", "Sends that were recognised as repeats.", labels)
        self.delivered = registry.counter("dovetail_messages_delivered_total", "Deliveries, repeated ones included.", labels)
        self.completed = registry.counter("dovetail_messages_completed_total", "Messages completed.", labels)
        self.bytes = registry.counter("dovetail_bytes_pushed_total", "Bytes of bodies sent.", labels)
        self.messages = registry.gauge("dovetail_messages", "Messages by state.", (*labels, "state"))
        self.oldest = registry.gauge("dovetail_oldest_message_age_seconds", "Age of the oldest message.", labels)
        self.receivers = registry.gauge("dovetail_receivers_waiting", "Receivers that wait for a message.", labels)
        self.buried = registry.gauge("dovetail_messages_dead_lettered", "Messages moved to the dead-letter queue so far.", labels)
        self.stranded = registry.gauge(
            "dovetail_deliveries_past_limit", "Deliveries past the limit: the dead-letter queue is gone.", labels
        )
        self.lag = registry.gauge("dovetail_tap_lag_messages", "Messages that a tap has not read.", (*labels, "tap"))
        self._registry = registry
        self._store: dict[str, Gauge] = {}
        self._by_queue: dict[int, Meter] = {}
        self._names: dict[int, str] = {}

    def of(self, queue: int, name_of: Callable[[int], str | None]) -> Meter:
        meter = self._by_queue.get(queue)
        if meter is None:
            name = self._names[queue] = name_of(queue) or f"#{queue}"
            meter = self._by_queue[queue] = Meter(self, name)
        return meter

    def look(self, store: Store, waiting: Callable[[int], int]) -> None:
        """Read the gauges of every queue there is; forget those of queues that are gone."""
        for name, (value, doc) in store.facts().items():
            if name not in self._store:
                self._store[name] = self._registry.gauge(name, doc).of()
            self._store[name].set(value)
        for queue in [queue for queue in self._names if store.lane(queue) is None]:
            self._forget(queue)
        for space, name, queue in store.all_queues():
            lane = store.lane(queue)
            if lane is None:
                continue
            self.of(queue, lambda _, name=name, space=space: f"{space}/{name}" if space else name)  # type: ignore[misc]  # bound now
            label = self._names[queue]
            counts = lane.counts()
            for state in ("visible", "delayed", "leased"):
                self.messages.of(label, state).set(getattr(counts, state))
            self.oldest.of(label).set(counts.oldest_age_ms / 1000)
            self.receivers.of(label).set(waiting(queue))
            self.buried.of(label).set(counts.dead_lettered)
            self.stranded.of(label).set(counts.stranded)
            for tap in lane.taps():
                self.lag.of(label, tap.name).set(tap.end - tap.next)

    def _forget(self, queue: int) -> None:
        label = self._names.pop(queue)
        self._by_queue.pop(queue, None)
        for family in (self.pushed, self.repeats, self.delivered, self.completed, self.bytes):
            family.forget(label)
        for gauge in (self.oldest, self.receivers, self.buried, self.stranded):
            gauge.forget(label)
        for state in ("visible", "delayed", "leased"):
            self.messages.forget(label, state)
