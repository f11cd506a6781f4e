"""The command line. Thin: each command is one file with `arguments` and `run`, imported only when it is the one that was asked for,
so that `dovetail serve` does not wait for what only the lab needs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "serve": "start a node and serve until it is told to stop",
    "queue": "look at the queues of a running node, and work with them",
    "account": "make accounts and access keys, rotate and revoke them",
    "cluster": "look at nodes that share a log: how far each is, and what is wrong",
    "inspect": "look into a data folder, also beside a running node",
    "backup": "copy a data folder while its node runs, and verify the copy",
    "restore": "make a data folder from a backup, and verify it",
    "migrate": "move everything from one store to another, nothing lost and nothing twice",
    "settings": "print the effective settings and where each came from",
    "export": "write what was pushed to queues, or what waits in them, to Parquet files",
    "pipeline": "archive queues with Spark, replay an archive, measure a trace",
    "lab": "measure what is promised, on this machine",
    "version": "print the version",
}
"""Name → what it does. The file of a command is called after it."""

HELP = """\
dovetail: a durable message queue in one process

usage: dovetail COMMAND [options]

{commands}

try:
  dovetail serve                          a node on ./data, at http://127.0.0.1:9324
  dovetail serve --store memory:          nothing is kept when it stops
  dovetail queue ls                       what is in the queues of a running node
  dovetail COMMAND --help                 what a command can do
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 it failed, 2 it was asked wrongly."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {doc}" for name, doc in COMMANDS.items())), end="")
        return 0
    name = "version" if arguments[0] in ("-V", "--version") else arguments[0]
    if name not in COMMANDS:
        return _complain(f"there is no command {name!r}; there are {', '.join(COMMANDS)}", 2)
    command = import_module(f"{__name__}.{name}")
    parser = argparse.ArgumentParser(
        prog=f"dovetail {name}",
        description=command.__doc__,
        epilog=command.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # An abbreviation in a script would break the day a second flag begins like it.
    )
    from ..errors import BadRequest, DovetailError

    try:
        command.arguments(parser)
        code: int = command.run(parser.parse_args(arguments[1:]))
        sys.stdout.flush()
        return code
    except BadRequest as error:
        return _complain(str(error), 2)
    except DovetailError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough (`| head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _complain(text: str, code: int) -> int:
    print(f"dovetail: {text}", file=sys.stderr)
    return code
