"""The listening side of the HTTP edge: admits connections, watches their patience with one timer for all, and drains.

Knows sockets and connections; what a request means is the handler's business.
"""

from __future__ import annotations

import asyncio
import time
from ssl import SSLContext

from ...service.metrics import Counter, Registry
from .bounds import Bounds
from .connection import Connection
from .message import Handler, date_line


class Server:
    """One handler behind any number of listening addresses. Made inside a running loop."""

    def __init__(self, handler: Handler, bounds: Bounds | None = None, registry: Registry | None = None) -> None:
        self.handler = handler
        self.bounds = bounds or Bounds()
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.slots_max = self.bounds.pipeline_max
        """Requests that a connection may have under way."""
        self._listening: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._timer: asyncio.TimerHandle | None = None
        self._date = b""
        self._date_second = 0
        self.registry = registry = registry or Registry()
        self._answers = registry.counter("dovetail_http_answers_total", "Answers given over HTTP, by status.", ("status",))
        self._answers_by_status: dict[int, Counter] = {}
        self._bytes_out = registry.counter("dovetail_http_answer_bytes_total", "Bytes of answers given over HTTP.").of()
        self._admitted = registry.counter("dovetail_http_connections_total", "Connections accepted.").of()
        self._turned_away = registry.counter("dovetail_http_connections_refused_total", "Connections refused: too many were open.").of()
        registry.gauge("dovetail_http_connections", "Connections that are open now.").of().read(lambda: len(self._connections))

    async def listen(self, host: str, port: int, tls: SSLContext | None = None) -> tuple[str, int]:
        """Open the door; returns where it really is (port 0 takes a free one)."""
        server = await self.loop.create_server(lambda: Connection(self), host, port, backlog=1024, ssl=tls)
        self._listening.append(server)
        name = server.sockets[0].getsockname()
        return name[0], name[1]

    async def drain(self, timeout_s: float) -> bool:
        """Stop listening, close idle connections, finish the requests under way. What takes longer is cut off; False tells so."""
        self.draining = True
        # A draining connection finishes what it was asked; what comes behind is never begun, and the last answer says so by closing.
        self.slots_max = 1
        for server in self._listening:
            server.close()
        for connection in list(self._connections):
            connection.drain()
        finished = True
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            finished = False
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return finished

    @property
    def connections(self) -> int:
        return len(self._connections)

    # What connections ask of the server.

    def admit(self, connection: Connection) -> bool:
        # Refused ones linger for a moment, so they are kept in sight as well; a flood of them is cut off without an answer.
        self._connections.add(connection)
        self._empty.clear()
        if self._timer is None:
            self._timer = self.loop.call_later(self.bounds.sweep_s, self._sweep)
        if len(self._connections) <= self.bounds.connections_max and not self.draining:
            self._admitted.add()
            return True
        self._turned_away.add()
        if len(self._connections) > 2 * self.bounds.connections_max:
            connection.abort()
        return False

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def answered(self, status: int, size: int) -> None:
        counter = self._answers_by_status.get(status)
        if counter is None:
            counter = self._answers_by_status[status] = self._answers.of(str(status))
        counter.value += 1
        self._bytes_out.value += size

    def date(self) -> bytes:
        """The date header of this second."""
        second = int(time.time())
        if second != self._date_second:
            self._date_second = second
            self._date = date_line(*time.gmtime(second)[:7])
        return self._date

    def linger(self, connection: Connection) -> None:
        """It has had its last answer and is read for a moment."""
        self.loop.call_later(self.bounds.linger_s, connection.end_lingering)

    def _sweep(self) -> None:
        self._timer = None
        now = self.loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        if self._connections:
            self._timer = self.loop.call_later(self.bounds.sweep_s, self._sweep)
