"""What commands about data folders share: copying one, verifying one, and sizes as people read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ..errors import BadRequest, Damaged
from ..logs.local import CommitLog, SegmentReport, inspect
from ..logs.local.backup import export
from ..logs.local.outside import Folder as Folder


def path_of(name: str) -> str:
    """The folder behind `./data` or `local:./data`."""
    if name.startswith("local:"):
        return name.removeprefix("local:")
    if ":" in name.split("/")[0] and not os.path.exists(name):
        raise BadRequest(f"{name}: only data folders (DIR or local:DIR) are kept in files that can be read")
    return name


def copy(source: str, target: str) -> int:
    """Copy what `source` holds now to the new folder `target`; returns the position where the copy ends."""
    if os.path.realpath(target) == os.path.realpath(source) or Path(source).resolve() in Path(target).resolve().parents:
        raise BadRequest(f"{target}: the copy cannot lie inside what is copied")
    return export(cast(CommitLog, Folder(source)), target)


def verified(path: str) -> list[SegmentReport]:
    """Every segment, with every checksum looked at; Damaged where one does not match."""
    found = list(reports(path))
    for report in found:
        if report.damage is not None:
            raise Damaged(f"{report.file}: {report.damage}")
    return found


def reports(path: str) -> Iterator[SegmentReport]:
    if not os.path.isdir(path):
        raise BadRequest(f"{path}: there is no such folder")
    return inspect(path)


def size(count: float) -> str:
    """Bytes as a person reads them."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"
