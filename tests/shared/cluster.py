"""Real nodes in processes of their own, on real NATS servers, and a load with a ledger that is held against what is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import dovetail
from dovetail.errors import DovetailError, Unavailable
from dovetail.lab.drivers.spawned import free_ports
from dovetail.service.handles import Queues

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 300.0
"""With three servers, three nodes and a load on two cores that others use, too."""
READY = re.compile(r"dovetail ready http=(\S+) native=(\S+)\n")


class Process:
    """`dovetail serve` on a store that others share."""

    def __init__(self, store: str, folder: Path, name: str) -> None:
        self._store = store
        self._words = folder / f"{name}.err"
        self._ports = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.http = self.native = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Process:
        http, native = self._ports
        command = [sys.executable, "-m", "dovetail", "serve", "--store", self._store, "--http", http, "--native", native, "--drain-s", "2"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
        environment["PYTHONPATH"] = str(ROOT / "src")
        with open(self._words, "a") as words:
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=words, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = READY.fullmatch(line)
        assert match is not None, self.words
        self.http, self.native = match[1], match[2]
        return self

    @property
    def words(self) -> str:
        return self._words.read_text()

    def kill(self) -> None:
        """kill −9."""
        self._end(True)

    def stop(self) -> int:
        return self._end(False)

    def _end(self, kill: bool) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        (process.kill if kill else process.terminate)()
        code = process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        return code


class Load:
    """Tasks that send, receive and complete through every node until they are told to stop. An error is an unknown outcome."""

    def __init__(self) -> None:
        self._sent = 0
        self.acked: set[bytes] = set()
        self.asked: set[bytes] = set()
        self.completing: set[bytes] = set()
        self.completed: set[bytes] = set()
        self.errors: Counter[str] = Counter()
        self.back: list[bytes] = []
        """Messages that were handed out although their completion had been acknowledged before."""
        self._going = True
        self.running: asyncio.Future[None]

    def start(self, clients: Sequence[Queues]) -> None:
        self.running = asyncio.ensure_future(self._run(clients))

    async def _run(self, clients: Sequence[Queues]) -> None:
        tasks = []
        for client in clients:
            queue = await client.queue("orders", lease_s=3)
            tasks += [asyncio.ensure_future(work) for work in (self._send(queue), self._send(queue), self._take(queue), self._take(queue))]
        await asyncio.gather(*tasks)

    def stop(self) -> None:
        self._going = False

    async def finish(self) -> None:
        """What was under way has its answer, or its error, when this returns."""
        self.stop()
        async with asyncio.timeout(PATIENCE_S):
            await self.running

    async def _send(self, queue: dovetail.Queue) -> None:
        while self._going:
            self._sent += 1
            body = b"%d" % self._sent
            self.asked.add(body)
            try:
                await queue.send(body)
                self.acked.add(body)
            except DovetailError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.05)

    async def _take(self, queue: dovetail.Queue) -> None:
        while self._going:
            try:
                done = set(self.completed)
                for message in await queue.receive(max=5, wait_s=1):
                    if message.body in done:
                        self.back.append(message.body)
                    self.completing.add(message.body)
                    if await message.complete():
                        self.completed.add(message.body)
            except DovetailError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.05)

    async def progress(self, sends: int, completes: int) -> None:
        """Until that much more was acknowledged: a fault in a life in which little happens proves little."""
        sends, completes = len(self.acked) + sends, len(self.completed) + completes
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acked) < sends or len(self.completed) < completes:
                await asyncio.sleep(0.01)

    async def judge(self, client: Queues) -> None:
        """Drain the queue, and hold what comes against the ledger."""
        queue = await client.queue("orders")
        found: defaultdict[bytes, set[str]] = defaultdict(set)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    for message in await queue.receive(max=1000, wait_s=1):
                        found[message.body].add(message.id)
                        assert await message.complete()
                    counts = await queue.counts()
                except Unavailable:  # What came of it is unknown; a message that is still there comes again.
                    await asyncio.sleep(0.1)
                    continue
                if not (counts.visible or counts.leased or counts.delayed):
                    break
        lost = self.acked - self.completing - found.keys()
        assert not lost, f"acknowledged and lost: {sorted(lost)[:10]}"
        assert not (back := self.completed & found.keys()), f"completed and back: {sorted(back)[:10]}"
        assert not self.back, f"completed and handed out again: {self.back[:10]}"
        assert not (unasked := found.keys() - self.asked), f"nobody sent: {sorted(unasked)[:10]}"
        doubled = [body for body, ids in found.items() if len(ids) > 1]
        assert not doubled, f"stored twice: {doubled[:10]}"


@contextlib.asynccontextmanager
async def loaded(processes: list[Process]):  # type: ignore[no-untyped-def]  # a generator for `async with`
    """A load through every node, by clients that know all of them and begin with another one each."""
    natives = [process.native.removeprefix("dovetail://") for process in processes]
    urls = ["dovetail://" + ",".join(natives[at:] + natives[:at]) for at in range(len(natives))]
    load = Load()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(dovetail.connect(url, timeout_s=30)) for url in urls]
        load.start(clients)
        try:
            yield load, clients
        finally:
            await load.finish()
