"""Real nodes, broken on purpose while clients work, judged by what the clients saw. Figures: `dovetail lab faults run NAME`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail.lab.driver import PeerMissing
from dovetail.lab.faults.judge import Report
from dovetail.lab.faults.plan import Kill, Plan
from dovetail.lab.faults.plans import PLANS
from dovetail.lab.faults.run import STORES, able, run
from tests.lab.peers import needed

DURABLE = [store for store in STORES if store != "memory"]
SOAKED = [(store, name) for store in DURABLE for name, plan in PLANS.items() if able(plan, store)]


def broken(plan: Plan, folder: Path, store: str, seconds: float, seed: int = 1) -> Report:
    try:
        return asyncio.run(run(plan, folder, seconds=seconds, store=store, seed=seed))
    except PeerMissing as why:
        needed(False, str(why))
        raise


@pytest.mark.slow
@pytest.mark.parametrize(("store", "name"), [("local", "kill"), ("local", "pause"), ("nats", "everything")])
def test_every_promise_holds_while_nodes_die_and_sleep_and_wires_break(tmp_path: Path, name: str, store: str) -> None:
    report = broken(PLANS[name], tmp_path, store, 20)
    assert report.held, report.text()


@pytest.mark.soak
@pytest.mark.parametrize(("store", "name"), SOAKED)
def test_every_plan_for_a_minute(tmp_path: Path, name: str, store: str) -> None:
    report = broken(PLANS[name], tmp_path, store, 60)
    assert report.held, report.text()


@pytest.mark.slow
def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    """The twin of the durable log: a node that keeps its messages in memory, killed once."""
    report = broken(Plan("kill", "durability", ((Kill("node", 0.1),),), every_s=4), tmp_path, "memory", 6)
    assert not report.held
    words = {verdict.promise: "\n".join(verdict.broken) for verdict in report.verdicts}
    assert "acknowledged messages lost" in words["nothing acknowledged is lost"] or "two messages" in words["a send is stored once"]


@pytest.mark.slow
def test_a_run_in_which_nothing_breaks_is_no_evidence(tmp_path: Path) -> None:
    report = broken(PLANS["kill"], tmp_path, "local", 1)
    assert "nothing was broken" in report.too_little and not report.held
