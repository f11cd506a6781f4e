"""Counters, gauges and histograms by label, rendered in the Prometheus text format. Pure: no clock, no thread, no dependency.

A metric is declared once and its children are fetched once, where they are used: `sent = messages.of("orders")`, then `sent.add()`,
which is one addition. Looking a child up on each call would cost more than what it counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counter:
    """Only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def lines(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braces(labels)} {_number(self.value)}"


class Gauge:
    """Goes up and down. `read` replaces the value by a question that is asked when the page is rendered."""

    __slots__ = ("_question", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self._question: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def read(self, question: Callable[[], float]) -> None:
        self._question = question

    def lines(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braces(labels)} {_number(self._question() if self._question is not None else self.value)}"


class Histogram:
    """How many observations were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            le = f'le="{_number(bound)}"'
            yield f"{name}_bucket{_braces(f'{labels},{le}' if labels else le)} {total}"
        yield f"{name}_sum{_braces(labels)} {_number(self.sum)}"
        yield f"{name}_count{_braces(labels)} {total}"


M = TypeVar("M", Counter, Gauge, Histogram)


class Family(Generic[M]):
    """One metric under all its labels."""

    def __init__(self, name: str, kind: str, doc: str, labels: Sequence[str], make: Callable[[], M]) -> None:
        if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name):
            raise ValueError(f"{name!r} is no name of a metric")
        for label in labels:
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) or label.startswith("__") or label == "le":
                raise ValueError(f"{label!r} is no name of a label")
        self.name, self.kind, self.doc, self.labels = name, kind, doc, tuple(labels)
        self._make: Callable[[], M] = make
        self._children: dict[tuple[str, ...], M] = {}

    def of(self, *values: str) -> M:
        """The child with these label values; made at the first call."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
            child = self._children[values] = self._make()
        return child

    def forget(self, *values: str) -> None:
        """Drop a child whose subject is gone (a dropped queue), so that labels do not pile up."""
        self._children.pop(values, None)

    def lines(self) -> Iterator[str]:
        doc = self.doc.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {self.name} {doc}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, child in sorted(self._children.items()):
            yield from child.lines(self.name, ",".join(f'{k}="{_escape(v)}"' for k, v in zip(self.labels, values, strict=True)))


class Registry:
    """All metrics of one owner. Nothing is global: whoever counts is given a registry."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Counter] | Family[Gauge] | Family[Histogram]] = {}

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Family[Counter]:
        family = Family(name, "counter", doc, labels, Counter)
        self._put(family)
        return family

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> Family[Gauge]:
        family = Family(name, "gauge", doc, labels, Gauge)
        self._put(family)
        return family

    def histogram(self, name: str, doc: str, labels: Sequence[str] = (), bounds: Sequence[float] = LATENCY_BUCKETS_S) -> Family[Histogram]:
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"the bounds of {name} do not grow")
        family = Family(name, "histogram", doc, labels, lambda: Histogram(bounds))
        self._put(family)
        return family

    def _put(self, family: Family[Counter] | Family[Gauge] | Family[Histogram]) -> None:
        if family.name in self._families:
            raise ValueError(f"{family.name} is declared twice")
        self._families[family.name] = family

    def render(self) -> str:
        """The page that /metrics serves."""
        return "".join(f"{line}\n" for name in sorted(self._families) for line in self._families[name].lines())


def _braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
