"""The settings as flags, the same for every command that has them. Derived from the declaration; no flag is listed here."""

from __future__ import annotations

import argparse
import os

from ..settings import CONFIG_ENVIRONMENT, Loaded, declared, load


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help=f"a TOML file with settings (or {CONFIG_ENVIRONMENT})")
    group = parser.add_argument_group("settings", "Each can also be given by the environment (DOVETAIL_STORE=memory:) and in the file.")
    for one in declared():
        shown = one.kind.show(one.default) or "none"
        text = f"{one.doc} (default: {shown})"
        group.add_argument(one.flag, dest=one.name, metavar=one.kind.metavar, help=text.replace("%", "%%"))


def read(arguments: argparse.Namespace) -> Loaded:
    given = vars(arguments)
    return load({one.name: given[one.name] for one in declared()}, os.environ, arguments.config)


def shown(name: str, value: object) -> str:
    """A value as it may be printed."""
    return next(one.kind.show(value) for one in declared() if one.name == name)
