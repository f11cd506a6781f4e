"""A node that is harmed, and a witness who wants to be served meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.aws import client
from tests.clients.node import Node

GROWTH_KIB_MAX = 200 * 1024
"""What an attack may add to the memory of a node. A node without the bound in question passes it at once: each attack sends or asks for
more than this, or would make objects that weigh more."""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("victim"), "--store", "memory:", "--cooldowns", "off") as node:
        yield node


class Witness:
    """Sends, receives and deletes all the time. What it is refused is a failed test."""

    def __init__(self, node: Node) -> None:
        self.served = 0
        self.error: BaseException | None = None
        self._sqs: Any = client(node)
        self._url = self._sqs.create_queue(QueueName="witness")["QueueUrl"]
        self._stopped = threading.Event()
        self._served = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                sent = self._sqs.send_message(QueueUrl=self._url, MessageBody=str(self.served))["MessageId"]
                (got,) = self._sqs.receive_message(QueueUrl=self._url)["Messages"]
                assert (got["MessageId"], got["Body"]) == (sent, str(self.served))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=got["ReceiptHandle"])
                with self._served:
                    self.served += 1
                    self._served.notify_all()
                self._stopped.wait(0.01)
        except BaseException as error:
            self.error = error
            with self._served:
                self._served.notify_all()

    def is_served(self, times: int = 3) -> None:
        """Waits until it was served this often from now on."""
        with self._served:
            aim = self.served + times
            assert self._served.wait_for(lambda: self.served >= aim or self.error is not None, 60), "the others are not served"
        assert self.error is None, self.error

    def __enter__(self) -> Witness:
        self._thread.start()
        self.is_served(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


@pytest.fixture(scope="module")
def bystander(victim: Node) -> Iterator[Witness]:
    with Witness(victim) as witness:
        yield witness


@pytest.fixture
def witness(victim: Node, bystander: Witness) -> Iterator[Witness]:
    """Whatever a test does to the node: others are served before, while and after, its memory stays bounded, and it has no fault to log."""
    before_kib = victim.memory_kib()
    logged = len(victim.errors)
    bystander.is_served(1)
    yield bystander
    bystander.is_served(1)
    grown_kib = victim.memory_kib() - before_kib
    assert grown_kib < GROWTH_KIB_MAX, f"it grew by {grown_kib} KiB"
    assert "Traceback" not in victim.errors[logged:] and " error " not in victim.errors[logged:], victim.errors[logged:]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real servers and real clients take their time: `make check` leaves them to `make test`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
