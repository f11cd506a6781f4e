"""How far those are behind who read by name: taps of a queue, owners of its reservations, facts taps of a namespace. Gauges, read when the
page is made.

A name is a label, so their number is bounded; those that are gone leave the page.
"""

from __future__ import annotations

from dovetail.service.metrics import Gauge, Registry
from dovetail.stores.store import Lane, Store

SHOWN_MAX = 10_000
"""Taps with series of their own, and as many reservations: those that are met first."""


class Named:
    """Gauges with these labels, all set and forgotten together."""

    def __init__(self, registry: Registry, labels: tuple[str, ...], *metrics: tuple[str, str]) -> None:
        self._families = [registry.gauge(name, doc, labels) for name, doc in metrics]
        self._shown: dict[tuple[str, ...], list[Gauge]] = {}
        self._seen: set[tuple[str, ...]] = set()

    def set(self, labels: tuple[str, ...], *values: float) -> None:
        gauges = self._shown.get(labels)
        if gauges is None:
            if len(self._shown) >= SHOWN_MAX:
                return
            gauges = self._shown[labels] = [family.of(*labels) for family in self._families]
        self._seen.add(labels)
        for gauge, value in zip(gauges, values, strict=True):
            gauge.value = value

    def looked(self) -> None:
        """Every queue was looked at: what was not seen is gone."""
        for gone in self._shown.keys() - self._seen:
            del self._shown[gone]
            for family in self._families:
                family.forget(*gone)
        self._seen = set()


class Lags:
    def __init__(self, registry: Registry) -> None:
        self._taps = Named(
            registry,
            ("namespace", "queue", "tap"),
            ("dovetail_tap_lag_messages", "Messages that a tap has not let go of."),
            ("dovetail_tap_lag_seconds", "How long ago the first of them was pushed, about."),
            ("dovetail_tap_lost_messages", "Messages that a cut took from a tap, until its reader has gone on behind them."),
        )
        self._reservations = Named(
            registry,
            ("namespace", "queue", "reservation"),
            ("dovetail_reservation_messages", "Messages set aside in batches that are not settled."),
            ("dovetail_reservation_batches", "Batches that are not settled."),
            ("dovetail_reservation_settled_batch", "The last batch that was settled; -1 before the first."),
        )

        self._facts = Named(
            registry,
            ("namespace", "tap"),
            ("dovetail_facts_tap_lag_facts", "Facts that a facts tap has not let go of, those of other namespaces included."),
            ("dovetail_facts_tap_lag_seconds", "How long ago the first of them happened, about."),
            ("dovetail_facts_tap_lost_facts", "Facts that a cut took from a facts tap, until its reader has gone on behind them."),
        )

    def look_at_facts(self, store: Store) -> None:
        for space, tap in store.facts_taps():
            age_ms = store.facts_age_ms(space, tap.name)
            self._facts.set((space, tap.name), tap.end - tap.next, age_ms / 1000, tap.lost_count)

    def look(self, space: str, queue: str, lane: Lane) -> None:
        for tap in lane.taps():
            self._taps.set((space, queue, tap.name), tap.end - tap.next, lane.tap_age_ms(tap.name) / 1000, tap.lost_count)
        for one in lane.reservations():
            self._reservations.set((space, queue, one.name), sum(one.batches.values()), len(one.batches), one.settled)

    def looked(self) -> None:
        self._taps.looked()
        self._reservations.looked()
        self._facts.looked()
