"""Documentation that cannot rot: the three blocks of the README's "Use it as SQS" and the examples beside it are run as they stand; only
the address is that of the test's node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clients.conftest import Start
from tests.clients.node import ROOT, Node

BIN = Path(sys.executable).parent
FINISH_S = 60


def section() -> str:
    match = re.search(r"\n## Use it as SQS\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def block(language: str, number: int, node: Node) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", section(), re.DOTALL)
    assert "127.0.0.1:9324" in found[number]
    return found[number].replace("127.0.0.1:9324", f"127.0.0.1:{node.port}")


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DOVETAIL_"))}
    return {**kept, "HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT / 'src'}"}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def own(start: Start) -> Node:
    """What the README asks for, apart from the port."""
    return start()


def test_there_are_three_blocks_and_each_is_run_below() -> None:
    assert re.findall(r"```(\w+)\n", section()) == ["python", "sh", "python"]


def test_the_block_with_boto3(own: Node, tmp_path: Path) -> None:
    assert run([sys.executable, "-c", block("python", 0, own)], tmp_path) == "two dozen eggs\n"


@pytest.mark.slow
def test_the_block_with_the_aws_cli(own: Node, tmp_path: Path) -> None:
    out = run(["sh", "-e", "-c", block("sh", 0, own)], tmp_path)
    assert f'"QueueUrl": "http://127.0.0.1:{own.port}/000000000000/orders"' in out and '"Body": "two dozen eggs"' in out


@pytest.mark.slow
def test_the_block_with_celery(own: Node, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("python", 1, own))
    assert "`celery -A shop worker`" in section() and '`pack.delay("two dozen eggs")`' in section()
    log = tmp_path / "worker.log"
    with log.open("wb") as file:
        # `solo` because a test's worker needs no children; everything else is as the README has it.
        command = [str(BIN / "celery"), "-A", "shop", "worker", "--pool", "solo"]
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stdout=file, stderr=file)
        try:
            run([sys.executable, "-c", 'from shop import pack; pack.delay("two dozen eggs")'], tmp_path)
            give_up = time.monotonic() + FINISH_S
            while "packed two dozen eggs" not in log.read_text():
                assert worker.poll() is None and time.monotonic() < give_up, log.read_text()
                time.sleep(0.05)
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.slow
def test_the_example_with_the_aws_cli(tmp_path: Path) -> None:
    """The other examples are run by tests/test_examples.py; this one is no Python."""
    out = run(["sh", str(ROOT / "examples" / "aws_cli.sh")], tmp_path)
    assert "/000000000000/orders" in out and '"ApproximateNumberOfMessages": "0"' in out


def test_an_example_takes_the_address_of_a_node_that_runs(own: Node, tmp_path: Path) -> None:
    out = run([sys.executable, str(ROOT / "examples" / "sqs_boto3.py"), own.url], tmp_path)
    assert out == "sent 5 failed 0\ndead letters [3]\nbills ['opened', 'paid', 'closed']\n"
