"""Interleaved rounds of loads: every variant is played for a moment in every round; what counts are medians, and medians of ratios.

A load that is refused anything, or that finds less than it sent, measured something else than it says: it stops the scenario.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from .httpload import LoadFailed
from .measure import median, median_ratio
from .scenario import Lab
from .sqsload import OPERATIONS, Load

_MISSING_SHARE_MAX = 0.01
"""Connections share a queue: the last receives of some may find nothing while another one's last delete is under way."""


ROUNDS = 5


class Rounds:
    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[str, list[float]]] = {}

    async def play(self, variant: str, load: Load, operations: Sequence[str] = OPERATIONS, *, partial: bool = False) -> dict[str, float]:
        """Send, then receive and delete as many; `partial` lets a server that is too slow leave some. Returns messages per second."""
        told: dict[str, float] = {}
        for operation, made in (await load.played(operations)).items():
            if made["refused"]:
                raise LoadFailed(f"{variant}: {made['refused']} requests were refused, the first with: {made['refusal']}")
            if not partial and made["messages"] < (1 - _MISSING_SHARE_MAX) * load.messages:
                raise LoadFailed(f"{variant}: {operation} ended after {made['messages']} of {load.messages} messages")
            values = self._values.setdefault((variant, operation), {})
            for metric in ("per_s", "p50_us", "p99_us", "server_cpu_us", "client_cpu_share"):
                values.setdefault(metric, []).append(made[metric])
            told[operation] = made["per_s"]
        return told

    def medians(self, variant: str) -> dict[str, dict[str, float]]:
        """operation → metric → median over the rounds."""
        return {
            operation: {metric: median(values) for metric, values in self._values[variant, operation].items()}
            for operation in OPERATIONS
            if (variant, operation) in self._values
        }

    def ratios(self, above: str, below: str, metric: str = "per_s") -> dict[str, float]:
        """operation → how many times `below` it is."""
        return {
            operation: median_ratio(self._values[above, operation][metric], self._values[below, operation][metric])
            for operation in OPERATIONS
            if (above, operation) in self._values
        }


async def interleaved(lab: Lab, what: str, turn: Callable[[Rounds], Awaitable[None]], rounds: int = ROUNDS) -> Rounds:
    """Play a turn of every variant again and again. Where there are several, one before them only warms up; a quick run has one."""
    made = Rounds()
    if lab.quick:
        rounds = 1
    if rounds > 1:
        await turn(Rounds())
    for number in range(1, rounds + 1):
        await turn(made)
        lab.say(f"{what}: round {number} of {rounds}")
    return made
