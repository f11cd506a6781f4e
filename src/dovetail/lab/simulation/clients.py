"""Clients of simulated nodes, with the faces that lab/faults/work.py drives: every call goes to a node that is drawn, as through a
balancer.

| sends are | and what was not answered |
| --- | --- |
| numbered | is sent again under its number, at any node, until it is known or the client gives up |
| once | stays unknown |
| again (a twin) | is sent again, as if it were new |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Literal, TypeVar

from ...core.operation import Tick
from ...errors import Unavailable, Unknown
from ...node import Node
from ...service.handles import Producer, Queue
from ...service.values import Outgoing, Sent
from ...stores.namespace.store import NamespaceStore
from ...stores.store import Counts
from .nodes import SimNode

T = TypeVar("T")
TIMEOUT_S = 4.0
TRIES = 5
Sends = Literal["numbered", "once", "again"]


class SimClient:
    def __init__(self, nodes: Sequence[SimNode], name: str, chance: Random, sends: Sends) -> None:
        self.nodes = nodes
        self.name = name
        self.chance = chance
        self.sends = sends
        self._epoch = 0
        self._number = 0
        self._open = True
        """What was sent last has its outcome."""

    async def queue(self, name: str, **rules: Any) -> SimQueue:
        if isinstance(rules.get("dead_letter"), SimQueue):
            rules["dead_letter"] = rules["dead_letter"].name

        async def make(node: Node) -> Queue:
            return await node.queue(name, **rules)

        await self.insist(make)
        return SimQueue(self, name)

    async def insist(self, act: Callable[[Node], Awaitable[T]]) -> T:
        """Something that may be done twice, until it is done."""
        while True:
            try:
                return await self.once(act)
            except (Unavailable, Unknown):
                continue

    async def once(self, act: Callable[[Node], Awaitable[T]], timeout_s: float = TIMEOUT_S) -> T:
        able = [node for node in self.nodes if node.alive]
        chosen = self.chance.choice(able or list(self.nodes))
        if not chosen.ready:
            await _pause(self.chance)
        return await chosen.ask(act, timeout_s, leave=self.chance.random() < 0.5)

    async def send(self, queue: str, message: Outgoing) -> Sent:
        if self.sends != "numbered":
            return await self._send_plain(queue, message, TRIES if self.sends == "again" else 1)
        await self._settle_last()
        self._number += 1
        self._open = False
        number, name, epoch = self._number, self.name, self._epoch

        async def send(node: Node) -> Sent:
            producer = Producer(node.verbs, Producer.identity_of(name), epoch, number - 1)
            return await producer.send(await node.queue(queue), message, number=number)

        for _ in range(TRIES):
            try:
                sent = await self.once(send)
                self._open = True
                return sent
            except (Unavailable, Unknown):
                continue
        raise Unknown

    async def _settle_last(self) -> None:
        """The number whose outcome is not known is given up, if it was not stored, before the next one is used."""
        name, number = self.name, self._number
        if not self._epoch:
            opened = await self.insist(lambda node: node.producer(name))
            self._epoch, self._open = opened.epoch, True
        epoch = self._epoch
        if not self._open:

            async def skip(node: Node) -> None:
                await Producer(node.verbs, Producer.identity_of(name), epoch, number).skip(number)

            await self.insist(skip)
            self._open = True

    async def _send_plain(self, queue: str, message: Outgoing, tries: int) -> Sent:
        async def send(node: Node) -> Sent:
            (sent,) = await (await node.queue(queue)).send_many([message])
            return sent

        for _ in range(tries - 1):
            try:
                return await self.once(send)
            except (Unavailable, Unknown):
                continue
        return await self.once(send)

    async def close(self) -> None:
        """Nothing is held."""


class SimQueue:
    def __init__(self, client: SimClient, name: str) -> None:
        self.client = client
        self.name = name

    async def send_many(self, messages: Sequence[Outgoing]) -> list[Sent]:
        return [await self.client.send(self.name, message) for message in messages]

    async def receive(self, max: int, wait_s: float, lease_s: float) -> list[SimMessage]:
        async def receive(node: Node) -> list[SimMessage]:
            queue = await node.queue(self.name)
            got = await queue.receive(max=max, wait_s=wait_s, lease_s=lease_s)
            return [SimMessage(self, one.body, one.sequence, one.receives, one.receipt) for one in got]

        return await self.client.once(receive, TIMEOUT_S + wait_s)

    async def counts(self) -> Counts:
        async def counts(node: Node) -> Counts:
            # Read through an append: what a node counts by itself may be a second old.
            queue = await node.queue(self.name)
            store = await node.store.open_for(queue.lane.queue) if isinstance(node.store, NamespaceStore) else node.store
            await store.committer.submit(Tick())
            return await queue.counts()

        return await self.client.once(counts)


class SimMessage:
    """A message in hand. It is settled at whatever node is asked: receipts know no node."""

    def __init__(self, queue: SimQueue, body: bytes, sequence: int, receives: int, receipt: str) -> None:
        self.queue = queue
        self.body = body
        self.sequence = sequence
        self.receives = receives
        self.receipt = receipt

    async def _settle(self, verb: str, *more: Any) -> bool:
        async def settle(node: Node) -> bool:
            queue = await node.queue(self.queue.name)
            done: list[bool] = await getattr(queue, verb)([self.receipt], *more)
            return done[0]

        return await self.queue.client.once(settle)

    async def complete(self) -> bool:
        return await self._settle("complete")

    async def requeue(self) -> bool:
        return await self._settle("requeue")

    async def release(self) -> bool:
        return await self._settle("release")

    async def extend(self) -> bool:
        return await self._settle("extend")


async def _pause(chance: Random) -> None:
    await asyncio.sleep(0.05 + chance.random() * 0.1)
