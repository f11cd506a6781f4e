"""The usual delayed queue on Redis: a sorted set by due time, and receivers that look every 10 ms.

    queue-N   sorted set   member: the body (it begins with a number, so members differ) · score: due time in wall milliseconds

A look is one script, so that no two receivers take the same message: ZRANGEBYSCORE up to now, then ZREM. There is no lease; taken is
gone, so `complete` has nothing to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from ..driver import Received
from .resp import Server, checked, command

POLL_S = 0.010
TAKE = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
return due
"""


class RedisZset:
    name = "redis-zset"

    def __init__(self, folder: Path) -> None:
        self._server = Server(folder)
        self._script = b""

    async def open(self, queues: int, workers: int) -> str:
        version = await self._server.start(workers)
        (self._script,) = checked(await self._server.connections[0].ask(command("SCRIPT", "LOAD", TAKE)))
        return version

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        now = time.time_ns() // 1_000_000
        scored: list[bytes | int] = []
        for index, body in enumerate(bodies):
            scored += (now + (delays_ms[index] if delays_ms is not None else 0), body)
        checked(await self._server.connections[worker].ask(command("ZADD", f"queue-{queue}", *scored)))
        return ()

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        asked = command("EVALSHA", self._script, 1, f"queue-{queue}", time.time_ns() // 1_000_000, most)
        (bodies,) = checked(await self._server.connections[worker].ask(asked))
        if not bodies:
            await asyncio.sleep(POLL_S)
        return [Received(body, 0, None) for body in bodies]

    async def complete(self, worker: int, queue: int, tokens: Sequence[None]) -> None:
        return None

    async def cancel(self, worker: int, queue: int, body: bytes) -> bool:
        (removed,) = checked(await self._server.connections[worker].ask(command("ZREM", f"queue-{queue}", body)))
        return bool(removed)

    async def close(self) -> None:
        await self._server.stop()
