"""A node tells its clients which address to use, so that those on other hosts reach it where it is and not where they first heard of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.network.conftest import Host, Network

pytestmark = pytest.mark.slow

PORT = 9325
CLIENT = """
import asyncio, sys
import dovetail

async def main():
    async with dovetail.connect(sys.argv[1], timeout_s=120) as node:
        queue = await node.queue("orders")
        print("sent", (await queue.send(b"before")).sequence, flush=True)
        node._session.timeout_s = float(await asyncio.to_thread(sys.stdin.readline))
        print("sent", (await queue.send(b"after")).sequence, flush=True)
        got = await queue.receive(max=10)
        print(*(message.body.decode() for message in got), flush=True)
        print(await queue.complete([message.receipt for message in got]), flush=True)

asyncio.run(main())
"""


@contextmanager
def serving(host: Host, folder: Path, advertise: str) -> Iterator[None]:
    options = ["--store", f"local:{folder}", "--http", "off", "--native", f"0.0.0.0:{PORT}", "--auth", "any", "--advertise", advertise]
    command = host.command(sys.executable, "-m", "dovetail", "serve", *options, "--log-level", "error")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert re.match(r"dovetail ready .*native=dovetail://", process.stdout.readline())
        yield
    finally:
        process.terminate()
        assert process.wait(120) == 0


@contextmanager
def client(host: Host, url: str) -> Iterator[subprocess.Popen[str]]:
    command = host.command(sys.executable, "-c", CLIENT, url)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str], timeout_s: int) -> None:
    """From now on a call of the program takes at most so long."""
    assert process.stdin is not None
    process.stdin.write(f"{timeout_s}\n")
    process.stdin.flush()


def test_a_client_on_another_host_goes_on_at_the_address_that_it_was_told(network: Network, tmp_path: Path) -> None:
    """The address that it began with is gone when the node comes back; the one that the node advertises is there."""
    node, far = network.host("node", "10.77.0.1", "10.77.0.2"), network.host("far", "10.77.0.9")
    with client(far, f"dovetail://10.77.0.1:{PORT}") as program:
        with serving(node, tmp_path / "data", "10.77.0.2"):
            assert line(program) == "sent 1"
        node.lose("10.77.0.1")
        with serving(node, tmp_path / "data", "10.77.0.2"):
            go_on(program, 120)
            assert line(program) == "sent 2"
            assert line(program) == "before after"
            assert line(program) == "[True, True]"


def test_without_an_address_to_go_on_at_the_client_says_so(network: Network, tmp_path: Path) -> None:
    """The twin: what is advertised is the address that goes away."""
    node, far = network.host("node", "10.77.0.1", "10.77.0.2"), network.host("far", "10.77.0.9")
    with client(far, f"dovetail://10.77.0.1:{PORT}") as program:
        with serving(node, tmp_path / "data", "10.77.0.1"):
            assert line(program) == "sent 1"
        node.lose("10.77.0.1")
        with serving(node, tmp_path / "data", "10.77.0.1"):
            go_on(program, 3)
            assert line(program) == ""
            assert program.wait(120) != 0
