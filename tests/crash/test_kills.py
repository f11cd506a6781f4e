"""Real crashes: a node under load is killed with -9 at random moments, again and again, against a ledger kept outside of it.

DOVETAIL_CRASH_ROUNDS=500 looks longer; a failing seed is named. After a power failure more can be lost than after a kill: that is what
the simulated disk is for (test_simulated.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import dovetail
from dovetail.core.receipts import unseal
from tests.crash.ledger import Ledger
from tests.crash.worker import SETTINGS

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parent.parent.parent


def life(folder: Path, seed: int, ledger: Ledger, chance: random.Random, worker: Path = WORKER, doubt: object = None) -> None:
    """One life of the node. One in five is killed while it still recovers."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, str(worker), str(folder), str(seed), json.dumps(ledger.resend() if doubt is None else doubt)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    ready = threading.Event()
    lines: list[bytes] = []
    assert process.stdout is not None and process.stderr is not None

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            ready.set()
        ready.set()

    listener = threading.Thread(target=listen)
    listener.start()
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0.1, 0.5))
    else:
        ready.wait(60)
        time.sleep(chance.uniform(0.05, 1.2))
    alive = process.poll() is None
    process.kill()
    listener.join()
    errors = process.stderr.read().decode()
    process.stderr.close()
    process.stdout.close()
    process.wait()
    assert alive, f"the node stopped by itself:\n{errors}"
    for line in lines:
        if line.endswith(b"\n"):
            ledger.hear(*json.loads(line))


async def look(folder: Path, ledger: Ledger) -> None:
    async with dovetail.open(f"local:{folder}", settings=SETTINGS) as node:
        found = {}
        for name in await node.queues():
            queue = await node.queue(name)
            found[name], after = [], 0
            while page := await queue.peek(max=100_000, after=after):
                found[name] += [one.body.partition(b"|")[0].decode() for one in page]
                after = page[-1].sequence
        ledger.judge(found)
        before = {name: await (await node.queue(name)).counts() for name in found}
        for key, receipt in list(ledger.dead.items())[-200:]:
            queue = await node.queue(ledger.asked[key])
            assert unseal(node.store.state.key, receipt)
            assert await queue.complete([receipt]) == [False], f"the dead receipt of {key} was honoured"
        after = {name: await (await node.queue(name)).counts() for name in found}
        assert [(c.leased, c.pushed) for c in after.values()] == [(c.leased, c.pushed) for c in before.values()]


def rounds(folder: Path, count: int, first_seed: int) -> Ledger:
    ledger = Ledger()
    chance = random.Random(first_seed)
    for seed in range(first_seed, first_seed + count):
        try:
            life(folder, seed, ledger, chance)
            asyncio.run(look(folder, ledger))
        except Exception as broken:
            broken.add_note(f"in round {seed - first_seed} of the rounds that begin with seed {first_seed}")
            raise
    return ledger


@pytest.mark.slow
def test_no_acknowledged_message_is_lost_doubled_or_back_through_ten_kills(tmp_path: Path) -> None:
    ledger = rounds(tmp_path / "data", 10, 1000)
    assert len(ledger.acked) > 2000 and len(ledger.left) > 500, "lives in which little was acknowledged prove little"
    assert ledger.counts["both"] > 20 and ledger.counts["number?"] > 20 and ledger.counts["back"] > 20


@pytest.mark.soak
def test_no_acknowledged_message_is_lost_doubled_or_back_through_a_hundred_kills(tmp_path: Path) -> None:
    count = int(os.environ.get("DOVETAIL_CRASH_ROUNDS", "100"))
    for start in range(0, count, 20):
        rounds(tmp_path / str(start), min(20, count - start), random.SystemRandom().randrange(1, 900_000))
