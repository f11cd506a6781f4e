"""Plans are data: written, read, and turned into the same events by the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.errors import BadRequest
from dovetail.lab.faults.command import find, listed
from dovetail.lab.faults.plan import Event, Kill, Pause, Plan, from_json, timeline
from dovetail.lab.faults.plans import PLANS
from dovetail.lab.faults.run import STORES, able

COUNTS = {"node": 3, "wire": 3, "broker": 3}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was_written(name: str) -> None:
    assert from_json(PLANS[name].json()) == PLANS[name]


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_names_what_it_attacks_pauses_now_and_then_and_can_be_run_somewhere(name: str) -> None:
    plan = PLANS[name]
    assert len(plan.attacks) > 20 and () in plan.rounds
    assert any(able(plan, store) for store in STORES)
    assert any(line.startswith(name) for line in listed())


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"name": "x", "attacks": "y", "rounds": [[]]}',
        '{"name": "x", "attacks": "y", "rounds": [[{"do": "explode", "what": "node", "for_s": 1}]]}',
        '{"name": "x", "attacks": "y", "rounds": [[{"do": "kill", "what": "moon", "for_s": 1}]]}',
        '{"name": "x", "attacks": "y", "rounds": [[{"do": "kill", "what": "node", "for_s": 0}]]}',
        '{"name": "x", "attacks": "y", "every_s": 0, "rounds": [[{"do": "kill", "what": "node", "for_s": 1}]]}',
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        from_json(text)


def test_a_plan_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(PLANS["kill"].json())
    assert find(str(path)) == PLANS["kill"] == find("kill")
    for wrong in ("nothing", str(tmp_path / "none.json")):
        with pytest.raises(BadRequest):
            find(wrong)
    assert json.loads(PLANS["kill"].json())["rounds"][0][0] == {"do": "kill", "what": "node", "for_s": 0.2, "which": "one"}


def overlaps(one: Event, other: Event) -> bool:
    same = one.action.what == other.action.what and set(one.numbers) & set(other.numbers)
    return bool(same) and one.at_s < other.at_s + other.action.for_s and other.at_s < one.at_s + one.action.for_s


@pytest.mark.parametrize("name", PLANS)
def test_the_same_seed_breaks_the_same_things_at_the_same_time_and_nobody_twice_at_once(name: str) -> None:
    for seed in range(50):
        events = timeline(PLANS[name], 30, seed, COUNTS)
        assert events == timeline(PLANS[name], 30, seed, COUNTS)
        assert events and all(event.at_s > 0 and event.at_s + event.action.for_s <= 30 for event in events)
        assert not any(overlaps(one, other) for at, one in enumerate(events) for other in events[:at])
    assert len({str(timeline(PLANS[name], 30, seed, COUNTS)) for seed in range(50)}) > 40


def test_a_minority_is_less_than_half_and_a_majority_more() -> None:
    plan = Plan("p", "x", ((Kill("node", 1, "minority"),), (Pause("node", 1, "majority"),), (Pause("node", 1, "all"),)))
    sizes = {(event.action.do, event.action.which, len(event.numbers)) for event in timeline(plan, 60, 1, {"node": 5})}
    assert sizes == {("kill", "minority", 2), ("pause", "majority", 3), ("pause", "all", 5)}
    assert timeline(plan, 60, 1, {"node": 0}) == []
