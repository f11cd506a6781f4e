"""Results: one JSON object for programs (scenario, figures, bars, peers), a table for people. It measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .scenario import Bar, Figures, Scenario


@dataclass(frozen=True, slots=True)
class Result:
    scenario: Scenario
    figures: Figures
    peers: Mapping[str, str]
    quick: bool

    def bars(self) -> list[dict[str, Any]]:
        return [
            {"name": self._name(bar), "value": _rounded(bar.value(self.figures)), "bar": bar.bound, "ok": bar.ok(self.figures)}
            for bar in self.scenario.bars
        ]

    def _name(self, bar: Bar) -> str:
        """A quick run has the figures, not the sizes that the bar is about, and says so."""
        return f"{bar.name} (quick)" if self.quick else bar.name

    def json(self) -> str:
        told = {"scenario": self.scenario.name, "figures": _rounded(self.figures), "bars": self.bars(), "peers": dict(self.peers)}
        return json.dumps(told, ensure_ascii=False)

    def text(self) -> str:
        lines = [f"{self.scenario.name}: {self.scenario.doc}", ""]
        rows = list(_flat(_rounded(self.figures)))
        width = max((len(name) for name, _ in rows), default=0)
        lines += [f"  {name:<{width}}  {value}" for name, value in rows]
        lines.append("")
        width = max((len(self._name(bar)) for bar in self.scenario.bars), default=0)
        for bar, made in zip(self.scenario.bars, self.bars(), strict=True):
            value = "not measured" if made["value"] is None else f"{made['value']:g}"
            lines.append(f"  {'kept  ' if made['ok'] else 'MISSED'}  {made['name']:<{width}}  {value} {bar.side} {bar.bound:g}")
        lines += [f"  peer    {name} {version}" for name, version in self.peers.items()]
        return "\n".join(lines)


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _rounded(value: Any) -> Any:
    """Four digits that mean something; the rest is noise that hides them."""
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < 10_000 else round(value)
    return value
