"""Print the effective settings and where each came from: a flag, the environment, the file or the default. Passwords are not shown."""

from __future__ import annotations

import argparse
import json
import sys

from ..settings import Settings, declared
from . import flags

EXAMPLES = """\
examples:
  dovetail settings
  DOVETAIL_HTTP=127.0.0.1:0 dovetail settings --config dovetail.toml
  dovetail settings --json | jq '.store.value'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    flags.add(parser)


def run(given: argparse.Namespace) -> int:
    loaded = flags.read(given)
    rows = [(one.name, one.kind.show(_value(loaded.settings, one.name)), loaded.sources[one.name]) for one in declared()]
    if given.json:
        print(json.dumps({name: {"value": value, "source": source} for name, value, source in rows}))
    else:
        wide = max(len(value) for _, value, _ in rows)
        for name, value, source in rows:
            print(f"{name:<20} {value or '-':<{wide}}  {source}")
    for name in loaded.unknown:
        print(f"dovetail: {name} is set in the environment, and there is no such setting", file=sys.stderr)
    return 0


def _value(settings: Settings, name: str) -> object:
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
