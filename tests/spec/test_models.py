"""spec/: what must hold holds, what must be reached is reached, and without each safeguard the invariant that misses it breaks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SPEC = Path(__file__).parents[2] / "spec"


def _checker() -> Any:
    """spec/check.py: the folder is no package, so that it can be read, and run, for itself."""
    found = importlib.util.spec_from_file_location("spec_check", SPEC / "check.py")
    assert found is not None and found.loader is not None
    made = importlib.util.module_from_spec(found)
    sys.modules["spec_check"] = made
    found.loader.exec_module(made)
    return made


check = _checker()


def judge(verdicts: Iterable[Any]) -> int:
    """Every run says what it must, and something was looked at."""
    seen = 0
    for verdict in verdicts:
        assert verdict.broken == verdict.run.breaks, f"{verdict.run.name}: {verdict.broken} broke\n{verdict.output[-6000:]}"
        assert verdict.distinct > 1, verdict.run.name
        seen += 1
    return seen


@pytest.mark.slow
def test_the_models_hold_and_each_safeguard_is_missed_when_it_is_left_out() -> None:
    """All in one test: two JVMs at a time share the machine."""
    chosen = check.runs()
    assert judge(check.check_all(chosen)) == len(chosen)


@pytest.mark.soak
def test_the_models_hold_with_more_messages_entries_and_nodes() -> None:
    """Without the ablations: what breaks in few steps breaks in many."""
    chosen = [run for run in check.runs(soak=True) if run.breaks is None]
    assert judge(check.check_all(chosen, options=())) == len(chosen)


def test_every_safeguard_of_a_module_is_left_out_once() -> None:
    """`Keeps("…")` and models.toml name the same safeguards, so that none is written down and never missed."""
    runs = [run for run in check.runs() if run.constants["Without"] != "nothing"]
    named = {run.constants["Without"] for run in runs}
    kept = {name for file in SPEC.glob("*.tla") for name in _safeguards(file.read_text(encoding="utf-8"))}
    assert named == kept
    told = (SPEC / "README.md").read_text(encoding="utf-8")
    assert {name for name in named if name not in told} == set()
    assert {run.breaks for run in runs if run.breaks not in told} == set()


def _safeguards(text: str) -> list[str]:
    return [part.split('")')[0] for part in text.split('Keeps("')[1:]]
