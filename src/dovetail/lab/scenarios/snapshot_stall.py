"""What chores do to those who send meanwhile: the p99 of sends at a steady, moderate load, without and during a snapshot, without and
during a carry.

Sixteen senders share a fixed rate. In every round the load runs once with nothing else going on and once while the chore runs, for
as long as it takes; the ratio of the two p99s is taken within the round and the median of five counts. Snapshots are made of 10 million
waiting messages; carries need a log of which little is alive, so they have a node of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import dovetail

from ...settings import Local, Settings
from ..child import result_of
from ..drivers.embedded import Embedded
from ..load import play
from ..measure import latency_ns, median, median_ratio, percentile
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..trace import Trace
from ..workload import Workload

ROUNDS = 5
RATE_PER_S = 2_000
SENDERS = 16
FILL = 1000
BODY = b"x" * 100
NEVER_BYTES = 1 << 40
SEGMENT_BYTES = 8 << 20
"""Small, so that what was carried away from is trimmed soon and the log does not double with every round."""
PINS = 20_000
HOUR_S = 3600.0


async def run(lab: Lab) -> Figures:
    rounds = 2 if lab.quick else ROUNDS
    waiting = lab.size(10_000_000, 30_000)
    quiet_s = 0.3 if lab.quick else 3.0
    figures: Figures = {"messages_waiting": waiting, "rounds": rounds, "rate_per_s": RATE_PER_S, "senders": SENDERS}
    for name, size in (("snapshot", waiting), ("carry", lab.size(PINS, 2_000))):
        lab.say(f"{name}: filling {size:,} messages, then {rounds} rounds")
        case = {"folder": str(lab.folder / name), "messages": size, "rounds": rounds, "quiet_s": quiet_s}
        made = await result_of(f"{__name__}:{name}_case", **case)
        figures[name] = {
            "send_p99_us_without": median(made["without"]),
            "send_p99_us_during": median(made["during"]),
            "send_p99_ratio": median_ratio(made["during"], made["without"]),
            "ratios": [one / other for one, other in zip(made["during"], made["without"], strict=True)],
            "send_worst_us_during": max(made["worst"]),
            "took_s": median(made["took_s"]),
            "sends_during": sum(made["sends"]),
        }
        lab.say(
            f"{name}: send p99 {figures[name]['send_p99_us_without']:.0f} µs without, {figures[name]['send_p99_us_during']:.0f} µs during"
        )
    return figures


async def snapshot_case(folder: str, messages: int, rounds: int, quiet_s: float) -> dict[str, list[float]]:
    driver, waiting = await _opened(Path(folder))
    for _ in range(messages // FILL // 4):
        await asyncio.gather(*(waiting.send_many([BODY] * FILL) for _ in range(4)))

    async def chore() -> None:
        await driver.node.snapshot()

    return await _rounds(driver, rounds, quiet_s, _nothing, chore)


async def carry_case(folder: str, messages: int, rounds: int, quiet_s: float) -> dict[str, list[float]]:
    """Old messages that wait for long pin the log; between rounds enough goes through that little of it is alive."""
    driver, pinned = await _opened(Path(folder))
    for _ in range(messages // FILL):
        await pinned.send_many([dovetail.Outgoing(BODY, delay_s=24 * HOUR_S)] * FILL)
    passing = await driver.node.queue("passing")

    async def prepare() -> None:
        """Eight times as much as is pinned comes and goes, so that the pinned lie at the log's beginning and are a small part of it."""
        for _ in range(8 * messages // FILL):
            await passing.send_many([BODY] * FILL)
            await passing.receive(FILL, delete=True)

    chores = driver.node.store.chores

    async def chore() -> None:
        before = chores.carried
        await driver.node.snapshot()
        assert chores.carried > before, "nothing was carried"

    return await _rounds(driver, rounds, quiet_s, prepare, chore)


async def _opened(folder: Path) -> tuple[Embedded, dovetail.Queue]:
    """Snapshots are made when we say so, and at no other time."""
    driver = Embedded(folder, Settings(local=Local(snapshot_bytes=NEVER_BYTES, segment_bytes=SEGMENT_BYTES)))
    await driver.open(1, SENDERS)
    return driver, await driver.node.queue("waiting")


async def _nothing() -> None:
    return None


async def _rounds(
    driver: Embedded, rounds: int, quiet_s: float, prepare: Callable[[], Awaitable[None]], chore: Callable[[], Awaitable[None]]
) -> dict[str, list[float]]:
    made: dict[str, list[float]] = {name: [] for name in ("without", "during", "worst", "took_s", "sends")}
    await _p99_while(driver, asyncio.sleep(quiet_s))
    for _ in range(rounds):
        await prepare()
        made["without"].append((await _p99_while(driver, asyncio.sleep(quiet_s)))[0])
        began = perf_counter()
        p99, worst, sends = await _p99_while(driver, chore())
        made["during"].append(p99)
        made["worst"].append(worst)
        made["sends"].append(sends)
        made["took_s"].append(perf_counter() - began)
        # What was sent under load leaves again, so that every round begins alike.
        await driver.queues[0].purge()
    await driver.close()
    return made


async def _p99_while(driver: Embedded, chore: Any) -> tuple[float, float, float]:
    """(p99, worst, count) of the sends that began while `chore` ran, in microseconds."""
    trace = Trace("load")
    load = asyncio.ensure_future(play(Workload(senders=SENDERS, rate_per_s=RATE_PER_S, seconds=HOUR_S), driver, trace))
    try:
        await asyncio.sleep(0.1)
        trace.phase = "chore"
        await chore
        trace.phase = "after"
        await asyncio.sleep(0.05)
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    took = latency_ns(trace.table(), phase="chore")
    return (percentile(took, 99) or 0) / 1000, (percentile(took, 100) or 0) / 1000, float(len(took))


SCENARIO = Scenario(
    "snapshot-stall",
    SCENARIOS["snapshot-stall"],
    [
        Bar("send p99 during a snapshot, times without", "snapshot.send_p99_ratio", most=2),
        Bar("send p99 during a carry, times without", "carry.send_p99_ratio", most=2),
    ],
    run,
)
