"""What the listening sides of the doors have in common: they admit connections, give them their turns, watch their patience with one timer
for all, and drain. Knows sockets and connections, and no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ssl import SSLContext
from typing import Generic, Protocol, TypeVar

from dovetail.doors.handshake import BACKLOG, Handshakes
from dovetail.doors.hangup import Left
from dovetail.service.metrics import Registry


class Patience(Protocol):
    """Of a door's bounds, those that are kept here."""

    @property
    def connections_max(self) -> int: ...

    @property
    def handshake_s(self) -> float: ...

    @property
    def linger_s(self) -> float: ...

    @property
    def sweep_s(self) -> float: ...


class Admitted(Protocol):
    """A connection, as far as its server asks it for something."""

    fd: int

    def turn(self) -> None:
        """Something is ready to be written."""

    def drain(self) -> None:
        """Finish what is under way and close."""

    def sweep(self, now: float) -> None:
        """Has its patience, or ours, run out?"""

    def abort(self) -> None: ...


C = TypeVar("C", bound=Admitted)


class Listening(Generic[C]):
    """Made inside a running loop. `name` is the door's, in the names of its metrics."""

    def __init__(self, name: str, patience: Patience, registry: Registry) -> None:
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.registry = registry
        self._patience = patience
        self._listening: list[asyncio.Server | Handshakes] = []
        self._connections: set[C] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._timer: asyncio.TimerHandle | None = None
        self._turns: list[C] = []
        self._left = Left()
        told = f"dovetail_{name}"
        self._admitted = registry.counter(f"{told}_connections_total", "Connections accepted.").of()
        self._turned_away = registry.counter(f"{told}_connections_refused_total", "Connections refused: too many were open.").of()
        registry.gauge(f"{told}_connections", "Connections that are open now.").of().read(lambda: len(self._connections))

    async def _listen(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, tls: SSLContext | None, *, start_serving: bool = True
    ) -> tuple[str, int]:
        """Take an address; where it really is: port 0 takes a free one."""
        bound = await self.loop.create_server(make, host, port, backlog=BACKLOG, start_serving=start_serving and tls is None)
        name = bound.sockets[0].getsockname()
        if tls is None:
            self._listening.append(bound)
        else:
            shaking = Handshakes(bound, tls, self._patience.handshake_s, make, self._room)
            self._listening.append(shaking)
            if start_serving:
                await shaking.start_serving()
        return name[0], name[1]

    async def drain(self, timeout_s: float) -> bool:
        """Stop listening, close idle connections, finish the requests under way. What takes longer is cut off; False tells so."""
        self.draining = True
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
        self._left.close()
        return finished

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def handshakes(self) -> int:
        """TLS handshakes that have not ended yet."""
        return sum(len(one) for one in self._listening if isinstance(one, Handshakes))

    def _room(self) -> bool:
        """Whether one more handshake may begin."""
        if len(self._connections) + self.handshakes < self._patience.connections_max and not self.draining:
            return True
        self._turned_away.add()
        return False

    # What connections ask of the server.

    def admit(self, connection: C) -> bool:
        # Refused ones linger for a moment, so they are kept in sight as well; a flood of them is cut off without an answer.
        self._connections.add(connection)
        self._left.watch(connection.fd)
        self._empty.clear()
        if self._timer is None:
            self._timer = self.loop.call_later(self._patience.sweep_s, self._sweep)
        if len(self._connections) <= self._patience.connections_max and not self.draining:
            self._admitted.add()
            return True
        self._turned_away.add()
        if len(self._connections) > 2 * self._patience.connections_max:
            connection.abort()
        return False

    def forget(self, connection: C) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def schedule(self, connection: C) -> None:
        """Its turn comes at the end of this turn of the loop. All answers of one commit then leave one behind the other, and the other end,
        which is awake after the first, need not be woken for each."""
        if not self._turns:
            self.loop.call_soon(self._take_turns)
        self._turns.append(connection)

    def _take_turns(self) -> None:
        turns, self._turns = self._turns, []
        self._left.look_again()
        for connection in turns:
            connection.turn()

    def has_left(self, connection: C) -> bool:
        return connection.fd in self._left

    def linger(self, connection: C) -> None:
        """It has had its last answer and is read for a moment."""
        self.loop.call_later(self._patience.linger_s, connection.abort)

    def _sweep(self) -> None:
        self._timer = None
        now = self.loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        if self._connections:
            self._timer = self.loop.call_later(self._patience.sweep_s, self._sweep)
