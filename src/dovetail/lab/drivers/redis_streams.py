"""Redis Streams, synced before every answer (appendfsync always): XADD, XREADGROUP, XACK and XDEL, one connection for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..driver import Received
from .resp import Server, checked, command

GROUP = "workers"
WAIT_MS = 50


class RedisStreams:
    name = "redis-streams"

    def __init__(self, folder: Path) -> None:
        self._server = Server(folder)
        self._heads: list[bytes] = []

    async def open(self, queues: int, workers: int) -> str:
        version = await self._server.start(workers)
        for queue in range(queues):
            stream = f"queue-{queue}"
            # The part of XADD that does not change; the body follows.
            self._heads.append(command("XADD", stream, "*", "b").replace(b"*4\r\n", b"*5\r\n", 1))
            checked(await self._server.connections[0].ask(command("XGROUP", "CREATE", stream, GROUP, "$", "MKSTREAM")))
        return version

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        head = self._heads[queue]
        if len(bodies) == 1:
            data = b"%b$%d\r\n%b\r\n" % (head, len(bodies[0]), bodies[0])
        else:
            data = b"".join([b"%b$%d\r\n%b\r\n" % (head, len(body), body) for body in bodies])
        checked(await self._server.connections[worker].ask(data, len(bodies)))
        return ()

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        asked = command("XREADGROUP", "GROUP", GROUP, f"w{worker}", "COUNT", most, "BLOCK", WAIT_MS, "STREAMS", f"queue-{queue}", ">")
        (reply,) = checked(await self._server.connections[worker].ask(asked))
        return [Received(fields[1], 0, identity) for _, entries in reply or () for identity, fields in entries]

    async def complete(self, worker: int, queue: int, tokens: Sequence[bytes]) -> None:
        stream = f"queue-{queue}"
        asked = command("XACK", stream, GROUP, *tokens) + command("XDEL", stream, *tokens)
        checked(await self._server.connections[worker].ask(asked, 2))

    async def close(self) -> None:
        await self._server.stop()
