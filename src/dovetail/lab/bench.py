"""Running one scenario: a folder that goes away, the facts of the machine, then the scenario itself."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import uvloop

from . import machine
from .report import Result
from .scenario import Lab, find

FOLDER_ENVIRONMENT = "DOVETAIL_LAB_DIR"
"""Where the files of a run lie (the disk that is measured); the system's folder for temporary files unless it is set."""


def run(name: str, *, quick: bool = False) -> Result:
    scenario = find(name)
    with tempfile.TemporaryDirectory(prefix=f"dovetail-{name}-", dir=os.environ.get(FOLDER_ENVIRONMENT)) as folder:
        lab = Lab(Path(folder), quick)
        facts = machine.facts(lab.folder)
        lab.say(f"{name}: {facts['cores']} cores, bare fdatasync {facts['fdatasync_p50_us']} µs")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(scenario.run(lab))
    return Result(scenario, {"quick": quick, "machine": facts, **figures}, lab.peers, quick)
