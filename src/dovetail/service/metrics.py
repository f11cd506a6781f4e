"""Counters, gauges and histograms by label, rendered in the Prometheus text format. Pure: no clock, no thread, no dependency.

A metric is declared once and its children are fetched once, where they are used: `sent = messages.of("orders")`, then `sent.add()`,
which is one addition. Looking a child up on each call would cost more than what it counts.

A page of ten thousand queues is megabytes. It is made in pieces (`Registry.pieces`), so that whoever renders it can let others run between
two of them, and what does not change from page to page, the order of the children and the text of their labels, is kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

PIECE_LINES = 1000
"""Lines of one piece of the page: half a millisecond of work."""

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counter:
    """Only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def write(self, name: str, labels: str, lines: list[str]) -> None:
        lines.append(f"{name}{labels} {_number(self.value)}")


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

    def write(self, name: str, labels: str, lines: list[str]) -> None:
        lines.append(f"{name}{labels} {_number(self._question() if self._question is not None else self.value)}")


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

    def write(self, name: str, labels: str, lines: list[str]) -> None:
        total, others = 0, f"{labels[1:-1]}," if labels else ""
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{others}le="{_number(bound)}"}} {total}')
        lines.append(f"{name}_sum{labels} {_number(self.sum)}")
        lines.append(f"{name}_count{labels} {total}")


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
        self._children: dict[tuple[str, ...], tuple[str, M]] = {}
        """By the values of the labels: their text on the page, and the child."""
        self._order: list[tuple[str, M]] | None = []
        """The children in the order of their values; None after one came or went. Replaced and never changed, so that a page that is
        half written goes on in its own."""

    def of(self, *values: str) -> M:
        """The child with these label values; made at the first call."""
        known = self._children.get(values)
        if known is not None:
            return known[1]
        child = self._make()
        self.adopt(child, *values)
        return child

    def adopt(self, child: M, *values: str) -> None:
        """Show a child that counted before its label values were known."""
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
        self._children[values] = self._text(values), child
        self._order = None

    def forget(self, *values: str) -> None:
        """Drop a child whose subject is gone (a dropped queue), so that labels do not pile up."""
        if self._children.pop(values, None) is not None:
            self._order = None

    def pieces(self, lines_max: int) -> Iterator[list[str]]:
        """Its lines, about `lines_max` at a time (a histogram is not cut)."""
        doc = self.doc.replace("\\", "\\\\").replace("\n", "\\n")
        lines = [f"# HELP {self.name} {doc}", f"# TYPE {self.name} {self.kind}"]
        if self._order is None:
            self._order = [self._children[values] for values in sorted(self._children)]
        name = self.name
        for labels, child in self._order:
            child.write(name, labels, lines)
            if len(lines) >= lines_max:
                yield lines
                lines = []
        yield lines

    def _text(self, values: tuple[str, ...]) -> str:
        inside = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(self.labels, values, strict=True))
        return f"{{{inside}}}" if inside else ""


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

    def pieces(self, lines_max: int = PIECE_LINES) -> Iterator[str]:
        """The page that /metrics serves, cut at ends of lines. Children may come and go between two pieces."""
        lines: list[str] = []
        for name in sorted(self._families):
            for some in self._families[name].pieces(lines_max):
                lines += some
                if len(lines) >= lines_max:
                    yield "\n".join(lines) + "\n"
                    lines = []
        if lines:
            yield "\n".join(lines) + "\n"

    def render(self) -> str:
        """The whole page at once, for those who have few queues or time."""
        return "".join(self.pieces())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if type(value) is int:
        return str(value)
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
