"""Loads on memcached, played by a process of their own: pairs of set and delete, pipelined, as bytes that were made beforehand.

    set k 0 0 SIZE\\r\\n BODY \\r\\n        STORED\\r\\n
    delete k\\r\\n                        DELETED\\r\\n

A unit is so many sets and then the deletes of the same keys; several units are under way on each connection, each with keys of its own. All
have one length, and so have their answers, and they lie behind one another in a ring: what follows the answers to n units is one slice of
it. So the client counts bytes and parses nothing, however small the units are; what is not STORED and DELETED has another length.
"""

from __future__ import annotations

import socket
from typing import Any

from .child import result_of
from .httpload import LoadFailed
from .rawload import Player, join, played

_ANSWERED_BYTES = len(b"STORED\r\nDELETED\r\n")


def unit(connection: int, number: int, pairs: int, size: int) -> bytes:
    keys = [b"%03d-%06d-%04d" % (connection, number, pair) for pair in range(pairs)]
    body = b"x" * size
    return b"".join([b"set %b 0 0 %d\r\n%b\r\n" % (key, size, body) for key in keys] + [b"delete %b\r\n" % key for key in keys])


class Pairs(Player):
    def __init__(self, connection: int, units: int, under_way: int, pairs: int, size: int) -> None:
        super().__init__()
        made = [unit(connection, number, pairs, size) for number in range(under_way)]
        # Twice, so that any run of units is one slice.
        self._ring = memoryview(b"".join(made * 2))
        self._unit_bytes = len(made[0])
        self._answer_bytes = pairs * _ANSWERED_BYTES
        self._under_way, self._pairs = under_way, pairs
        self._left = units
        self._waiting = units
        self._at = self._got = 0

    def begin(self) -> None:
        self._write(self._under_way)

    def _write(self, units: int) -> None:
        units = min(units, self._left)
        if units:
            self._left -= units
            self.transport.write(self._ring[self._at * self._unit_bytes : (self._at + units) * self._unit_bytes])
            self._at = (self._at + units) % self._under_way

    def data_received(self, data: bytes) -> None:
        if b"ERROR" in data or b"NOT_" in data:
            self.fail(LoadFailed(f"memcached refused: {data[:200]!r}"))
            return
        units, self._got = divmod(self._got + len(data), self._answer_bytes)
        if units:
            self.messages += units * self._pairs
            self._waiting -= units
            if self._waiting:
                self._write(units)
            else:
                self.end()


def connected(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


async def play(port: int, connections: int, messages: int, size: int, pairs: int, under_way: int, pid: int = 0) -> dict[str, Any]:
    """In a child: `messages` pairs over all connections, in units of `pairs`, `under_way` units on each."""
    units = max(1, messages // connections // pairs)
    players = [Pairs(number, units, under_way, pairs, size) for number in range(connections)]
    await join(players, [connected(port) for _ in players])
    return await played(players, pid)


async def result(port: int, connections: int, messages: int, size: int, pairs: int, under_way: int, pid: int = 0) -> dict[str, Any]:
    """The same, in a process that is there for it alone."""
    arguments = {"port": port, "connections": connections, "messages": messages, "size": size, "pairs": pairs}
    made: dict[str, Any] = await result_of(f"{__name__}:play", **arguments, under_way=under_way, pid=pid)
    return made
