"""Playing a workload against a driver, every call traced. It knows the seam of drivers and no engine."""

from __future__ import annotations

import asyncio
import random
from itertools import count

from .driver import Driver
from .trace import ACKED, COMPLETED, DELIVERED, SENT, Trace, now_ns
from .workload import NUMBER_BYTES, Workload, number_of

_EMPTY_LOOKS_MAX = 3
"""A receiver leaves when everything was sent and it has looked so many times in vain."""


async def play(workload: Workload, driver: Driver, trace: Trace) -> None:
    """Returns when all senders have stopped and receivers find no more."""
    game = _Game(workload, driver, trace)
    sending = [asyncio.ensure_future(game.send_on(worker)) for worker in range(workload.senders)]
    receiving = [asyncio.ensure_future(game.receive_on(workload.senders + worker)) for worker in range(workload.receivers)]
    try:
        await asyncio.gather(*sending)
        game.sent_all = True
        await asyncio.gather(*receiving)
    finally:
        for task in (*sending, *receiving):
            task.cancel()


class _Game:
    def __init__(self, workload: Workload, driver: Driver, trace: Trace) -> None:
        self.workload = workload
        self.driver = driver
        self.trace = trace
        self.sent_all = False
        self._numbers = count()
        self._left = workload.messages if workload.messages is not None else 1 << 62
        self._began_ns = now_ns()
        self._end_ns = self._began_ns + round(workload.seconds * 1e9) if workload.seconds is not None else 1 << 62
        self._calls = count()

    async def send_on(self, worker: int) -> None:
        workload, driver, note = self.workload, self.driver, self.trace.note
        chance = random.Random(workload.seed * 1_000_003 + worker)
        filler = workload.body(0)[NUMBER_BYTES:]
        numbers, queues, delay = self._numbers, workload.queues, workload.delay
        queue = worker % queues
        while self._left > 0 and now_ns() < self._end_ns:
            batch = min(workload.batch, self._left)
            self._left -= batch
            if workload.rate_per_s is not None:
                await self._pace()
            payloads = [next(numbers) for _ in range(batch)]
            bodies = [number.to_bytes(NUMBER_BYTES, "little") + filler for number in payloads]
            delays = [delay.draw(chance) for _ in payloads] if delay.most_ms else None
            began = now_ns()
            due = [began + 1_000_000 * one for one in delays] if delays is not None else None
            sequences = await driver.send(worker, queue, bodies, delays)
            # Both notes come after the answer, so that tracing is not part of what is timed.
            acked = now_ns()
            note(SENT, began, queue, payloads, worker, (), due)
            note(ACKED, acked, queue, payloads, worker, sequences)
            if queues > 1:
                queue = (queue + workload.senders) % queues

    async def _pace(self) -> None:
        assert self.workload.rate_per_s is not None
        at = self._began_ns + round(next(self._calls) * 1e9 * self.workload.batch / self.workload.rate_per_s)
        await asyncio.sleep(max(0, at - now_ns()) / 1e9)

    async def receive_on(self, worker: int) -> None:
        driver, note = self.driver, self.trace.note
        empty, turn = 0, worker
        while True:
            queue = turn % self.workload.queues
            turn += 1
            finished = self.sent_all
            got = await driver.receive(worker, queue, self.workload.batch)
            if not got:
                empty = empty + 1 if finished else 0
                if empty >= _EMPTY_LOOKS_MAX * self.workload.queues:
                    return
                continue
            empty = 0
            payloads, sequences = [number_of(one.body) for one in got], [one.sequence for one in got]
            note(DELIVERED, now_ns(), queue, payloads, worker, sequences)
            await driver.complete(worker, queue, [one.token for one in got])
            note(COMPLETED, now_ns(), queue, payloads, worker, sequences)
