"""Documentation that cannot rot: every example runs, and so does the block of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
