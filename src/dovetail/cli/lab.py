"""Measure: list the scenarios of the lab, or run one. Progress goes to stderr and the result to stdout; with --json the last line is one
object {"scenario", "figures", "bars": [{"name", "value", "bar", "ok"}], "peers"}.

A full run fails (exit code 1) when a bar is missed. A quick run is a rehearsal with small numbers: its figures say little and its bars
do not count. The lab needs its extra: pip install 'dovetail[lab]'."""

from __future__ import annotations

import argparse

from ..errors import BadRequest
from ..lab.scenario import SCENARIOS

EXAMPLES = """\
examples:
  dovetail lab list
  dovetail lab run commit-log --quick
  dovetail lab run lane-cost --json | tail -1 | jq '.bars'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|run")
    listed = actions.add_parser("list", help="the scenarios and what each shows")
    listed.add_argument("--names", action="store_true", help="the names alone, for scripts")
    ran = actions.add_parser("run", help="run one scenario")
    ran.add_argument("name", metavar="NAME", help="see `dovetail lab list`")
    ran.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    ran.add_argument("--json", action="store_true", help="one object on the last line, for programs")


def run(given: argparse.Namespace) -> int:
    if given.action == "list":
        for name, doc in SCENARIOS.items():
            print(name if given.names else f"{name:<16} {doc}")
        return 0
    try:
        from ..lab import bench

        result = bench.run(given.name, quick=given.quick)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dovetail"):
            raise
        raise BadRequest(f"the lab needs {error.name}, which is not installed: pip install 'dovetail[lab]'") from None
    print(result.json() if given.json else result.text())
    return int(not given.quick and not all(bar["ok"] for bar in result.bars()))
