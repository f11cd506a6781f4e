"""Make a data folder from a backup. The backup is verified first and the new folder afterwards; a folder that holds data is never
overwritten."""

from __future__ import annotations

import argparse

from . import folder
from .backup import copy_and_tell

EXAMPLES = """\
examples:
  dovetail restore /backups/monday ./data && dovetail serve --store local:./data
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="what `dovetail backup` made")
    parser.add_argument("folder", metavar="DIR", help="the data folder to make (DIR or local:DIR)")


def run(given: argparse.Namespace) -> int:
    folder.verified(given.backup)
    return copy_and_tell("restored", given.backup, folder.path_of(given.folder))
