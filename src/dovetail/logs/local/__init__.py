"""The local commit log: one append-only log per data folder, in preallocated segments, synced before anything is delivered."""

from .backup import export
from .commitlog import CommitLog
from .inspection import SegmentReport, inspect
from .recovery import Recovered

__all__ = ["CommitLog", "Recovered", "SegmentReport", "export", "inspect"]
