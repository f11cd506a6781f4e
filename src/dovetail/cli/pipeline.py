"""Run a pipeline over queues with Spark: archive them, replay an archive, measure a trace. Settings are flags, or lines of a TOML file
(--file); a flag wins. Pipelines need their extra: pip install 'dovetail[spark]' (and [jre] where there is no Java)."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from ..errors import BadRequest
from ..spark.pipelines import PIPELINES, find

EXAMPLES = """\
examples:
  dovetail pipeline list
  dovetail pipeline run archive --queue 'orders*' --target ./archive
  dovetail pipeline run archive --queue orders --target ./archive --every 10s --format delta
  dovetail pipeline run replay --archive ./archive --source orders --queue again --since 2026-05-01T12:00
  dovetail pipeline run measure --trace ./trace.parquet
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
            print(f"{name:<10} {doc}")
        return 0
    try:
        pipeline = find(given.name)
        parser = argparse.ArgumentParser(prog=f"dovetail pipeline run {given.name}", description=PIPELINES[given.name], allow_abbrev=False)
        parser.add_argument("--file", type=Path, help="a TOML file of settings")
        for name, setting in pipeline.settings.items():
            more = "" if not setting.default else f" (default: {setting.default})"
            parser.add_argument(f"--{name}", help=f"{setting.doc}{more}".replace("%", "%%"))
        said = vars(parser.parse_args(given.settings))
        file = said.pop("file")
        told = {} if file is None else {name: str(value) for name, value in tomllib.loads(file.read_text()).items()}
        told |= {name: value for name, value in said.items() if value is not None}
        pipeline.run(pipeline.checked(told), lambda line: print(line, flush=True))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dovetail"):
            raise
        raise BadRequest(f"pipelines need {error.name}, which is not installed: pip install 'dovetail[spark]'") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadRequest(str(error)) from None
    return 0
