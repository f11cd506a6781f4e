"""Copy a data folder into a new folder, also while its node is running: nothing is locked and nobody waits.

The copy holds everything that was acknowledged before the command began. Before the command says that it is done, each checksum of the
copy is verified and the copy is replayed as a start would. It opens like any data folder; to use it in place of a lost one, see
`dovetail restore`."""

from __future__ import annotations

import argparse
import time

from . import folder
from .alive import alive

EXAMPLES = """\
examples:
  dovetail backup --from ./data /backups/monday
  dovetail inspect /backups/monday --verify
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", metavar="DIR", required=True, help="the data folder (DIR or local:DIR)")
    parser.add_argument("target", metavar="TARGET", help="a folder that does not exist yet, or is empty")


def run(given: argparse.Namespace) -> int:
    return copy_and_tell("backed up", folder.path_of(given.source), given.target)


def copy_and_tell(done: str, source: str, target: str) -> int:
    begun = time.monotonic()
    end = folder.copy(source, target)
    reports = folder.verified(target)
    # Checksums say that the bytes are those that were written; only a replay says that they make a store.
    living = alive(folder.Folder(target))
    used = folder.size(sum(report.used_bytes for report in reports))
    taken_s = time.monotonic() - begun
    contents = f"{living.messages:,} messages in {len(living.queues)} queues, {used}"
    print(f"{done} and verified: {contents}, up to position {end}, in {taken_s:.1f} s")
    return 0
