"""Engines that stay when the command that started them has ended: which they are lies in a file of their folder, and `stop` ends those.

    FOLDER/engine.json   {"url": …, "processes": [[pid, when it began], …]}

A process id may belong to somebody else by the time that it is read: what began at another moment is not ours and is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from dovetail.errors import BadRequest

from . import ENGINES

NAME = "engine.json"
_ENDS_S = 20.0


def default_folder(engine: str) -> Path:
    return Path(tempfile.gettempdir()) / f"dovetail-engines-{os.getuid()}" / engine


def start(engine: str, nodes: int, folder: Path, *, sync_always: bool = False) -> str:
    """Start it and let it stay; returns its URL."""
    if alive(folder):
        raise BadRequest(f"An engine of {folder} runs already: `dovetail lab engines stop {engine} --folder {folder}` ends it.")
    folder.mkdir(parents=True, exist_ok=True)
    servers = ENGINES[engine](folder, nodes, sync_always=sync_always, stay=True)
    url = servers.start()
    (folder / NAME).write_text(json.dumps({"url": url, "processes": [[pid, _began(pid)] for pid in servers.pids]}))
    return url


def stop(folder: Path, *, forget: bool = False) -> int:
    """End what `start` left running there; how many processes that were. `forget` removes what they kept, too."""
    processes = alive(folder)
    for pid in processes:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _ENDS_S
    while alive(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in alive(folder):
        os.kill(pid, signal.SIGKILL)
    (folder / NAME).unlink(missing_ok=True)
    if forget and folder.exists():
        shutil.rmtree(folder)
    return len(processes)


def status(folder: Path) -> tuple[str, int, int]:
    """Its URL, how many of its servers run, and how many there are; no servers where none were started."""
    try:
        known = json.loads((folder / NAME).read_text())
        return str(known["url"]), len(alive(folder)), len(known["processes"])
    except (OSError, ValueError, KeyError):
        return "", 0, 0


def alive(folder: Path) -> list[int]:
    try:
        known = json.loads((folder / NAME).read_text())["processes"]
    except (OSError, ValueError, KeyError):
        return []
    return [pid for pid, began in known if began is not None and _began(pid) == began]


def _began(pid: int) -> int | None:
    """When the process began, in ticks since the machine did; None where there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None
