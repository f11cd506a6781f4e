"""Playing raw clients: one object for each connection, begun all at once, until each says that it is done. It knows no protocol.

A player's socket was connected, greeted and set up beforehand by plain blocking calls, because nothing of that is measured. What is left
for the event loop is to write bytes that exist already and to count bytes that come: a client that did more would be what is measured.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from .httpload import LoadFailed, now_ns, percentile
from .process import cpu_s


class Player(asyncio.Protocol):
    """One connection's part of a load. `begin` writes the first requests; `data_received` goes on from there and at last calls `end`."""

    def __init__(self) -> None:
        self.messages = 0
        self.took_ns: list[int] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # The first failure is raised by the load; those of its neighbours need no word of their own.

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(LoadFailed(f"the server closed the connection: {error or 'end of stream'}"))


async def join(players: Sequence[Player], sockets: Sequence[socket.socket]) -> None:
    """Give each player its socket."""
    loop = asyncio.get_running_loop()
    for player, line in zip(players, sockets, strict=True):
        line.setblocking(False)

        def mine(player: Player = player) -> Player:
            return player

        await loop.create_connection(mine, sock=line)


async def played(players: Sequence[Player], pid: int = 0, linger_s: float = 0.0) -> dict[str, Any]:
    """Begin them all at once, wait for the last, and tell what came of it. The connections are closed `linger_s` later."""

    async def all_of_them() -> None:
        for player in players:
            player.begin()
        await asyncio.gather(*(player.done for player in players))

    try:
        made = await measured(all_of_them, players, pid)
        await asyncio.sleep(linger_s)
        return made
    finally:
        for player in players:
            player.transport.close()


async def measured(load: Callable[[], Awaitable[None]], players: Sequence[Any], pid: int = 0) -> dict[str, Any]:
    """What a load came to: `messages` and `took_ns` of all players over the time that it took, the server's and our own processor time."""
    gc.collect()
    gc.disable()  # Otherwise the notes would be walked again and again, and the fastest server would pay most.
    client_s, server_s = time.process_time(), cpu_s(pid) if pid else 0.0
    try:
        began = now_ns()
        await load()
        seconds = (now_ns() - began) / 1e9
    finally:
        gc.enable()
    client_s, server_s = time.process_time() - client_s, (cpu_s(pid) if pid else 0.0) - server_s
    messages = sum(player.messages for player in players)
    ordered = sorted(took for player in players for took in player.took_ns)
    return {
        "messages": messages,
        "seconds": seconds,
        "per_s": messages / seconds,
        **({f"p{percent}_us": percentile(ordered, percent) / 1000 for percent in (50, 99)} if ordered else {}),
        "server_cpu_us": server_s / max(1, messages) * 1e6,
        "client_cpu_share": client_s / seconds,
    }
