"""What was measured on: cores, kernel, versions, and how long a bare fdatasync takes here. No figure means anything without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from statistics import median
from time import perf_counter

_FILE_BYTES = 1 << 20


def facts(folder: Path) -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
        "fdatasync_p50_us": round(fdatasync_p50_us(folder), 1),
    }


def fdatasync_p50_us(folder: Path, rounds: int = 200) -> float:
    """The median of write (200 bytes) + fdatasync on a file whose blocks are there already, which is how a commit log syncs."""
    path = folder / "fdatasync"
    times = []
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(_FILE_BYTES))
        os.fsync(file.fileno())
        for index in range(rounds):
            began = perf_counter()
            os.pwrite(file.fileno(), b"x" * 200, 200 * index % _FILE_BYTES)
            os.fdatasync(file.fileno())
            times.append(perf_counter() - began)
    path.unlink()
    return median(times) * 1e6


def resident_bytes() -> int:
    """Resident memory of this process, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def drop_page_cache(folder: Path) -> str:
    """Make the next read of the folder's files come from the disk; returns how that was done."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        return "drop_caches"
    except OSError:
        for path in files(folder):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise"


def files(folder: Path) -> list[Path]:
    """Every file below the folder, in one order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read_s(paths: list[Path]) -> tuple[float, int]:
    """(seconds, bytes) of reading these files whole, one behind the other, a megabyte at a time."""
    began, size = perf_counter(), 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while part := file.read(1 << 20):
                size += len(part)
    return perf_counter() - began, size
