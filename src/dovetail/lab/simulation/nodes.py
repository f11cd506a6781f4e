"""Simulated nodes: the real store on a simulated log, and the service over it, each with a clock of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from ...clock import Handle
from ...errors import DovetailError, Unavailable, Unknown
from ...logs.shared import log as shared_log
from ...logs.shared.log import SharedLog
from ...node import Node, join_namespace
from ...stores import committer as plain_committer
from ...stores.chores import Chores
from ...stores.committer import Committer
from ...stores.entrytime import EntryTime
from ...stores.namespace.log import NamespaceLog
from ...stores.shared import committer, store
from ...stores.shared.chores import SharedChores
from ...stores.shared.store import SharedStore
from ...stores.snapshots import Survey
from .loop import Owner, SimLoop
from .service import WALL_MS, Connection, Service

T = TypeVar("T")
SNAPSHOT_BYTES = 200_000
RESTART_S = 0.2


class SimClock:
    """The wall clock is `skew_ms` wrong, which may change; the boot clock is right."""

    def __init__(self, loop: SimLoop, skew_ms: int) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.skew_ms + round(self._loop.time() * 1000)

    def boot_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def call_at(self, boot_ms: int, wake: Callable[[], None]) -> Handle:
        return self._loop.call_at(boot_ms / 1000 + 0.0005, wake)


class _Chores(SharedChores):
    """A snapshot is written in this process: a child would leave the simulation."""

    async def _in_child(self) -> Survey:
        return self._store.snapshots.write(self._store.state)


class _Store(SharedStore):
    def _rooms(self, snapshot_bytes: int) -> tuple[EntryTime, Committer, Chores]:
        made, writing, _ = super()._rooms(snapshot_bytes)
        return made, writing, _Chores(self, snapshot_bytes)


class _Log(_Store, NamespaceLog):
    """One of several."""


class Connections:
    """A node's, one to each log that it has joined: broken and healed together."""

    def __init__(self, services: Sequence[Service], name: str) -> None:
        self._services = services
        self._name = name
        self._made: list[Connection] = []
        self._mute = self._deaf = self._dead = False
        self._slow_s = 0.0

    def to(self, log: int) -> Connection:
        made = Connection(self._services[log], self._name)
        self._made.append(made)
        made.mute, made.deaf, made.dead, made.slow_s = self._mute, self._deaf, self._dead, self._slow_s
        return made

    def die(self) -> None:
        self._dead = True
        for one in self._made:
            one.die()

    def set(self, *, mute: bool, deaf: bool) -> None:
        self._mute, self._deaf = mute, deaf
        for one in self._made:
            one.mute, one.deaf = mute, deaf

    def slow(self, seconds: float) -> None:
        self._slow_s = seconds
        for one in self._made:
            one.slow_s = seconds


class Died(Unknown):
    """The node died before it answered."""


class SimNode:
    """One node through all its lives. Between them there is nothing: what it held is lost."""

    def __init__(self, name: str, loop: SimLoop, services: Sequence[Service], folder: Path, skew_ms: int) -> None:
        self.name = name
        self.clock = SimClock(loop, skew_ms)
        self._loop = loop
        self._services = services
        self._folder = folder
        self._logs: list[SharedLog] = []
        self.owner: Owner
        self.connections: Connections
        self.node: Node | None = None
        self._died: asyncio.Future[None]
        self.lives = 0

    def start(self) -> None:
        self.lives += 1
        self.owner = Owner(f"{self.name}.{self.lives}")
        self.connections = Connections(self._services, self.owner.name)
        self._died = self._loop.create_future()
        self._loop.spawn(self.owner, self._live())

    async def _live(self) -> None:
        """Join, again and again: the service may not be there yet."""
        while True:
            try:
                self.node = await self._joined()
                return
            except DovetailError:
                await asyncio.sleep(RESTART_S)

    async def _joined(self) -> Node:
        if len(self._services) > 1:
            return await join_namespace(self._log, len(self._services), clock=self.clock, snapshot_bytes=SNAPSHOT_BYTES, kind=_Log)
        log = self._log(0)
        try:
            return Node(await _Store.join(log, self.clock, snapshot_bytes=SNAPSHOT_BYTES), self.clock)
        except BaseException:
            await log.shut()
            raise

    def _log(self, place: int) -> SharedLog:
        log = SharedLog(self.connections.to(place), self._folder / f"{self.owner.name}-{len(self._logs)}")
        self._logs.append(log)
        return log

    @property
    def ready(self) -> bool:
        return self.node is not None and self.node.ready

    @property
    def alive(self) -> bool:
        return not self.owner.dead

    def kill(self) -> None:
        self.owner.dead = True
        self.connections.die()
        self.node = None
        if not self._died.done():
            self._died.set_result(None)

    async def ask(self, act: Callable[[Node], Awaitable[T]], timeout_s: float, *, leave: bool) -> T:
        """As a client asks: what was not answered in time, or by the dead, is unknown. `leave`: it hangs up then, and the node is told."""
        node = self.node
        if node is None or not self.alive:
            raise Unavailable("the node is not there")
        asking = self._loop.spawn(self.owner, _act(act, node))
        await asyncio.wait((asking, self._died), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        if leave and self.alive:
            asking.cancel()
        raise Died

    def let_go(self) -> None:
        """Of files, at the end of the run."""
        for log in self._logs:
            if hasattr(log, "_spool"):
                log._spool.close()


async def _act(act: Callable[[Node], Awaitable[T]], node: Node) -> T:
    return await act(node)


@contextlib.contextmanager
def simulated(loop: SimLoop, chance: Random) -> Iterator[None]:
    """Whatever reads a clock or draws a name by itself does it from the loop and the seed, as long as this lasts."""
    clock = SimpleNamespace(monotonic=loop.time, perf_counter=loop.time)
    changes: list[tuple[Any, str, Any]] = [
        (shared_log, "time", clock),
        (committer, "monotonic", loop.time),
        (committer, "perf_counter", loop.time),
        (plain_committer, "perf_counter", loop.time),
        (store, "monotonic", loop.time),
        (os, "urandom", lambda count: chance.randbytes(count)),
        (time, "monotonic_ns", lambda: round(loop.time() * 1e9)),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
