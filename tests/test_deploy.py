"""What is in deploy/ fits the node: every metric that the dashboard and the alerts name is on a real node's page, under those labels."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dovetail
from dovetail.logs.shared.place import place_of
from dovetail.service.meters import Meters
from dovetail.service.metrics import Registry
from dovetail.settings import declared, load

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
FROM_PROMETHEUS = {"instance", "job", "le"}
"""Labels that are not the node's: those that the scrape adds, and the buckets' own."""


class Node:
    """A node in a process of its own, with one queue that has a message and a tap."""

    def __init__(self, url: str) -> None:
        self.url = url
        with urllib.request.urlopen(f"{url}/-/ready", timeout=60):
            pass  # counted, so that the page has a series of answers
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            self.page = answer.read().decode()

    def names(self) -> set[str]:
        """Every name that a query can use."""
        names: set[str] = set()
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", self.page, re.M):
            names |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
        return names

    def labels(self) -> dict[str, set[str]]:
        """The labels of each name: those on the page, and those of families that have counted nothing yet."""
        registry = Registry()
        Meters(registry)
        found = {name: set(family.labels) for name, family in registry._families.items()}
        for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", self.page, re.M):
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        for name in list(found):
            found[f"{name}_bucket"] = found[name] | found.get(f"{name}_bucket", set())
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    with dovetail.blocking.open(f"local:{folder}/data") as inside:
        inside.queue("orders").send(b"two dozen eggs")
        inside.queue("orders").tap("archive")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    command = [sys.executable, "-m", "dovetail", "serve", "--store", "local:./data", "--http", "127.0.0.1:0", "--native", "off"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"dovetail ready http=(\S+) ", line)
        assert match is not None, line
        yield Node(match[1])
    finally:
        process.terminate()
        process.communicate(timeout=60)


def alerts() -> list[dict[str, str]]:
    """The rules, read line by line. The file keeps to a part of YAML that needs no library: one value a line, two levels below a rule."""
    found: list[dict[str, str]] = []
    for number, line in enumerate((DEPLOY / "prometheus-alerts.yml").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r" *(- )?(\w+):(?: (.+))?", line)
        assert match is not None and "\t" not in line, f"line {number}: {line}"
        dash, key, value = match.groups()
        if dash and key == "alert":
            found.append({})
        if found and value is not None and not (dash and key == "name"):
            found[-1][key] = json.loads(value) if value.startswith('"') else value
    return found


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return board


def queries() -> list[tuple[str, str]]:
    """(where, expression) of everything that is asked of Prometheus."""
    board = dashboard()
    found = [(rule["alert"], rule["expr"]) for rule in alerts()]
    found += [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())]
    found += [(one["name"], one["query"]["query"]) for one in board["templating"]["list"] if one["type"] == "query"]
    return found


def problems(expression: str, names: set[str], labels: dict[str, set[str]]) -> list[str]:
    """What an expression asks for and a node does not have."""
    wrong = [f"no metric {name}" for name in re.findall(r"\bdovetail_\w+", expression) if name not in names]
    for name, selected in re.findall(r"\b(dovetail_\w+)\{([^}]*)\}", expression):
        unknown = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected)) - labels.get(name, set()) - FROM_PROMETHEUS
        wrong += [f"{name} has no label {label}" for label in sorted(unknown)]
    asked = set(re.findall(r"\bdovetail_\w+", expression))
    for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        for label in grouped.split(", "):
            if label not in FROM_PROMETHEUS and not all(label in labels.get(name, set()) for name in asked):
                wrong.append(f"not all of {sorted(asked)} have the label {label}")
    return wrong


def test_every_metric_that_the_dashboard_and_the_alerts_name_is_on_a_real_nodes_page(node: Node) -> None:
    names, labels = node.names(), node.labels()
    wrong = {where: found for where, expression in queries() if (found := problems(expression, names, labels))}
    assert wrong == {}
    assert len(queries()) > 40


@pytest.mark.parametrize(
    "expression",
    [
        "rate(dovetail_messages_sent_total[5m])",
        'dovetail_messages{status="visible"}',
        "sum by (tap) (dovetail_messages)",
        "dovetail_commit_seconds",
        'sum(rate(dovetail_requests_total{outcome="ok"}[5m]))',
    ],
)
def test_a_query_that_asks_for_what_is_not_there_is_found(node: Node, expression: str) -> None:
    assert len(problems(expression, node.names(), node.labels())) == 1


def test_every_figure_that_an_operator_chooses_by_is_on_the_dashboard() -> None:
    shown = " ".join(expression for _, expression in queries())
    figures = (
        "messages_pushed_total messages_completed_total bytes_pushed_total publishers consumers messages oldest_message_age_seconds "
        "receivers_waiting messages_redelivered_total messages_dead_lettered commit_seconds_bucket requests_total tap_lag_messages "
        "tap_lag_seconds tap_lost_messages reservation_messages"
    )
    assert [name for name in figures.split() if not re.search(rf"\bdovetail_{name}\b", shown)] == []


def test_every_alert_has_a_summary_a_severity_and_a_section_in_the_runbook() -> None:
    rules = alerts()
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) >= 10
    for rule in rules:
        assert {"alert", "expr", "severity", "summary", "runbook"} <= set(rule), rule
        assert rule["severity"] in ("page", "ticket")
        assert rule["runbook"] == f"docs/operating.md#{rule['alert'].lower()}"
        assert rule["expr"].count("(") == rule["expr"].count(")") and rule["expr"].count("{") == rule["expr"].count("}")
    sections = re.findall(r"^### (Dovetail\w+)$", (ROOT / "docs" / "operating.md").read_text(), re.M)
    assert sorted(sections) == sorted(names)


def test_the_alerts_are_yaml_and_mean_what_was_read_line_by_line() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; the file is read line by line only")
    groups = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    flat = [{**{k: v for k, v in rule.items() if isinstance(v, str)}, **rule["labels"], **rule["annotations"]} for rule in rules]
    assert flat == alerts()


def test_the_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def settings_named(text: str) -> set[str]:
    return set(re.findall(r"\b(DOVETAIL_[A-Z_]+)=", text))


def test_the_unit_is_hardened_and_its_environment_is_made_of_settings() -> None:
    text = (DEPLOY / "dovetail.service").read_text()
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",), interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    unit.read_string(text)
    service = dict(unit["Service"])
    assert {name: service.get(name) for name in ("User", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "CapabilityBoundingSet")} == {
        "User": "dovetail",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "CapabilityBoundingSet": "",
    }
    assert service["ExecStart"].endswith("/dovetail serve") and service["StateDirectory"] == "dovetail"
    drain_s = next(one.default for one in declared() if one.name == "drain_s")
    assert int(service["TimeoutStopSec"]) > drain_s
    active = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert settings_named(active) <= {one.environment for one in declared()}


def test_the_image_is_plain_runs_as_nobody_special_and_copies_what_there_is() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    steps = [(step, rest) for step, rest in lines]
    bases = [rest.split()[0] for step, rest in steps if step == "FROM"]
    assert set(bases) == {"python:3.11-slim"}, "a registry's host would be somebody's choice"
    for step, rest in steps:
        if step == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    assert ("EXPOSE", "9324") in steps and ("VOLUME", "/data") in steps
    order = [step for step, _ in steps]
    assert order.index("USER") < order.index("ENTRYPOINT") and dict(steps)["USER"] not in ("root", "0")
    environment = " ".join(rest for step, rest in steps if step == "ENV")
    assert settings_named(environment) <= {one.environment for one in declared()}
    assert f"DOVETAIL_STORE=local:{dict(steps)['VOLUME']}" in environment


def test_the_images_health_check_passes_for_a_node_and_fails_without_one(node: Node) -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    match = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.M)
    assert match is not None
    command = json.loads(match[1])
    assert command[0] == "python" and "://127.0.0.1:9324/-/healthy" in command[2]
    alive = command[2].replace("://127.0.0.1:9324", node.url.removeprefix("http"))
    assert subprocess.run([sys.executable, *command[1:2], alive], capture_output=True, timeout=60).returncode == 0
    nobody = command[2].replace(":9324", ":1")
    assert subprocess.run([sys.executable, *command[1:2], nobody], capture_output=True, timeout=60).returncode == 1


def test_what_kubernetes_is_told_fits_the_node_and_itself() -> None:
    found = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "dovetail.yaml").read_text())}
    assert set(found) == {"Deployment", "Service", "PodDisruptionBudget"}
    deployment, labels = found["Deployment"]["spec"], {"app": "dovetail"}
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    # As `dovetail serve` would read it.
    settings = load({}, environment).settings
    assert {one["name"] for one in container["env"]} <= {one.environment for one in declared()}
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": settings.http.port, "native": settings.native.port}
    assert {one["name"]: one["port"] for one in found["Service"]["spec"]["ports"]} == ports
    assert settings.advertise == f"{found['Service']['metadata']['name']}:{ports['http']}"
    assert place_of(settings.store, 4222).shown == "nats://nats:4222/shop"
    assert container["readinessProbe"]["httpGet"] == {"path": "/-/ready", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": "http"}
    assert deployment["template"]["metadata"]["labels"] == labels == found["Service"]["spec"]["selector"]
    assert deployment["selector"]["matchLabels"] == labels == found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + settings.drain_s
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert settings.shared.cache == mounted[pod["volumes"][0]["name"]] and "emptyDir" in pod["volumes"][0]
    values = yaml.safe_load((DEPLOY / "kubernetes" / "nats-values.yaml").read_text())["config"]
    assert values["cluster"]["replicas"] == 3 and values["jetstream"]["enabled"]
    assert values["merge"]["max_payload"] == "<< 2MB >>"
