"""A node under mixed load, to be killed. Everything it asks for and is told goes to stdout, one JSON list a line, as it happens.

    python tests/crash/worker.py FOLDER SEED RESEND      RESEND: {"number": [number, key] or null, "dedup": [key, …]}

It keeps no account of its own: the ledger is with whoever started it. Lines: ["ready"] · ["send?", queue, key…] · ["send", key…] ·
["got", key, receipt] · ["done?", key] · ["done", key] · ["back", key, receipt] · ["both?", key, new] · ["both", key, new] ·
["number?", number, key].
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import Any

import dovetail
from dovetail import Message, Node, Outgoing, Queue
from dovetail.settings import Local, Settings

SETTINGS = Settings(local=Local(segment_bytes=2 << 20, snapshot_bytes=1 << 20))
GROUPS = 6


def say(*words: object) -> None:
    line = json.dumps(words).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


class Load:
    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.seed = seed
        self.chance = random.Random(seed)
        self.sent = 0
        self.queues: dict[str, Queue] = {}

    def key(self, prefix: str) -> str:
        self.sent += 1
        return f"{prefix}{self.seed:06d}.{self.sent:08d}"

    def body(self, key: str) -> bytes:
        return key.encode() + b"|" + bytes(self.chance.choice((0, 10, 100, 100, 3000, 20_000)))

    async def open_queues(self) -> None:
        for name, rules in {"plain": {}, "target": {}, "grouped": {"groups": True}, "once": {"deduplication_s": 86_400}}.items():
            self.queues[name] = await self.node.queue(name, lease_s=3600, **rules)  # type: ignore[arg-type]  # rules of several types

    async def send(self) -> None:
        """One, many, delayed, to two queues."""
        while True:
            keys = [self.key("p") for _ in range(self.chance.choice((1, 1, 1, 5, 60)))]
            say("send?", "plain", *keys)
            if len(keys) == 1 and self.chance.random() < 0.5:
                await self.queues["plain"].send(self.body(keys[0]))
            else:
                delays = [self.chance.choice((None, None, 0.05, 100_000)) for _ in keys]
                await self.queues["plain"].send_many(
                    [Outgoing(self.body(key), delay_s=delay) for key, delay in zip(keys, delays, strict=True)]
                )
            say("send", *keys)

    async def send_group(self, group: str) -> None:
        while True:
            key = self.key("g" + group)
            say("send?", "grouped", key)
            await self.queues["grouped"].send(self.body(key), group=group)
            say("send", key)
            await asyncio.sleep(0)

    async def send_once(self, resend: list[str]) -> None:
        """What was in doubt after the last life is sent again under the same key."""
        for key in resend:
            await self.queues["once"].send(self.body(key), deduplication=key)
            say("send", key)
        while True:
            key = self.key("d")
            say("send?", "once", key)
            await self.queues["once"].send(self.body(key), deduplication=key)
            say("send", key)

    async def send_numbered(self, resend: list[Any] | None) -> None:
        producer = await self.node.producer("ledger")
        if resend is not None:
            number, key = resend
            await producer.send(self.queues["plain"], self.body(key), number=number)
            say("send", key)
        while True:
            key, number = self.key("n"), producer.last + 1
            say("number?", number, key)
            say("send?", "plain", key)
            await producer.send(self.queues["plain"], self.body(key), number=number)
            say("send", key)

    async def consume(self, name: str, most: int) -> None:
        queue = self.queues[name]
        while True:
            for message in await queue.receive(max=self.chance.randrange(1, most), wait_s=1):
                if not await self.settle(message, name):
                    break
            await asyncio.sleep(0.001)

    async def settle(self, message: Message, name: str) -> bool:
        key = message.body.partition(b"|")[0].decode()
        say("got", key, message.receipt)
        fate = self.chance.random()
        if fate < 0.7:
            say("done?", key)
            if await message.complete():
                say("done", key)
            return True
        if fate < 0.8 and name == "plain":
            new = self.key("t")
            say("send?", "target", new)
            say("both?", key, new)
            await message.complete_and_send(self.queues["target"], self.body(new))
            say("both", key, new)
            return True
        if await message.requeue(0 if name == "grouped" else self.chance.choice((0, 0.01))):
            say("back", key, message.receipt)
        return name != "grouped"


async def main(folder: str, seed: int, resend: dict[str, Any]) -> None:
    async with dovetail.open(f"local:{folder}", settings=SETTINGS) as node:
        load = Load(node, seed)
        await load.open_queues()
        say("ready")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(load.send())
                tasks.create_task(load.consume("plain", 40))
            for number in range(GROUPS):
                tasks.create_task(load.send_group("abcdefgh"[number]))
            for _ in range(3):
                tasks.create_task(load.consume("grouped", 6))
            tasks.create_task(load.send_once(resend["dedup"]))
            tasks.create_task(load.consume("once", 3))
            tasks.create_task(load.send_numbered(resend["number"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
