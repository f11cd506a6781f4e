"""Figure 2 of the RDSQ paper: messages of 100 bytes, one at a time for each client, sent and then read, beside RabbitMQ.

Every round plays every number of clients on ours, durable on `local:`, and on a durable classic and a durable quorum queue of RabbitMQ
with persistent messages: each client sends its share, then each reads its share. A full run has five rounds of 2,000 messages for
each client, which makes the paper's 10,000. All sides are driven by clients that write bytes made beforehand and parse next to nothing.

What each side waits for, before a client goes on to its next message:

    sending    ours      the answer, when the message is synced to the disk
               classic   the confirm, when the message is synced
               quorum    the confirm, when the message is synced (on one node, as ours)
    reading    ours      one answer to completing a message and pulling the next, when both are synced (`apart`: two requests, two syncs)
               classic   the next delivery, which follows when the broker has read the ack; an ack has no answer, and is not synced
               quorum    the next delivery, which follows when the ack is synced; the ack itself has no answer

So a reader of a classic queue waits for no disk, and after a crash of the broker may be given again what it has acked; ours may not.

The paper's figure came to us without its numbers. What its text says of it is drawn and told instead: reading at about half the rate of
writing, and throughput comparable to RabbitMQ's. With DOVETAIL_LAB_PICTURES=DIR both phases are drawn into DIR/rdsq-figure-2-*.svg.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from .. import amqpload
from ..amqpwire import Line
from ..drivers import rabbitmq
from ..drivers.native import NativeNode
from ..drivers.rabbitmq import RabbitMq
from ..httpload import LoadFailed
from ..nativeload import APART, DISK, SEND, TAKE, Load
from ..picture import curves
from ..rounds import ROUNDS, Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

PICTURES_ENVIRONMENT = "DOVETAIL_LAB_PICTURES"
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
QUICK_CLIENTS = (1, 4, 16)
MANY = 16
"""From so many clients on the higher bar holds."""
KINDS = ("classic", "quorum")
PHASES = (SEND, TAKE)
BOTH = "both"
PAPER = {"take_to_send": 0.5, "to_rabbitmq": "comparable"}


async def run(lab: Lab) -> Figures:
    clients = QUICK_CLIENTS if lab.quick else CLIENTS
    each = lab.size(2_000, 60)
    async with AsyncExitStack() as stack:
        node = NativeNode(lab.folder / "ours")
        await node.start()
        stack.push_async_callback(node.stop)
        if (peer := await rabbitmq.beside(lab)) is not None:
            stack.push_async_callback(peer.stop)
            line = Line(peer.port)
            for kind in KINDS:
                line.declare(kind.encode(), quorum=kind == "quorum")
            line.close()

        async def turn(notes: Notes) -> None:
            for count in clients:
                await _ours(notes, node, count, each)
                if peer is not None:
                    for kind in KINDS:
                        await _theirs(notes, peer, kind, count, each)

        notes = await in_turns(lab, "every number of clients", turn, ROUNDS, warm=False)
    figures: Figures = {"rounds": lab.size(ROUNDS, 1), "messages_each": each, "clients": clients, "paper": PAPER}
    figures |= _told(notes, clients)
    if folder := os.environ.get(PICTURES_ENVIRONMENT):
        _draw(Path(folder), notes, clients)
    return figures


async def _ours(notes: Notes, node: NativeNode, clients: int, each: int) -> None:
    load = Load(node.port, SEND, clients * each, clients, pid=node.pid)
    sent, taken = await load.played(), await load.playing(TAKE).played()
    _note(notes, node.name, clients, sent, taken)
    if sent["durability"] != DISK:
        raise LoadFailed(f"a push reached durability {sent['durability']}, and the disk was asked for")
    await load.played()
    notes.note(_name(node.name, clients, APART), await load.playing(APART).played())


async def _theirs(notes: Notes, peer: RabbitMq, kind: str, clients: int, each: int) -> None:
    sent = await amqpload.result(peer.port, amqpload.SEND, kind, clients, each, peer.pid)
    taken = await amqpload.result(peer.port, amqpload.TAKE, kind, clients, each, peer.pid)
    _note(notes, kind, clients, sent, taken)


def _note(notes: Notes, name: str, clients: int, sent: dict[str, Any], taken: dict[str, Any]) -> None:
    notes.note(_name(name, clients, SEND), sent)
    notes.note(_name(name, clients, TAKE), taken)
    notes.note(_name(name, clients, BOTH), {"per_s": sent["messages"] / (sent["seconds"] + taken["seconds"])})


def _name(name: str, clients: int, phase: str) -> str:
    return f"{name} {clients} {phase}"


def _told(notes: Notes, clients: tuple[int, ...]) -> Figures:
    ours = NativeNode.name
    figures: Figures = {}
    for name in (ours, *KINDS):
        for phase in (*PHASES, BOTH, APART):
            for count in clients:
                if (made := notes.medians(_name(name, count, phase))) is not None:
                    figures.setdefault(name, {}).setdefault(phase, {})[f"{count}_clients"] = made
    for name in figures:
        figures[name]["take_to_send"] = {f"{n}_clients": notes.ratio(_name(name, n, TAKE), _name(name, n, SEND)) for n in clients}
    ratios: Figures = {}
    for kind in KINDS:
        for phase in (*PHASES, BOTH):
            of = {count: notes.ratio(_name(ours, count, phase), _name(kind, count, phase)) for count in clients}
            found = {count: ratio for count, ratio in of.items() if ratio is not None}
            if found:
                told: Figures = {f"{count}_clients": ratio for count, ratio in found.items()}
                told["least_from_16"] = min(ratio for count, ratio in found.items() if count >= MANY)
                told["least_below_16"] = min(ratio for count, ratio in found.items() if count < MANY)
                ratios.setdefault(kind, {})[phase] = told
    return {**figures, "ratio_to": ratios}


def _draw(folder: Path, notes: Notes, clients: tuple[int, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def points(name: str, phase: str, share: float = 1.0) -> list[tuple[float, float]]:
        medians = [(float(count), notes.medians(_name(name, count, phase))) for count in clients]
        return [(count, share * made["per_s"]) for count, made in medians if made is not None]

    said = f"{PAPER['take_to_send']:g} × our sending, as in the paper"
    for phase, word in ((SEND, "sending"), (TAKE, "reading")):
        series = {"Dovetail, durable": points(NativeNode.name, phase)}
        series |= {f"RabbitMQ {kind}": made for kind in KINDS if (made := points(kind, phase))}
        if phase == TAKE:
            series["Dovetail, two requests"] = points(NativeNode.name, APART)
            series[said] = points(NativeNode.name, SEND, 0.5)
        title = f"RDSQ figure 2, {word}: 100 bytes, one at a time for each client"
        drawn = curves(title, series, across="clients", up="messages a second", said={said})
        (folder / f"rdsq-figure-2-{word}.svg").write_text(drawn, encoding="utf-8")


def _bars() -> list[Bar]:
    bars = []
    for kind in KINDS:
        for phase, word in ((SEND, "sending"), (TAKE, "reading")):
            bars.append(Bar(f"{word}, 16 clients and more, times RabbitMQ {kind}", f"ratio_to.{kind}.{phase}.least_from_16", least=2))
            bars.append(Bar(f"{word}, fewer clients, times RabbitMQ {kind}", f"ratio_to.{kind}.{phase}.least_below_16", least=0.8))
    return bars


SCENARIO = Scenario("rdsq-figure-2", SCENARIOS["rdsq-figure-2"], _bars(), run)
