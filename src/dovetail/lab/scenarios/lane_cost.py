"""What an operation costs, with few and with many messages waiting.

States of each size live in one process and are measured in turn, so that whatever the machine does meets all of them. Each block pushes,
pops and completes as many messages, so that a state keeps its size. The ratio is taken within a round; the median of five counts.
Costs are processor time: a neighbour on the machine is no cost of ours.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import Any

from ..child import result_of, tell
from ..corefill import CoreFill
from ..measure import median, median_ratio
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

ROUNDS = 5
BATCHES = (1, 100)
VERBS = ("push", "pop", "complete")
FILL = 1000
BLOCK_MESSAGES = 200


async def run(lab: Lab) -> Figures:
    sizes = [1_000, lab.size(100_000, 10_000), lab.size(10_000_000, 100_000)]
    lab.say(f"filling {', '.join(f'{size:,}' for size in sizes)} messages")
    # The large state must have enough for the small one's cycle; messages measured for each batch size, in each round.
    messages = lab.size(60_000, 6_000)
    costs = await result_of(f"{__name__}:case", sizes=sizes, messages=messages)
    figures: Figures = {"messages_waiting": sizes, "rounds": ROUNDS}
    ratios: dict[str, float] = {}
    for batch in BATCHES:
        for verb in VERBS:
            rounds = {size: costs[f"{size}/{batch}/{verb}"] for size in sizes}
            figures[f"{verb}_ns_in_{batch}s"] = {f"{size:,}": median(rounds[size]) for size in sizes}
            ratios[f"{verb}_in_{batch}s"] = median_ratio(rounds[sizes[-1]], rounds[sizes[0]])
    figures["ratio"] = ratios
    return figures


def case(sizes: list[int], messages: int) -> dict[str, list[float]]:
    """Nanoseconds per message, one for each round, by size/batch/verb."""
    fills = {(size, batch): _filled(size, batch, (ROUNDS + 1) * messages) for size in sizes for batch in BATCHES}
    tell("filled")
    costs: dict[str, list[float]] = {f"{size}/{batch}/{verb}": [] for size in sizes for batch in BATCHES for verb in VERBS}
    for turn in range(ROUNDS + 1):
        for batch in BATCHES:
            # Whoever goes first in a round goes last in the next.
            order = sizes if turn % 2 else sizes[::-1]
            spent: dict[int, list[int]] = {size: [0, 0, 0] for size in sizes}
            for _ in range(messages // BLOCK_MESSAGES):
                for size in order:
                    _block(fills[size, batch], batch, spent[size])
            if turn:  # The first round only warms up.
                for size in sizes:
                    for verb, total in zip(VERBS, spent[size], strict=True):
                        costs[f"{size}/{batch}/{verb}"].append(total / messages)
    return costs


def _filled(size: int, batch: int, popped: int) -> CoreFill:
    """What will be popped lies in runs as long as those that are pushed meanwhile, in every state alike; the rest is filled quickly."""
    fill = CoreFill()
    alike = min(size, popped)
    for _ in range(alike // batch):
        fill.push(fill.queues[0], batch)
    for _ in range((size - alike) // FILL):
        fill.push(fill.queues[0], FILL)
    return fill


def _block(fill: CoreFill, batch: int, spent: list[int]) -> None:
    queue = fill.queues[0]
    calls = BLOCK_MESSAGES // batch
    taken: list[Any] = []
    began = thread_time_ns()
    for _ in range(calls):
        fill.push(queue, batch)
    pushed = thread_time_ns()
    for _ in range(calls):
        taken.append(fill.pop(queue, batch))
    popped = thread_time_ns()
    for sequences, deliveries in taken:
        fill.complete(queue, sequences, deliveries)
    spent[0] += pushed - began
    spent[1] += popped - pushed
    spent[2] += thread_time_ns() - popped


SCENARIO = Scenario(
    "lane-cost",
    SCENARIOS["lane-cost"],
    [
        Bar(
            f"{verb} {'one at a time' if batch == 1 else 'in hundreds'}, largest against 1,000 waiting",
            f"ratio.{verb}_in_{batch}s",
            most=1.3,
        )
        for batch in BATCHES
        for verb in VERBS
    ],
    run,
)
