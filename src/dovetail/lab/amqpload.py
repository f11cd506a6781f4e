"""Loads on an AMQP broker, one message at a time on each connection, played by a process of their own.

    send   publish a persistent message, wait for its confirm, publish the next
    take   consume with a prefetch of 1: a delivery is acked, and the ack is what makes the broker send the next

An ack has no answer. So a send waits for the disk, and a take waits only until the next delivery arrives.
"""

from __future__ import annotations

from typing import Any

from . import amqpwire as wire
from .child import result_of
from .httpload import LoadFailed, now_ns
from .rawload import Player, join, played

SEND, TAKE = "send", "take"
BODY = b"x" * 100
_LINGER_S = 0.2
"""A quorum queue takes acks in its own time, and a connection that closes overtakes the last of them."""


class Sender(Player):
    def __init__(self, queue: bytes, messages: int) -> None:
        super().__init__()
        self._request = wire.publish(queue, BODY)
        self._left = messages
        self._part = b""
        self._began_ns = 0

    def begin(self) -> None:
        self._began_ns = now_ns()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._part:
            data = self._part + data
        if len(data) < wire.ACK_BYTES:
            self._part = data
            return
        self._part = b""
        if len(data) != wire.ACK_BYTES or wire.identity_at(data, 0) != wire.PUBLISHED:
            self.fail(LoadFailed(f"in place of a confirm: {data[:200]!r}"))
            return
        now = now_ns()
        self.took_ns.append(now - self._began_ns)
        self.messages += 1
        if self.messages == self._left:
            self.end()
            return
        self._began_ns = now
        self.transport.write(self._request)


class Taker(Player):
    def __init__(self, queue: bytes, messages: int) -> None:
        super().__init__()
        self._consume = wire.Line.consume(queue)
        self._size = wire.delivery_bytes(queue, len(BODY))
        self._left = messages
        self._part = b""
        self._began_ns = 0

    def begin(self) -> None:
        self._began_ns = now_ns()
        self.transport.write(self._consume)

    def data_received(self, data: bytes) -> None:
        if self._part:
            data = self._part + data
        if len(data) < self._size:
            # Only something else than a delivery is whole and shorter; a refusal must not look like waiting.
            if len(data) > 11 and wire.identity_at(data, 0) != wire.DELIVER:
                self.fail(LoadFailed(f"in place of a delivery: {data[:200]!r}"))
            self._part = data
            return
        self._part = b""
        if len(data) != self._size or wire.identity_at(data, 0) != wire.DELIVER or data[-1] != wire.END:
            self.fail(LoadFailed(f"in place of a delivery: {data[:200]!r}"))
            return
        now = now_ns()
        self.took_ns.append(now - self._began_ns)
        self._began_ns = now
        self.messages += 1
        if self.messages == self._left:
            # The cancel goes first: otherwise the ack would bring one more, and another reader would miss it.
            self.transport.write(wire.cancel() + wire.ack(self.messages))
            self.end()
            return
        self.transport.write(wire.ack(self.messages))


async def play(port: int, operation: str, queue: str, clients: int, messages: int, pid: int = 0) -> dict[str, Any]:
    """In a child. Every client sends or takes `messages`."""
    name = queue.encode()
    lines = [wire.Line(port) for _ in range(clients)]
    for line in lines:
        if operation == SEND:
            line.confirms()
        else:
            line.prefetch(1)
    kind = Sender if operation == SEND else Taker
    players = [kind(name, messages) for _ in lines]
    await join(players, [line.socket for line in lines])
    return await played(players, pid, _LINGER_S)


async def result(port: int, operation: str, queue: str, clients: int, messages: int, pid: int = 0) -> dict[str, Any]:
    """The same, in a process that is there for it alone."""
    made: dict[str, Any] = await result_of(
        f"{__name__}:play", port=port, operation=operation, queue=queue, clients=clients, messages=messages, pid=pid
    )
    return made
