"""Run a pipeline over queues with Spark: archive and replay, enrich, measure, devices, usage. Settings are flags, or lines of a TOML file
(--file); a flag wins. Pipelines need their extra: pip install 'dovetail[spark]' (and [jre] where there is no Java)."""

from __future__ import annotations

import argparse

from ..spark.pipelines import PIPELINES, flags

EXAMPLES = """\
examples:
  dovetail pipeline list
  dovetail pipeline run archive --queue 'orders*' --target ./archive
  dovetail pipeline run archive --queue orders --target ./archive --every 10s --format delta
  dovetail pipeline run replay --archive ./archive --source orders --queue again --since 2026-05-01T12:00
  dovetail pipeline run measure --trace ./trace.parquet
  dovetail pipeline run measure --tap report --target ./report --every 5s
  dovetail pipeline run devices --queue meters --device body.meter --at body.at --values body.power --target ./meters --every 10s
  dovetail pipeline run usage --target ./usage --format csv
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|run")
    actions.add_parser("list", help="the pipelines and what each does")
    ran = actions.add_parser("run", help="run one pipeline", allow_abbrev=False)
    ran.add_argument("name", metavar="NAME", help="see `dovetail pipeline list`")
    ran.add_argument(
        "settings", nargs=argparse.REMAINDER, metavar="--SETTING VALUE …", help="`dovetail pipeline run NAME --help` lists them"
    )


def run(given: argparse.Namespace) -> int:
    if given.action == "list":
        for name, doc in PIPELINES.items():
            print(f"{name:<12} {doc}")
        return 0
    flags.run(given.name, f"dovetail pipeline run {given.name}", given.settings)
    return 0
