"""The example runs, in one command, and its own comparison of what was sent and read holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.house import ROOT


@pytest.mark.slow
def test_the_example_reads_what_it_sends(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "spark" / "orders.py"), "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert "none lost and none twice" in done.stdout, done.stdout + done.stderr[-3000:]
