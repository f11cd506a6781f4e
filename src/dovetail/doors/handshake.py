"""Listening with TLS: handshakes are counted, and have a patience of their own. Knows sockets and TLS, and no protocol above it.

The loop's own TLS server shows a connection only when its handshake has ended: whoever begins thousands and ends none would have sockets
that no bound counts, for a minute each. So sockets are accepted here, and given to the loop one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from ssl import SSLContext

log = logging.getLogger("dovetail.tls")

BACKLOG = 1024
ACCEPTED_MAX = 64
"""In one turn of the loop: those who are connected have their turn too."""
REST_S = 1.0
"""After an accept failed for want of descriptors or memory: trying at once would keep the processor busy and help nobody."""


class Handshakes:
    """An address with TLS. Takes the place of a server of the loop's; `taken` is asked whether one more may begin."""

    def __init__(
        self, bound: asyncio.Server, context: SSLContext, patience_s: float, make: Callable[[], asyncio.Protocol], taken: Callable[[], bool]
    ) -> None:
        """`bound` has its sockets, and does not serve."""
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._context = context
        self._patience_s = patience_s
        self._make = make
        self._taken = taken
        self._sockets = [socket.socket(fileno=socket.dup(one.fileno())) for one in bound.sockets]
        self._under_way: dict[asyncio.Task[None], socket.socket] = {}
        self._closed = False

    def __len__(self) -> int:
        """Handshakes under way."""
        return len(self._under_way)

    async def start_serving(self) -> None:
        for one in self._sockets:
            one.setblocking(False)
            one.listen(BACKLOG)
            self._loop.add_reader(one, self._accept, one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(REST_S, self._go_on, listening)
                return
            if not self._taken():
                accepted.close()  # There is no way to say why before there is TLS.
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._shake(accepted))
            self._under_way[task] = accepted
            task.add_done_callback(self._under_way.pop)

    def _go_on(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)

    async def _shake(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, ssl=self._context, ssl_handshake_timeout=self._patience_s)
        except OSError as error:
            # Garbage, plain HTTP, a client that does not trust us, or one that was too slow.
            log.debug("no handshake: %s", error)
            accepted.close()

    def close(self) -> None:
        """Listen no more, and end the handshakes that are under way. It may be said again."""
        self._closed = True
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            self._loop.remove_reader(one)
            one.close()
        self._bound.close()
        for accepted in self._under_way.values():
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
