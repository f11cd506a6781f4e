"""Nodes that share a log on JetStream, three copies: 100 bytes, 64 requests under way, through the native door of one node and of three.

Beside them, in the same rounds, the engine as it is: nats-py publishes messages of 100 bytes, one each, 64 under way, to a stream of the
same kind, and waits for each acknowledgement. What ours gains it gains by putting what many callers say into one entry. Servers, nodes and
clients share this machine, and each node replays what all of them write, so here three nodes have less to give than one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any

from ..child import result_of
from ..drivers.native import NativeNode
from ..engines.nats import NatsServers
from ..httpload import now_ns
from ..measure import percentile
from ..nativeload import SEND, TAKE, Load
from ..rounds import Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

UNDER_WAY = 64
NODES = (1, 3)
COPIES = 3
RAW = "raw publisher"


async def run(lab: Lab) -> Figures:
    messages = lab.size(30_000, 3_000) // UNDER_WAY * UNDER_WAY
    lab.peers["nats-py"] = version("nats-py")
    servers = NatsServers(lab.folder / "nats", COPIES)
    store = await asyncio.to_thread(servers.start)
    try:
        async with AsyncExitStack() as stack:
            # In namespaces of their own: a node more on a log replays it, and would be paid for where one node is measured.
            nodes: dict[int, list[NativeNode]] = {}
            for count in NODES:
                nodes[count] = [NativeNode(None, "--store", f"{store}/load-{count}") for _ in range(count)]
                for node in nodes[count]:
                    await node.start()
                    stack.push_async_callback(node.stop)

            async def turn(notes: Notes) -> None:
                notes.note(RAW, await _raw(store, messages))
                for count in NODES:
                    for phase in (SEND, TAKE):
                        notes.note(f"{count} {phase}", await _ours(nodes[count], phase, messages))

            notes = await in_turns(lab, "the engine alone, one node, three", turn)
    finally:
        await asyncio.to_thread(servers.stop)
    figures: Figures = {"messages": messages, "under_way": UNDER_WAY, "copies": COPIES, "raw": notes.medians(RAW)}
    for count in NODES:
        figures[f"{count}_nodes"] = {phase: notes.medians(f"{count} {phase}") for phase in (SEND, TAKE)}
        figures[f"{count}_nodes"]["send_to_raw"] = notes.ratio(f"{count} {SEND}", RAW)
    return figures


async def _ours(nodes: list[NativeNode], phase: str, messages: int) -> dict[str, Any]:
    """The same load, divided among the nodes: a queue for each, as a load balancer in front of busy queues would have it."""
    share, connections = messages // len(nodes), UNDER_WAY // len(nodes)
    loads = [
        Load(node.port, phase, share // connections * connections, connections, queue=f"of node {number}", pid=node.pid)
        for number, node in enumerate(nodes)
    ]
    made = await asyncio.gather(*(load.played() for load in loads))
    seconds = max(one["seconds"] for one in made)
    sent = sum(one["messages"] for one in made)
    return {
        "per_s": sent / seconds,
        "p50_us": max(one["p50_us"] for one in made),
        "p99_us": max(one["p99_us"] for one in made),
        "server_cpu_us": sum(one["server_cpu_us"] * one["messages"] for one in made) / sent,
    }


async def _raw(store: str, messages: int) -> dict[str, Any]:
    made: dict[str, Any] = await result_of(f"{__name__}:publish", servers=store, messages=messages)
    return made


async def publish(servers: str, messages: int) -> dict[str, Any]:
    """In a child: what a program that uses the engine by itself gets."""
    import nats

    connection = await nats.connect(servers.split(","))
    stream = connection.jetstream()
    await stream.add_stream(name="RAW", subjects=["raw"], num_replicas=COPIES)
    took: list[int] = []

    async def one_by_one() -> None:
        for _ in range(messages // UNDER_WAY):
            began = now_ns()
            await stream.publish("raw", bytes(100))
            took.append(now_ns() - began)

    began = now_ns()
    await asyncio.gather(*(one_by_one() for _ in range(UNDER_WAY)))
    seconds = (now_ns() - began) / 1e9
    await stream.delete_stream("RAW")
    await connection.close()
    took.sort()
    return {"per_s": len(took) / seconds, "p50_us": _percentile_us(took, 50), "p99_us": _percentile_us(took, 99)}


def _percentile_us(took_ns: list[int], percent: int) -> float:
    return (percentile(took_ns, percent) or 0.0) / 1000


SCENARIO = Scenario(
    "cluster-load",
    SCENARIOS["cluster-load"],
    [Bar(f"pushes through {count} nodes, times the raw publisher", f"{count}_nodes.send_to_raw", least=1.5) for count in NODES],
    run,
)
