"""The log service that simulated nodes share, and a node's connection to it (the seam of logs/shared/engine.py).

A packet that is published may arrive late, twice, out of order, or not at all; once it has a number it is kept. Followers get everything in
order, each at its own pace. A connection can be cut in both directions or in one; the service itself can be down, as while it elects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from random import Random

from ...errors import Unavailable
from ...logs.shared.engine import Take
from .loop import SimLoop, outside

WALL_MS = 1_700_000_000_000
HEARD_S = 1.0
BATCH = 64


class Weather:
    """How bad it is; the run changes it."""

    def __init__(self) -> None:
        self.loss = self.double = 0.0
        self.delay_s = 0.005
        """Up to so long, each way."""
        self.down = False


class Service:
    def __init__(self, loop: SimLoop, chance: Random, name: str = "") -> None:
        self.loop = loop
        self.name = name
        self.chance = chance
        self.weather = Weather()
        self.first = 1
        self.packets: list[tuple[int, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self.followers: list[Connection] = []
        self.trace = blake2b(digest_size=16)
        self._context = outside()

    @property
    def next(self) -> int:
        return self.first + len(self.packets)

    def send(self, packet: bytes, slow_s: float) -> None:
        """On its way, which nobody who dies meanwhile can stop."""
        chance, weather = self.chance, self.weather
        copies = 1 + (chance.random() < weather.double)
        for _ in range(copies):
            if chance.random() >= weather.loss:
                self.loop.call_later(chance.random() * weather.delay_s + slow_s, self._arrived, packet, context=self._context)

    def _arrived(self, packet: bytes) -> None:
        if self.weather.down:
            return
        stamp = WALL_MS + round(self.loop.time() * 1000)
        self.note(f"{self.name}{self.next} {stamp} {blake2b(packet, digest_size=8).hexdigest()}")
        self.packets.append((stamp, packet))
        for follower in self.followers:
            follower.news.set()

    def note(self, what: str) -> None:
        """A line of the trace, which tells two runs apart."""
        self.trace.update(f"{self.loop.time():.9f} {what}\n".encode())

    def trim(self, number: int) -> None:
        gone = min(number, self.next) - self.first
        if gone > 0:
            del self.packets[:gone]
            self.first += gone


class Connection:
    """One node's. `mute`: what it says does not arrive. `deaf`: it hears nothing. Both together: it is cut off."""

    durability = "memory×3"
    packet_bytes_max = 2 << 20

    def __init__(self, service: Service, name: str) -> None:
        self.name = f"simulated {name}"
        self._service = service
        self.mute = self.deaf = self.dead = False
        self.slow_s = 0.0
        self.news = asyncio.Event()

    async def _asked(self) -> None:
        """A question and its answer."""
        weather, chance = self._service.weather, self._service.chance
        await asyncio.sleep(2 * chance.random() * weather.delay_s + self.slow_s)
        if self.mute or self.deaf or self.dead or weather.down:
            await asyncio.sleep(0.2)
            raise Unavailable("the service does not answer")

    async def open(self) -> None:
        await self._asked()
        self._service.followers.append(self)

    async def bounds(self) -> tuple[int, int]:
        await self._asked()
        return self._service.first, self._service.next

    def publish(self, packet: bytes) -> None:
        if not self.mute and not self.dead:
            self._service.send(packet, self.slow_s)

    async def follow(self, number: int, take: Take, heard: Callable[[], None]) -> None:
        service = self._service
        await self._asked()
        heard()
        while True:
            if number >= service.next:
                self.news.clear()
                try:
                    await asyncio.wait_for(self.news.wait(), HEARD_S)
                except TimeoutError:
                    pass
            await asyncio.sleep(service.chance.random() * service.weather.delay_s + self.slow_s)
            if self.deaf or self.dead or service.weather.down:
                raise Unavailable("the service is not heard")
            heard()
            for _ in range(min(BATCH, service.next - number)):
                if number < service.first:
                    raise Unavailable("trimmed meanwhile")
                take(number, *service.packets[number - service.first])
                number += 1

    def die(self) -> None:
        self.dead = True
        if self in self._service.followers:
            self._service.followers.remove(self)

    async def trim(self, number: int) -> None:
        await self._asked()
        self._service.trim(number)

    async def put(self, name: str, source: Path) -> None:
        data = source.read_bytes()  # noqa: ASYNC240  # nothing else runs in a simulation
        await self._asked()
        self._service.blobs[name] = data

    async def get(self, name: str, target: Path) -> None:
        await self._asked()
        target.write_bytes(self._service.blobs[name])  # noqa: ASYNC240

    async def names(self) -> list[str]:
        await self._asked()
        return sorted(self._service.blobs)

    async def remove(self, name: str) -> None:
        await self._asked()
        self._service.blobs.pop(name, None)

    async def close(self) -> None:
        self.die()
