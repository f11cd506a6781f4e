"""Nodes that share a log, three copies: 100 bytes, 64 requests under way, through the native door of one node and of three, on JetStream
and on Kafka side by side.

Beside them, in the same rounds:
- each engine as it is: its client publishes messages of 100 bytes, one each, 64 under way, to a stream or topic of the same kind, and waits
  for each acknowledgement. What ours gains it gains by putting what many callers say into one entry.
- a quorum queue of RabbitMQ on three brokers, 64 connections, each waiting for its confirm. It syncs before it confirms; so it is held
  against one node of ours whose engine syncs too (`disk×3`).

Servers, nodes and clients share this machine, and each node replays what all of them write, so here three nodes have less to give than one.
A quick run has one server of each; what cannot be had is left out, with a line that says so.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, NamedTuple

from .. import amqpload, kafkaload
from ..amqpwire import Line
from ..child import result_of
from ..driver import PeerMissing
from ..drivers import rabbitmq
from ..drivers.native import NativeNode
from ..drivers.rabbitmq import RabbitMq
from ..engines import Engine, kafka
from ..engines.kafka import KafkaServers
from ..engines.nats import NatsServers
from ..httpload import LoadFailed, now_ns
from ..measure import percentile
from ..nativeload import SEND, TAKE, Load
from ..rounds import Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

UNDER_WAY = 64
NODES = (1, 3)
COPIES = 3
RAW = "raw publisher"
SYNCED = "synced"
QUORUM = "quorum"


class Side(NamedTuple):
    """One engine that runs, and the nodes on it."""

    name: str
    servers: str
    """Its URL, without a namespace."""
    nodes: dict[str, list[NativeNode]]
    """"1", "3" → so many; SYNCED → one whose engine syncs before it answers."""


async def run(lab: Lab) -> Figures:
    messages = lab.size(30_000, 3_000) // UNDER_WAY * UNDER_WAY
    copies = lab.size(COPIES, 1)
    async with AsyncExitStack() as stack:
        sides = [await _jetstream(lab, stack, copies)]
        if (other := await _kafka(lab, stack, copies)) is not None:
            sides.append(other)
        quorum = await rabbitmq.beside(lab, copies)
        if quorum is not None:
            stack.push_async_callback(quorum.stop)
            line = Line(quorum.port)
            line.declare(QUORUM.encode(), quorum=True)
            line.close()

        async def turn(notes: Notes) -> None:
            for side in sides:
                notes.note(f"{side.name} {RAW}", await _raw(side, messages, copies))
                for kind, nodes in side.nodes.items():
                    for phase in (SEND, TAKE):
                        notes.note(f"{side.name} {kind} {phase}", await _ours(nodes, phase, messages))
            if quorum is not None:
                for phase in (SEND, TAKE):
                    notes.note(f"{QUORUM} {phase}", await _theirs(quorum, phase, messages))

        notes = await in_turns(lab, "engines alone, one node, three, RabbitMQ", turn)
    figures: Figures = {"messages": messages, "under_way": UNDER_WAY, "copies": copies}
    figures["rabbitmq_quorum"] = {phase: notes.medians(f"{QUORUM} {phase}") for phase in (SEND, TAKE)}
    for side in sides:
        figures[side.name] = _told(notes, side)
    if len(sides) > 1:
        figures["kafka_to_jetstream"] = {
            f"{kind} {phase}": notes.ratio(f"kafka {kind} {phase}", f"jetstream {kind} {phase}")
            for kind in sides[0].nodes
            for phase in (SEND, TAKE)
        }
    return figures


def _told(notes: Notes, side: Side) -> dict[str, Any]:
    raw = f"{side.name} {RAW}"
    told: dict[str, Any] = {"raw": notes.medians(raw)}
    for kind in side.nodes:
        name = f"{kind}_nodes" if kind != SYNCED else SYNCED
        told[name] = {phase: notes.medians(f"{side.name} {kind} {phase}") for phase in (SEND, TAKE)}
        if kind != SYNCED:
            told[name]["send_to_raw"] = notes.ratio(f"{side.name} {kind} {SEND}", raw)
        else:
            told[name]["send_to_quorum"] = notes.ratio(f"{side.name} {kind} {SEND}", f"{QUORUM} {SEND}")
    return told


# What runs


async def _jetstream(lab: Lab, stack: AsyncExitStack, copies: int) -> Side:
    """JetStream syncs by a setting of its servers, so there are two clusters of it."""
    lab.peers["nats-py"] = version("nats-py")
    lazy = await _started(stack, NatsServers(lab.folder / "nats", copies))
    syncing = await _started(stack, NatsServers(lab.folder / "nats-synced", copies, sync_always=True))
    return Side("jetstream", lazy, await _nodes(stack, lazy, syncing))


async def _kafka(lab: Lab, stack: AsyncExitStack, copies: int) -> Side | None:
    """Kafka syncs by a setting of a topic, which a node that says so makes."""
    try:
        if lab.quick and not kafka.present():
            raise PeerMissing("Kafka was not fetched yet, and a quick run does not: python -m dovetail.lab.engines.kafka")
        servers = await _started(stack, KafkaServers(lab.folder / "kafka", copies))
    except PeerMissing as missing:
        lab.say(str(missing))
        return None
    lab.peers["kafka"] = kafka.VERSION
    lab.peers["confluent-kafka"] = version("confluent-kafka")
    return Side("kafka", servers, await _nodes(stack, servers, servers))


async def _started(stack: AsyncExitStack, servers: Engine) -> str:
    url = await asyncio.to_thread(servers.start)
    stack.push_async_callback(asyncio.to_thread, servers.stop)
    return url


async def _nodes(stack: AsyncExitStack, lazy: str, syncing: str) -> dict[str, list[NativeNode]]:
    """In namespaces of their own: a node more on a log replays it, and would be paid for where one node is measured."""
    nodes = {str(count): [NativeNode(None, "--store", f"{lazy}/load-{count}") for _ in range(count)] for count in NODES}
    nodes[SYNCED] = [NativeNode(None, "--store", f"{syncing}/load-{SYNCED}?synced=yes")]
    for each in nodes.values():
        for node in each:
            await node.start()
            stack.push_async_callback(node.stop)
    return nodes


# Loads


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


async def _theirs(server: RabbitMq, phase: str, messages: int) -> dict[str, Any]:
    return await amqpload.result(server.port, phase, QUORUM, UNDER_WAY, messages // UNDER_WAY, server.pid)


async def _raw(side: Side, messages: int, copies: int) -> dict[str, Any]:
    publisher = {"jetstream": publish_to_nats, "kafka": publish_to_kafka}[side.name]
    made: dict[str, Any] = await result_of(f"{__name__}:{publisher.__name__}", servers=side.servers, messages=messages, copies=copies)
    return made


async def publish_to_nats(servers: str, messages: int, copies: int) -> dict[str, Any]:
    """In a child: what a program that uses the engine by itself gets."""
    import nats

    connection = await nats.connect(servers.split(","))
    stream = connection.jetstream()
    await stream.add_stream(name="RAW", subjects=["raw"], num_replicas=copies)
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
    return _came_to(took, seconds)


def publish_to_kafka(servers: str, messages: int, copies: int) -> dict[str, Any]:
    """The same. Copies are what the brokers make by themselves; the library may put what waits into one request."""
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

    brokers = kafkaload.servers_of(servers)
    kafkaload.make_topic(brokers, "RAW")
    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    took: list[int] = []

    def publish() -> None:
        began = now_ns()

        def stored(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                raise LoadFailed(f"Kafka did not take a message: {error.str()}")
            took.append(now_ns() - began)
            if len(took) <= messages - UNDER_WAY:
                publish()

        producer.produce("RAW", bytes(100), partition=0, on_delivery=stored)

    # The first one waits for the producer's number, which is asked for once.
    producer.produce("RAW", b"first", partition=0)
    producer.flush()
    began = now_ns()
    for _ in range(UNDER_WAY):
        publish()
    while len(took) < messages:
        producer.poll(1)
    seconds = (now_ns() - began) / 1e9
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    admin.delete_topics(["RAW"])["RAW"].result(kafkaload.ANSWER_S)
    return _came_to(took, seconds)


def _came_to(took_ns: list[int], seconds: float) -> dict[str, Any]:
    took_ns.sort()
    percentiles = {f"p{percent}_us": (percentile(took_ns, percent) or 0.0) / 1000 for percent in (50, 99)}
    return {"per_s": len(took_ns) / seconds, **percentiles}


BARS = [Bar(f"pushes through {count} nodes, times the raw publisher", f"jetstream.{count}_nodes.send_to_raw", least=1.5) for count in NODES]
BARS.append(Bar("pushes with disk×3, times a quorum queue", f"jetstream.{SYNCED}.send_to_quorum", least=1.5))
SCENARIO = Scenario("cluster-load", SCENARIOS["cluster-load"], BARS, run)
