"""Three nodes on three NATS servers, on this machine: boto3 goes through any of them, while one node and one server are killed.

    pip install 'dovetail[nats,lab]' boto3
    python examples/cluster/run.py

At the end the ledger is balanced: every message that was acknowledged was received, and none after it was deleted."""

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dovetail.lab.engines.nats import NatsServers

PHASE = 150
"""Messages that are acknowledged before the next thing happens."""


def start(store: str) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "serve",
        "--store",
        store,
        "--http",
        "127.0.0.1:0",
        "--native",
        "off",
        "--log-level",
        "error",
    ]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    match = re.search(r"http=(\S+)", node.stdout.readline())
    assert match is not None, "the node did not start"
    return node, match[1]


class Anybody:
    """boto3 at whichever node answers: what haproxy does in front of nodes elsewhere (deploy/haproxy.cfg)."""

    def __init__(self, endpoints: list[str], first: int) -> None:
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=20)
        keys = {"region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
        clients = [boto3.client("sqs", endpoint_url=endpoint, config=config, **keys) for endpoint in endpoints]
        self._next = cycle(clients[first:] + clients[:first])
        self._client = next(self._next)

    def ask(self, action: str, **what: object) -> dict:
        while True:
            try:
                return getattr(self._client, action)(QueueUrl="/000000000000/orders", **what)
            except (BotoCoreError, ClientError):
                # It may have happened: a send that is repeated can be there twice, which the ledger counts by body.
                self._client = next(self._next)
                time.sleep(0.05)


class Ledger:
    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.deleted: Counter[str] = Counter()
        self.back: list[str] = []
        self.over = False


def send(orders: Anybody, ledger: Ledger) -> None:
    number = 0
    while not ledger.over:
        number += 1
        orders.ask("send_message", MessageBody=f"order {number}")
        ledger.sent.add(f"order {number}")


def receive(orders: Anybody, ledger: Ledger) -> None:
    gone: dict[str, str] = {}
    while not (ledger.over and ledger.sent <= ledger.deleted.keys()):
        for message in orders.ask("receive_message", MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", []):
            if message["MessageId"] in gone:
                ledger.back.append(message["Body"])
            orders.ask("delete_message", ReceiptHandle=message["ReceiptHandle"])
            gone[message["MessageId"]] = message["Body"]
            ledger.deleted[message["Body"]] += 1


def main(folder: Path) -> None:
    servers = NatsServers(folder, 3)
    store = servers.start() + "/shop"
    started = [start(store) for _ in range(3)]
    nodes, endpoints = [node for node, _ in started], [endpoint for _, endpoint in started]
    print("three nodes:", *endpoints)
    try:
        boto3.client(
            "sqs", endpoint_url=endpoints[0], region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any"
        ).create_queue(QueueName="orders", Attributes={"VisibilityTimeout": "5"})
        ledger = Ledger()
        work = [threading.Thread(target=job, args=(Anybody(endpoints, at), ledger)) for at, job in ((1, send), (2, receive))]
        for thread in work:
            thread.start()

        def until(count: int) -> None:
            while len(ledger.sent) < count:
                time.sleep(0.05)

        until(PHASE)
        nodes[1].kill()
        print(f"{len(ledger.sent)} orders are acknowledged; the node that the sender used is killed")
        until(2 * PHASE)
        servers.kill(0)
        print(f"{len(ledger.sent)} orders are acknowledged; a NATS server is killed (where it led the log, this takes 4 to 9 s)")
        until(3 * PHASE)
        ledger.over = True
        for thread in work:
            thread.join()
        received = len(ledger.sent & ledger.deleted.keys())
        print(f"{len(ledger.sent)} orders acknowledged, {received} received and deleted, {len(ledger.back)} back")
        assert ledger.sent <= ledger.deleted.keys() and not ledger.back
    finally:
        for node in nodes:
            node.kill()
        servers.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dovetail-cluster-") as place:
        main(Path(place))
