"""The driver killed with kill −9, JVM, workers and all, while `dovetail pipeline run archive` works: any reader of the folder sees every
message once."""

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

from tests.spark.house import ROOT, Node, bodies

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


@pytest.mark.soak
@pytest.mark.parametrize("how", ["parquet", "delta"])
def test_an_archive_whose_driver_is_killed_has_every_message_once(local_node: Node, tmp_path: Path, how: str) -> None:
    local_node.push("orders", bodies(0, MESSAGES))
    local_node.hang_up()
    target = tmp_path / "archive"
    chance = random.Random(how)
    for kill in range(KILLS):
        process = archive_of(local_node, target, how, "--every", "0s")
        batches = target / "_checkpoint-archive" / "commits"
        begun = time.monotonic()
        done = len(list(batches.glob("[0-9]*"))) if batches.exists() else 0
        while time.monotonic() - begun < 600 and len(list(batches.glob("[0-9]*")) if batches.exists() else []) < done + 2:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(chance.random() * 1.5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if (target / "_delta_log").exists() or how == "parquet":
            found = rows_of(target, how)
            assert len(found) == len(set(found)), f"doubled after kill {kill}"
    assert archive_of(local_node, target, how).wait(240) == 0
    assert sorted(map(int, rows_of(target, how))) == list(range(MESSAGES))
    assert local_node.tap("orders", "archive").next == MESSAGES + 1


@pytest.mark.soak
def test_an_executor_of_a_cluster_that_is_killed_costs_nothing(local_node: Node, tmp_path: Path) -> None:
    local_node.push("orders", bodies(0, MESSAGES))
    local_node.hang_up()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.spark.cluster", local_node.endpoint, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"killed": 1, "rows": MESSAGES, "sequences": MESSAGES}
    assert local_node.tap("orders", "t").next == MESSAGES + 1
