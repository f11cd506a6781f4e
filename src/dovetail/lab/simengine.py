"""An engine for shared logs that is a list in this process, and that can be told to be bad: the seam of logs/shared/engine.py, played.

A `Service` is what all nodes of a test share; each node has a `SimEngine` of its own. Publishing loses, doubles and reorders as it is told,
by a seed; a node can be cut from it, and pointed at another service. Following is always right, as the seam demands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dovetail.clock import Clock
from dovetail.errors import StorageError, Unavailable
from dovetail.logs.shared.engine import HEARD_S, Take
from dovetail.logs.shared.packet import decode

PACKET_BYTES_MAX = 2 << 20


class Faults(NamedTuple):
    """Of each packet that is published: how likely what is."""

    lose: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    """It overtakes nobody and is overtaken by those behind it, for up to DELAY_S."""


DELAY_S = 0.03


class Service:
    """Stamps come from what passes on `clock`, not from its wall, so that a test can set the clocks of nodes and leave the log's alone."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.boot_ms()
        self.chance = random.Random(seed)
        self.first = 1
        self.packets: list[tuple[int, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self._news = asyncio.Event()

    @property
    def next(self) -> int:
        return self.first + len(self.packets)

    def store(self, packet: bytes) -> None:
        self.packets.append((self._clock.boot_ms() + self._ahead_ms, packet))
        self._news.set()
        self._news = asyncio.Event()

    def trim(self, number: int) -> None:
        gone = min(number, self.next) - self.first
        if gone > 0:
            del self.packets[:gone]
            self.first += gone

    @property
    def news(self) -> asyncio.Event:
        """Set when something is stored next."""
        return self._news

    def wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def records(self) -> list[list[bytes]]:
        """What the log holds, for those who judge it."""
        return [[bytes(record) for record in decode(packet)] for _, packet in self.packets]


class SimEngine:
    name = "sim"
    durability = "memory×3"
    packet_bytes_max = PACKET_BYTES_MAX

    def __init__(self, service: Service, faults: Faults = Faults()) -> None:  # noqa: B008  # a constant
        self.service = service
        self.faults = faults
        self.reachable = True
        self.deaf = False
        """It publishes, and is told of nothing."""
        self.published = 0

    def cut(self, cut: bool = True) -> None:
        """Take the service away from this node, or give it back."""
        self.reachable = not cut
        self.service.wake()

    def _check(self) -> None:
        if not self.reachable:
            raise Unavailable("sim is cut off")

    async def open(self) -> None:
        self._check()

    async def bounds(self) -> tuple[int, int]:
        self._check()
        return self.service.first, self.service.next

    def publish(self, packet: bytes) -> None:
        if not self.reachable:
            return
        self.published += 1
        chance, faults = self.service.chance, self.faults
        for _ in range(1 + (chance.random() < faults.double)):
            if chance.random() < faults.lose:
                continue
            if chance.random() < faults.delay:
                asyncio.get_running_loop().call_later(DELAY_S * chance.random(), self.service.store, packet)
            else:
                asyncio.get_running_loop().call_soon(self.service.store, packet)

    async def follow(self, number: int, take: Take, heard: Callable[[], None]) -> None:
        self._check()
        if number < self.service.first:
            raise StorageError(f"entry {number} was trimmed")
        while True:
            heard()
            news = self.service.news
            while number < self.service.next and not self.deaf:
                self._check()
                take(number, *self.service.packets[number - self.service.first])
                number += 1
            self._check()
            try:
                await asyncio.wait_for(news.wait(), HEARD_S)
            except TimeoutError:
                pass

    async def trim(self, number: int) -> None:
        self._check()
        self.service.trim(number)

    async def put(self, name: str, source: Path) -> None:
        self._check()
        self.service.blobs[name] = source.read_bytes()  # noqa: ASYNC240  # a test's

    async def get(self, name: str, target: Path) -> None:
        self._check()
        target.write_bytes(self.service.blobs[name])  # noqa: ASYNC240  # a test's

    async def names(self) -> list[str]:
        self._check()
        return list(self.service.blobs)

    async def remove(self, name: str) -> None:
        self._check()
        self.service.blobs.pop(name, None)

    async def close(self) -> None:
        """There is nothing to let go of."""
