"""The blocking face over a connection: the same names without await."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dovetail
from dovetail.blocking import process_once
from dovetail.errors import Closed, Unavailable, Unknown
from tests.doors.native.house import Inside


@pytest.fixture
def url() -> Iterator[str]:
    made = Inside()
    yield f"dovetail://127.0.0.1:{made.port}"
    made.close()


def test_every_name_works_without_await(url: str) -> None:
    with dovetail.blocking.connect(url, timeout_s=60) as node:
        dead = node.queue("dead")
        queue = node.queue("orders", max_receives=1, dead_letter=dead, lease_s=30)
        assert node.ready and node.durability == "memory"
        tap = queue.tap("archive")
        sent = queue.send(b"a", attributes={"x": "y"})
        (message,) = queue.receive(max=10)
        assert (message.id, message.body, message.queue.name) == (sent.id, b"a", "orders")
        assert message.requeue(0) is True
        assert queue.receive() == []
        task = dead.redrive(to=queue)
        task.wait()
        assert (task.status, task.moved) == ("completed", 1)
        with queue.receive()[0] as message:
            assert message.body == b"a"
        producer = node.producer("billing")
        assert producer.send(queue, b"c").repeat is False
        assert len(node.send_to([queue, dead], b"d")) == 2
        assert [one.body for one in tap.read().messages] == [b"a", b"a", b"c", b"d"]
        assert queue.receive(max=9).complete() == [True, True]
        assert node.queues() == ["dead", "orders"]


def test_a_consumer_is_a_plain_loop_and_leaving_it_gives_back_the_rest(url: str) -> None:
    with dovetail.blocking.connect(url, timeout_s=60) as node:
        queue = node.queue("orders")
        queue.send_many([b"%d" % number for number in range(20)])
        got = []
        for message in queue.consume(credit=10):
            with message:
                got.append(message.body)
            if len(got) == 15:
                break
        assert got == [b"%d" % number for number in range(15)]
        counts = queue.counts()
        assert (counts.visible, counts.leased) == (5, 0)
        with pytest.raises(ZeroDivisionError):
            for message in queue.consume():
                with message:
                    1 / 0
        assert queue.receive(max=1)[0].receives == 2
        for batch in queue.consume().batches():
            batch.complete()
            break
        assert queue.counts().visible == 0


def test_process_once_is_a_plain_block(url: str) -> None:
    with dovetail.blocking.connect(url, timeout_s=60) as node:
        queue, bills = node.queue("orders"), node.queue("bills")
        queue.send_many([b"7", b"7"])
        ran = 0
        for message in queue.receive(max=2):
            with process_once(message, "7") as once:
                if once.first:
                    ran += 1
                    once.send(bills, b"bill")
        assert ran == 1 and [one.body for one in bills.peek()] == [b"bill"]


def test_many_threads_share_one_connection(url: str) -> None:
    with dovetail.blocking.connect(url, timeout_s=60) as node, ThreadPoolExecutor(8) as pool:
        queue = node.queue("orders")
        sent = list(pool.map(lambda number: queue.send(b"%d" % number), range(200)))
        assert sorted(one.sequence for one in sent) == list(range(1, 201))

        def work(_: int) -> list[bytes]:
            got = []
            while messages := queue.receive(max=3, wait_s=0.2):
                for message in messages:
                    with message:
                        got.append(message.body)
            return got

        got = [body for bodies in pool.map(work, range(4)) for body in bodies]
        assert sorted(got) == sorted(b"%d" % number for number in range(200))


def test_it_leaves_no_thread_behind_and_says_why_it_could_not_connect(url: str) -> None:
    before = threading.active_count()
    with pytest.raises(Unavailable), dovetail.blocking.connect("dovetail://127.0.0.1:1", timeout_s=0.2):
        pass
    with dovetail.blocking.connect(url, timeout_s=60):
        pass
    assert threading.active_count() <= before + 1


def test_a_client_takes_no_server_along() -> None:
    """What a program that only connects has to load."""
    code = "import sys, dovetail; dovetail.connect; print(*sorted(name for name in sys.modules if name.startswith('dovetail.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert "dovetail.client" in loaded
    for room in (
        "dovetail.node",
        "dovetail.logs",
        "dovetail.stores.replayed",
        "dovetail.service.broker",
        "dovetail.core.state",
        "dovetail.doors.sqs",
    ):
        assert not any(name == room or name.startswith(room + ".") for name in loaded), room
    assert not any(name in loaded for name in ("dovetail.settings", "dovetail.doors.native.door", "dovetail.doors.native.server"))


def test_a_child_that_was_forked_is_told_and_takes_nothing_from_its_parent(url: str) -> None:
    with dovetail.blocking.connect(url, timeout_s=60) as node:
        queue = node.queue("orders")
        messages = iter(queue.consume(credit=1))
        queue.send(b"a")
        first = next(messages)
        child = os.fork()
        if child == 0:
            told = 1
            try:
                queue.send(b"child")
            except Closed:
                try:
                    messages.close()  # type: ignore[attr-defined]  # a generator
                    told = 0
                finally:
                    os._exit(told)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        first.complete()
        queue.send(b"b")
        assert next(messages).body == b"b"
        assert queue.counts().pushed == 2


def test_threads_that_wait_when_the_block_ends_are_told(url: str) -> None:
    told: list[Any] = []

    def wait(act: Callable[[], Any]) -> None:
        try:
            while True:
                act()
        except Exception as error:
            told.append(error)

    with dovetail.blocking.connect(url, timeout_s=60) as node:
        queue, empty = node.queue("orders"), node.queue("empty")
        left = iter(queue.consume())
        queue.send(b"a")
        next(left)
        acts = [lambda: queue.send(b"x"), lambda: empty.receive(wait_s=3600), lambda: queue.counts()]
        threads = [threading.Thread(target=wait, args=(act,)) for act in acts * 3]
        for thread in threads:
            thread.start()
        while empty.counts().visible + queue.counts().pushed < 20:
            pass
    for thread in threads:
        thread.join(60)
    assert len(told) == 9 and all(isinstance(error, Closed | Unknown) for error in told), told
    for act in (queue.counts, lambda: next(left)):
        with pytest.raises(Closed):
            act()
