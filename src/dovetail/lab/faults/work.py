"""Clients under which things break: they send, receive and settle, each as its own process of the history, through the client as it is.

| queue | what is done there |
| --- | --- |
| plain | sends; receives of which most are completed, some given back, some prolonged, some left to lapse, some completed too late |
| grouped | the same in groups |
| delayed | sends that are due later |
| letters | sends of which some are always given back, until they are dead letters (in `dead`, which is read at the end) |

An error that says that nothing happened is a *fail*; every other error is *info*. Workers never give up: they go on until they are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Any

import dovetail
from dovetail import Queue
from dovetail.client import Client
from dovetail.service.handles import Outgoing
from dovetail.service.received import Message

from ...errors import DovetailError, Refused
from .history import History, Op

LEASE_MS = 2_000
WAIT_S = 0.5
TIMEOUT_S = 6.0
EMPTY_S = 1.5
"""What a node of several counts may be a second old."""
RECEIVES_MAX = 3
DEAD = {"letters": ("dead", RECEIVES_MAX)}
QUEUES = ("plain", "grouped", "delayed", "letters", "dead")
DELAYS_MS = (300, 1000, 2000)
GROUPS = 3


class Worker:
    """One process of the history, and whoever it goes on as. Two things of one worker never overlap."""

    def __init__(self, name: str, client: Client, history: History, chance: Random, pace_s: float) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.chance = chance
        self.pace_s = pace_s
        self.process = history.process()
        self.unexplained: list[str] = []
        """Errors that are not ours: a client must raise none."""

    async def say(self, verb: str, act: Callable[[], Awaitable[Mapping[str, Any]]], **asked: Any) -> Mapping[str, Any] | None:
        """Do it, and write down what became of it; None where it did not happen, or may not have."""
        invoked = self.history.invoke(self.process, verb, **asked)
        try:
            told = await act()
        except Refused as error:
            self._ended(invoked, "fail", error)
            await asyncio.sleep(0.05)
            return None
        except BaseException as error:
            self._ended(invoked, "info", error)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, DovetailError):
                self.unexplained.append(f"{verb}: {error!r}")
            return None
        self.process = self.history.ended(invoked, "ok", **told)
        return told

    def _ended(self, invoked: Op, type: Any, error: BaseException) -> None:
        self.process = self.history.ended(invoked, type, error=f"{type_name(error)}: {error}"[:200])

    async def send(self, queue: Queue, body: str, **more: Any) -> None:
        delay_ms, group = more.get("delay_ms"), more.get("group")
        message = Outgoing(body.encode(), None if delay_ms is None else delay_ms / 1000, group)

        async def act() -> Mapping[str, Any]:
            (sent,) = await queue.send_many([message])
            return {"sequence": sent.sequence}

        await self.say("send", act, queue=queue.name, body=body, sender=self.name, **more)

    async def receive(self, queue: Queue, most: int, wait_s: float) -> list[Message]:
        got: list[Message] = []

        async def act() -> Mapping[str, Any]:
            got.extend(await queue.receive(max=most, wait_s=wait_s, lease_s=LEASE_MS / 1000))
            return {"messages": [_facts(message) for message in got]}

        wait_ms = round(wait_s * 1000)
        answered = await self.say("receive", act, queue=queue.name, most=most, lease_ms=LEASE_MS, wait_ms=wait_ms)
        return got if answered is not None else []

    async def settle(self, verb: str, message: Message) -> None:
        async def act() -> Mapping[str, Any]:
            method: Callable[[], Awaitable[bool]] = getattr(message, verb)
            return {"done": bool(await method())}

        more = {"lease_ms": LEASE_MS} if verb == "extend" else {}
        told = _facts(message)
        await self.say(verb, act, queue=message.queue.name, body=told["body"], receipt=told["receipt"], **more)

    async def pace(self) -> None:
        await asyncio.sleep(self.chance.random() * 2 * self.pace_s)


def type_name(error: BaseException) -> str:
    return type(error).__name__


def _facts(message: Message) -> dict[str, Any]:
    receipt = blake2b(message.receipt.encode(), digest_size=8).hexdigest()
    return {"body": message.body.decode(), "sequence": message.sequence, "receives": message.receives, "receipt": receipt}


async def make_queues(client: Client) -> dict[str, Queue]:
    made = {name: await client.queue(name) for name in ("plain", "delayed", "dead")}
    made["grouped"] = await client.queue("grouped", groups=True)
    made["letters"] = await client.queue("letters", max_receives=RECEIVES_MAX, dead_letter=made["dead"])
    return made


async def sender(worker: Worker, name: str, going: Callable[[], bool]) -> None:
    queue = (await make_queues(worker.client))[name]
    chance, number = worker.chance, 0
    while going():
        number += 1
        more: dict[str, Any] = {}
        if name == "grouped":
            more["group"] = f"{worker.name}-{chance.randrange(GROUPS)}"
        if name == "delayed":
            more["delay_ms"] = chance.choice(DELAYS_MS)
        poison = "!" if name == "letters" and chance.random() < 0.2 else ""
        await worker.send(queue, f"{worker.name}-{number}{poison}", **more)
        await worker.pace()


async def receiver(worker: Worker, name: str, going: Callable[[], bool]) -> None:
    queue = (await make_queues(worker.client))[name]
    chance = worker.chance
    while going():
        for message in await worker.receive(queue, chance.choice((1, 1, 3, 10)), WAIT_S):
            fate = chance.random()
            if message.body.endswith(b"!") or fate < 0.06:
                await worker.settle("requeue", message)
                continue
            if fate < 0.10:
                continue  # Nobody settles it: its lease ends by itself.
            if fate < 0.16:
                await worker.settle("extend", message)
            elif fate < 0.19:
                # Too slow: somebody else may have it when we come.
                await asyncio.sleep(LEASE_MS / 1000 * chance.uniform(0.9, 1.4))
            elif fate < 0.21:
                await worker.settle("release", message)
                continue
            await worker.settle("complete", message)
        await worker.pace()


Crew = Sequence[tuple[Callable[[Worker, str, Callable[[], bool]], Awaitable[None]], str, int]]
"""Who works where, and how many of them."""

WORKERS: Crew = (
    (sender, "plain", 2),
    (sender, "grouped", 2),
    (sender, "delayed", 1),
    (sender, "letters", 1),
    (receiver, "plain", 3),
    (receiver, "grouped", 3),
    (receiver, "delayed", 2),
    (receiver, "letters", 2),
)


class Workers:
    """All of them, each with a connection of its own."""

    def __init__(self, history: History, url: str, seed: int, pace_s: float, crew: Crew = WORKERS) -> None:
        self.history = history
        self._crew = crew
        self._url = url
        self._seed = seed
        self._pace_s = pace_s
        self.all: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._going = True

    async def worker(self, name: str, pace_s: float) -> Worker:
        client = await self.connect(name)
        self.all.append(Worker(name, client, self.history, Random(f"{self._seed}-{name}"), pace_s))
        return self.all[-1]

    async def connect(self, name: str) -> Client:
        return await dovetail.connect(self._url, timeout_s=TIMEOUT_S)

    async def start(self) -> None:
        first = await self.worker("first", 0)
        await make_queues(first.client)
        for what, queue, count in self._crew:
            for number in range(count):
                worker = await self.worker(f"{queue}-{what.__name__[0]}{number}", self._pace_s)
                self._tasks.append(asyncio.create_task(_never_ending(what, worker, queue, lambda: self._going)))

    async def stop(self) -> None:
        """Everybody finishes what is under way."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def drain(self, within_s: float) -> None:
        """Complete whatever there is until every queue is empty and stays so, or the time is over."""
        worker = await self.worker("drain", 0)
        queues = await make_queues(worker.client)
        loop = asyncio.get_running_loop()
        deadline, busy = loop.time() + within_s, loop.time()
        while loop.time() < deadline:
            for queue in queues.values():
                while got := await worker.receive(queue, 100, 0):
                    for message in got:
                        await worker.settle("requeue" if _poison(queue, message) else "complete", message)
            if any([await self._left(worker, queue) for queue in queues.values()]):
                busy = loop.time()
            elif loop.time() - busy > EMPTY_S:
                return
            await asyncio.sleep(0.1)

    @staticmethod
    async def _left(worker: Worker, queue: Queue) -> int:
        async def act() -> Mapping[str, Any]:
            counts = await queue.counts()
            # What moves into another log is set aside on the way.
            return {"visible": counts.visible, "delayed": counts.delayed, "leased": counts.leased, "reserved": counts.reserved}

        told = await worker.say("counts", act, queue=queue.name)
        return sum(told.values()) if told is not None else 1

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*[worker.client.close() for worker in self.all], return_exceptions=True)


def _poison(queue: Queue, message: Message) -> bool:
    return queue.name in DEAD and message.body.endswith(b"!")


async def _never_ending(what: Callable[..., Awaitable[None]], worker: Worker, queue: str, going: Callable[[], bool]) -> None:
    """A node may not be there when a worker begins."""
    while going():
        try:
            await what(worker, queue, going)
        except DovetailError:
            await asyncio.sleep(0.1)
