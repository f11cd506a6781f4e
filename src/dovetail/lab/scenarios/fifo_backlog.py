"""A FIFO queue with a long backlog: 216,000 messages wait, all in one group, or in 10,000; against queues that hold next to nothing.

Every round sends some messages and then receives and deletes as many, one at a time, on every queue: the backlog stays as long as it
was. One group is served by one connection, because only one receiver can hold it; many groups by 16. ElasticMQ is measured in the same
way, but only once, each for a limited time and with as many waiting as it takes in within 20 s, since it slows down as they grow;
how many those were is told. Taking them in has warmed it up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..drivers import elasticmq
from ..drivers.sqs import Node, Server, make_queues
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..sqsload import SEND, TAKE, Load
from ..sqsrounds import ROUNDS, Rounds, interleaved

WAITING = 216_000
FIFO = {"FifoQueue": "true"}


class Case(NamedTuple):
    name: str
    groups: int
    connections: int
    messages: int


CASES = (Case("one_group", 1, 1, 1_000), Case("10000_groups", 10_000, 16, 4_000))


class Backlog(NamedTuple):
    """One server with a short and a long queue for each case."""

    server: Server
    url: str
    waiting: dict[str, int]

    def load(self, lab: Lab, case: Case, *, long: bool) -> Load:
        messages = lab.size(case.messages, case.messages // 20)
        number = CASES.index(case) * 2 + long
        return Load(self.server.port, self.url.format(number), messages, case.connections, groups=case.groups)


async def run(lab: Lab) -> Figures:
    waiting = lab.size(WAITING, 3_000)
    figures: Figures = {"rounds": lab.size(ROUNDS, 1)}
    node = Node(lab.folder / "node")
    await node.start()
    try:
        figures["dovetail"] = await _measured(lab, await _filled(lab, node, waiting, 600.0))
    finally:
        await node.stop()
    if (peer := await elasticmq.beside(lab)) is not None:
        try:
            backlog = await _filled(lab, peer, waiting, 2.0 if lab.quick else 20.0)
            figures["elasticmq"] = await _measured(lab, backlog, 1, 1.0 if lab.quick else 10.0)
        finally:
            await peer.stop()
        figures["per_s_to_elasticmq"] = {
            case.name: figures["dovetail"][case.name]["long_per_s"] / max(0.001, figures["elasticmq"][case.name]["long_per_s"])
            for case in CASES
        }
    return figures


async def _filled(lab: Lab, server: Server, waiting: int, seconds_max: float) -> Backlog:
    """The long queue of each case gets its messages in tens."""
    backlog = Backlog(server, await make_queues(server.port, 2 * len(CASES), FIFO), {})
    for case in CASES:
        fill = replace(backlog.load(lab, case, long=True), messages=waiting, connections=16, batch=10, seconds_max=seconds_max)
        made = (await fill.played((SEND,)))[SEND]
        backlog.waiting[case.name] = made["messages"]
        lab.say(
            f"{server.name}: {made['messages']:,} wait in {case.groups:,} group{'s' if case.groups > 1 else ''}, {made['per_s']:,.0f}/s"
        )
    return backlog


async def _measured(lab: Lab, backlog: Backlog, rounds: int = ROUNDS, seconds_max: float = 60.0) -> Figures:
    partial = backlog.server.name != Node.name

    async def turn(made: Rounds) -> None:
        for case in CASES:
            for length in ("short", "long"):
                load = replace(backlog.load(lab, case, long=length == "long"), seconds_max=seconds_max)
                await made.play(f"{case.name} {length}", load, partial=partial)

    made = await interleaved(lab, backlog.server.name, turn, rounds)
    figures: Figures = {}
    for case in CASES:
        short, long = made.medians(f"{case.name} short"), made.medians(f"{case.name} long")
        ratios = made.ratios(f"{case.name} long", f"{case.name} short")
        figures[case.name] = {
            "waiting": backlog.waiting[case.name],
            "short_per_s": short[TAKE]["per_s"],
            "long_per_s": long[TAKE]["per_s"],
            "long_to_short": ratios[TAKE],
            "long_p99_us": long[TAKE]["p99_us"],
            "send_long_per_s": long[SEND]["per_s"],
            "send_long_to_short": ratios[SEND],
        }
    return figures


SCENARIO = Scenario(
    "fifo-backlog",
    SCENARIOS["fifo-backlog"],
    [
        Bar("receive+delete with 216,000 in one group, times an empty queue", "dovetail.one_group.long_to_short", least=0.7),
        Bar("receive+delete with 216,000 in 10,000 groups, times an empty queue", "dovetail.10000_groups.long_to_short", least=0.7),
    ],
    run,
)
