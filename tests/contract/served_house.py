"""A house whose node is elsewhere: the contract suite over the client, through a real `dovetail serve` in a process of its own.

What a test asks of queues goes through `dovetail.connect`. What it asks of the node beside that (its clock, its log), through served.py.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import dovetail
from dovetail.client import redriving
from dovetail.clock import ManualClock
from dovetail.service.handles import Tap
from dovetail.stores.store import Promises
from tests.contract import house
from tests.contract.house import House, Kind, everything

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
READY = re.compile(r"dovetail ready http=off native=(dovetails?://\S+)\n")
OPENSSL = shutil.which("openssl")

SERVED = (
    Kind("served", lambda folder: f"local:{folder / 'data'}", True),
    Kind("served tls", lambda folder: "memory:", False, "memory"),
)


@lru_cache(1)
def certificate() -> Path:
    """A certificate that signed itself, and its key beside it; made once."""
    assert OPENSSL is not None
    cert = Path(mkdtemp(prefix="dovetail-tls-")) / "cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", str(cert.with_suffix(".key")), "-out", str(cert)], check=True, capture_output=True, timeout=60)
    return cert


class Process:
    """The node's process. It serves again and again: to start an interpreter for each test would take most of the time."""

    idle: ClassVar[list[Process]] = []

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
        environment["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, str(HERE / "served.py")], env=environment, stdin=pipe, stdout=pipe, text=True)
        atexit.register(self._process.kill)

    @classmethod
    def serving(cls, url: str, clock: ManualClock, *flags: str) -> tuple[Process, str]:
        """One that serves, and its address."""
        process = cls.idle.pop() if cls.idle else cls()
        process._say(["serve", clock.wall_ms(), clock.boot_ms(), "--store", url, *flags])
        line = process._hear()
        match = READY.fullmatch(line)
        assert match is not None, f"the node did not start: {line!r}"
        return process, match[1]

    def _say(self, act: Sequence[Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(act) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def act(self, *act: Any) -> Any:
        self._say(act)
        return json.loads(self._hear())

    def stop(self) -> None:
        assert self.act("stop") == 0
        self.idle.append(self)


class ServedClock(ManualClock):
    """Moves the node's clock with its own."""

    process: Process | None = None

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        if self.process is not None:
            self.process.act("advance", seconds)

    def step_wall(self, seconds: float) -> None:
        super().step_wall(seconds)
        if self.process is not None:
            self.process.act("step_wall", seconds)


class ServedNode:
    """The client, and what a test may ask of the node behind it."""

    def __init__(self, client: dovetail.Client, process: Process, promises: Promises) -> None:
        self.client = client
        self.promises = promises
        self._process = process
        self.open = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    @property
    def ready(self) -> bool:
        return self.open

    @property
    def store(self) -> ServedNode:
        return self

    chores = log = store

    @property
    def tail(self) -> int:
        return int(self._process.act("tail"))

    async def settled(self) -> None:
        self._process.act("settled")

    async def expire(self) -> int:
        return int(self._process.act("expire"))

    async def snapshot(self) -> None:
        self._process.act("snapshot")

    async def retime(self) -> int:
        return int(self._process.act("retime"))

    def all_queues(self) -> list[tuple[str, str, int]]:
        return [(namespace, name, queue) for namespace, name, queue in self._process.act("queues")]

    async def close(self) -> None:
        self.open = False
        await self.client.close()

    async def pause(self) -> None:
        """Both ends have done what they had to do: what was under way has arrived, there and back."""
        for _ in range(3):
            self._process.act("turns")
            with contextlib.suppress(dovetail.errors.DovetailError):
                await self.client.ping()
            for _ in range(5):
                await asyncio.sleep(0)


class ServedHouse(House):
    near = False

    def __init__(self, kind: Kind, folder: Path) -> None:
        super().__init__(kind, folder)
        self.clock: ServedClock = ServedClock()
        redriving.ASK_S = 0.001  # The test's time passes faster than ours.
        self._process: Process | None = None

    async def open(self) -> None:
        flags = ["--http", "off", "--native", "127.0.0.1:0", "--log-level", "error", "--drain-s", "1"]
        flags += ["--local-segment-bytes", str(2 << 20), "--local-snapshot-bytes", str(1 << 40), "--local-sync", "inline"]
        tls = certificate() if "tls" in self.kind.name else None
        if tls is not None:
            flags += ["--tls-cert", str(tls), "--tls-key", str(tls.with_suffix(".key"))]
        self._process, url = Process.serving(self.url, self.clock, *flags)
        self.clock.process = self._process
        client = await dovetail.connect(url, tls=tls)
        self._node = ServedNode(client, self._process, Promises(**self._process.act("promises")))  # type: ignore[assignment]  # a node for all that tests ask of it
        house.PAUSES.append(self._node.pause)  # type: ignore[attr-defined]  # see above

    async def close(self) -> None:
        house.PAUSES.clear()
        await super().close()
        process, self._process, self.clock.process = self._process, None, None
        if process is not None:
            process.stop()

    async def facts(self) -> dict[tuple[str, str], Any]:
        seen: dict[tuple[str, str], Any] = {}
        for namespace, name, _ in self.node.store.all_queues():
            queue = await self.node.queue(name, namespace=namespace)
            taps = {tap: await _read(Tap(queue, tap.name, tap.next)) for tap in await queue.taps()}
            batches = [(one, [await queue.reserved(one.name, batch) for batch in one.batches]) for one in await queue.reservations()]
            seen[namespace, name] = (queue.lane.attributes, await queue.counts(), await everything(queue), taps, batches)
        kept = [(tap, await self._facts_of("default", tap)) for tap in await self.node.facts_taps()]
        return seen | {("", "stages"): await self.node.stages(), ("", "facts"): kept}


async def _read(tap: Tap) -> Any:
    try:
        return await tap.read(10_000)
    except dovetail.errors.BadRequest as cut:
        return str(cut)
