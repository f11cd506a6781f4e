"""Real crashes of a node whose messages come from a sink's stages and go to a job's reservation and to a competitor: kill -9, again and
again, against a ledger kept outside of it (test_kills.py does the same for everything else).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import dovetail
from tests.crash.ledger import LawBroken
from tests.crash.stage_ledger import SINK, StageLedger
from tests.crash.test_kills import life
from tests.crash.worker import SETTINGS

WORKER = Path(__file__).with_name("stage_worker.py")
JOB = "job"


async def look(folder: Path, ledger: StageLedger) -> None:
    async with dovetail.open(f"local:{folder}", settings=SETTINGS) as node:
        queue = await node.queue(SINK)
        keys, after = [], 0
        while page := await queue.peek(max=100_000, after=after):
            keys += [one.body.partition(b"|")[0].decode() for one in page]
            after = page[-1].sequence
        ledger.judge({SINK: keys})
        known = {one.name: one for one in queue.lane.reservations()}
        for batch in known[JOB].batches if JOB in known else ():
            runs = queue.lane.reserved(JOB, batch)
            held = [one.body.partition(b"|")[0].decode() for run in runs for one in queue.lane.deliveries_of(run)]
            if ledger.batches.get(batch, held) != held:
                raise LawBroken(f"batch {batch} was {ledger.batches[batch]} and is {held}")


def rounds(folder: Path, count: int, first_seed: int) -> StageLedger:
    ledger, chance = StageLedger(), random.Random(first_seed)
    for seed in range(first_seed, first_seed + count):
        try:
            life(folder, seed, ledger, chance, WORKER, ledger.doubt())
            asyncio.run(look(folder, ledger))
        except Exception as broken:
            broken.add_note(f"in round {seed - first_seed} of the rounds that begin with seed {first_seed}")
            raise
    return ledger


@pytest.mark.slow
def test_what_was_published_and_what_was_reserved_holds_through_six_kills(tmp_path: Path) -> None:
    ledger = rounds(tmp_path / "data", 6, 3000)
    assert ledger.published > 50 and ledger.settled > 20 and len(ledger.left) > 200, "lives in which little happened prove little"


@pytest.mark.soak
def test_what_was_published_and_what_was_reserved_holds_through_a_hundred_kills(tmp_path: Path) -> None:
    count = int(os.environ.get("DOVETAIL_CRASH_ROUNDS", "100"))
    for start in range(0, count, 20):
        rounds(tmp_path / str(start), min(20, count - start), random.SystemRandom().randrange(1, 900_000))
