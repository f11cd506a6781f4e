"""What tests of peers and engines ask: is it here, does it still live, where does it listen."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest


def needed(present: bool, name: str, how: str = "") -> None:
    if not present:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed, and in CI nothing is skipped")
        pytest.skip(f"{name} is not installed ({how or f'apt-get install {name}'})")


def alive(pid: int) -> bool:
    """There, and not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens, as the kernel tells them. An IPv4 address in the form of IPv6 is that address."""
    inodes = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed meanwhile.
            inodes.add(os.readlink(one))
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.add(socket.inet_ntop(family, words).removeprefix("::ffff:"))
    return found
