"""Durable pushes: ours through the embedded face, beside the bare loop, SQLite at its best, and Redis Streams synced on every write.

Every round plays every case on every driver for a moment, one behind the other; the figures are medians of five such rounds, the ratios
medians of the rounds' ratios. A trace says how many were acked and how long each took. SQLite is taken in the faster of its two ways,
with the table that a queue needs (it finds the next message by an index); a table that could only be appended to is told beside it.
"""

from __future__ import annotations

import gc
from pathlib import Path

from ..driver import Driver, PeerMissing
from ..drivers.barefile import BareFile
from ..drivers.embedded import Embedded
from ..drivers.redis_streams import RedisStreams
from ..drivers.sqlite import Sqlite
from ..load import play
from ..measure import latency_ns, median, median_ratio, percentile, rate_per_s
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..trace import ACKED, Trace
from ..workload import Workload

ROUNDS = 5
IN_FLIGHT = (1, 16, 64, 256)
BATCHES = (1, 100)
Cell = tuple[str, int, int]


async def run(lab: Lab) -> Figures:
    rounds = ROUNDS if not lab.quick else 2
    seconds = 0.5 if not lab.quick else 0.05
    rates: dict[Cell, list[float]] = {}
    p50s: dict[Cell, list[float]] = {}
    p99s: dict[Cell, list[float]] = {}
    loops: list[float] = []
    for number in range(rounds):
        for in_flight in IN_FLIGHT:
            for batch in BATCHES:
                for driver in drivers(lab.folder):
                    try:
                        lab.peers[driver.name] = await driver.open(1, in_flight)
                    except PeerMissing as missing:
                        lab.say(f"{driver.name}: {missing}")
                        continue
                    try:
                        trace = await _played(driver, in_flight, batch, seconds)
                        if isinstance(driver, BareFile) and in_flight == batch == 1:
                            loops.append(median([float(one) for one in driver.loop_ns(b"x" * 150, lab.size(1500, 100))]) / 1000)
                    finally:
                        await driver.close()
                    cell = (driver.name, in_flight, batch)
                    table = trace.table()
                    took = latency_ns(table)
                    rates.setdefault(cell, []).append(rate_per_s(table, ACKED))
                    p50s.setdefault(cell, []).append((percentile(took, 50) or 0) / 1000)
                    p99s.setdefault(cell, []).append((percentile(took, 99) or 0) / 1000)
        lab.say(f"round {number + 1} of {rounds}")
    lab.peers.pop(Embedded.name, None)
    figures: Figures = {"rounds": rounds, "bare_loop_p50_us": median(loops)}
    for name, cells in (("per_s", rates), ("p50_us", p50s), ("p99_us", p99s)):
        for (driver_name, in_flight, batch), values in cells.items():
            figures.setdefault(name, {}).setdefault(driver_name, {})[_case(in_flight, batch)] = median(values)
    figures["ratio"] = {_case(in_flight, batch): _ratios(rates, in_flight, batch) for in_flight in IN_FLIGHT for batch in BATCHES}
    figures["p50_to_bare_loop"] = median_ratio(p50s["dovetail", 1, 1], loops)
    return figures


def drivers(folder: Path) -> list[Driver]:
    return [
        Embedded(folder / "ours"),
        BareFile(folder / "bare"),
        Sqlite(folder / "sqlite", "thread"),
        Sqlite(folder / "sqlite", "inline"),
        Sqlite(folder / "sqlite", "inline", indexed=False),
        RedisStreams(folder / "redis"),
    ]


async def _played(driver: Driver, in_flight: int, batch: int, seconds: float) -> Trace:
    await play(Workload(senders=in_flight, batch=batch, seconds=seconds / 4), driver, Trace("warm"))
    trace = Trace("measured")
    gc.collect()
    gc.disable()  # Otherwise the notes of the trace would be walked again and again, and the fastest driver would pay most.
    try:
        await play(Workload(senders=in_flight, batch=batch, seconds=seconds), driver, trace)
    finally:
        gc.enable()
    return trace


def _case(in_flight: int, batch: int) -> str:
    return f"{in_flight}_in_flight" + ("" if batch == 1 else f"_in_{batch}s")


def _ratios(rates: dict[Cell, list[float]], in_flight: int, batch: int) -> dict[str, float]:
    ours = rates["dovetail", in_flight, batch]
    both = [rates[f"sqlite-{mode}", in_flight, batch] for mode in ("thread", "inline")]
    made = {
        "to_sqlite": min(median_ratio(ours, one) for one in both),
        "to_sqlite_append": median_ratio(ours, rates["sqlite-append", in_flight, batch]),
        "to_bare": median_ratio(ours, rates["bare", in_flight, batch]),
    }
    redis = rates.get((RedisStreams.name, in_flight, batch))
    if redis is not None:
        made["to_redis"] = median_ratio(ours, redis)
    return made


SCENARIO = Scenario(
    "commit-log",
    SCENARIOS["commit-log"],
    [
        Bar("64 in flight, times SQLite", "ratio.64_in_flight.to_sqlite", least=3),
        Bar("64 in flight in hundreds, times SQLite", "ratio.64_in_flight_in_100s.to_sqlite", least=3),
        Bar("64 in flight, times Redis Streams", "ratio.64_in_flight.to_redis", least=1),
        Bar("64 in flight in hundreds, times Redis Streams", "ratio.64_in_flight_in_100s.to_redis", least=1),
        Bar("p50 at 1 in flight, times the bare loop", "p50_to_bare_loop", most=2),
    ],
    run,
)
