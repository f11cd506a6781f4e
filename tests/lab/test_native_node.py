"""The same loads on a real node: what they send they find, on the disk or in memory, through the raw client and through the client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.lab.clientload import ClientLoad
from dovetail.lab.drivers.native import NativeNode
from dovetail.lab.nativeload import APART, CYCLE, DISK, PUSH, SEND, TAKE, Load
from dovetail.lab.nativewire import Line

pytestmark = pytest.mark.slow


@pytest.fixture(params=["local", "memory"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NativeNode]:
    made = NativeNode(tmp_path / "files" if request.param == "local" else None)
    assert await made.start()
    try:
        yield made
    finally:
        await made.stop()
    assert made.pid == 0 and os.listdir(tmp_path) == []


def left(port: int, queue: str) -> tuple[int, int]:
    """(waiting, leased)"""
    line = Line(port)
    counted = line.counts(line.declare(queue))
    line.close()
    return counted.visible, counted.leased


async def test_raw_loads_find_what_they_sent_and_leave_nothing(node: NativeNode, tmp_path: Path) -> None:
    one = Load(node.port, SEND, 60, connections=3, pid=node.pid)
    sent = await one.played()
    assert left(node.port, "queue") == (60, 0)
    assert (sent["messages"], sent["durability"] == DISK) == (60, (tmp_path / "files").exists())
    assert (await one.playing(TAKE).played())["messages"] == 60 and left(node.port, "queue") == (0, 0)
    await one.played()
    assert (await one.playing(APART).played())["messages"] == 60 and left(node.port, "queue") == (0, 0)


@pytest.mark.parametrize("size", [1, 100, 5_000])
async def test_frames_go_round_and_leave_nothing(node: NativeNode, size: int) -> None:
    load = Load(node.port, CYCLE, 2_000, connections=2, batch=50, under_way=4, size=size, queue="queue-{}")
    assert (await load.played())["messages"] == 2_000
    assert left(node.port, "queue-0") == left(node.port, "queue-1") == (0, 0)
    assert (await load.playing(PUSH).played())["messages"] == 2_000
    assert left(node.port, "queue-0") == left(node.port, "queue-1") == (1_000, 0)


@pytest.mark.parametrize("batch", [1, 20])
async def test_tasks_that_share_a_client_complete_what_they_sent(node: NativeNode, batch: int) -> None:
    made = await ClientLoad(node.port, 800, 10, batch, connections=2).played()
    assert made["messages"] == 800 and left(node.port, "client-0") == left(node.port, "client-1") == (0, 0)
