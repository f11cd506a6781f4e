"""The listening side of the HTTP edge: admits connections, watches their patience with one timer for all, and drains.

Knows sockets and connections; what a request means is the handler's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ssl import SSLContext

from ...service.metrics import Counter, Registry
from ..held import Held
from ..listening import Listening
from .bounds import Bounds
from .connection import Connection
from .message import Handler, Request, date_line


class Server(Listening[Connection]):
    """One handler behind any number of listening addresses. Made inside a running loop."""

    def __init__(self, handler: Handler, bounds: Bounds | None = None, registry: Registry | None = None) -> None:
        self.handler = handler
        self.is_brief: Callable[[Request], bool] = lambda request: True
        """Whether the answer to a request is small, so that it may be asked while others of its connection are under way. Whoever opens a
        door with other answers behind this edge says here which they are."""
        self.bounds = bounds or Bounds()
        super().__init__("http", self.bounds, registry or Registry())
        self.bodies: Held[Connection] = Held(
            self.bounds.bodies_bytes_max, self.registry, "http_bodies", "bodies of requests that have not ended"
        )
        self.unread: Held[Connection] = Held(
            self.bounds.unread_bytes_max, self.registry, "http_unread", "answers that callers leave unread"
        )
        self.slots_max = self.bounds.pipeline_max
        """Requests that a connection may have under way."""
        self._date = b""
        self._date_second = 0
        self._answers = self.registry.counter("dovetail_http_answers_total", "Answers given over HTTP, by status.", ("status",))
        self._answers_by_status: dict[int, Counter] = {}
        self._bytes_out = self.registry.counter("dovetail_http_answer_bytes_total", "Bytes of answers given over HTTP.").of()

    async def listen(self, host: str, port: int, tls: SSLContext | None = None) -> tuple[str, int]:
        """Open the door; returns where it really is (port 0 takes a free one)."""
        return await self._listen(lambda: Connection(self), host, port, tls)

    async def drain(self, timeout_s: float) -> bool:
        # A draining connection finishes what it was asked; what comes behind is never begun, and the last answer says so by closing.
        self.slots_max = 1
        return await super().drain(timeout_s)

    # What connections ask of the server.

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
