"""How soon a node serves again: 10 million waiting, killed under load just before the next snapshot was due, nothing in the page cache.

A child fills its folder, then sends, receives and completes until the log behind the newest snapshot is as long as the policy lets it
be; it is killed there. A second child opens the folder; the clock runs from its start until it has sent and received a message. Beside it
stands how long the same files take to be read from the disk, all of them and only those that a start needs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any

import dovetail

from ...settings import Local, Settings
from .. import machine
from ..child import Child, tell
from ..measure import median
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

ROUNDS = 3
FILL = 1000
BODY = b"x" * 100
WORKERS = 16
RIPE = 0.98
"""The share of the way to the next snapshot at which the child says that it may be killed."""


async def run(lab: Lab) -> Figures:
    waiting = lab.size(10_000_000, 30_000)
    snapshot_bytes = lab.size(Settings().local.snapshot_bytes, 4 << 20)
    data = lab.folder / "data"
    rounds: list[dict[str, Any]] = []
    for number in range(1 if lab.quick else ROUNDS):
        async with Child(f"{__name__}:victim", {"folder": str(data), "waiting": waiting, "snapshot_bytes": snapshot_bytes}) as child:
            async for _, told in child.lines():
                if isinstance(told, str):
                    lab.say(told)
                    continue
                await child.kill()
                rounds.append(dict(told))
                break
        rounds[-1] |= await _restarted(lab, data, snapshot_bytes)
        lab.say(f"round {number + 1}: serving after {rounds[-1]['serving_s']:.2f} s")
    figures: Figures = {"messages_waiting": waiting, "snapshot_bytes": snapshot_bytes, "rounds": len(rounds)}
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        figures[name] = values[0] if isinstance(values[0], str) else median(values)
    figures["serving_worst_s"] = max(one["serving_s"] for one in rounds)
    return figures


async def _restarted(lab: Lab, data: Path, snapshot_bytes: int) -> dict[str, Any]:
    everything = machine.files(data)
    how = machine.drop_page_cache(data)
    all_s, all_bytes = machine.read_s(everything)
    machine.drop_page_cache(data)
    began = perf_counter()
    async with Child(f"{__name__}:heir", {"folder": str(data), "snapshot_bytes": snapshot_bytes}) as child:
        facts = await child.told()
        serving_s = perf_counter() - began
    needed = _needed(everything, facts.pop("from"))
    machine.drop_page_cache(data)
    needed_s, needed_bytes = machine.read_s(needed)
    return {
        "serving_s": serving_s,
        **facts,
        "read_needed_s": needed_s,
        "read_needed_bytes": needed_bytes,
        "read_all_s": all_s,
        "read_all_bytes": all_bytes,
        "cache_dropped_by": how,
    }


def _needed(files: list[Path], position: int) -> list[Path]:
    """The snapshot that a start from `position` loads, and the segments from there on."""
    segments = [path for path in files if path.suffix == ".seg"]
    later = [path for path in segments if int(path.stem, 16) > position]
    first = [path for path in segments if int(path.stem, 16) <= position][-1:]
    return [*(path for path in files if path.name.endswith(f"-{position:020d}")), *first, *later]


async def victim(folder: str, waiting: int, snapshot_bytes: int) -> None:
    """Fill, then load without end. Tells when it may be killed: {"tail_bytes": …}."""
    async with dovetail.open(f"local:{folder}", settings=_settings(snapshot_bytes)) as node:
        queue = await node.queue("orders")
        missing = waiting - (await queue.counts()).visible
        tell(f"filling {max(missing, 0):,} messages")
        began = perf_counter()
        for _ in range(max(0, missing) // FILL // 4):
            await asyncio.gather(*(queue.send_many([BODY] * FILL) for _ in range(4)))
        chores = node.store.chores
        while chores._task is not None:  # noqa: ASYNC110  # a node tells nobody outside when its chores are over
            await asyncio.sleep(0.05)
        # The tail that is replayed shall be the load's small operations, the slowest that there are, and none of the filling.
        await node.snapshot()
        tell(f"ready after {perf_counter() - began:.0f} s; under load until the next snapshot is nearly due")
        tasks = [asyncio.ensure_future(_work(queue, number)) for number in range(WORKERS)]
        while chores._bytes < RIPE * chores._next or chores._task is not None:
            await asyncio.sleep(0.002)
            for task in tasks:
                if task.done():
                    await task  # A worker never ends by itself: this raises what ended it.
        tell({"tail_cost_bytes": chores._bytes})
        await asyncio.gather(*tasks)


async def _work(queue: dovetail.Queue, number: int) -> None:
    """Half of the workers send, the others receive and complete, so that as many wait at the end as at the beginning."""
    while True:
        if number % 2:
            await queue.send(BODY)
        else:
            for message in await queue.receive(1):
                await message.complete()


async def heir(folder: str, snapshot_bytes: int) -> None:
    """Open, send, receive, and say so."""
    async with dovetail.open(f"local:{folder}", settings=_settings(snapshot_bytes)) as node:
        queue = await node.queue("orders")
        await queue.send(BODY)
        (message,) = await queue.receive(1)
        replay = node.store.replay
        tell(
            {
                "replay_s": replay.seconds,
                "replayed_entries": replay.entries,
                "replayed_operations": replay.operations,
                "from": replay.snapshot_position,
            }
        )
        await message.release()


def _settings(snapshot_bytes: int) -> Settings:
    return Settings(local=Local(snapshot_bytes=snapshot_bytes))


SCENARIO = Scenario(
    "recovery",
    SCENARIOS["recovery"],
    [Bar("serving again, worst round, seconds", "serving_worst_s", most=5)],
    run,
)
