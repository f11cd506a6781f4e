"""`dovetail serve` as an operator starts it, except that its clock is the test's: run as a process, it is told what to do on its stdin.

["serve", WALL_MS, BOOT_MS, "--native", "127.0.0.1:0", …]      runs the command; its ready line is the answer
["advance", 30]                                                 an act and its arguments, answered by one JSON value
["stop"]                                                        SIGTERM; the exit code is the answer, and it may serve again
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

from dovetail import node as nodes
from dovetail.cli import main
from dovetail.cli import serve as command
from dovetail.clock import ManualClock

TURNS = 20


class Acts:
    """What the test may ask of its node beside what a client may."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.node: nodes.Node

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def step_wall(self, seconds: float) -> None:
        self.clock.step_wall(seconds)

    async def turns(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def settled(self) -> None:
        await self.node.store.settled()

    async def tail(self) -> int:
        return self.node.store.log.tail

    async def expire(self) -> int:
        return await self.node.store.chores.expire()

    async def snapshot(self) -> None:
        await self.node.snapshot()

    async def retime(self) -> int:
        return await self.node.retime()

    async def promises(self) -> dict[str, Any]:
        return asdict(self.node.store.promises)

    async def queues(self) -> list[Any]:
        return self.node.store.all_queues()


def listen(acts: Acts, loop: asyncio.AbstractEventLoop) -> None:
    while line := sys.stdin.readline():
        act, *arguments = json.loads(line)
        if act == "stop":
            os.kill(os.getpid(), signal.SIGTERM)
            return
        answer = asyncio.run_coroutine_threadsafe(getattr(acts, act)(*arguments), loop).result()
        print(json.dumps(answer), flush=True)


def serve(wall_ms: int, boot_ms: int, *flags: str) -> int:
    clock = ManualClock(wall_ms, boot_ms)
    acts = Acts(clock)

    async def started(url: str, **given: Any) -> nodes.Node:
        acts.node = await nodes.start(url, clock=clock, **given)
        threading.Thread(target=listen, args=(acts, asyncio.get_running_loop()), daemon=True).start()
        return acts.node

    command.start = started  # type: ignore[attr-defined]  # the one thing that is not as an operator has it
    return main(["serve", *flags])


if __name__ == "__main__":
    while given := sys.stdin.readline():
        _, *arguments = json.loads(given)
        print(json.dumps(serve(*arguments)), flush=True)
