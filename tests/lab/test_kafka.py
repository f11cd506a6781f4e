"""Kafka as an engine: it takes and gives what a client sends, comes back after kill −9, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dovetail.lab import jars, kafkaload, sparkkafka
from dovetail.lab.driver import PeerMissing
from dovetail.lab.engines import kafka
from dovetail.lab.engines.kafka import KafkaServers, brokers
from dovetail.lab.scenario import Lab
from tests.lab.peers import alive, listening, needed

WAIT_S = 120


@contextmanager
def started(folder: Path, nodes: int = 1) -> Iterator[KafkaServers]:
    needed(kafka.present(), "Kafka", "make engines")
    servers = KafkaServers(folder, nodes)
    try:
        assert servers.start() == servers.url
        yield servers
    finally:
        servers.stop()
    assert servers.pids == []


def pushed(url: str, topic: str, bodies: list[bytes]) -> None:
    told: list[object] = []
    producer = Producer({"bootstrap.servers": kafkaload.servers_of(url), "acks": "all", "enable.idempotence": True, "log_level": 0})
    for body in bodies:
        producer.produce(topic, body, partition=0, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WAIT_S) == 0 and told == [None] * len(bodies)


def read(url: str, topic: str, count: int) -> list[bytes]:
    """The first of a topic's only partition, in order, and that there are no more."""
    servers = kafkaload.servers_of(url)
    deadline = time.monotonic() + WAIT_S
    # A leader that stood still does not know at once that it is none any more, and tells what it had.
    while (stored := kafkaload.stored(servers, topic, 1)) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert stored == count
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 1.0):
            assert message.error() is None
            found.append(message.value() or b"")
    consumer.close()
    return found


@pytest.mark.slow
def test_kafka_gives_what_it_was_sent_in_order_also_after_kill_9(tmp_path: Path) -> None:
    with started(tmp_path) as servers:
        assert servers.url.startswith("kafka://127.0.0.1:") and brokers(servers.ports[0]) == set(servers.ports)
        assert listening(servers.pids[0]) == {"127.0.0.1"}
        kafkaload.make_topic(kafkaload.servers_of(servers.url), "orders")
        bodies = [b"%d" % number for number in range(200)]
        pushed(servers.url, "orders", bodies[:100])
        servers.kill(0)
        assert servers.pids == [] and servers.running == []
        servers.restart(0)
        pushed(servers.url, "orders", bodies[100:])
        assert read(servers.url, "orders", 200) == bodies


@pytest.mark.soak
def test_a_cluster_goes_on_while_a_node_is_dead_or_stands_still(tmp_path: Path) -> None:
    with started(tmp_path, 3) as servers:
        kafkaload.make_topic(kafkaload.servers_of(servers.url), "orders")
        bodies = [b"%d" % number for number in range(60)]
        pushed(servers.url, "orders", bodies[:20])
        servers.kill(0)
        assert len(servers.pids) == 2 and servers.running == [1, 2]
        pushed(servers.url, "orders", bodies[20:40])
        servers.restart(0)
        assert all(brokers(port) == set(servers.ports) for port in servers.ports)
        servers.pause(1)
        pushed(servers.url, "orders", bodies[40:])
        servers.resume(1)
        assert read(servers.url, "orders", 60) == bodies


@pytest.mark.slow
def test_a_topic_is_filled_evenly_and_whole(tmp_path: Path) -> None:
    with started(tmp_path) as servers:
        url = kafkaload.servers_of(servers.url)
        made = kafkaload.fill(url, "many", 25_001, 4)
        assert made["messages"] == 25_001 == kafkaload.stored(url, "many", 4) and kafkaload.stored(url, "many", 1) == 6_250


STARTED = """
import sys, threading
from pathlib import Path
from dovetail.lab.engines.kafka import KafkaServers
servers = KafkaServers(Path(sys.argv[1]))
servers.start()
print(*servers.pids, flush=True)
threading.Event().wait()
"""


@pytest.mark.slow
def test_kafka_dies_with_the_process_that_started_it_even_by_kill_9(tmp_path: Path) -> None:
    needed(kafka.present(), "Kafka", "make engines")
    holder = subprocess.Popen([sys.executable, "-c", STARTED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pids = [int(one) for one in holder.stdout.readline().split()]
    assert len(pids) == 1 and alive(pids[0])
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    end = time.monotonic() + WAIT_S
    while alive(pids[0]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pids[0])


@pytest.mark.slow
def test_a_node_that_does_not_start_says_why_and_is_not_left_behind(tmp_path: Path) -> None:
    needed(kafka.present(), "Kafka", "make engines")
    servers = KafkaServers(tmp_path)
    with socket.create_server(("127.0.0.1", servers.ports[0])), pytest.raises(PeerMissing, match=r"Kafka server 1 did not start: .*bind"):
        servers.start()
    assert servers.pids == []


def test_without_java_it_says_how_it_could_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka.shutil, "which", lambda *_, **__: None)
    with pytest.raises(PeerMissing, match=r"needs java, which is not installed \(apt-get install "):
        KafkaServers(tmp_path / "files").start()
    assert os.listdir(tmp_path) == [] and not kafka.present()


@pytest.mark.parametrize("nodes", [0, 10])
def test_there_are_one_to_nine_servers(nodes: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{nodes} servers; 1 to 9 are allowed"):
        KafkaServers(tmp_path, nodes)


def page(*brokers: tuple[int, str, int]) -> bytes:
    """Kafka's page of metadata, as far as it is read."""
    each = b"".join(struct.pack(f">ih{len(host)}sih", node, len(host), host.encode(), port, -1) for node, host, port in brokers)
    data = struct.pack(">ii", 1, len(brokers)) + each + struct.pack(">ii", 0, 0)
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (page((0, "127.0.0.1", 9092), (1, "here", 9093)), {9092, 9093}),
        (page(), set()),
        (page((0, "127.0.0.1", 9092))[:20], set()),
        (page((0, "127.0.0.1", 9092))[:3], set()),
        (struct.pack(">iii", 8, 1, 1000), set()),
        (struct.pack(">i", -5) + bytes(50), set()),
        (struct.pack(">i", 1 << 30) + bytes(50), set()),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", set()),
        (b"", set()),
    ],
    ids=["two", "none", "cut", "cut in the size", "more than there are", "negative", "too large", "http", "closed"],
)
def test_only_a_page_of_brokers_is_an_answer(answer: bytes, found: set[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(1024)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert brokers(server.getsockname()[1]) == found
        finally:
            thread.join()


def test_a_quick_run_fetches_no_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(jars.CACHE_ENVIRONMENT, str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "fetch", lambda *_: pytest.fail("fetched"))
    lab = Lab(tmp_path, quick=True)
    assert sparkkafka.beside(lab) is None and lab.peers == {}
    assert "was not fetched yet" in capsys.readouterr().err
