"""A real node that is killed and started again under a client at work: what was acknowledged is there once, and the client goes on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import dovetail
from dovetail.errors import Unknown
from tests.client.house import until
from tests.contract.house import everything
from tests.doors.native.house import Process

pytestmark = pytest.mark.slow

KILLS = 4


async def test_a_node_that_is_killed_under_load_loses_nothing_acknowledged_and_doubles_nothing(tmp_path: Path) -> None:
    flags = ("--store", f"local:{tmp_path / 'data'}", "--http", "off", "--local-segment-bytes", "2MiB")
    process = await asyncio.to_thread(Process(*flags).begin)
    process.flags = (*flags, "--native", f"127.0.0.1:{process.port}")
    acked: set[bytes] = set()
    unknown: set[bytes] = set()
    consumed: list[bytes] = []
    going = True

    async def sender(queue: dovetail.Queue, name: int) -> None:
        number = 0
        while going:
            many = [b"%d-%d-%d" % (name, number, item) for item in range((1, 1, 150)[number % 3])]
            number += 1
            try:
                await (queue.send(many[0]) if len(many) == 1 else queue.send_many(many))
                acked.update(many)
            except Unknown:
                unknown.update(many)
            await asyncio.sleep(0.005)

    async def worker(consumer: dovetail.Consumer) -> None:
        async for message in consumer:
            # Counted only once it is known to be done: what is unknown may come again.
            try:
                if await message.complete():
                    consumed.append(message.body)
            except Unknown:
                unknown.add(message.body)

    async with dovetail.connect(f"dovetail://127.0.0.1:{process.port}", timeout_s=300) as node:
        queue = await node.queue("orders")
        senders = [asyncio.create_task(sender(queue, name)) for name in range(4)]
        consumers = [queue.consume(credit=50, lease_s=20) for _ in range(2)]
        workers = [asyncio.create_task(worker(consumer)) for consumer in consumers]
        for _ in range(KILLS):
            goal = len(acked) + 300
            await until(lambda: len(acked) >= goal)  # noqa: B023  # awaited at once
            await asyncio.to_thread(process.end, signal.SIGKILL)
            await asyncio.to_thread(process.begin)
        await asyncio.sleep(0.3)
        going = False
        await asyncio.gather(*senders)
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*workers)
        counts = await queue.counts()
        left = [one.body for one in await everything(queue)]
    await asyncio.to_thread(process.end)
    assert len(acked) > 1000
    there = set(left) | set(consumed)
    assert len(left) == len(set(left)) and len(consumed) == len(set(consumed)) and not set(left) & set(consumed)
    assert acked <= there | unknown, "an acknowledged message is gone"
    assert counts.pushed == len(acked | {body for body in unknown if body not in acked and body in there}), "a message was stored twice"
