"""kill -9 during SQS load: every send that was acknowledged is there afterwards, and no message whose deletion was acknowledged returns.

The ledger is in this process, which is not killed. A failing seed is named; DOVETAIL_CRASH_ROUNDS says how long the soak looks."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clients.load import QUEUES, Load
from tests.clients.node import Node
from tests.crash.ledger import LawBroken

PATIENCE_S = 60.0
FLAGS = ("--store", "local:data", "--local-segment-bytes", "2MiB", "--local-snapshot-bytes", "1MiB")


def peek(node: Node, url: str) -> list[dict[str, Any]]:
    """All messages of a queue, whatever their state, oldest first."""
    found: list[dict[str, Any]] = []
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    while True:
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 1000, "After": found[-1]["Sequence"] if found else 0}
        connection.request("POST", "/", json.dumps(asked), {"X-Amz-Target": "Dovetail.PeekMessages"})
        answer = connection.getresponse()
        page = json.loads(answer.read())
        assert answer.status == 200, page
        if not page["Messages"]:
            connection.close()
            return found
        found += page["Messages"]


def keys(messages: list[dict[str, Any]]) -> list[str]:
    return [one["Body"].partition("|")[0] for one in messages]


def look(load: Load) -> None:
    """What a node that has just started holds, against the ledger; and dead receipts change nothing."""
    load.ledger.judge({queue: keys(peek(load.node, load.url(queue))) for queue in QUEUES})
    sqs = load.sqs
    before = {queue: len(peek(load.node, load.url(queue))) for queue in QUEUES}
    dead = [(key, receipt) for key, receipt in load.ledger.dead.items() if load.ledger.asked[key] == "plain"][-20:]
    for number in range(0, len(dead), 10):
        entries = [{"Id": key, "ReceiptHandle": receipt} for key, receipt in dead[number : number + 10]]
        assert len(sqs.delete_message_batch(QueueUrl=load.url("plain"), Entries=entries)["Successful"]) == len(entries)
    assert {queue: len(peek(load.node, load.url(queue))) for queue in QUEUES} == before, "a dead receipt was honoured"


def receive_everything(load: Load) -> None:
    """Through the front door: what was acknowledged and not deleted comes out, and nothing that was deleted."""
    sqs, ledger = load.sqs, load.ledger
    left = {keys([one])[0]: one for queue in QUEUES for one in peek(load.node, load.url(queue))}
    out: set[str] = set()
    for key, receipt in ledger._last.items():
        if key in left and left[key]["State"] == "leased" and ledger.dead.get(key) != receipt:
            # Receipts outlive the node that gave them. (Not where it was being given back when the node died, and was handed out again.)
            with contextlib.suppress(sqs.exceptions.MessageNotInflight):
                sqs.change_message_visibility(QueueUrl=load.url(ledger.asked[key]), ReceiptHandle=receipt, VisibilityTimeout=0)
    for queue in QUEUES:
        while got := sqs.receive_message(QueueUrl=load.url(queue), MaxNumberOfMessages=10).get("Messages"):
            out.update(keys(got))
            entries = [{"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(got)]
            sqs.delete_message_batch(QueueUrl=load.url(queue), Entries=entries)
    # A kill between a receive and its answer leaves a lease whose receipt nobody holds: it waits for its end, and so does its group.
    waiting = set(keys([one for queue in QUEUES for one in peek(load.node, load.url(queue))]))
    assert out.isdisjoint(waiting) and out | waiting == set(left)
    if lost := ledger.acked - ledger.leaving - out - waiting:
        raise LawBroken(f"acknowledged and lost: {sorted(lost)[:20]}")
    if back := ledger.left & (out | waiting):
        raise LawBroken(f"deleted and back: {sorted(back)[:20]}")


def wait_for_a_life(load: Load, number: int) -> None:
    """Lives in which little happened prove little, and on a slow machine little happens in a second."""
    ledger, give_up = load.ledger, time.monotonic() + PATIENCE_S
    while len(ledger.acked) <= 100 * number or len(ledger.left) <= 20 * number or ledger.counts["back"] <= number:
        if time.monotonic() > give_up or load.broken or not load.node.running:
            return
        time.sleep(0.02)


def rounds(folder: Path, count: int, seed: int, lose: bool = False) -> Load:
    """`lose`: the twin, in which the disk forgets everything after the queues were made."""
    chance = random.Random(seed)
    node = Node(folder, *FLAGS)
    load = Load(node, seed)
    try:
        for number in range(count):
            node.start()
            if number == 0:
                load.make_queues()
                shutil.copytree(folder / "data", folder / "early")
            else:
                look(load)
            load.begin()
            time.sleep(chance.uniform(0.3, 1.2))
            wait_for_a_life(load, number + 1)
            alive = node.running
            node.kill()
            load.end()
            assert alive, f"the node stopped by itself:\n{node.errors}"
        if lose:
            shutil.rmtree(folder / "data")
            shutil.move(folder / "early", folder / "data")
        node.start()
        look(load)
        receive_everything(load)
    except BaseException as broken:
        broken.add_note(f"seed {seed}")
        raise
    finally:
        node.kill()
    return load


@pytest.mark.slow
def test_no_acknowledged_call_of_sqs_is_undone_by_three_kills(tmp_path: Path) -> None:
    ledger = rounds(tmp_path, 3, 2000).ledger
    assert len(ledger.acked) > 300 and len(ledger.left) > 50 and ledger.counts["back"] > 2, "lives in which little happened prove little"


@pytest.mark.slow
def test_a_disk_that_forgets_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(LawBroken, match="was acknowledged and is lost"):
        rounds(tmp_path, 1, 2001, lose=True)


@pytest.mark.soak
def test_no_acknowledged_call_of_sqs_is_undone_by_fifty_kills(tmp_path: Path) -> None:
    count = int(os.environ.get("DOVETAIL_CRASH_ROUNDS", "50"))
    for start in range(0, count, 10):
        folder = tmp_path / str(start)
        folder.mkdir()
        rounds(folder, min(10, count - start), random.SystemRandom().randrange(1, 900_000))
