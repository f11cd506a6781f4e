"""A shared log seen from outside: who has spoken on it, who keeps it, what it keeps. Nothing is written, and no writer is opened.

The newest snapshot is loaded and the log behind it applied, as a node that joins does, but without the bodies that lie before it. So it
costs what a start costs at most, and an engine whose settings a node would refuse can be looked at all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import NamedTuple

from dovetail.core import codec, moved, snapshot
from dovetail.core.operation import Head
from dovetail.core.state import State
from dovetail.errors import DovetailError
from dovetail.limits import WRITER_SILENCE_MS
from dovetail.logs.shared.engine import Engine
from dovetail.logs.shared.health import Health
from dovetail.logs.shared.packet import SHIFT, decode

READ_S = 60.0


class Speaker(NamedTuple):
    """A writer that is open: one start of one node. Nodes have no other name on a log."""

    writer: str
    keeper: bool
    silent: bool
    """Not heard for three seconds of the log's time, in which others spoke: it is gone, or cut off."""
    heard_ms: int
    """How long ago, by the clock of whoever looks. A node that nobody asks anything says nothing."""
    behind: int | None
    """Entries that it had not applied yet when it was heard last; None where that was before the newest snapshot."""
    version: int


class SnapshotReport(NamedTuple):
    entry: int
    bytes: int
    age_ms: int | None
    """Known of the newest."""


class LogReport(NamedTuple):
    health: Health
    time: int
    """The log's own, in milliseconds."""
    queues: int
    messages: int
    speakers: list[Speaker]
    snapshots: list[SnapshotReport]
    trimmed: int
    """The oldest entry that may still be asked for."""
    unread: str
    """Why the log was not read: then speakers and queues are not known."""


async def report(engine: Engine, health: Health, wall_ms: int) -> LogReport:
    sizes = dict(health.blobs)
    entries = sorted((int(name.partition("-")[2]) for name in sizes if name.startswith("manifest-")), reverse=True)
    places = [SnapshotReport(position >> SHIFT, sizes.get(f"snapshot-{position:020d}", 0), None) for position in entries]
    try:
        async with asyncio.timeout(READ_S):
            state = await _loaded(engine, entries[0]) if entries else State()
            begun = state.time
            heard = await _follow(engine, state, max(state.position >> SHIFT, health.first), health.next)
    except (DovetailError, KeyError, TimeoutError) as error:
        why = str(error) or "it took too long"
        return LogReport(health, 0, 0, 0, [], places, health.first, why)
    if entries:
        places[0] = places[0]._replace(age_ms=max(0, wall_ms - begun))
    speaking = [name for name, writer in state.writers.by_id.items() if writer.silent_ms < WRITER_SILENCE_MS]
    speakers = [
        Speaker(
            name[:4].hex(),
            bool(speaking) and name == min(speaking),
            name not in speaking,
            max(0, wall_ms - writer.seen),
            heard.get(name),
            writer.version,
        )
        for name, writer in state.writers.by_id.items()
    ]
    messages = sum(lane.live for lane in state.lanes.values())
    return LogReport(health, state.time, len(state.lanes), messages, speakers, places, max(health.first, state.trimmed >> SHIFT), "")


async def _loaded(engine: Engine, position: int) -> State:
    with tempfile.TemporaryDirectory(prefix="dovetail-look-") as folder:
        path = Path(folder) / "snapshot"
        await engine.get(f"snapshot-{position:020d}", path)
        data = await asyncio.get_running_loop().run_in_executor(None, path.read_bytes)
    return snapshot.load(memoryview(data))


class _AllRead(Exception):
    """Ends the following: what `take` raises does, at once and surely, which cancelling it would not."""


async def _follow(engine: Engine, state: State, start: int, end: int) -> dict[bytes, int]:
    """Apply `start` … `end - 1`. Of each writer: how many entries it had not applied when it wrote its last."""
    heard: dict[bytes, int] = {}

    def take(number: int, stamp_ms: int, packet: bytes) -> None:
        records = decode(packet)
        head: Head = codec.decode_head(records[0])
        copy = moved.passed(head, records, state.key)
        operations = [] if copy else [codec.decode(record) for record in records[1:]]
        position = number << SHIFT
        state.apply((number + 1) << SHIFT, head, operations, range(position + 1, position + len(records)), stamp_ms)
        heard[head.writer] = number - (head.applied >> SHIFT)
        if number == end - 1:
            raise _AllRead

    if start < end:
        with contextlib.suppress(_AllRead):
            await engine.follow(start, take, lambda: None)
    return heard
