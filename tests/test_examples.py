"""Documentation that cannot rot: every example runs, and so does the block of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dovetail

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
