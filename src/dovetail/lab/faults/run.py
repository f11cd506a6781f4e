"""One run: nodes under load on one store, broken as a plan says, healed, drained and judged."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..driver import PeerMissing
from ..engines import ENGINES, Engine
from . import history as histories
from .history import History
from .judge import Report, too_little, verdicts
from .nodes import Node
from .plan import Cut, Event, Full, Kill, Lossy, Pause, Plan, Power, Restart, Slow, What, timeline
from .power import PoweredDisk
from .proxy import Proxy
from .work import LEASE_MS, Workers

STORES = ("local", "memory", "nats", "kafka")
"""`memory` keeps nothing when its node dies: what a judge says of it shows that he can say no."""
DRAIN_S = 60.0
PACE_S = 0.01
SMALL_DISK_MB = 64
NODE_OPTIONS = ("--local-segment-bytes", "4MiB", "--local-snapshot-bytes", "4MiB")
"""Small, so that short runs see segments change, snapshots and trims."""
SHARED_HELD_MS = 2_000
"""On shared logs a delivery to a receiver that waits holds at least this long, also when its node dies (SEMANTICS: three seconds)."""


class Site:
    """What there is to break: nodes, each behind a wire, and perhaps the brokers of an engine."""

    def __init__(self, folder: Path, store: str, nodes: int, brokers: int, *, logs: int = 1, powered: bool = False) -> None:
        """`powered`: what is kept lies on a disk whose power can be cut, and engines sync before they answer."""
        self._folder = folder
        self._store = store
        self._disk: Path | None = None
        self._powered: PoweredDisk | None = None
        self.shared = store in ENGINES
        if powered:
            self._powered = PoweredDisk(folder)
        place = self._powered.path if self._powered is not None else folder
        self.engine: Engine | None = ENGINES[store](place / "engine", brokers, sync_always=powered) if self.shared else None
        self.brokers = brokers if self.shared else 0
        self._count = nodes if self.shared else 1
        self._logs = logs
        self.nodes: list[Node] = []
        self.wires: list[Proxy] = []

    @property
    def counts(self) -> Mapping[What, int]:
        return {"node": len(self.nodes), "wire": len(self.wires), "broker": self.brokers}

    @property
    def url(self) -> str:
        return "dovetail://" + ",".join(f"127.0.0.1:{wire.port}" for wire in self.wires)

    async def start(self, seed: int, *, small_disk: bool) -> None:
        if self.engine is not None:
            said = ["synced=yes"] * (self._powered is not None) + [f"logs={self._logs}"] * (self._logs > 1)
            url = await asyncio.to_thread(self.engine.start) + "/faults" + ("?" + "&".join(said) if said else "")
        else:
            disk = self._powered.path if self._powered is not None else self._folder
            data = self._mounted() if small_disk else disk
            url = "memory:" if self._store == "memory" else f"local:{data / 'data'}"
        for number in range(self._count):
            node = Node(f"node-{number}", url, self._folder, () if self.shared else NODE_OPTIONS)
            self.nodes.append(node)
            await node.start()
            wire = Proxy(lambda node=node: node.port, seed + number)  # type: ignore[misc]  # bound now, not when it is called
            self.wires.append(wire)
            await wire.start()

    def _mounted(self) -> Path:
        """A file system of our own, of a size that can be filled."""
        disk = self._folder / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m", "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerMissing(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        self._disk = disk
        return disk

    # Breaking

    async def begin(self, event: Event) -> None:
        if isinstance(event.action, Power):
            await asyncio.to_thread(self._lose_power)
        await asyncio.gather(*[self._begin(event, number) for number in event.numbers])
        if isinstance(event.action, Power) and self._powered is not None:
            await asyncio.to_thread(self._powered.power_off)

    def _lose_power(self) -> None:
        """Nobody answers any more, and then nothing is written: what was answered was answered before."""
        assert self._powered is not None, "only a disk of our own can lose its power"
        if self.engine is not None:
            for number in range(self.brokers):
                self.engine.pause(number)
        else:
            for node in self.nodes:
                node.pause()
        self._powered.cut()

    async def _begin(self, event: Event, number: int) -> None:
        action = event.action
        match action:
            case Kill("broker") | Pause("broker") | Restart("broker") | Power("broker"):
                assert self.engine is not None
                harm = self.engine.pause if isinstance(action, Pause) else self.engine.kill
                await asyncio.to_thread(harm, number)
            case Kill() | Power():
                await self.nodes[number].kill()
            case Restart():
                await self.nodes[number].stop()
            case Pause():
                self.nodes[number].pause()
            case Cut(silent=silent):
                self.wires[number].cut(silent=silent)
            case Slow(delay_ms=delay_ms, jitter_ms=jitter_ms):
                self.wires[number].slow(delay_ms, jitter_ms)
            case Lossy(loss=loss):
                self.wires[number].lossy(loss)
            case Full():
                await asyncio.to_thread(self._fill)

    async def end(self, event: Event) -> None:
        if isinstance(event.action, Power) and self._powered is not None:
            await asyncio.to_thread(self._powered.power_on)
        await asyncio.gather(*[self._end(event, number) for number in event.numbers])
        if isinstance(event.action, Power) and self.engine is not None:
            await asyncio.to_thread(self.engine.wait_ready)

    async def _end(self, event: Event, number: int) -> None:
        match event.action:
            case Pause("broker"):
                assert self.engine is not None
                await asyncio.to_thread(self.engine.resume, number)
            case Kill("broker") | Restart("broker") | Power("broker"):
                assert self.engine is not None
                engine = self.engine
                await asyncio.to_thread(lambda: engine.restart(number, wait=False))
            case Pause():
                self.nodes[number].resume()
            case Kill() | Restart() | Power():
                await self.nodes[number].start()
            case Cut() | Slow() | Lossy():
                self.wires[number].heal()
            case Full():
                self._ballast().unlink(missing_ok=True)

    def _ballast(self) -> Path:
        assert self._disk is not None, "only a disk of our own is filled"
        return self._disk / "ballast"

    def _fill(self) -> None:
        with contextlib.suppress(OSError), open(self._ballast(), "wb", buffering=0) as ballast:
            while ballast.write(bytes(64 * 1024)) == 64 * 1024:
                pass

    async def close(self) -> None:
        for wire in self.wires:
            await wire.close()
        for node in self.nodes:
            node.resume()
            await node.kill()
        if self.engine is not None:
            await asyncio.to_thread(self.engine.stop)
        if self._disk is not None:
            await asyncio.to_thread(subprocess.run, ["umount", "-l", str(self._disk)], check=False)
        if self._powered is not None:
            await asyncio.to_thread(self._powered.close)


async def run(
    plan: Plan,
    folder: Path,
    *,
    seconds: float = 20.0,
    store: str = "local",
    nodes: int = 3,
    brokers: int = 3,
    seed: int = 0,
    keep: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Everything that was started is gone at the end. `keep`: where to write the history."""
    actions = [action for together in plan.rounds for action in together]
    site = Site(folder, store, nodes, brokers, logs=plan.logs, powered=any(isinstance(action, Power) for action in actions))
    history = History()
    workers: Workers | None = None
    try:
        await site.start(seed, small_disk=any(isinstance(action, Full) for action in actions))
        events = timeline(plan, seconds, seed, site.counts)
        workers = Workers(history, site.url, seed, PACE_S)
        await workers.start()
        began = time.monotonic()
        await _break(site, events, began, say)
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        calm = time.monotonic_ns()
        say("healed")
        await workers.stop()
        await workers.drain(DRAIN_S + LEASE_MS / 1000)
        drained_s = (time.monotonic_ns() - calm) / 1e9
        say("drained")
        unexplained = [line for worker in workers.all for line in worker.unexplained]
    finally:
        if workers is not None:
            await workers.close()
        await site.close()
        if keep is not None:
            histories.write(history.ops, keep)
    calls = history.calls()
    figures: dict[str, Any] = {
        "store": store,
        "seed": seed,
        "seconds": seconds,
        "calls": len(calls),
        "broken": len(events),
        "starts of nodes": sum(node.starts for node in site.nodes),
        "connections": sum(wire.connections for wire in site.wires),
        "drained s": round(drained_s, 1),
    }
    held_ms = SHARED_HELD_MS if site.shared else None
    found = too_little(calls, seconds, len(events))
    found += [f"a client raised what is no error of ours: {line}" for line in unexplained[:3]]
    return Report(plan.name, plan.attacks, verdicts(calls, calm=calm, held_ms=held_ms), found, figures)


async def _break(site: Site, events: Sequence[Event], began: float, say: Callable[[str], None]) -> None:
    """Each event begins and ends at its time; one that takes longer than it should keeps no other waiting."""

    async def one(event: Event) -> None:
        await asyncio.sleep(max(0.0, began + event.at_s - time.monotonic()))
        say(f"{event.action.do} {event.action.what} {', '.join(map(str, event.numbers))}")
        await site.begin(event)
        try:
            await asyncio.sleep(event.action.for_s)
        finally:
            await site.end(event)

    await asyncio.gather(*map(one, events))


def able(plan: Plan, store: str) -> bool:
    """Can this be broken there? One node has no brokers, and one log; a disk is filled only under a node that writes to one, and its
    power is cut where answers say that they are on it."""
    if plan.logs > 1 and store not in ENGINES:
        return False
    actions = [action for together in plan.rounds for action in together]
    if any(isinstance(action, Full) for action in actions) and store != "local":
        return False
    if any(isinstance(action, Power) and store != {"node": "local", "broker": "nats"}.get(action.what) for action in actions):
        return False
    return not ("broker" in plan.needs() and store not in ENGINES)
