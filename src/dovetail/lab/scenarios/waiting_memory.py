"""How much resident memory a waiting message takes: the growth of a process between 1 and 10 million, divided by 9 million.

Each case is a process of its own. Messages come one in each push, which is the worst case (a run for each), and in hundreds; the bar
is on the worse. What a lease adds is the growth while messages that wait already are leased.
"""

from __future__ import annotations

import asyncio
import gc
import random

from ...core.column import Column
from ..child import result_of
from ..corefill import CoreFill
from ..machine import resident_bytes
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

KINDS = ("plain", "queues", "delayed", "groups")
BATCHES = (1, 100)
QUEUES = 1_000
GROUPS = 10_000
DAY_MS = 86_400_000
SOONEST_MS = 3_600_000
"""Filling takes half an hour of the log's time; nothing may become visible meanwhile."""
AT_ONCE = 2


async def run(lab: Lab) -> Figures:
    low, high = lab.size(1_000_000, 50_000), lab.size(10_000_000, 200_000)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(kind: str, batch: int) -> dict[str, float]:
        async with slots:
            made: dict[str, float] = await result_of(f"{__name__}:case", kind=kind, batch=batch, low=low, high=high, seed=1)
        lab.say(f"{kind}, {batch} in each push: " + ", ".join(f"{name} {value:.1f} B" for name, value in made.items()))
        return made

    cases = [(kind, batch) for kind in KINDS for batch in BATCHES]
    made = dict(zip(cases, await asyncio.gather(*(one(*case) for case in cases)), strict=True))
    figures: Figures = {"messages": [low, high], "body_bytes": 100}
    for kind in (*KINDS, "leased"):
        source = "plain" if kind == "leased" else kind
        values = {f"in_{batch}s": made[source, batch]["leased" if kind == "leased" else "waiting"] for batch in BATCHES}
        figures[f"{kind}_bytes"] = {**values, "worse": max(values.values())}
    return figures


def case(kind: str, batch: int, low: int, high: int, seed: int) -> dict[str, float]:
    fill = CoreFill(QUEUES if kind == "queues" else 1, grouped=kind == "groups")
    chance = random.Random(seed)
    names = [b"group-%d" % number for number in range(GROUPS)]
    queues = fill.queues
    before = 0
    for number in range(high // batch):
        if number * batch == low:
            before = _resident()
        queue = queues[number % len(queues)]
        if kind == "delayed":
            fill.push(queue, batch, [int(chance.random() * DAY_MS) + SOONEST_MS for _ in range(batch)])
        elif kind == "groups":
            fill.push(queue, batch, None, Column.of([names[int(chance.random() * GROUPS)] for _ in range(batch)]))
        else:
            fill.push(queue, batch)
    full = _resident()
    made = {"waiting": (full - before) / (high - low)}
    if kind == "plain":
        for _ in range(low // batch):
            fill.pop(queues[0], batch, DAY_MS)
        made["leased"] = (_resident() - full) / low
    return made


def _resident() -> int:
    gc.collect()
    return resident_bytes()


_NAMES = {
    "plain": ("a waiting message, bytes", 20),
    "queues": ("over 1,000 queues, bytes", 24),
    "delayed": ("delayed at random over a day, bytes", 32),
    "groups": ("in 10,000 groups, bytes", 48),
    "leased": ("more for a leased message, bytes", 32),
}
SCENARIO = Scenario(
    "waiting-memory",
    SCENARIOS["waiting-memory"],
    [Bar(name, f"{kind}_bytes.worse", most=most) for kind, (name, most) in _NAMES.items()],
    run,
)
