"""A pipeline's settings as flags, and as lines of a TOML file: the same for `dovetail pipeline run`, `dovetail export` and spark-submit."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.errors import BadRequest
from dovetail.spark.pipelines import PIPELINES, Pipeline, Setting, Settings, find


def add(parser: argparse.ArgumentParser, settings: Mapping[str, Setting]) -> None:
    parser.add_argument("--file", type=Path, help="a TOML file of settings; a flag wins")
    for name, setting in settings.items():
        more = f" (default: {setting.default})" if setting.default and not setting.truth else ""
        text = f"{setting.doc}{more}".replace("%", "%%")
        if setting.truth:
            parser.add_argument(f"--{name}", help=text, action="store_const", const="true")
        else:
            parser.add_argument(f"--{name}", help=text)


def told(given: argparse.Namespace, pipeline: Pipeline) -> Settings:
    """What was said, checked: the file first, and flags over it."""
    said: dict[str, str] = {}
    if given.file is not None:
        try:
            said = {name: _text(value) for name, value in tomllib.loads(given.file.read_text()).items()}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BadRequest(str(error)) from None
    flags = vars(given)
    # argparse has made underscores of the dashes within a name.
    for name in pipeline.settings:
        value = flags[name.replace("-", "_")]
        if value is not None:
            said[name] = value
    return pipeline.checked(said)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(name: str, prog: str, arguments: Sequence[str]) -> None:
    """One pipeline by its name and what stands behind it; its lines go to stdout."""
    try:
        pipeline = find(name)
        parser = argparse.ArgumentParser(prog=prog, description=PIPELINES[name], allow_abbrev=False)
        add(parser, pipeline.settings)
        pipeline.run(told(parser.parse_args(arguments), pipeline), say)
    except ModuleNotFoundError as error:
        raise missing(error) from None
    except OSError as error:
        raise BadRequest(str(error)) from None


def say(line: str) -> None:
    print(line, flush=True)


def missing(error: ModuleNotFoundError, extra: str = "spark") -> Exception:
    """What is not installed, and how it comes."""
    if error.name is None or error.name.startswith("dovetail"):
        return error
    return BadRequest(f"this needs {error.name.partition('.')[0]}, which is not installed: pip install 'dovetail[{extra}]'")
