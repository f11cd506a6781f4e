"""Spark's executors on another host than the node and the driver: they reach the node at the address that it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.network.conftest import Host, Network
from tests.network.test_addresses import PORT, serving
from tests.spark.house import MODES, ROOT

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'dovetail[spark]'")
pytestmark = pytest.mark.soak

NEAR, FAR = "10.77.0.1", "10.77.0.3"
MASTER = f"spark://{NEAR}:7077"
SEND = f"""
import dovetail
with dovetail.blocking.connect("dovetail://127.0.0.1:{PORT}") as node:
    node.queue("orders").send_many([b"%d" % n for n in range(5000)])
"""


def environment(host: str) -> dict[str, str]:
    home = str(Path(pyspark.__file__).parent)
    return {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }


@contextmanager
def part(host: Host, address: str, *arguments: str) -> Iterator[None]:
    """A master or a worker, until the block ends."""
    command = host.command(str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment(address), start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


@pytest.mark.parametrize("mode", MODES)
def test_executors_on_another_host_read_from_the_address_that_the_node_names(network: Network, tmp_path: Path, mode: str) -> None:
    """The driver is beside the node and knows it as 127.0.0.1, which to an executor is itself."""
    near, far = network.host("near", NEAR), network.host("far", FAR)
    master = ("org.apache.spark.deploy.master.Master", "--host", NEAR, "--port", "7077", "--webui-port", "0")
    worker = ("org.apache.spark.deploy.worker.Worker", "--host", FAR, "--cores", "2", "--memory", "1g", "--webui-port", "0", "--work-dir")
    with serving(near, tmp_path / "data", NEAR), part(near, NEAR, *master), part(far, FAR, *worker, str(tmp_path / "work"), MASTER):
        subprocess.run(near.command(sys.executable, "-c", SEND), check=True, env=environment(NEAR))
        said = [MASTER, NEAR, f"dovetail://127.0.0.1:{PORT}", str(tmp_path / "checkpoint"), json.dumps(MODES[mode])]
        command = near.command(sys.executable, "-m", "tests.network.far", *said)
        done = subprocess.run(command, env=environment(NEAR), cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"sequences": list(range(1, 5001)), "elsewhere": True}
