"""The outside face of the lab: the list, the JSON that scripts rely on, and that every scenario runs in its small version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.errors import BadRequest
from dovetail.lab import child, machine, sparkkafka
from dovetail.lab.drivers import elasticmq, memcached, rabbitmq
from dovetail.lab.engines import nats
from dovetail.lab.report import Result
from dovetail.lab.scenario import SCENARIOS, Bar, Figures, Lab, Scenario, find

RUN_S = 600
"""A machine that is shared is slow, and Spark needs a minute on one that is not quick."""


async def nothing(_: Lab) -> Figures:
    return {}


BARS = [Bar("few", "few", most=3), Bar("many", "table.many", least=10), Bar("absent", "table.none", most=1)]
MADE = Scenario("made-up", "a doc", BARS, nothing)


def test_the_list_names_every_scenario_and_each_can_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--names"]) == 0
    assert capsys.readouterr().out.split() == list(SCENARIOS)
    assert main(["lab", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SCENARIOS)
    for name, doc in SCENARIOS.items():
        scenario = find(name)
        assert (scenario.name, scenario.doc) == (name, doc) and scenario.bars


def test_an_unknown_scenario_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadRequest):
        find("lane-cots")
    assert main(["lab", "run", "lane-cots"]) == 2
    assert capsys.readouterr().err.startswith("dovetail: there is no scenario 'lane-cots'; there are lane-cost, ")


def test_listing_needs_neither_arrow_nor_redis() -> None:
    code = (
        "import sys; from dovetail.cli import main; main(['lab', 'list']); print('pyarrow' in sys.modules, 'dovetail.node' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.splitlines()[-1].split()[0] == "False"


def test_the_json_has_exactly_what_scripts_rely_on() -> None:
    result = Result(MADE, {"few": 2.00001, "table": {"many": 9}}, {"redis": "7.0"}, False)
    assert json.loads(result.json()) == {
        "scenario": "made-up",
        "figures": {"few": 2.0, "table": {"many": 9}},
        "bars": [
            {"name": "few", "value": 2.0, "bar": 3, "ok": True},
            {"name": "many", "value": 9.0, "bar": 10, "ok": False},
            {"name": "absent", "value": None, "bar": 1, "ok": False},
        ],
        "peers": {"redis": "7.0"},
    }
    assert "\n" not in result.json()


def test_bars_of_a_quick_run_are_reported_and_marked() -> None:
    result = Result(MADE, {"few": 9, "table": {"many": 10}}, {}, True)
    assert [(bar["name"], bar["ok"]) for bar in result.bars()] == [
        ("few (quick)", False),
        ("many (quick)", True),
        ("absent (quick)", False),
    ]
    lines = result.text().splitlines()
    assert "  MISSED  few (quick)     9 ≤ 3" in lines and "  kept    many (quick)    10 ≥ 10" in lines
    assert "  MISSED  absent (quick)  not measured ≤ 1" in lines


def test_a_bar_is_kept_on_its_own_side_only() -> None:
    assert Bar("x", "x", most=3).ok({"x": 3}) and not Bar("x", "x", most=3).ok({"x": 3.01})
    assert Bar("x", "x", least=3).ok({"x": 3}) and not Bar("x", "x", least=3).ok({"x": 2.99})
    assert not Bar("x", "x", most=3).ok({"x": True}) and not Bar("x", "x", most=3).ok({})


async def test_a_case_runs_in_a_process_of_its_own_and_tells() -> None:
    async with child.Child("dovetail.lab.machine:resident_bytes", {}) as one:
        ((kind, value),) = [line async for line in one.lines()]
    assert kind == "result" and value > 1_000_000
    with pytest.raises(child.ChildFailed):
        await child.result_of("os:_exit", status=3)


def test_the_machine_is_described(tmp_path: Path) -> None:
    facts = machine.facts(tmp_path)
    assert set(facts) == {"cores", "kernel", "python", "load_1min", "fdatasync_p50_us"} and list(tmp_path.iterdir()) == []


LONG = {"cluster-load", "node-kill", "leader-kill", "node-join", "spark-batch", "spark-stream", "spark-sink", "measure"}
"""Whole clusters, or a JVM and what it is compared with, also where it is made small: in `make soak`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] if name in LONG else []) for name in SCENARIOS])
def test_every_scenario_runs_small_and_ends_with_one_object(name: str, tmp_path: Path) -> None:
    if name in ("commit-log", "delays") and shutil.which("redis-server") is None and os.environ.get("CI") != "true":
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    if name in ("sqs-load", "fifo-backlog") and not elasticmq.present() and os.environ.get("CI") != "true":
        pytest.skip("ElasticMQ was not fetched (make engines)")
    if name in ("spark-batch", "spark-stream") and not sparkkafka.present() and os.environ.get("CI") != "true":
        pytest.skip("Kafka was not fetched (make engines)")
    for needs, program, present in (
        ("rdsq-figure-2", "rabbitmq-server", rabbitmq.present()),
        ("fabric-kvs", "memcached", memcached.present()),
        ("cluster-load", "rabbitmq-server", rabbitmq.present()),
        *((nodes, "nats-server", nats.present()) for nodes in ("cluster-load", "node-kill", "leader-kill", "node-join")),
    ):
        if name == needs and not present and os.environ.get("CI") != "true":
            pytest.skip(f"{program} is not installed (apt-get install {program})")
    arguments = [sys.executable, "-m", "dovetail", "lab", "run", name, "--quick", "--json"]
    environment = {**os.environ, "DOVETAIL_LAB_DIR": str(tmp_path)}
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=RUN_S, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert list(told) == ["scenario", "figures", "bars", "peers"] and told["scenario"] == name
    assert told["figures"]["quick"] is True and told["figures"]["machine"]["cores"] >= 1
    assert [bar["name"] for bar in told["bars"]] == [f"{bar.name} (quick)" for bar in find(name).bars]
    assert all(bar["value"] is not None for bar in told["bars"]), "every bar has a figure"
    assert ran.stderr.count(" s  ") >= 2, "progress while it runs"
    assert list(tmp_path.iterdir()) == []
