"""What another process uses, as the kernel tells it. It asks the process nothing, so that it works for peers as well.

On a machine that others use too, rates say little and processor time still says what a message costs.
"""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Processor time of all its threads up to now, in user mode and in the kernel, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
