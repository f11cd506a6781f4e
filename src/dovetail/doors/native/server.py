"""The listening side of the native door: admits connections, watches their patience with one timer for all, and drains."""

from __future__ import annotations

from ssl import SSLContext

from dovetail.doors.held import Held
from dovetail.doors.listening import Listening
from dovetail.doors.native.bounds import Bounds
from dovetail.doors.native.connection import Connection
from dovetail.doors.native.door import Door
from dovetail.service.metrics import Registry


class Server(Listening[Connection]):
    """One door behind any number of listening addresses. Made inside a running loop. Addresses may be taken before there is a door, so
    that one which is not free is found before a store is opened; nobody is let in until `serve`."""

    def __init__(self, bounds: Bounds | None = None, registry: Registry | None = None) -> None:
        self.bounds = bounds or Bounds()
        super().__init__("native", self.bounds, registry or Registry())
        self._door: Door | None = None
        self.now = self.loop.time
        self.unfinished: Held[Connection] = Held(
            self.bounds.unfinished_bytes_max, self.registry, "native_unfinished", "frames that are not whole yet"
        )
        self.unread: Held[Connection] = Held(
            self.bounds.unread_bytes_max, self.registry, "native_unread", "answers that clients leave unread"
        )
        self._bytes_out = self.registry.counter("dovetail_native_answer_bytes_total", "Bytes of answers given over the native door.").of()

    async def listen(self, host: str, port: int, tls: SSLContext | None = None) -> tuple[str, int]:
        """Take an address; returns where it really is (port 0 takes a free one)."""
        return await self._listen(self._connection, host, port, tls, start_serving=self._door is not None)

    def _connection(self) -> Connection:
        assert self._door is not None
        return Connection(self, self._door)

    async def serve(self, door: Door) -> None:
        """Let clients in."""
        self._door = door
        for server in self._listening:
            await server.start_serving()

    async def drain(self, timeout_s: float) -> bool:
        if self._door is not None:
            self._door.draining = True
        return await super().drain(timeout_s)

    def wrote(self, size: int) -> None:
        self._bytes_out.value += size
