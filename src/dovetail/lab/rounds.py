"""Interleaved rounds: everything that is compared is played for a moment in every round; what counts are medians, and medians of ratios.

It knows neither loads nor servers: a turn notes under a name what a load came to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .measure import median, median_ratio
from .scenario import Lab

ROUNDS = 5
METRICS = ("per_s", "p50_us", "p99_us", "server_cpu_us", "client_cpu_share", "mb_per_s")


class Notes:
    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = {}

    def note(self, name: str, made: Mapping[str, Any]) -> None:
        values = self._values.setdefault(name, {})
        for metric in METRICS:
            if metric in made:
                values.setdefault(metric, []).append(float(made[metric]))

    def medians(self, name: str) -> dict[str, float] | None:
        """metric → median over the rounds; None of what was not played."""
        values = self._values.get(name)
        return {metric: median(several) for metric, several in values.items()} if values is not None else None

    def ratio(self, above: str, below: str, metric: str = "per_s") -> float | None:
        """How many times `below` it is; None where one of them was not played."""
        if above not in self._values or below not in self._values:
            return None
        return median_ratio(self._values[above][metric], self._values[below][metric])


async def in_turns(lab: Lab, what: str, turn: Callable[[Notes], Awaitable[None]], rounds: int = ROUNDS, *, warm: bool = True) -> Notes:
    """Play a turn again and again. Where there are several, one before them only warms up; a quick run has one."""
    made = Notes()
    if lab.quick:
        rounds = 1
    if warm and rounds > 1:
        await turn(Notes())
    for number in range(1, rounds + 1):
        await turn(made)
        lab.say(f"{what}: round {number} of {rounds}")
    return made
