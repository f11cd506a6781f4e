"""Print the version of Dovetail and of what it runs on."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version

EXAMPLES = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--short", action="store_true", help="the number alone")


def run(given: argparse.Namespace) -> int:
    if given.short:
        print(version("dovetail"))
    else:
        below = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "httptools", "crc32c"))
        print(f"dovetail {version('dovetail')} (Python {platform.python_version()}, {below})")
    return 0
