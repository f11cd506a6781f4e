"""The SQS door under load: ours durable on `local:`, beside ElasticMQ in memory and warm; the same client, the same bytes, in turns.

Bodies have 100 bytes. A round sends so many messages and then receives and deletes as many, for every case and on both servers, one behind
the other. After that ours alone: with every request signed and verified, over many queues, and with a million messages waiting, each beside
the plain case in the same rounds. `client_cpu_share` says how much of its core the client used: near 1 it is the client that was measured.
`server_cpu_us` is the server's processor time for each message; it means something on a busy machine too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from time import monotonic
from typing import NamedTuple

from ..drivers import elasticmq
from ..drivers.sqs import Node, Server, make_queues, signed_node
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..sqsload import OPERATIONS, SEND, TAKE, Load
from ..sqsrounds import ROUNDS, Rounds, interleaved

FILL_BATCH = 10
QUICK_SHARE = 40


class Case(NamedTuple):
    connections: int
    batch: int
    messages: int

    @property
    def name(self) -> str:
        return f"{self.connections}_connections" + ("" if self.batch == 1 else f"_in_{self.batch}s")

    def load(self, lab: Lab, server: Server, url: str) -> Load:
        messages = lab.size(self.messages, max(self.messages // QUICK_SHARE, 2 * self.connections * self.batch))
        return Load(server.port, url, messages, self.connections, self.batch, pid=server.pid)


SINGLE, TENS = Case(64, 1, 8_000), Case(64, 10, 40_000)
CASES = (SINGLE, TENS, Case(4, 1, 3_000), Case(1, 1, 1_500))


async def run(lab: Lab) -> Figures:
    return {"rounds": lab.size(ROUNDS, 1), **await _beside(lab), "signed": await _signed(lab), "sizes": await _sizes(lab)}


async def _beside(lab: Lab) -> Figures:
    """Ours and the peer, every case in every round."""
    async with AsyncExitStack() as stack:
        ours = Node(lab.folder / "beside")
        await ours.start()
        stack.push_async_callback(ours.stop)
        servers: list[Server] = [ours]
        if (peer := await elasticmq.beside(lab)) is not None:
            stack.push_async_callback(peer.stop)
            servers.append(peer)
        urls = {server.name: await make_queues(server.port) for server in servers}
        if peer is not None and not lab.quick:
            await _warm(lab, peer, urls[peer.name])

        async def turn(made: Rounds) -> None:
            for case in CASES:
                for server in servers:
                    await made.play(f"{server.name} {case.name}", case.load(lab, server, urls[server.name]))

        made = await interleaved(lab, " and ".join(urls), turn)
    figures: Figures = {name: {case.name: made.medians(f"{name} {case.name}") for case in CASES} for name in urls}
    if peer is not None:
        for metric in ("per_s", "p99_us"):
            ratio = {case.name: made.ratios(f"{ours.name} {case.name}", f"{peer.name} {case.name}", metric) for case in CASES}
            figures[f"{metric}_to_elasticmq"] = ratio
    return figures


async def _warm(lab: Lab, peer: Server, url: str) -> None:
    """A machine that compiles as it goes is slow at first; its figures are fair only afterwards."""
    lab.say(f"{peer.name}: warming up for {elasticmq.WARM_S:g} s")
    end = monotonic() + elasticmq.WARM_S
    while monotonic() < end:
        for case in (SINGLE, TENS):
            await Rounds().play("warm", case.load(lab, peer, url))


async def _signed(lab: Lab) -> Figures:
    """A node that verifies every signature, beside one that is open."""
    plain, (signed, keys) = Node(lab.folder / "open"), signed_node(lab.folder / "signed")
    async with AsyncExitStack() as stack:
        for server in (plain, signed):
            await server.start()
            stack.push_async_callback(server.stop)
        open_url, signed_url = await make_queues(plain.port), await make_queues(signed.port, keys=keys)

        async def turn(made: Rounds) -> None:
            for case in (SINGLE, TENS):
                await made.play(f"open {case.name}", case.load(lab, plain, open_url))
                await made.play(f"signed {case.name}", case.load(lab, signed, signed_url).signed(keys))

        made = await interleaved(lab, "open and signed", turn)
    return {
        case.name: {**made.medians(f"signed {case.name}"), "to_open": made.ratios(f"signed {case.name}", f"open {case.name}")}
        for case in (SINGLE, TENS)
    }


async def _sizes(lab: Lab) -> Figures:
    """Nodes with 1 queue, with many, and with many messages waiting; the load goes over all queues of its node in turn."""
    waiting = lab.size(1_000_000, 5_000)
    queues = {"queues_1": 1, "queues_1000": lab.size(1_000, 100), "queues_10000": lab.size(10_000, 300), "waiting_1000000": 1}
    loads: dict[str, Callable[[Case], Load]] = {}
    async with AsyncExitStack() as stack:
        for name, count in queues.items():
            node = Node(lab.folder / name)
            await node.start()
            stack.push_async_callback(node.stop)
            url = await make_queues(node.port, count)
            loads[name] = _over(lab, node, url, count)
            lab.say(f"{name}: made")
        fill = loads["waiting_1000000"](TENS).of(waiting)
        await Rounds().play("fill", fill, (SEND,))
        lab.say(f"{waiting:,} are waiting")

        async def turn(made: Rounds) -> None:
            for case in (SINGLE, TENS):
                for name, load in loads.items():
                    await made.play(f"{name} {case.name}", load(case))

        made = await interleaved(lab, "sizes", turn)
    figures: Figures = {"queues": queues, "waiting": waiting}
    for name in queues:
        figures[name] = {case.name: made.medians(f"{name} {case.name}") for case in (SINGLE, TENS)}
        ratios = {case.name: made.ratios(f"{name} {case.name}", f"queues_1 {case.name}") for case in (SINGLE, TENS)}
        figures[name] |= {"to_queues_1": ratios, "worst_to_queues_1": min(ratio for one in ratios.values() for ratio in one.values())}
    return figures


def _over(lab: Lab, node: Node, url: str, queues: int) -> Callable[[Case], Load]:
    return lambda case: case.load(lab, node, url).over(queues)


_WORDS = {SEND: "send", TAKE: "receive+delete"}


def _bars() -> list[Bar]:
    bars = []
    for operation in OPERATIONS:
        for case, words in ((SINGLE, ""), (TENS, " in tens")):
            named = f"{_WORDS[operation]}{words}, 64 connections"
            bars.append(Bar(f"{named}, times ElasticMQ", f"per_s_to_elasticmq.{case.name}.{operation}", least=2))
            bars.append(Bar(f"p99 of {named}, times ElasticMQ's", f"p99_us_to_elasticmq.{case.name}.{operation}", most=0.5))
        for case in CASES[2:]:
            named = f"{_WORDS[operation]}, {case.connections} connection{'s' if case.connections > 1 else ''}"
            told = f"{named}, times ElasticMQ (counts where a bare fdatasync takes ≤ 200 µs)"
            bars.append(Bar(told, f"per_s_to_elasticmq.{case.name}.{operation}", least=0.8))
        for case, words in ((SINGLE, ""), (TENS, " in tens")):
            bars.append(Bar(f"{_WORDS[operation]}{words}, signed, times open", f"signed.{case.name}.to_open.{operation}", least=0.75))
    for name, words in (("queues_1000", "1,000 queues"), ("queues_10000", "10,000 queues"), ("waiting_1000000", "1 million waiting")):
        bars.append(Bar(f"{words}, worst rate, times 1 empty queue", f"sizes.{name}.worst_to_queues_1", least=0.75))
    return bars


SCENARIO = Scenario("sqs-load", SCENARIOS["sqs-load"], _bars(), run)
