"""What is alive in a data folder: the queues and their counts, found by the replay that a start would make, without starting."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

from ..clock import SystemClock
from ..logs.log import Log
from ..stores.replayed import Replayed
from ..stores.snapshots import survey
from .folder import Folder

NEVER_BYTES = 1 << 62
"""Nothing is written, so no snapshot is ever due."""


class QueueReport(NamedTuple):
    """One queue as it would be found by a start now."""

    namespace: str
    name: str
    visible: int
    delayed: int
    leased: int
    oldest_age_s: float
    pushed: int
    taps: int


class Alive(NamedTuple):
    queues: list[QueueReport]
    messages: int
    bytes: int
    """About: the sizes are taken from samples."""
    snapshot_position: int
    """Where the replay began: after the newest usable snapshot."""
    replayed_entries: int


def alive(folder: Folder) -> Alive:
    return asyncio.run(_alive(folder))


async def _alive(folder: Folder) -> Alive:
    """A store is made inside a loop, though nothing here waits for anything."""
    log = cast(Log, folder)  # The reading half, which is all that a replay uses.
    store = Replayed(log, SystemClock(), NEVER_BYTES)
    reports = []
    for queue, (namespace, name) in sorted(store.state.catalog.by_id.items(), key=lambda found: found[1]):
        lane = store.lane(queue)
        if lane is not None:
            counts = lane.counts()
            age_s = counts.oldest_age_ms / 1000
            taps = len(lane.taps())
            reports.append(QueueReport(namespace, name, counts.visible, counts.delayed, counts.leased, age_s, counts.pushed, taps))
    seen = survey(store.state, log)
    return Alive(reports, seen.live_messages, seen.live_bytes, store.replay.snapshot_position, store.replay.entries)
