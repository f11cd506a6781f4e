"""The blocking face: the same names without await, from one thread or many."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dovetail
from dovetail.errors import FolderLocked, NoSuchQueue


def test_every_name_of_the_asynchronous_face_works_without_await() -> None:
    with dovetail.blocking.open("memory:") as node:
        dead = node.queue("dead")
        queue = node.queue("orders", max_receives=1, dead_letter=dead, lease_s=30)
        for face, inner in ((node, dovetail.Node), (queue, dovetail.Queue)):
            assert {name for name in dir(inner) if not name.startswith("_")} <= set(dir(face))
        tap = queue.tap("archive")
        sent = queue.send(b"a", attributes={"x": "y"})
        (message,) = queue.receive(max=10)
        assert (message.id, message.body, message.queue.name) == (sent.id, b"a", "orders")
        assert message.requeue(0) is True
        assert queue.receive() == []
        task = dead.redrive(to=queue)
        task.wait()
        assert (task.status, task.moved) == ("completed", 1)
        (message,) = queue.receive()
        assert [one.body for one in message.complete_and_send(dead, b"b") and dead.peek()] == [b"b"]
        producer = node.producer("billing")
        assert producer.send(queue, b"c").repeat is False
        assert producer.send(queue, b"c", number=1).repeat is True
        assert len(node.send_to([queue, dead], b"d")) == 2
        assert [one.body for one in tap.read().messages] == [b"a", b"a", b"c", b"d"]
        assert queue.counts().visible == 2 and queue.purge() == 2
        assert node.queues() == ["dead", "orders"]
        node.drop("orders")
        with pytest.raises(NoSuchQueue):
            queue.send(b"x")
        assert not any(inspect.isawaitable(value) for value in (node.queues(), tap.name))


def test_many_threads_share_one_node_and_each_message_goes_to_one(tmp_path: Path) -> None:
    with dovetail.blocking.open(f"local:{tmp_path}") as node, ThreadPoolExecutor(8) as pool:
        queue = node.queue("orders")

        def consume(_: int) -> list[bytes]:
            got = []
            while messages := queue.receive(max=3, wait_s=0.3):
                for message in messages:
                    assert message.complete()
                    got.append(message.body)
            return got

        consuming = [pool.submit(consume, number) for number in range(4)]
        sending = [pool.submit(lambda base: [queue.send(b"%d" % (base + item)) for item in range(50)], 50 * thread) for thread in range(4)]
        assert sum(len(future.result()) for future in sending) == 200
        got = [body for future in consuming for body in future.result()]
        assert sorted(got) == sorted(b"%d" % number for number in range(200))


def test_it_wakes_a_thread_that_waits_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with dovetail.blocking.open(f"local:{tmp_path}") as node:
        queue = node.queue("orders")
        threading.Timer(0.1, lambda: queue.send(b"a")).start()
        assert [message.body for message in queue.receive(wait_s=5)] == [b"a"]
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert threading.active_count() <= before + 1  # asyncio keeps its default executor's thread, if it made one
    with dovetail.blocking.open(f"local:{tmp_path}"), pytest.raises(FolderLocked), dovetail.blocking.open(f"local:{tmp_path}"):
        pass
