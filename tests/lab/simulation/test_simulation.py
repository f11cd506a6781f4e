"""Nodes on a shared log, simulated: what a seed does is the same for ever, promises hold, and without their safeguards they do not.

A seed that fails is replayed with `python -m dovetail.lab.simulation.run SEED [liveness]` and becomes a named test here.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dovetail.core import crossing, settling
from dovetail.core import state as core_state
from dovetail.core.moves import Arrive
from dovetail.core.outcome import Fate
from dovetail.core.state import State
from dovetail.core.writers import Writers
from dovetail.lab.simulation.run import Options, Outcome, run
from dovetail.stores.namespace import carrier
from tests.core.test_agreement import _without_the_fence

ROOT = Path(__file__).parent.parent.parent.parent
SEEDS, PART = 300, 30
LOGS_SEEDS = 16
SOAKED = int(os.environ.get("DOVETAIL_SIM_SEEDS", "100000"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nodes say when they are cut off, and here they are."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def options_of(seed: int) -> Options:
    """One in four ends with a node that stays broken for ever."""
    return Options(seed, liveness=seed % 4 == 0)


def judged(seeds: range) -> tuple[int, list[str]]:
    """(how many of them count, what those that failed say)"""
    logging.disable(logging.CRITICAL)
    outcomes = [run(options_of(seed)) for seed in seeds]
    return sum(outcome.counts for outcome in outcomes), [outcome.text() for outcome in outcomes if not outcome.held]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, SEEDS, PART))
def test_promises_hold_whatever_happens_to_nodes_and_their_log(start: int) -> None:
    counting, failed = judged(range(start, start + PART))
    assert not failed, "\n".join(failed)
    assert counting >= 0.9 * PART, "seeds in which little happens prove little"


@pytest.mark.slow
def test_promises_hold_over_several_logs_with_dead_letters_that_move() -> None:
    """Queues lie in three logs, so each dead letter is a move; nodes are killed and cut off in the middle of it."""
    outcomes = [run(Options(seed, liveness=seed % 4 == 0, logs=3)) for seed in range(LOGS_SEEDS)]
    failed = [outcome.text() for outcome in outcomes if not outcome.held]
    assert not failed, "\n".join(failed)
    assert sum(outcome.counts for outcome in outcomes) >= 0.9 * LOGS_SEEDS
    letters = [verdict.figures["dead letters"] for outcome in outcomes for verdict in outcome.verdicts if "dead letters" in verdict.figures]
    assert sum(letters) > LOGS_SEEDS, "too few messages moved to prove anything"


@pytest.mark.slow
def test_without_the_judgements_a_dead_letter_is_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of moves: the target stores whatever arrives, and a carrier that died had said it before."""
    arrive = crossing.arrive

    def forgetful(log: State, o: Any, address: int) -> Any:
        known = log.arrivals.get((o.source, o.push.queues[0]))
        if known is not None:
            known.judged.pop(o.number, None)
            known.low = 0
        return arrive(log, o, address)

    monkeypatch.setitem(core_state._HANDLERS, Arrive, forgetful)
    monkeypatch.setattr(carrier, "PATIENCE_MS", 0)
    assert any(not run(Options(seed, logs=3)).held for seed in range(LOGS_SEEDS))


@pytest.mark.soak
def test_promises_hold_over_several_logs_for_many_seeds() -> None:
    for start in range(LOGS_SEEDS, LOGS_SEEDS + 2000, 100):
        failed = [outcome.text() for seed in range(start, start + 100) if not (outcome := run(Options(seed, logs=3))).held]
        assert not failed, "\n".join(failed)


@pytest.mark.soak
def test_promises_hold_for_very_many_seeds() -> None:
    """DOVETAIL_SIM_SEEDS says how many; they begin where `make test` ends."""
    parts = [range(start, min(start + 250, SEEDS + SOAKED)) for start in range(SEEDS, SEEDS + SOAKED, 250)]
    with ProcessPoolExecutor() as pool:
        answers = list(pool.map(judged, parts))
    failed = [text for _, texts in answers for text in texts]
    assert not failed, "\n".join(failed[:5])
    assert sum(counting for counting, _ in answers) >= 0.9 * SOAKED


@pytest.mark.parametrize(
    ("seed", "liveness"),
    [
        pytest.param(1042, False, id="what-a-node-counts-may-be-a-second-old"),
        pytest.param(1133, False, id="a-node-that-was-away-until-the-log-was-trimmed"),
    ],
)
def test_seeds_that_failed_once(seed: int, liveness: bool) -> None:
    outcome = run(Options(seed, liveness=liveness, seconds=8))
    assert outcome.held, outcome.text()


def test_a_seed_gives_the_same_run_to_the_byte_and_another_seed_another() -> None:
    first, again, other = run(Options(7)), run(Options(7)), run(Options(8))
    assert first.trace == again.trace != other.trace
    assert first.steps == again.steps


@pytest.mark.slow
def test_a_seed_gives_the_same_run_whatever_the_seed_of_hashes() -> None:
    def trace(hashes: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "dovetail.lab.simulation.run", "11"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0].rpartition("trace ")[2]

    assert trace("1") == trace("2") == run(Options(11)).trace


# Twins: without a safeguard some checker says so, within so many seeds


def first_failure(within: int, **more: object) -> Outcome:
    for seed in range(within):
        outcome = run(Options(seed, **more))  # type: ignore[arg-type]  # options by name
        if not outcome.held:
            return outcome
    raise AssertionError(f"in {within} seeds nobody noticed")


def broken(outcome: Outcome) -> set[str]:
    return {verdict.promise for verdict in outcome.verdicts if not verdict.held}


def test_sends_that_are_said_again_without_their_numbers_are_stored_twice() -> None:
    assert "a send is stored once" in broken(first_failure(10, sends="again"))


def test_without_the_numbers_of_entries_an_append_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(self: Writers, identity: bytes, number: int) -> Fate:
        writer = self.by_id.get(identity)
        if writer is None:
            return Fate.VOID
        writer.last = max(writer.last, number)
        return Fate.TAKEN

    monkeypatch.setattr(Writers, "judge", judge)
    assert "a send is stored once" in broken(first_failure(10, sends="once"))


@pytest.mark.slow
def test_without_the_fence_an_old_receipt_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_delivered", _without_the_fence)
    assert "one receiver at a time, and old receipts change nothing" in broken(first_failure(100))
