"""A noisy neighbour: one tenant has 100,000 messages waiting in a standard queue; another sends one every 50 ms to the same queue.

Busy consumers receive one message each, hold it for 20 ms, and delete it. What counts is the dwell time of the quiet tenant's messages:
from when their send began until a consumer had them. It is measured twice, on a node of its own each: with the tenant in MessageGroupId,
and without, where the queue is a line and the quiet tenant stands at its end. With DOVETAIL_LAB_PICTURES=DIR the dwell times are drawn
into DIR/fair-queues.svg.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..child import result_of
from ..drivers.sqs import Node, make_queues
from ..httpload import Connection, Tally, connect, now_ns, percentile
from ..picture import dots
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..sqsload import SEND, Load
from ..sqsrounds import Rounds
from ..sqswire import Wire, handles

PICTURES_ENVIRONMENT = "DOVETAIL_LAB_PICTURES"
CONSUMERS = 64
"""Enough that a tenant which holds most of them is noisy by the published rule: at least 30 in flight, and more than a tenth of all."""
HOLD_MS = 20
APART_MS = 50
WARM_S = 1.0
"""The noisy tenant has the consumers to itself for this long before the quiet one begins."""
PATIENCE_S = 300.0
CASES = {"with_groups": True, "without_groups": False}
_QUIET = re.compile(rb'"Body":"quiet-(\d+)"')


async def run(lab: Lab) -> Figures:
    backlog, quiet = lab.size(100_000, 6_000), lab.size(400, 20)
    figures: Figures = {"noisy_waiting": backlog, "quiet_sent": quiet, "consumers": CONSUMERS, "hold_ms": HOLD_MS}
    drawn: dict[str, list[tuple[float, float]]] = {}
    for name, grouped in CASES.items():
        node = Node(lab.folder / name)
        await node.start()
        try:
            url = await make_queues(node.port)
            load = Load(node.port, url, backlog, batch=10, tenant="noisy" if grouped else "")
            await Rounds().play("fill", load, (SEND,))
            lab.say(f"{name.replace('_', ' ')}: {backlog:,} of the noisy tenant wait")
            points = await result_of(f"{__name__}:quiet_dwell", port=node.port, url=url.format(0), quiet=quiet, grouped=grouped)
        finally:
            await node.stop()
        drawn[name] = [(at_s, dwell_ms) for at_s, dwell_ms in points]
        figures[name] = _told([dwell_ms for _, dwell_ms in points], quiet)
        lab.say(f"{name.replace('_', ' ')}: dwell p50 {figures[name]['dwell_p50_ms']:.1f} ms, p99 {figures[name]['dwell_p99_ms']:.1f} ms")
    for percent in (50, 99):
        metric = f"dwell_p{percent}_ms"
        figures[f"dwell_p{percent}_to_without"] = figures["with_groups"][metric] / figures["without_groups"][metric]
    if folder := os.environ.get(PICTURES_ENVIRONMENT):
        _draw(Path(folder), drawn, backlog)
    return figures


def _told(dwell_ms: Sequence[float], quiet: int) -> Figures:
    ordered = sorted(round(one * 1e6) for one in dwell_ms)
    return {**{f"dwell_p{percent}_ms": percentile(ordered, percent) / 1e6 for percent in (50, 99)}, "missing": quiet - len(ordered)}


def _draw(folder: Path, drawn: dict[str, list[tuple[float, float]]], backlog: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    title = f"How long a quiet tenant's messages wait behind {backlog:,} of a noisy one"
    series = {"tenants in MessageGroupId": drawn["with_groups"], "no groups: first come, first served": drawn["without_groups"]}
    (folder / "fair-queues.svg").write_text(dots(title, series, across="sent, seconds after the first"), encoding="utf-8")


async def quiet_dwell(port: int, url: str, quiet: int, grouped: bool) -> list[tuple[float, float]]:
    """In a child: consume, and send as the quiet tenant. (when it was sent, s; how long it waited, ms) of each message that arrived."""
    wire, tally = Wire(port), Tally()
    connections = await connect(port, CONSUMERS + 1, tally)
    sent_ns: dict[int, int] = {}
    received_ns: dict[int, int] = {}
    over = asyncio.Event()

    async def consume(connection: Connection) -> None:
        receive = wire.ask("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=1)
        while not over.is_set():
            answer = await connection.ask(receive)
            got_ns = now_ns()
            for handle in handles(answer):
                if found := _QUIET.search(answer):
                    received_ns.setdefault(int(found[1]), got_ns)
                    if len(received_ns) == quiet:
                        over.set()
                await asyncio.sleep(HOLD_MS / 1000)
                await connection.ask(wire.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handle.decode()))

    async def send(connection: Connection) -> None:
        await asyncio.sleep(WARM_S)
        tenant = {"MessageGroupId": "quiet"} if grouped else {}
        first_ns = now_ns()
        for number in range(quiet):
            await asyncio.sleep(max(0.0, number * APART_MS / 1000 - (now_ns() - first_ns) / 1e9))
            sent_ns[number] = now_ns()
            await connection.ask(wire.ask("SendMessage", QueueUrl=url, MessageBody=f"quiet-{number}", **tenant))
        await asyncio.wait_for(over.wait(), PATIENCE_S)

    consumers = [asyncio.ensure_future(consume(one)) for one in connections[1:]]
    try:
        await send(connections[0])
    except TimeoutError:
        over.set()  # What has not arrived by now is told as missing.
    await asyncio.gather(*consumers)
    if tally.refused:
        raise RuntimeError(f"{tally.refused} requests were refused, the first with: {tally.refusal}")
    first = min(sent_ns.values())
    return [((sent_ns[number] - first) / 1e9, (at - sent_ns[number]) / 1e6) for number, at in sorted(received_ns.items())]


SCENARIO = Scenario(
    "fair-queues",
    SCENARIOS["fair-queues"],
    [
        Bar("quiet tenant's dwell, p50, times that without groups", "dwell_p50_to_without", most=0.02),
        Bar("quiet tenant's dwell, p99, times that without groups", "dwell_p99_to_without", most=0.05),
        Bar("quiet tenant's messages that did not arrive", "with_groups.missing", most=0),
    ],
    run,
)
