"""The examples run, each in one command, and their own comparisons of what was sent and what came of it hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.house import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "arguments", "said"), [("orders.py", ["3"], "none lost and none twice"), ("devices.py", ["200", "6"], "none dropped")]
)
def test_the_examples_end_with_what_was_sent(tmp_path: Path, example: str, arguments: list[str], said: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "spark" / example), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert said in done.stdout, done.stdout + done.stderr[-3000:]
