"""Measure: list the scenarios of the lab, or run one. Progress goes to stderr and the result to stdout; with --json the last line is one
object {"scenario", "figures", "bars": [{"name", "value", "bar", "ok"}], "peers"}.

A full run fails (exit code 1) when a bar is missed. A quick run is a rehearsal with small numbers: its figures say little and its bars
do not count. The lab needs its extra: pip install 'dovetail[lab]'.

`engines start nats` (or `kafka`) starts real servers on free ports of the loopback, prints their URL and leaves them running;
`engines status` says whether they run (exit code 1: not all of them), `engines stop` ends them.

`faults run NAME` starts nodes, breaks them as a plan says while clients work, and judges what the clients saw (exit code 1: a promise was
not kept, or too little happened to tell)."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadRequest
from ..lab.scenario import SCENARIOS

EXAMPLES = """\
examples:
  dovetail lab list
  dovetail lab run commit-log --quick
  dovetail lab run lane-cost --json | tail -1 | jq '.bars'
  dovetail serve --store "$(dovetail lab engines start nats --nodes 3)/shop"
  dovetail lab engines stop nats --forget
  dovetail lab faults run kill --seconds 60 --keep kill.jsonl
  dovetail lab faults run brokers --store nats --seed 7
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|run|engines|faults")
    listed = actions.add_parser("list", help="the scenarios and what each shows")
    listed.add_argument("--names", action="store_true", help="the names alone, for scripts")
    ran = actions.add_parser("run", help="run one scenario")
    ran.add_argument("name", metavar="NAME", help="see `dovetail lab list`")
    ran.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    ran.add_argument("--json", action="store_true", help="one object on the last line, for programs")
    engines = actions.add_parser("engines", help="start a real engine on this machine, look at it, or stop it")
    verbs = engines.add_subparsers(dest="verb", required=True, metavar="start|status|stop")
    for verb, what in (
        ("start", "start it, print its URL and leave it running"),
        ("status", "does it run, and where"),
        ("stop", "end what was started there"),
    ):
        one = verbs.add_parser(verb, help=what)
        one.add_argument("engine", choices=("kafka", "nats"), help="which engine")
        one.add_argument("--folder", type=Path, metavar="DIR", help="where its data lies (a temporary folder of your own)")
        if verb == "start":
            one.add_argument("--nodes", type=int, default=1, choices=(1, 3, 5), help="how many servers (1)")
            one.add_argument("--sync", choices=("memory", "disk"), default="memory", help="disk: each server syncs before it answers")
        elif verb == "stop":
            one.add_argument("--forget", action="store_true", help="remove its data, too")
    _fault_arguments(actions.add_parser("faults", help="break nodes under load on purpose, and judge what clients saw"))


def _fault_arguments(faults: argparse.ArgumentParser) -> None:
    verbs = faults.add_subparsers(dest="verb", required=True, metavar="list|run")
    verbs.add_parser("list", help="the plans, and which promise each attacks")
    ran = verbs.add_parser("run", help="one plan, by name or from a JSON file")
    ran.add_argument("name", metavar="NAME|FILE", help="see `dovetail lab faults list`")
    ran.add_argument("--seconds", type=float, default=20.0, metavar="N", help="for how long things break (20)")
    ran.add_argument(
        "--store", choices=("local", "memory", "nats", "kafka"), default="local", help="what the nodes keep messages on (local)"
    )
    ran.add_argument("--nodes", type=int, default=3, metavar="N", help="how many, on a store that several share (3)")
    ran.add_argument("--seed", type=int, default=0, metavar="N", help="what happens when (0)")
    ran.add_argument("--keep", type=Path, metavar="FILE", help="where to write the history: .jsonl or .arrow")
    ran.add_argument("--json", action="store_true", help="one object on the last line, for programs")


def run(given: argparse.Namespace) -> int:
    if given.action == "list":
        for name, doc in SCENARIOS.items():
            print(name if given.names else f"{name:<16} {doc}")
        return 0
    if given.action == "engines":
        return _engines(given)
    if given.action == "faults":
        return _faults(given)
    try:
        from ..lab import bench

        result = bench.run(given.name, quick=given.quick)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dovetail"):
            raise
        raise BadRequest(f"the lab needs {error.name}, which is not installed: pip install 'dovetail[lab]'") from None
    print(result.json() if given.json else result.text())
    return int(not given.quick and not all(bar["ok"] for bar in result.bars()))


def _faults(given: argparse.Namespace) -> int:
    from ..lab.driver import PeerMissing
    from ..lab.faults import command

    if given.verb == "list":
        print("\n".join(command.listed()))
        return 0
    try:
        report = command.run(given.name, given.seconds, given.store, given.nodes, given.seed, given.keep)
    except PeerMissing as missing:
        raise BadRequest(str(missing)) from None
    print(report.json() if given.json else report.text())
    return int(not report.held)


def _engines(given: argparse.Namespace) -> int:
    from ..lab.driver import PeerMissing
    from ..lab.engines import running

    folder: Path = (given.folder or running.default_folder(given.engine)).absolute()
    try:
        if given.verb == "start":
            print(running.start(given.engine, given.nodes, folder, sync_always=given.sync == "disk"))
        elif given.verb == "status":
            url, alive, servers = running.status(folder)
            print(f"{url} · {alive} of {servers} run" if servers else "not started")
            return int(not servers or alive < servers)
        else:
            print(f"{running.stop(folder, forget=given.forget)} ended")
    except PeerMissing as missing:
        raise BadRequest(str(missing)) from None
    return 0
