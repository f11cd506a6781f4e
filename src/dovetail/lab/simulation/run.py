"""One seed: nodes on a shared log, clients that work, faults, a heal, a drain, and the judges of lab/faults.

    python -m dovetail.lab.simulation.run SEED [liveness] [logs]        what one seed does, and what its judges say; `logs`: over three

*safety*: everything breaks until the end, then all is healed and drained. *liveness*: at the end one node stays broken for ever, and the
others have to get on without it. A seed in which little happened does not count.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

from ...client import Client
from ...core.state import State
from ...node import Node
from ...stores.namespace.store import NamespaceStore
from ..faults.checkers.verdict import Verdict, complaint
from ..faults.history import History, lines
from ..faults.judge import verdicts
from ..faults.work import LEASE_MS, Crew, Workers, receiver, sender
from .clients import Sends, SimClient
from .loop import SimLoop, Stuck
from .nodes import SimNode, simulated
from .service import Service

CREW: Crew = (
    (sender, "plain", 2),
    (sender, "grouped", 1),
    (sender, "delayed", 1),
    (sender, "letters", 1),
    (receiver, "plain", 2),
    (receiver, "grouped", 2),
    (receiver, "delayed", 1),
    (receiver, "letters", 1),
)
SKEW_MS_MAX = 250
DRAIN_S = 120.0
AGREE_S = 60.0
ACKED_MIN = 20
"""Virtual seconds, and sends: a seed in which fewer were acknowledged, or nothing was broken, proves nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    liveness: bool = False
    nodes: int = 3
    seconds: float = 6.0
    pace_s: float = 0.4
    logs: int = 1
    """With several, dead letters move between them."""
    sends: Sends | None = None
    """None: some clients number what they send, some send it once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    options: Options
    trace: str
    """Of everything that was published and everything that clients saw: equal for equal runs."""
    verdicts: Sequence[Verdict]
    acked: int
    faults: int
    steps: int

    @property
    def counts(self) -> bool:
        return self.acked >= ACKED_MIN and self.faults > 0

    @property
    def held(self) -> bool:
        return all(verdict.held for verdict in self.verdicts)

    def text(self) -> str:
        head = f"{self.options}: {self.acked} acknowledged, {self.faults} faults, {self.steps} steps, trace {self.trace}"
        return "\n".join([head, *[f"  {verdict.text()}" for verdict in self.verdicts]])


class _Workers(Workers):
    def __init__(self, history: History, world: World) -> None:
        super().__init__(history, "", world.options.seed, world.options.pace_s, CREW)
        self._world = world

    async def connect(self, name: str) -> Client:
        options = self._world.options
        chance = Random(f"{options.seed}-client-{name}")
        # It has the verbs that workers use, and that is all that is asked of it.
        # Producers have no numbers where there are several logs.
        drawn: Sends = "numbered" if chance.random() < 0.5 and options.logs == 1 else "once"
        return cast(Client, SimClient(self._world.nodes, name, chance, options.sends or drawn))


class World:
    def __init__(self, options: Options, folder: Path) -> None:
        self.options = options
        self.loop = SimLoop()
        self.chance = Random(f"{options.seed}-faults")
        self.service = Service(self.loop, Random(f"{options.seed}-service"))
        others = [Service(self.loop, Random(f"{options.seed}-service-{log}"), f"log {log}: ") for log in range(1, options.logs)]
        self.services = [self.service, *others]
        for other in others:
            other.weather, other.trace = self.service.weather, self.service.trace
        self.history = History(now=lambda: round(self.loop.time() * 1e9))
        self.nodes = [
            SimNode(f"n{number}", self.loop, self.services, folder, self.chance.randint(-SKEW_MS_MAX, SKEW_MS_MAX))
            for number in range(options.nodes)
        ]
        self.everybody = list(self.nodes)
        """Also who stays broken for ever."""
        self.faults = 0
        self.calm_ns = 0
        self.agreement = Verdict("nodes that have replayed the same have the same state", ("it was not come to",))
        self.stops: list[str] = []
        """Nodes that stopped by themselves for a reason that is none."""

    async def live(self) -> None:
        for node in self.nodes:
            node.start()
        watching = self.loop.create_task(self._watch())
        workers = _Workers(self.history, self)
        await workers.start()
        end = self.loop.time() + self.options.seconds
        while self.loop.time() < end:
            await self._sleep(0.1, 0.8)
            await self._break()
        self._heal()
        if self.options.liveness:
            broken = self.chance.choice(self.nodes)
            broken.connections.set(mute=True, deaf=True)
            self.nodes = [node for node in self.nodes if node is not broken]
            for worker in workers.all:
                cast(SimClient, worker.client).nodes = self.nodes
        self.calm_ns = round(self.loop.time() * 1e9)
        await workers.stop()
        await workers.drain(DRAIN_S + LEASE_MS / 1000)
        await self._agree()
        watching.cancel()

    async def _watch(self) -> None:
        """A node that has stopped is started again, as its operator would. It may stop where the log was trimmed past what it had read."""
        while True:
            await asyncio.sleep(0.5)
            for node in self.nodes:
                why = node.node.store.failed if node.alive and node.node is not None else None
                if why is not None:
                    if "trimmed past" not in str(why):
                        self.stops.append(f"{node.owner.name}: {why}")
                    node.kill()
                    node.start()

    async def _sleep(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(least_s, most_s))

    # Breaking

    async def _break(self) -> None:
        """One thing is broken for a while, or nothing is."""
        chance, weather = self.chance, self.service.weather
        node = chance.choice(self.nodes)
        what = chance.choice(("calm", "kill", "kill", "sleep", "cut", "mute", "deaf", "storm", "election", "slow", "skew"))
        self.service.note(f"{what} {node.name}")
        if what == "calm":
            return
        self.faults += 1
        if what == "kill":
            node.kill()
            await self._sleep(0.05, 2)
            node.start()
        elif what == "sleep":
            owner = node.owner
            owner.asleep = True
            await self._sleep(0.2, 5)
            self.loop.wake(owner)
        elif what in ("cut", "mute", "deaf"):
            connections = node.connections
            connections.set(mute=what != "deaf", deaf=what != "mute")
            # Now and then for longer than a node is patient.
            await self._sleep(0.2, 3 if chance.random() < 0.8 else 14)
            connections.set(mute=False, deaf=False)
        elif what == "storm":
            weather.loss, weather.double, weather.delay_s = (
                chance.choice((0.0, 0.1, 0.4)),
                chance.choice((0.1, 0.5)),
                chance.choice((0.05, 0.6)),
            )
            await self._sleep(0.5, 3)
            weather.loss, weather.double, weather.delay_s = 0.0, 0.0, 0.005
        elif what == "election":
            weather.down = True
            await self._sleep(0.3, 5)
            weather.down = False
        elif what == "slow":
            node.connections.slow(chance.uniform(0.05, 0.5))
        else:
            node.clock.skew_ms = chance.randint(-SKEW_MS_MAX, SKEW_MS_MAX)

    def _heal(self) -> None:
        self.service.note("heal")
        for node in self.nodes:
            node.connections.slow(0.0)

    # Agreeing

    async def _agree(self) -> None:
        """Every node gets to the end of each log that it replays, and has the same digest there."""
        end, where = self.loop.time() + AGREE_S, {}
        while self.loop.time() < end:
            where = {node.name: _states(node.node) if node.node is not None else {} for node in self.nodes}
            logs = {log for states in where.values() for log in states}
            found = [{name: states[log] for name, states in where.items() if log in states} for log in sorted(logs)]
            if all(0 in states for states in where.values()) and all(len({one.position for one in log.values()}) == 1 for log in found):
                digests = [{name: state.digests.value for name, state in log.items()} for log in found]
                broken = [f"at one position: {log}" for log in digests if len(set(log.values())) > 1]
                self.agreement = Verdict(self.agreement.promise, broken, {"nodes": len(where)})
                return
            await self._sleep(0.02, 0.1)
        named = {name: {log: state.position for log, state in states.items()} or "not there" for name, states in where.items()}
        self.agreement = Verdict(self.agreement.promise, (f"after {AGREE_S:g} s they are at {named}",))


def _states(node: Node) -> dict[int, State]:
    """Of the logs that it replays."""
    stores = node.store.opened() if isinstance(node.store, NamespaceStore) else [node.store]
    return {store.state.place: store.state for store in stores}


def run(options: Options) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="dovetail-sim-") as folder:
        world = World(options, Path(folder))
        with simulated(world.loop, Random(f"{options.seed}-names")):
            stuck: tuple[str, ...] = ()
            try:
                world.loop.run_until_complete(world.loop.create_task(world.live()))
            except Stuck as error:
                stuck = (f"nobody goes on: {error}",)
            finally:
                for node in world.everybody:
                    node.let_go()
                world.loop.end()
    for line in lines(world.history.ops):
        world.service.trace.update(line.encode())
    calls = world.history.calls()
    found = [*verdicts(calls, calm=world.calm_ns), world.agreement, Verdict("somebody can always go on", stuck)]
    found.append(Verdict("no node stops by itself", complaint("nodes stopped", world.stops)))
    acked = sum(call.verb == "send" and call.ok for call in calls)
    return Outcome(options, world.service.trace.hexdigest(), found, acked, world.faults, world.loop.steps)


if __name__ == "__main__":
    outcome = run(Options(int(sys.argv[1]), liveness="liveness" in sys.argv[2:], logs=3 if "logs" in sys.argv[2:] else 1))
    print(outcome.text())
    sys.exit(not outcome.held)
