"""The driver killed with kill −9, JVM, workers and all, while `dovetail pipeline run archive` works, and on a small cluster: any reader of
the folder sees every message once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.spark.house import MODES, ROOT, Node, bodies

MESSAGES = 200_000
KILLS = 4


def archive_of(node: Node, target: Path, how: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dovetail", "pipeline", "run", "archive", "--endpoint", node.endpoint, "--queue", "orders"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
    return subprocess.Popen(
        [*command, "--target", str(target), "--rows", "10000", "--format", how, *more],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def rows_of(target: Path, how: str) -> list[bytes]:
    if how == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(target).to_pyarrow_table()["body"].to_pylist())
    return list(ds.dataset(target, partitioning="hive").to_table()["body"].to_pylist())


def commits(checkpoint: Path) -> int:
    return len(list((checkpoint / "commits").glob("[0-9]*"))) if checkpoint.exists() else 0


def wait_for(checkpoint: Path, more: int, process: subprocess.Popen[bytes]) -> None:
    """Until so many more batches are done, however long they take."""
    begun, done = time.monotonic(), commits(checkpoint)
    while time.monotonic() - begun < 600 and commits(checkpoint) < done + more:
        assert process.poll() is None
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM, workers and executors."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.soak
@pytest.mark.parametrize("how", ["parquet", "delta"])
def test_an_archive_whose_driver_is_killed_has_every_message_once(local_node: Node, tmp_path: Path, how: str) -> None:
    local_node.push("orders", bodies(0, MESSAGES))
    local_node.hang_up()
    target = tmp_path / "archive"
    chance = random.Random(how)
    for number in range(KILLS):
        process = archive_of(local_node, target, how, "--every", "0s")
        wait_for(target / "_checkpoint-archive", 2, process)
        time.sleep(chance.random() * 1.5)
        kill(process)
        if (target / "_delta_log").exists() or how == "parquet":
            found = rows_of(target, how)
            assert len(found) == len(set(found)), f"doubled after kill {number}"
    assert archive_of(local_node, target, how).wait(900) == 0
    assert sorted(map(int, rows_of(target, how))) == list(range(MESSAGES))
    assert local_node.tap("orders", "archive").next == MESSAGES + 1


@pytest.mark.soak
@pytest.mark.parametrize("how", ["parquet", "delta"])
def test_beside_a_consumer_each_message_is_with_one_of_them_though_driver_and_node_are_killed(
    local_node: Node, tmp_path: Path, how: str
) -> None:
    local_node.push("orders", bodies(0, MESSAGES))
    target, others = tmp_path / "archive", list[bytes]()
    chance = random.Random(how)
    reserve = ("--mode", "reserve", "--reservation", "job")
    for _ in range(2):
        local_node.hang_up()
        process = archive_of(local_node, target, how, "--every", "0s", *reserve)
        wait_for(target / "_checkpoint-job", 1, process)
        local_node.kill()
        local_node.start()
        others += local_node.receive("orders", 2000)
        wait_for(target / "_checkpoint-job", 1, process)
        time.sleep(chance.random() * 1.5)
        kill(process)
        others += local_node.receive("orders", 1000)
    assert archive_of(local_node, target, how, *reserve).wait(900) == 0
    local_node.hang_up()
    assert others, "there was somebody beside it"
    assert sorted(map(int, rows_of(target, how) + others)) == list(range(MESSAGES))
    counts = local_node.counts("orders")
    assert (counts.visible, counts.leased, counts.reserved) == (0, 0, 0)


def cluster_of(node: Node, folder: Path, mode: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.spark.cluster", node.endpoint, str(folder), json.dumps(MODES[mode])]
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_the_driver_of_a_cluster_that_is_killed_and_then_an_executor_cost_nothing(local_node: Node, tmp_path: Path, mode: str) -> None:
    local_node.push("orders", bodies(0, MESSAGES))
    local_node.hang_up()
    process = cluster_of(local_node, tmp_path, mode)
    wait_for(tmp_path / "checkpoint", 2, process)
    kill(process)
    process = cluster_of(local_node, tmp_path, mode)
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1]) == {"killed": 1, "rows": MESSAGES, "sequences": MESSAGES}
    if mode == "tap":
        assert local_node.tap("orders", "t").next == MESSAGES + 1
    else:
        assert (local_node.counts("orders").visible, local_node.counts("orders").reserved) == (0, 0)
