"""The same log gives the same deliveries on any machine and any hash seed, to the byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from dovetail.core import snapshot
from dovetail.core.state import State
from tests.core.generator import Generator
from tests.core.world import Disagreement, plain

ROOT = Path(__file__).parents[2]


def digest() -> str:
    """Of every outcome, every hand-out and the last snapshot of a few random logs."""
    made = hashlib.sha256()
    for seed in range(4):
        generator = Generator(seed, shared=seed >= 2, beyond=seed % 2 == 1)
        try:
            generator.run(120)
        except Disagreement:
            generator.entries.pop()  # Whether the answers are right is asked in test_agreement.py.
        state, position = State(), 0
        for entry in generator.entries:
            addresses = [position + 16 * (index + 1) for index in range(len(entry.operations))]
            position += 16 * (len(addresses) + 1)
            applied = state.apply(position, entry.head, entry.operations, addresses, entry.log_stamp)
            made.update(repr([plain(outcome) for outcome in (*applied.outcomes, *applied.handouts)]).encode())
        made.update(b"".join(snapshot.dump(state)))
    return made.hexdigest()


def test_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    wanted = digest()
    for hash_seed in ("0", "1", "4242"):
        paths = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        command = [sys.executable, "-c", "from tests.core.test_determinism import digest; print(digest())"]
        run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        assert run.stdout.strip() == wanted
