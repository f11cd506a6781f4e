"""Look into a data folder: its segments and their checksums, its snapshots, its queues and what is alive in them. Changes nothing and
takes no lock, so it also works beside a running node; what it sees of the end of the log is then a moment's view.

With --verify the exit code is 1 when anything is damaged. A torn end is no damage: a crash left it, nobody was promised what it
held, and the next start cuts it."""

from __future__ import annotations

import argparse
import json
import os

from ..logs.local import SegmentReport
from ..node import NAMESPACE
from . import folder
from .alive import Alive, alive

EXAMPLES = """\
examples:
  dovetail inspect ./data
  dovetail inspect ./data --verify && echo sound
  dovetail inspect ./data --json | jq '.queues[] | {name, visible}'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the data folder (DIR or local:DIR)")
    parser.add_argument("--verify", action="store_true", help="fail when anything is damaged")
    parser.add_argument("--json", action="store_true", help="one object, for programs")


def run(given: argparse.Namespace) -> int:
    path = folder.path_of(given.folder)
    reports = list(folder.reports(path))
    files = folder.Folder(path)
    blobs = _blobs(files)
    damaged = [report for report in reports if report.damage is not None]
    # A damaged log is not replayed, here as little as by a node: counts from half a log would be wrong.
    living = None if damaged else alive(files)
    if given.json:
        _print_json(path, files, reports, blobs, living)
    else:
        _print_text(path, files, reports, blobs, living)
    return int(bool(damaged) and given.verify)


def _blobs(files: folder.Folder) -> list[tuple[str, int]]:
    found = []
    for name in files.blobs.names():
        try:
            found.append((name, len(files.blobs.get(name))))
        except KeyError:
            continue  # A running node removed it just now.
    return found


def _print_json(path: str, files: folder.Folder, reports: list[SegmentReport], blobs: list[tuple[str, int]], living: Alive | None) -> None:
    segments = [
        {
            "file": os.path.basename(report.file),
            "start": report.start,
            "end": report.end,
            "entries": report.entries,
            "records": report.records,
            "used_bytes": report.used_bytes,
            "file_bytes": report.file_bytes,
            "torn_bytes": report.torn_bytes,
            "damage": report.damage,
        }
        for report in reports
    ]
    facts: dict[str, object] = {
        "folder": path,
        "log": files.log_id.hex(),
        "sound": living is not None,
        "segments": segments,
        "blobs": [{"name": name, "bytes": size} for name, size in blobs],
    }
    if living is not None:
        facts["alive"] = {"messages": living.messages, "bytes": living.bytes}
        facts["replay"] = {"from": living.snapshot_position, "entries": living.replayed_entries}
        facts["queues"] = [queue._asdict() for queue in living.queues]
    print(json.dumps(facts))


def _print_text(path: str, files: folder.Folder, reports: list[SegmentReport], blobs: list[tuple[str, int]], living: Alive | None) -> None:
    print(f"{path}: log {files.log_id.hex()}")
    print(f"\n  {'segment':<22} {'entries':>10} {'records':>12} {'used':>12} {'file':>12}  state")
    for report in reports:
        state = (
            f"DAMAGED at {report.damage}" if report.damage else f"torn end of {report.torn_bytes} bytes" if report.torn_bytes else "sound"
        )
        used, whole = folder.size(report.used_bytes), folder.size(report.file_bytes)
        print(f"  {os.path.basename(report.file):<22} {report.entries:>10,} {report.records:>12,} {used:>12} {whole:>12}  {state}")
    for name, count in blobs:
        print(f"  {name:<46} {folder.size(count):>12}")
    entries, used = sum(report.entries for report in reports), folder.size(sum(report.used_bytes for report in reports))
    if living is None:
        print(f"\n  {len(reports)} segments, {entries:,} entries, {used}: DAMAGED, so what is alive cannot be told")
        return
    if living.queues:
        print(f"\n  {'queue':<32} {'visible':>12} {'delayed':>12} {'leased':>12} {'sent so far':>14} {'taps':>5}  oldest")
    for queue in living.queues:
        name = queue.name if queue.namespace == NAMESPACE else f"{queue.namespace}/{queue.name}"
        oldest = f"{queue.oldest_age_s:,.0f} s" if queue.visible + queue.delayed + queue.leased else "-"
        print(f"  {name:<32} {queue.visible:>12,} {queue.delayed:>12,} {queue.leased:>12,} {queue.pushed:>14,} {queue.taps:>5}  {oldest}")
    print(f"\n  {len(reports)} segments, {entries:,} entries, {used}: every checksum matches")
    print(f"  {living.messages:,} messages alive, about {folder.size(living.bytes)}, in {len(living.queues)} queues")
    print(f"  a start replays {living.replayed_entries:,} entries from position {living.snapshot_position}")
