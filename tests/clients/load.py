"""SQS load from outside the node: senders and receivers in threads, each with a client of its own, telling a ledger what they asked for and
what they were told. They outlive the node: when it is killed they try again until it is back."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError

from tests.clients.aws import client
from tests.clients.node import Node
from tests.crash.ledger import Ledger

QUEUES = {"plain": "plain", "grouped": "grouped.fifo"}
"""Name in the ledger → name of the queue."""
GROUPS = "abcdef"
WORKERS = 8
LEASE = {"VisibilityTimeout": "36000"}
"""Longer than the test: with a lease that lapses, a delete that SQS answers with 200 may rightly have done nothing."""


class Load:
    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.ledger = Ledger()
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._clients: list[Any] = []
        self._numbers = 0
        self.broken: list[BaseException] = []

    def url(self, queue: str) -> str:
        return f"{self.node.url}/000000000000/{QUEUES[queue]}"

    def hear(self, *words: Any) -> None:
        with self._lock:
            self.ledger.hear(*words)

    def key(self, prefix: str) -> str:
        with self._lock:
            self._numbers += 1
            return f"{prefix}{self._numbers:08d}"

    def make_queues(self) -> None:
        # Made once: they outlive the node, whose port stays the same.
        self._clients = [client(self.node) for _ in range(WORKERS)]
        sqs = self._clients[0]
        sqs.create_queue(QueueName="plain", Attributes=LEASE)
        sqs.create_queue(QueueName="grouped.fifo", Attributes={"FifoQueue": "true", **LEASE})

    @property
    def sqs(self) -> Any:
        return self._clients[0]

    # Threads

    def begin(self) -> None:
        self._stopped.clear()
        work = [self._send, self._send, self._send_form, self._consume("plain"), self._consume("plain"), self._consume("grouped")]
        work += [self._send_groups(GROUPS[:3]), self._send_groups(GROUPS[3:])]
        self._threads = [
            threading.Thread(target=self._run, args=(one, sqs, random.Random(self._chance.randrange(1 << 30))))
            for one, sqs in zip(work, self._clients, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Call it once the node is dead: what it has not answered by then, it never will."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self.broken:
            raise self.broken[0]

    def _run(self, work: Callable[[Any, random.Random], None], sqs: Any, chance: random.Random) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    work(sqs, chance)
                except (BotoCoreError, OSError, http.client.HTTPException):
                    time.sleep(0.01)  # The node is dead, and what became of the call is not known.
        except BaseException as error:
            self.broken.append(error)

    # What they do

    def _body(self, key: str, chance: random.Random) -> str:
        return f"{key}|" + "x" * chance.choice((0, 10, 100, 3000, 20_000))

    def _send(self, sqs: Any, chance: random.Random) -> None:
        keys = [self.key("p") for _ in range(chance.choice((1, 1, 5, 10)))]
        self.hear("send?", "plain", *keys)
        if len(keys) == 1:
            sqs.send_message(
                QueueUrl=self.url("plain"), MessageBody=self._body(keys[0], chance), DelaySeconds=chance.choice((0, 0, 0, 900))
            )
            self.hear("send", *keys)
        else:
            entries = [{"Id": key, "MessageBody": self._body(key, chance)} for key in keys]
            answer = sqs.send_message_batch(QueueUrl=self.url("plain"), Entries=entries)
            self.hear("send", *(one["Id"] for one in answer["Successful"]))

    def _send_form(self, _: Any, chance: random.Random) -> None:
        """The old protocol, several requests on the wire before the first answer is read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=60)
        connection.connect()
        keys = [self.key("p") for _ in range(8)]
        self.hear("send?", "plain", *keys)
        for key in keys:
            form = urlencode({"Action": "SendMessage", "QueueUrl": self.url("plain"), "MessageBody": self._body(key, chance)}).encode()
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n"
            connection.sock.sendall(head.encode() + form)
        for key in keys:
            answer = http.client.HTTPResponse(connection.sock, method="POST")
            answer.begin()
            text = answer.read()
            assert answer.status == 200 and b"<MessageId>" in text, text
            self.hear("send", key)
        connection.close()

    def _send_groups(self, groups: str) -> Callable[[Any, random.Random], None]:
        def send(sqs: Any, chance: random.Random) -> None:
            group = chance.choice(groups)
            key = self.key("g" + group)
            self.hear("send?", "grouped", key)
            sqs.send_message(
                QueueUrl=self.url("grouped"), MessageBody=self._body(key, chance), MessageGroupId=group, MessageDeduplicationId=key
            )
            self.hear("send", key)

        return send

    def _consume(self, queue: str) -> Callable[[Any, random.Random], None]:
        def consume(sqs: Any, chance: random.Random) -> None:
            got = sqs.receive_message(QueueUrl=self.url(queue), MaxNumberOfMessages=chance.randrange(1, 11), WaitTimeSeconds=1)
            for message in got.get("Messages", []):
                if not self._settle(sqs, chance, queue, message):
                    return

        return consume

    def _settle(self, sqs: Any, chance: random.Random, queue: str, message: dict[str, Any]) -> bool:
        key, receipt = message["Body"].partition("|")[0], message["ReceiptHandle"]
        self.hear("got", key, receipt)
        if chance.random() < 0.8:
            self.hear("done?", key)
            sqs.delete_message(QueueUrl=self.url(queue), ReceiptHandle=receipt)
            self.hear("done", key)
            return True
        sqs.change_message_visibility(QueueUrl=self.url(queue), ReceiptHandle=receipt, VisibilityTimeout=0)
        self.hear("back", key, receipt)
        return queue != "grouped"  # The rest of its group must not be deleted before it.
