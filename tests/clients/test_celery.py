"""Promises to people who use Celery with `sqs://`: a worker of its own finishes every task that was sent, also when the node is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from tests.clients.aws import client
from tests.clients.conftest import Start
from tests.clients.node import ROOT, Node
from tests.clients.tasks import make

FINISH_S = 90
FLAGS = ("-P", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "info")

pytestmark = pytest.mark.slow


@contextmanager
def worker(node: Node, folder: Path, predefined: str = "") -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A Celery worker, and the folder in which tasks leave their files."""
    done = folder / "done"
    done.mkdir()
    environment = {**os.environ, "SQS_URL": node.url, "DONE": str(done), "PREDEFINED": predefined}
    environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    log = folder / "worker.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tests.clients.tasks", "worker", *FLAGS],
            env=environment,
            cwd=folder,
            stdout=file,
            stderr=file,
        )
        try:
            yield done, process
        except BaseException as error:
            error.add_note(log.read_text()[-4000:])
            raise
        finally:
            process.kill()
            process.wait()


def send(app: Any, names: list[str]) -> list[str]:
    """Those that were accepted; of the others nobody knows."""
    accepted = []
    for name in names:
        try:
            app.send_task("tests.clients.tasks.note", (name,), retry=False)
            accepted.append(name)
        except OperationalError:
            pass
    return accepted


def finished(done: Path, names: list[str]) -> None:
    """Waits until each has been done; how often is told by the file."""
    give_up = time.monotonic() + FINISH_S
    while missing := set(names) - set(os.listdir(done)):
        assert time.monotonic() < give_up, f"lost: {sorted(missing)}"
        time.sleep(0.05)


def test_tasks_survive_a_killed_node(start: Start, tmp_path: Path) -> None:
    node = start("--store", "local:data")
    app = make(node.url)
    with worker(node, tmp_path) as (done, process):
        first = send(app, [f"first-{number}" for number in range(10)])
        finished(done, first)
        # While the worker sleeps nothing is done: these are in the node, and nowhere else, when it dies.
        process.send_signal(signal.SIGSTOP)
        second = send(app, [f"second-{number}" for number in range(30)])
        node.kill()
        node.start()
        process.send_signal(signal.SIGCONT)
        third = send(app, [f"third-{number}" for number in range(10)])
        assert (len(first), len(second)) == (10, 30) and len(third) >= 9, "a connection that died costs at most the call that finds out"
        finished(done, second + third)


def test_queues_may_be_named_beforehand_and_are_then_not_made(start: Start, tmp_path: Path) -> None:
    node = start("--store", "memory:")
    url = client(node).create_queue(QueueName="made-by-an-operator", Attributes={"VisibilityTimeout": "30"})["QueueUrl"]
    app = make(node.url, url)
    names = [f"task-{number}" for number in range(10)]
    with worker(node, tmp_path, url) as (done, _):
        assert send(app, names) == names
        finished(done, names)
        assert {(done / name).read_text() for name in names} == {"done\n"}
    assert client(node).list_queues()["QueueUrls"] == [url]
