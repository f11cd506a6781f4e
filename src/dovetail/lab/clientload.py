"""The product's own client under load, played by a process of its own: many tasks share one connection to a node, and its batching.

Every task sends a message, receives one and completes it, again and again, as a program would that knows nothing of batches; whatever
rides one frame was put together by the client. With a batch it does so with as many at a time, in the way that docs/client.md tells:
`send_many`, `receive(max)`, a look at the bodies, `batch.complete()`. Tasks share a queue, so what one receives another may have sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import Any

import dovetail

from .child import result_of
from .httpload import LoadFailed, now_ns
from .rawload import measured

WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ClientLoad:
    port: int
    messages: int
    """Over all connections."""
    tasks: int
    """On each connection."""
    batch: int = 1
    """Messages in one call."""
    size: int = 100
    connections: int = 1
    """Each with a queue of its own."""
    queue: str = "client-{}"
    pid: int = 0

    async def played(self) -> dict[str, Any]:
        made: dict[str, Any] = await result_of(f"{__name__}:play_load", load=asdict(self))
        return made


class _Task:
    """What one task notes."""

    def __init__(self) -> None:
        self.messages = 0
        self.took_ns: list[int] = []

    async def one_by_one(self, queue: Any, body: bytes, times: int) -> None:
        for _ in range(times):
            began = now_ns()
            await queue.send(body)
            for message in await queue.receive(1, wait_s=WAIT_S):
                await message.complete()
                self.messages += 1
            self.took_ns.append(now_ns() - began)

    async def in_batches(self, queue: Any, bodies: list[bytes], times: int) -> None:
        for _ in range(times):
            began = now_ns()
            await queue.send_many(bodies)
            batch = await queue.receive(len(bodies), wait_s=WAIT_S)
            if any(len(body) != len(bodies[0]) for body in batch.bodies[:1]):
                raise LoadFailed("a message came back with another body")
            self.messages += sum(await batch.complete())
            self.took_ns.append(now_ns() - began)


async def play_load(load: dict[str, Any]) -> dict[str, Any]:
    """In a child."""
    return await play(ClientLoad(**load))


async def play(load: ClientLoad) -> dict[str, Any]:
    nodes = [await dovetail.connect(f"dovetail://127.0.0.1:{load.port}") for _ in range(load.connections)]
    try:
        queues = [await node.queue(load.queue.format(number)) for number, node in enumerate(nodes)]
        times = max(1, load.messages // load.connections // load.tasks // load.batch)
        body = b"x" * load.size
        tasks = [_Task() for _ in range(load.tasks * load.connections)]

        def run(number: int, task: _Task) -> Coroutine[Any, Any, None]:
            queue = queues[number % len(queues)]
            return task.one_by_one(queue, body, times) if load.batch == 1 else task.in_batches(queue, [body] * load.batch, times)

        async def all_of_them() -> None:
            await asyncio.gather(*(run(number, task) for number, task in enumerate(tasks)))

        return await measured(all_of_them, tasks, load.pid)
    finally:
        for node in nodes:
            await node.close()
