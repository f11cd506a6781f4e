"""A house for the contract suite: one node on the store under test, with a clock that the test moves.

It knows the API and which stores there are, nothing of how a store keeps its word. A new store adds a line to STORES. The same suite runs
over the client, whose houses are in served_house.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from dovetail import Message, Node, Peeked, Queue
from dovetail.clock import ManualClock
from dovetail.errors import BadRequest
from dovetail.node import start
from dovetail.settings import Local, Settings

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a test waits in real time for what should happen at once. Only a broken promise waits that long."""


class Kind(NamedTuple):
    """A store under test. `persists` says that what was acknowledged is there after a restart."""

    name: str
    url: Callable[[Path], str]
    persists: bool
    durability: str = "disk"
    """What an answer names."""
    again: bool = True
    """After each test it is started again, twice, and must show the same."""


STORES = (
    Kind("memory", lambda folder: "memory:", False, "memory"),
    Kind("local", lambda folder: f"local:{folder / 'data'}", True),
)

# Small segments and inline syncs: a test makes many folders, and what it asks for has happened after a few turns of the loop.
SETTINGS = Settings(local=Local(segment_bytes=2 << 20, snapshot_bytes=1 << 40, sync="inline"))


class House:
    """The node as it is now. After `again` handles of the old node are dead: ask for the queue once more."""

    near = True
    """The node is on the test's own loop: after so many turns it has got so far and no further."""

    quiet = True
    """Receivers who wait write nothing."""

    owns_time = True
    """The test's clock is the log's, too."""
    retimes = True
    """An operator may move the log's time."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.url = kind.url(folder)
        self.clock = ManualClock()
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    async def open(self) -> None:
        self._node = await start(self.url, settings=SETTINGS, clock=self.clock)

    async def close(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            await node.close()

    async def end(self) -> None:
        """The last `close`."""
        await self.close()

    async def again(self, *, snapshot: bool = False) -> None:
        """Restart the node where its store persists; what a test expects afterwards holds in any case."""
        if snapshot:
            await self.node.snapshot()
        if self.kind.persists:
            await self.close()
            await self.open()

    async def needs(self, promise: str, **rules: Any) -> None:
        """The rest of the test is for stores that make this promise; the others must refuse a queue that needs it, in so many words."""
        if getattr(self.node.store.promises, promise) in (True, "strict", "queue"):
            return
        if rules:
            with pytest.raises(BadRequest):
                await self.node.queue("refused", **rules)
        pytest.skip(f"{self.kind.name} does not promise {promise}")

    async def pass_time(self, seconds: float, step_s: float = 0.1) -> None:
        """Let time pass in steps, with room in between for those whom it wakes."""
        steps = max(1, round(seconds / step_s))
        for _ in range(steps):
            self.clock.advance(seconds / steps)
            await turns(5)

    async def facts(self) -> dict[tuple[str, str], Any]:
        """Everything that can be seen of every queue without changing it."""
        seen: dict[tuple[str, str], Any] = {}
        for namespace, name, _ in self.node.store.all_queues():
            queue = await self.node.queue(name, namespace=namespace)
            taps = {tap: await _read(queue, tap.name) for tap in await queue.taps()}
            batches = [(one, [await queue.reserved(one.name, batch) for batch in one.batches]) for one in await queue.reservations()]
            seen[namespace, name] = (queue.lane.attributes, await queue.counts(), await everything(queue), taps, batches)
        kept = [(namespace, tap, await self._facts_of(namespace, tap)) for namespace, tap in self.node.store.facts_taps()]
        return seen | {("", "stages"): await self.node.stages(), ("", "facts"): kept}

    async def _facts_of(self, namespace: str, tap: Any) -> Any:
        if tap.lost_count:
            return "cut"
        return (await (await self.node.facts(tap.name, namespace=namespace)).read(max=100_000)).facts


async def _read(queue: Queue, name: str) -> Any:
    try:
        return queue.lane.tap_read(name, 10_000)
    except BadRequest as cut:
        return str(cut)


async def everything(queue: Queue) -> list[Peeked]:
    """All that is there, page by page: a look shows a hundred thousand at most, and a fast machine sends more."""
    seen: list[Peeked] = []
    while page := await queue.peek(max=100_000, after=seen[-1].sequence if seen else 0):
        seen += page
    return seen


PAUSES: list[Callable[[], Awaitable[None]]] = []
"""What a turn means where the node is in another process: that it has had its own."""


async def turns(count: int = 20) -> None:
    """Let everybody else have so many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
    for pause in PAUSES:
        await pause()


async def soon(answer: Awaitable[T]) -> T:
    return await asyncio.wait_for(answer, PATIENCE_S)


async def waiting(*receives: Awaitable[list[Message]]) -> list[asyncio.Task[list[Message]]]:
    """Receivers that have come, in this order, and wait."""
    tasks = []
    for receive in receives:
        tasks.append(asyncio.ensure_future(receive))
        await turns()
    return tasks  # type: ignore[return-value]  # ensure_future of a coroutine is a task


def bodies(messages: Sequence[Any]) -> list[bytes]:
    return [message.body for message in messages]
