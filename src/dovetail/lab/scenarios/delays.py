"""Delayed messages: 10 million pending at random over a day, and 10,000 more due each second for 30 seconds while receivers wait.

Lateness is counted from when a message was to be visible, reckoned before it was sent, until a receiver had it in hand. Cancel is
measured against a delayed push, one message a call, as many in flight, in interleaved rounds while all the others wait. The same is done
beside it with a Redis sorted set and its users' usual loop (a look every 10 ms); fewer wait there, in its favour, because filling it takes
as long as all the rest.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from ...settings import Local, Settings
from ..child import result_of
from ..driver import Driver, PeerMissing
from ..drivers import resp
from ..drivers.embedded import Embedded
from ..drivers.redis_zset import RedisZset
from ..measure import duplicates, lateness_ns, loss, median, median_ratio, percentile
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..trace import ACKED, DELIVERED, SENT, Trace, now_ns
from ..workload import Workload, number_of

ROUNDS = 5
FILL = 1000
DUE_BATCH = 50
"""Small: lateness is counted from before the call, so what a send itself takes is part of it."""
FILLERS = 4
RECEIVERS = 4
RECEIVE_MAX = 100
IN_FLIGHT = 64
DAY_MS = 86_400_000
PEER_PENDING = 1_000_000
NEVER_BYTES = 1 << 40
WAIT_S = 20.0
PATIENCE_S = 30.0
"""What is not delivered so long after the last was due counts as lost."""
PENDING = 1 << 40
"""Payload numbers from here on belong to messages that only wait."""


async def run(lab: Lab) -> Figures:
    sizes = {
        "pending": lab.size(10_000_000, 30_000),
        "rate_per_s": lab.size(10_000, 2_000),
        "seconds": lab.size(30, 1),
        "calls": lab.size(10_000, 640),
        "rounds": 2 if lab.quick else ROUNDS,
    }
    figures: Figures = dict(sizes)
    try:
        lab.peers["redis-zset"] = resp.version()
    except PeerMissing as missing:
        lab.say(str(missing))
    for name in ("dovetail", *lab.peers):
        pending = sizes["pending"] if name == "dovetail" else min(sizes["pending"], PEER_PENDING)
        lab.say(f"{name}: filling {pending:,} pending")
        made = {
            "pending": pending,
            **await result_of(f"{__name__}:case", name=name, folder=str(lab.folder / name), **sizes | {"pending": pending}),
        }
        figures[name] = made
        lab.say(f"{name}: lateness p99 {figures[name]['lateness_p99_ms']:.1f} ms")
    return figures


async def case(name: str, folder: str, pending: int, rate_per_s: int, seconds: int, calls: int, rounds: int) -> dict[str, Any]:
    driver: Driver = RedisZset(Path(folder)) if name == "redis-zset" else Embedded(Path(folder), _settings(), wait_s=WAIT_S)
    await driver.open(2, IN_FLIGHT)
    try:
        began = perf_counter()
        await _fill(driver, pending)
        figures: dict[str, Any] = {"fill_s": perf_counter() - began}
        gc.collect()
        gc.freeze()
        figures |= await _due(driver, rate_per_s, seconds)
        figures |= await _cancelled(driver, calls, rounds)
    finally:
        await driver.close()
    return figures


def _settings() -> Settings:
    return Settings(local=Local(snapshot_bytes=NEVER_BYTES))


async def _fill(driver: Driver, pending: int) -> None:
    """Due at random over a day, beginning in an hour: none of them becomes visible while we measure."""
    workload = Workload(messages=1)
    left = list(range(0, pending, FILL))

    async def fill(worker: int) -> None:
        chance = random.Random(worker)
        while left:
            first = PENDING + left.pop()
            delays = [3_600_000 + int(chance.random() * DAY_MS) for _ in range(FILL)]
            await driver.send(worker, 0, [workload.body(first + offset) for offset in range(FILL)], delays)

    await asyncio.gather(*(fill(worker) for worker in range(FILLERS)))


async def _due(driver: Driver, rate_per_s: int, seconds: int) -> dict[str, Any]:
    """Schedule them all, evenly over the window and in no order, then let receivers wait for them."""
    trace, total, workload = Trace("due"), rate_per_s * seconds, Workload(messages=1)
    # Scheduling itself takes a while; the first is due when it is over.
    start_ns = now_ns() + round((2 + total / 15_000) * 1e9)
    dues = [start_ns + round(number / rate_per_s * 1e9) for number in range(total)]
    order = list(range(total))
    random.Random(1).shuffle(order)
    for at in range(0, total, DUE_BATCH):
        numbers = order[at : at + DUE_BATCH]
        began = now_ns()
        delays = [max(0, (dues[number] - began) // 1_000_000) for number in numbers]
        due_ns = [began + 1_000_000 * delay for delay in delays]
        await driver.send(0, 0, [workload.body(number) for number in numbers], delays)
        trace.note(SENT, began, 0, numbers, 0, (), due_ns)
        trace.note(ACKED, now_ns(), 0, numbers, 0)
    scheduled_early_s = (start_ns - now_ns()) / 1e9
    missing, over = total, asyncio.Event()

    async def receive(worker: int) -> None:
        nonlocal missing
        while True:
            got = await driver.receive(worker, 0, RECEIVE_MAX)
            if not got:
                continue
            trace.note(DELIVERED, now_ns(), 0, [number_of(one.body) for one in got], worker)
            await driver.complete(worker, 0, [one.token for one in got])
            missing -= len(got)
            if missing <= 0:
                over.set()

    receivers = [asyncio.ensure_future(receive(worker)) for worker in range(RECEIVERS)]
    try:
        await asyncio.wait_for(over.wait(), (dues[-1] - now_ns()) / 1e9 + PATIENCE_S)
    except TimeoutError:
        pass  # The trace tells what is missing.
    for one in receivers:
        one.cancel()
    await asyncio.gather(*receivers, return_exceptions=True)
    table = trace.table()
    late = lateness_ns(table)
    return {
        **{f"lateness_p{percent}_ms": (percentile(late, percent) or 0) / 1e6 for percent in (50, 99, 100)},
        "delivered": len(late),
        "lost": loss(table),
        "duplicates": duplicates(table),
        "scheduled_early_s": scheduled_early_s,
    }


async def _cancelled(driver: Driver, calls: int, rounds: int) -> dict[str, Any]:
    """Microseconds of a delayed push, of a cancel, and of a push without delay (to a queue of its own), as many in flight, turn by turn."""
    pushes, cancels, plains = [], [], []
    for number in range(rounds + 1):
        made: list[Any] = []
        push = await _timed(calls, _pusher(driver, number * calls, made))
        random.Random(number).shuffle(made)
        cancel = await _timed(calls, _canceller(driver, made))
        plain = await _timed(calls, _plain(driver, number * calls))
        if number:  # The first round only warms up.
            pushes.append(push)
            cancels.append(cancel)
            plains.append(plain)
    return {
        "push_us": median(pushes),
        "cancel_us": median(cancels),
        "plain_push_us": median(plains),
        "cancel_to_push": median_ratio(cancels, pushes),
        "cancel_to_plain_push": median_ratio(cancels, plains),
    }


async def _timed(calls: int, call: Callable[[int, int], Awaitable[None]]) -> float:
    """Microseconds per call, with IN_FLIGHT under way."""
    numbers = iter(range(calls))

    async def work(worker: int) -> None:
        for number in numbers:
            await call(worker, number)

    began = perf_counter()
    await asyncio.gather(*(work(worker) for worker in range(IN_FLIGHT)))
    return (perf_counter() - began) / calls * 1e6


def _pusher(driver: Driver, first: int, made: list[Any]) -> Callable[[int, int], Awaitable[None]]:
    workload = Workload(messages=1)

    async def push_ours(_: int, number: int) -> None:
        assert isinstance(driver, Embedded)
        made.append((await driver.queues[0].send(workload.body(number), delay_s=3600 + number % 1000)).id)

    async def push_peer(worker: int, number: int) -> None:
        body = workload.body(2 * PENDING + first + number)
        await driver.send(worker, 0, [body], [3_600_000 + number % 1000 * 1000])
        made.append(body)

    return push_ours if isinstance(driver, Embedded) else push_peer


def _plain(driver: Driver, first: int) -> Callable[[int, int], Awaitable[None]]:
    workload = Workload(messages=1)

    async def push(worker: int, number: int) -> None:
        await driver.send(worker, 1, [workload.body(first + number)])

    return push


def _canceller(driver: Driver, made: list[Any]) -> Callable[[int, int], Awaitable[None]]:
    async def cancel_ours(_: int, number: int) -> None:
        assert isinstance(driver, Embedded)
        assert await driver.queues[0].cancel(made[number])

    async def cancel_peer(worker: int, number: int) -> None:
        assert isinstance(driver, RedisZset)
        assert await driver.cancel(worker, 0, made[number])

    return cancel_ours if isinstance(driver, Embedded) else cancel_peer


SCENARIO = Scenario(
    "delays",
    SCENARIOS["delays"],
    [
        Bar("lateness p99, milliseconds", "dovetail.lateness_p99_ms", most=20),
        # The cost of a push, and the noise of this kind of machine.
        Bar("cancel, times a push", "dovetail.cancel_to_push", most=1.25),
        Bar("delayed messages lost", "dovetail.lost", most=0),
    ],
    run,
)
