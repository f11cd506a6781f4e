"""Any SQS endpoint as a driver, and ours as a server: `dovetail serve` in a process of its own, as an operator would start it.

A server is started and stopped and has a port; which one it is, nothing else here asks. Bodies travel as base64, because SQS takes text.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import dovetail

from ..driver import Received
from ..httpload import Connection, Script, Tally, connect, play
from ..sqswire import Keys, Wire

_READY = re.compile(rb"dovetail ready http=http://127\.0\.0\.1:(\d+)")
_READY_S = 60.0
_MAKERS = 16


class Server(Protocol):
    name: str
    port: int
    process: asyncio.subprocess.Process | None

    @property
    def pid(self) -> int: ...

    async def start(self) -> str:
        """Returns its version when it takes requests."""

    async def stop(self) -> None:
        """It and its files are gone."""


class Node:
    """Ours, durable on `local:`."""

    name = "dovetail"

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    async def start(self) -> str:
        doors = ["--http", "127.0.0.1:0", "--native", "off"]
        arguments = ["serve", "--store", f"local:{self._folder}", *doors, "--log-level", "warning", *self._options]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dovetail", *arguments, stdout=asyncio.subprocess.PIPE, env=self._environment
        )
        self.port = await ready_port(self, _READY)
        return dovetail.__version__

    async def stop(self) -> None:
        await end(self.process)
        self.process = None
        shutil.rmtree(self._folder, ignore_errors=True)


def signed_node(folder: Path) -> tuple[Node, Keys]:
    """A node that verifies every signature, and the keys of the account that it is given, as a container is."""
    keys = Keys("AKIALABLABLABLABLABL", secrets.token_urlsafe(30))
    environment = {"DOVETAIL_ACCESS_KEY_ID": keys.access, "DOVETAIL_SECRET_ACCESS_KEY": keys.secret}
    return Node(folder, "--auth", "signed", environment=environment), keys


class NotReady(Exception):
    """A server ended, or said nothing for a minute, instead of taking requests; its own words are on stderr."""


async def ready_port(server: Server, line: re.Pattern[bytes]) -> int:
    """The port that a server prints when it is ready. One that does not get there is not left behind."""
    assert server.process is not None and server.process.stdout is not None
    try:
        told = await asyncio.wait_for(server.process.stdout.readline(), _READY_S)
        found = line.match(told)
        if found is None:
            raise NotReady(f"{server.name} did not start: {told.decode('utf-8', 'replace').strip() or 'it ended without a word'}")
        return int(found[1])
    except BaseException as error:
        await server.stop()
        if isinstance(error, TimeoutError):
            raise NotReady(f"{server.name} did not start in {_READY_S:g} s") from None
        raise


async def end(process: asyncio.subprocess.Process | None) -> None:
    """kill -9, and wait until it is gone."""
    if process is not None and process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
        await process.wait()


async def make_queues(
    port: int, count: int = 1, attributes: Mapping[str, str] | None = None, *, prefix: str = "queue", keys: Keys | None = None
) -> str:
    """Make queues PREFIX-0 … and return the URL of one, with `{}` for its number."""
    fifo = attributes is not None and attributes.get("FifoQueue") == "true"
    wire, tally, urls = Wire(port, keys), Tally(), {}
    numbers = iter(range(count))

    def script(connection: int, tally: Tally) -> Script:
        for number in numbers:
            name = f"{prefix}-{number}" + (".fifo" if fifo else "")
            answer = yield wire.ask("CreateQueue", QueueName=name, **({"Attributes": dict(attributes)} if attributes else {}))
            urls[number] = json.loads(answer).get("QueueUrl", "")

    await play(port, min(count, _MAKERS), script, tally)
    if tally.refused:
        raise NotReady(f"a queue was refused: {tally.refusal}")
    head, _, tail = str(urls[0]).rpartition(f"{prefix}-0")
    return f"{head}{prefix}-{{}}{tail}"


class Sqs:
    """The five verbs over a server, one connection for each worker."""

    def __init__(self, server: Server, *, wait_s: int = 0) -> None:
        self.name = f"sqs-{server.name}"
        self._server = server
        self._wait_s = wait_s
        self._tally = Tally()
        self._connections: list[Connection] = []

    async def open(self, queues: int, workers: int) -> str:
        version = await self._server.start()
        self._wire = Wire(self._server.port)
        self._url = await make_queues(self._server.port, queues)
        self._connections = await connect(self._server.port, workers, self._tally)
        return version

    async def _ask(self, worker: int, queue: int, action: str, **members: object) -> dict[str, list[dict[str, str]]]:
        request = self._wire.ask(action, QueueUrl=self._url.format(queue), **members)
        answer = json.loads(await self._connections[worker].ask(request) or b"{}")
        if self._tally.refused or answer.get("Failed"):
            raise RuntimeError(f"{action} was refused: {self._tally.refusal or answer}")
        return dict(answer)

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        # SQS delays by whole seconds; nobody here asks for others.
        delays = [-(-delay // 1000) for delay in delays_ms] if delays_ms is not None else [0] * len(bodies)
        entries = [
            {"Id": str(index), "MessageBody": b64encode(body).decode(), "DelaySeconds": delay}
            for index, (body, delay) in enumerate(zip(bodies, delays, strict=True))
        ]
        await self._ask(worker, queue, "SendMessageBatch", Entries=entries)
        return ()

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        answer = await self._ask(worker, queue, "ReceiveMessage", MaxNumberOfMessages=min(most, 10), WaitTimeSeconds=self._wait_s)
        return [Received(b64decode(one["Body"]), 0, one["ReceiptHandle"]) for one in answer.get("Messages", ())]

    async def complete(self, worker: int, queue: int, tokens: Sequence[str]) -> None:
        entries = [{"Id": str(index), "ReceiptHandle": token} for index, token in enumerate(tokens)]
        await self._ask(worker, queue, "DeleteMessageBatch", Entries=entries)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        await self._server.stop()
