"""`dovetail lab`: the outside face that scripts rely on. What the scenarios measure is tested where they are."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from dovetail.cli import main
from dovetail.lab import bench
from dovetail.lab.report import Result
from dovetail.lab.scenario import SCENARIOS, Bar, Figures, Lab, Scenario


async def nothing(lab: Lab) -> Figures:
    return {}


def result(figures: Mapping[str, float], quick: bool) -> Result:
    return Result(Scenario("toy", "a toy", [Bar("speed", "speed", least=10.0)], nothing), dict(figures), {"peer": "1.0"}, quick)


def test_list_names_every_scenario_and_needs_neither_arrow_nor_redis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert main(["lab", "list", "--names"]) == 0
    assert capsys.readouterr().out.split() == list(SCENARIOS)


def test_the_last_line_with_json_is_one_object_of_the_fixed_shape(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "run", lambda name, *, quick: result({"speed": 12}, quick))
    assert main(["lab", "run", "toy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told) == {"scenario", "figures", "bars", "peers"}
    assert told["bars"] == [{"name": "speed", "value": 12.0, "bar": 10.0, "ok": True}] and told["peers"] == {"peer": "1.0"}


@pytest.mark.parametrize(("speed", "quick", "code"), [(12, False, 0), (8, False, 1), (8, True, 0)])
def test_a_missed_bar_fails_a_full_run_and_not_a_rehearsal(monkeypatch: pytest.MonkeyPatch, speed: int, quick: bool, code: int) -> None:
    monkeypatch.setattr(bench, "run", lambda name, *, quick: result({"speed": speed}, quick))
    assert main(["lab", "run", "toy", *(["--quick"] if quick else [])]) == code


def test_an_unknown_scenario_is_one_line_that_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "nonsense"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("dovetail: there is no scenario 'nonsense'; there are ") and err.count("\n") == 1


def test_without_the_extra_the_lab_says_what_to_install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *, quick: bool) -> Result:
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr(bench, "run", missing)
    assert main(["lab", "run", "toy"]) == 2
    assert "pip install 'dovetail[lab]'" in capsys.readouterr().err
