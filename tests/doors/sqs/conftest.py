"""The served door and its callers: one real server for the whole session, queues with fresh names for every test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config

import dovetail
from dovetail.clock import ManualClock
from dovetail.node import Node
from dovetail.settings import Settings
from tests.doors.sqs.callers import Caller, Desk
from tests.doors.sqs.voices import NAMES, RAW_NAMES, Voice, voices

_names = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of `dovetail serve` in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    command = [sys.executable, "-m", "dovetail", "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--native", "off"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.match(r"dovetail ready http=(http://\S+) ", line)
    assert match is not None, line
    yield match[1]
    process.terminate()
    process.wait(60)
    process.stdout.close()


@pytest.fixture(scope="session")
def client(server: str) -> Callable[..., Any]:
    """Makes boto3 clients of the served door: `client(key="111111111111", region="eu-west-1")`."""

    def make(key: str = "test", region: str = "us-east-1", **config: Any) -> Any:
        settings = Config(retries={"total_max_attempts": 1}, **config)
        return boto3.client(
            "sqs", endpoint_url=server, region_name=region, aws_access_key_id=key, aws_secret_access_key="test", config=settings
        )

    return make


@pytest.fixture(scope="session")
def sqs(client: Callable[..., Any]) -> Any:
    """A plain boto3 client."""
    return client()


@pytest.fixture(scope="session")
def caller(server: str) -> Iterator[Caller]:
    host, _, port = server.removeprefix("http://").partition(":")
    made = Caller(host, int(port))
    yield made
    made.close()


@pytest.fixture(scope="session")
def all_voices(caller: Caller, sqs: Any) -> dict[str, Voice]:
    made = voices(caller, sqs)
    assert tuple(made) == NAMES
    return made


@pytest.fixture(params=NAMES)
def voice(request: pytest.FixtureRequest, all_voices: dict[str, Voice]) -> Voice:
    """Every way to call, one after the other."""
    return all_voices[request.param]


@pytest.fixture(params=RAW_NAMES)
def raw_voice(request: pytest.FixtureRequest, all_voices: dict[str, Voice]) -> Voice:
    """Every way to call that lets wrong input through."""
    return all_voices[request.param]


@pytest.fixture
def name() -> str:
    """The name of a queue that nobody has used."""
    return f"queue-{next(_names)}"


@pytest.fixture
def fresh() -> Callable[[], str]:
    """As `name`, for tests that need several."""
    return lambda: f"queue-{next(_names)}"


@pytest.fixture
def queue(sqs: Any, name: str) -> str:
    """The URL of an empty standard queue."""
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url


@pytest.fixture
def fifo(sqs: Any, fresh: Callable[[], str]) -> str:
    """The URL of an empty FIFO queue that asks for deduplication ids."""
    url: str = sqs.create_queue(QueueName=f"{fresh()}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    return url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def node(clock: ManualClock) -> AsyncIterator[Node]:
    async with dovetail.open("memory:", clock=clock) as made:
        yield made


@pytest.fixture
async def desk(node: Node) -> Desk:
    """The door in this process, on a clock that the test moves."""
    return Desk(node.sqs_door(Settings()))
