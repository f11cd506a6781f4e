"""Loads on a node's native door, played by a process of their own. Every connection has its part of a queue, or a queue of its own.

    send     one message at a time: push, wait for the answer, push the next
    take     one message at a time: complete the one before and pull the next in one request; the answer comes when both are durable
    apart    the same in two requests, each with a durable answer of its own
    push     frames of so many messages, several under way
    cycle    frames of so many messages are pushed, pulled and completed; several under way, so that what is pulled has been pushed

The client makes its requests beforehand and looks at kind and length of an answer; of what was delivered it cuts out the receipts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, replace
from struct import Struct
from typing import Any

from ..doors.native.frames import HEADER_BYTES, Kind
from . import nativewire as wire
from .child import result_of
from .httpload import LoadFailed, now_ns
from .nativewire import Line
from .rawload import Player, join, played

SEND, TAKE, APART, PUSH, CYCLE = "send", "take", "apart", "push", "cycle"
_HEAD = Struct("<IB")
DISK = 2
"""In an answer to a push: it is durable on the disk."""


@dataclass(frozen=True, slots=True)
class Load:
    port: int
    operation: str
    messages: int
    """Over all connections."""
    connections: int = 1
    batch: int = 1
    under_way: int = 1
    """Frames, on each connection."""
    size: int = 100
    queue: str = "queue"
    """With `{}`: a queue for each connection, by its number."""
    pid: int = 0
    """The server's process, where it is to be told what it used."""

    def playing(self, operation: str) -> Load:
        return replace(self, operation=operation)

    async def played(self) -> dict[str, Any]:
        """What came of it, in a process that is there for it alone."""
        made: dict[str, Any] = await result_of(f"{__name__}:play_load", load=asdict(self))
        return made


async def play_load(load: dict[str, Any]) -> dict[str, Any]:
    """In a child."""
    return await play(Load(**load))


async def play(load: Load) -> dict[str, Any]:
    lines = [Line(load.port) for _ in range(load.connections)]
    players = [PLAYERS[load.operation](load, line, line.declare(load.queue.format(number))) for number, line in enumerate(lines)]
    await join(players, [line.socket for line in lines])
    made = await played(players, load.pid)
    made["durability"] = max(player.durability for player in players)
    return made


class NativePlayer(Player):
    """Finds frames in what arrives and hands each to `answered`. An error ends the load.

    Of deliveries that come in pieces only the beginning is kept, where the receipts lie; their bodies are counted and let go, because
    putting them together would cost the client more than anything else that it does.
    """

    whole = False
    """Whether `answered` wants all of every frame."""

    def __init__(self, load: Load, line: Line, queue: int) -> None:
        super().__init__()
        self.number = line.number
        self.queue = queue
        self.left = load.messages // load.connections
        self.batch, self.under_way = load.batch, load.under_way
        self.push_head, self.record = wire.push(wire.record(queue, [b"x" * load.size] * load.batch))
        self.durability = 0
        self._held: list[bytes] = []
        self._size = 0
        self._need = HEADER_BYTES
        self._begun = b""
        self._skip = 0

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        """A frame lies in data[at:end], header included; of deliveries perhaps only the part before their bodies."""
        raise NotImplementedError

    def pushing(self) -> tuple[bytes, bytes]:
        self.number += 1
        return self.push_head + self.number.to_bytes(8, "little"), self.record

    def pulling(self) -> bytes:
        self.number += 1
        return wire.pull(self.number, self.queue, self.batch)

    def completing(self, items: bytes) -> bytes:
        self.number += 1
        return wire.complete(self.number, self.queue, items)

    def completing_and_pulling(self, items: bytes) -> bytes:
        self.number += 1
        return wire.complete_pull(self.number, self.queue, self.batch, items)

    def data_received(self, data: bytes) -> None:
        if self._skip:
            if len(data) < self._skip:
                self._skip -= len(data)
                return
            data, self._skip = data[self._skip :], 0
            self.answered(Kind.DELIVERIES, self._begun, 0, len(self._begun))
        elif self._held:
            self._held.append(data)
            self._size += len(data)
            if self._size < self._need:
                return
            data = b"".join(self._held)
            self._held = []
        at, end = 0, len(data)
        self._need = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            size, kind = _HEAD.unpack_from(data, at)
            stop = at + HEADER_BYTES + size
            if stop > end:
                if kind == Kind.DELIVERIES and not self.whole and (runs := wire.runs_end(data, at)) <= end:
                    self._begun, self._skip = data[at:runs], stop - end
                    return
                self._need = stop - at
                break
            if kind in (Kind.ERROR, Kind.BYE):
                self.fail(LoadFailed(f"the node refused: {data[at + HEADER_BYTES + 24 : stop].decode('utf-8', 'replace')}"))
                return
            self.answered(kind, data, at, stop)
            at = stop
        if at < end:
            self._held = [data[at:]]
            self._size = end - at


class Sender(NativePlayer):
    def begin(self) -> None:
        self._began_ns = now_ns()
        self.transport.writelines(self.pushing())

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        now = now_ns()
        self.took_ns.append(now - self._began_ns)
        self.messages += 1
        if self.messages == self.left:
            self.durability = data[at + HEADER_BYTES]
            self.end()
            return
        self._began_ns = now
        self.transport.writelines(self.pushing())


class Taker(NativePlayer):
    """Two answers to each request but the first: SETTLED, then DELIVERIES."""

    def begin(self) -> None:
        self._began_ns = now_ns()
        self.transport.write(self.pulling())

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == Kind.SETTLED:
            if data[end - 1] != 1:
                self.fail(LoadFailed("a message was completed too late"))
            elif self.messages == self.left:
                self.end()
            return
        now = now_ns()
        count, items = wire.delivered(data, at)
        if count != 1:
            self.fail(LoadFailed(f"{count} messages in place of one, after {self.messages}"))
            return
        self.took_ns.append(now - self._began_ns)
        self._began_ns = now
        self.messages += 1
        self.transport.write(self.completing(items) if self.messages == self.left else self.completing_and_pulling(items))


class Apart(Taker):
    """Pull, wait, complete, wait."""

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == Kind.SETTLED:
            now = now_ns()
            self.took_ns.append(now - self._began_ns)
            self._began_ns = now
            self.messages += 1
            if self.messages == self.left:
                self.end()
                return
            self.transport.write(self.pulling())
            return
        count, items = wire.delivered(data, at)
        if count != 1:
            self.fail(LoadFailed(f"{count} messages in place of one, after {self.messages}"))
            return
        self.transport.write(self.completing(items))


class Pusher(NativePlayer):
    def begin(self) -> None:
        self._frames = self._unsent = max(1, self.left // self.batch)
        self._began: deque[int] = deque()
        for _ in range(min(self.under_way, self._frames)):
            self._push()

    def _push(self) -> None:
        self._unsent -= 1
        self._began.append(now_ns())
        self.transport.writelines(self.pushing())

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        self.took_ns.append(now_ns() - self._began.popleft())
        self.messages += self.batch
        self._frames -= 1
        if self._unsent:
            self._push()
        elif not self._frames:
            self.durability = data[at + HEADER_BYTES]
            self.end()


class Cycler(NativePlayer):
    """Each turn is a push and a pull that also completes what the pull before brought. Answers of one queue come in the order of its
    requests, so what is pulled was pushed before, and turns need no names."""

    def begin(self) -> None:
        turns = max(self.under_way, self.left // self.batch)
        self._unsettled = turns
        self._unbegun = turns - self.under_way
        self._began: deque[int] = deque()
        for _ in range(self.under_way):
            self._began.append(now_ns())
            self.transport.writelines((*self.pushing(), self.pulling()))

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == Kind.DELIVERIES:
            count, items = wire.delivered(data, at)
            if count != self.batch:
                self.fail(LoadFailed(f"{count} messages in place of {self.batch}, after {self.messages}"))
                return
            now = now_ns()
            self.took_ns.append(now - self._began.popleft())
            self.messages += count
            if self._unbegun:
                self._unbegun -= 1
                self._began.append(now)
                self.transport.writelines((*self.pushing(), self.completing_and_pulling(items)))
            else:
                self.transport.write(self.completing(items))
        elif kind == Kind.SETTLED:
            self._unsettled -= 1
            if not self._unsettled:
                self.end()
        else:
            self.durability = data[at + HEADER_BYTES]


PLAYERS: dict[str, type[NativePlayer]] = {SEND: Sender, TAKE: Taker, APART: Apart, PUSH: Pusher, CYCLE: Cycler}
