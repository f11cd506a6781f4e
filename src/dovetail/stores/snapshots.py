"""Snapshots of a replayed store: blobs beside the log, and the survey of what the log must keep.

    snapshot-<position>   the state (core/snapshot.py)
    taps-<position>       the notes of taps since the snapshot before, one section for each lane
    facts-<position>      the chronicle's pages since the snapshot before, while a facts tap is open
    manifest-<position>   JSON, written last: what belongs together, with sizes; then all of it is read back and checked

A snapshot without its manifest does not exist. It is made in a forked child, which has the state after exactly one entry, for nothing,
while the parent goes on; the child also surveys which addresses are alive, so that the parent never walks all of its messages.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple
from zlib import crc32

from dovetail.core import snapshot
from dovetail.core.chronicle import FactStretch
from dovetail.core.chunk import GONE, TOMB, Chunk
from dovetail.core.codec import messages_in
from dovetail.core.lane import Lane
from dovetail.core.state import State
from dovetail.core.taps import Run, Runs, Stretch
from dovetail.errors import CodecError, DovetailError
from dovetail.logs.log import Log

_logger = logging.getLogger("dovetail.stores")
_LANE_HEAD = Struct("<QQI4x")
_RUN_BYTES = sum(column.itemsize for column in Runs().columns())
PINS_MAX = 4_096
STAGED = 0
"""In place of a queue, whose numbers begin at 1."""
CHRONICLE = 0
RECENT_RUNS_MIN = 256
"""Fewer notes than this stay in the snapshot itself."""
RECENT_FACTS_MIN = 1024


class Survey(NamedTuple):
    """What a child saw of the state that it wrote."""

    position: int
    floor: int
    """The lowest address that a live or staged message has (the position where there is none)."""
    live_messages: int
    live_bytes: int
    pins: list[tuple[int, int, int]]
    """(lowest live address, queue, first sequence) of the chunks that reach lowest into the log: what pins its prefix. A staged record is
    (address, STAGED, 0)."""
    stretches: list[tuple[int, list[Any]]]
    """(queue, stretch) of the notes that left memory; (CHRONICLE, stretch) of the facts."""
    bytes: int


class Snapshots:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.positions: list[int] = []

    def newest(self, first: int) -> State | None:
        """The newest usable state that reaches the log, or None. Damaged ones are reported and passed over."""
        self.positions = []
        state: State | None = None
        for position in sorted(self._manifests(), reverse=True):
            if position < first:
                break
            try:
                loaded = self._load(position) if state is None else None
                if loaded is None:
                    self._check(position)
            except (DovetailError, KeyError, ValueError) as error:
                _logger.error("the snapshot at position %d is passed over: %s", position, error)
                continue
            state = state or loaded
            self.positions.insert(0, position)
        return state

    def _manifests(self) -> list[int]:
        found = []
        for name in self._log.blobs.names():
            kind, _, position = name.partition("-")
            if kind == "manifest" and position.isdigit():
                found.append(int(position))
        return found

    def _load(self, position: int) -> State:
        manifest = json.loads(bytes(self._log.blobs.get(f"manifest-{position:020d}")))
        data = self._log.blobs.get(manifest["snapshot"])
        if len(data) != manifest["bytes"]:
            raise CodecError(f"{manifest['snapshot']} has {len(data)} bytes in place of {manifest['bytes']}")
        state = snapshot.load(data)
        if state.position != position:
            raise CodecError(f"{manifest['snapshot']} holds position {state.position}")
        return state

    def _check(self, position: int) -> None:
        """An older snapshot is only looked at: its size must fit. It is read whole if it is ever needed."""
        manifest = json.loads(bytes(self._log.blobs.get(f"manifest-{position:020d}")))
        if len(self._log.blobs.get(manifest["snapshot"])) != manifest["bytes"]:
            raise CodecError("its size does not fit")

    def write(self, state: State, go_on: Callable[[], None] = lambda: None, *, survey_only: bool = False) -> Survey:
        """Everything, in this process (a forked child, where the log lives in files). Returns when it is durable, read back and checked."""
        log, position = self._log, state.position
        surveyed = survey(state, log)
        if survey_only:
            return surveyed
        stretches, facts = self._write_taps(state), self._write_facts(state)
        name = f"snapshot-{position:020d}"
        size = log.blobs.put(name, _gathered(snapshot.dump(state, lambda lane: stretches.get(lane.queue), facts), go_on))
        manifest = {"version": 1, "snapshot": name, "bytes": size, "position": position}
        log.blobs.put(f"manifest-{position:020d}", iter([json.dumps(manifest).encode()]))
        verify(log.blobs.get(name), size)
        made = [(queue, list(stretch)) for queue, stretch in stretches.items()]
        return surveyed._replace(stretches=made + ([(CHRONICLE, list(facts))] if facts is not None else []), bytes=size)

    def _write_taps(self, state: State) -> dict[int, Stretch]:
        lanes = [lane for lane in state.lanes.values() if len(lane.taps.recent) >= RECENT_RUNS_MIN]
        if not lanes:
            return {}
        blob = f"taps-{state.position:020d}"
        self._log.blobs.put(blob, _tap_sections(lanes))
        made = {}
        for lane in lanes:
            runs = lane.taps.recent
            made[lane.queue] = Stretch(blob, runs.firsts[0], runs.firsts[-1] + runs.counts[-1], min(runs.addresses), runs.times[0])
        return made

    def _write_facts(self, state: State) -> FactStretch | None:
        chronicle = state.chronicle
        pages = [page for page in chronicle.pages if len(page)]
        if chronicle.rows < RECENT_FACTS_MIN:
            return None
        blob = f"facts-{state.position:020d}"
        self._log.blobs.put(blob, chronicle.dump())
        return FactStretch(blob, pages[0].first, pages[-1].end, sum([page.size for page in pages]), pages[0].times[0])

    def done(self, state: State, made: Survey) -> None:
        """The child has finished: its notes leave memory, and what is too old goes. Two snapshots are kept."""
        for queue, facts in made.stretches:
            if queue == CHRONICLE:
                if state.chronicle.open:
                    state.chronicle.written(FactStretch(*facts))
                continue
            lane = state.lanes.get(queue)
            if lane is not None and lane.taps.open:
                lane.taps.written(Stretch(*facts))
        if made.position not in self.positions:
            self.positions.append(made.position)
        while len(self.positions) > 2:
            self.drop_older()

    def drop_older(self) -> bool:
        """Let the oldest go, unless it is the only one."""
        if len(self.positions) < 2:
            return False
        gone = self.positions.pop(0)
        # The manifest first: without it the rest does not exist.
        self._log.blobs.remove(f"manifest-{gone:020d}")
        self._log.blobs.remove(f"snapshot-{gone:020d}")
        return True

    def sweep(self, state: State) -> None:
        """Remove what no manifest and no tap names. Notes of taps stay as long as either kept snapshot may still need them."""
        kept = set(self.positions)
        needed = {stretch.blob for lane in state.lanes.values() for stretch in lane.taps.stretches}
        needed |= {stretch.blob for stretch in state.chronicle.stretches}
        oldest = min(kept, default=0)
        for name in self._log.blobs.names():
            kind, _, number = name.partition("-")
            position = int(number) if number.isdigit() else -1
            lost = kind in ("snapshot", "manifest") and position not in kept and position < max(kept, default=0)
            if lost or (kind in ("taps", "facts") and name not in needed and position < oldest):
                self._log.blobs.remove(name)


def _gathered(pieces: Iterator[bytes], go_on: Callable[[], None]) -> Iterator[bytes]:
    """Small pieces together, so that a write is worth its call. Before each, `go_on` may end it all."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= 1 << 20:
            go_on()
            yield b"".join(held)
            held, size = [], 0
    go_on()
    yield b"".join(held)


def verify(data: memoryview, size: int) -> None:
    if len(data) != size:
        raise CodecError(f"a snapshot of {size} bytes came back with {len(data)}")
    if [tag for tag, _ in snapshot.sections(data)][-1:] != [snapshot.END]:
        raise CodecError("a snapshot came back without its end")


# Notes of taps


def _tap_sections(lanes: list[Lane]) -> Iterator[bytes]:
    """For each lane: queue u64 · runs u64 · crc32 u32 · the columns of its runs."""
    for lane in lanes:
        runs = lane.taps.recent
        data = b"".join(map(bytes, runs.columns()))
        yield _LANE_HEAD.pack(lane.queue, len(runs), crc32(data)) + data


def tap_stretch(log: Log, blob: str, queue: int, start: int) -> Iterator[Run]:
    """The runs of one lane in a blob of notes, from the one that holds `start` on."""
    for runs in stretch_runs(log, blob, queue):
        yield from runs.since(start)


def stretch_runs(log: Log, blob: str, queue: int) -> Iterator[Runs]:
    """The runs of one lane in a blob of notes."""
    try:
        data = log.blobs.get(blob)
        at = 0
        while at < len(data):
            owner, count, checksum = _LANE_HEAD.unpack_from(data, at)
            at += _LANE_HEAD.size
            body = data[at : at + _RUN_BYTES * count]
            at += _RUN_BYTES * count
            if owner != queue:
                continue
            if len(body) != _RUN_BYTES * count or crc32(body) != checksum:
                raise CodecError(f"{blob} is damaged")
            runs, begin = Runs(), 0
            for column in runs.columns():
                end = begin + column.itemsize * count
                column.frombytes(body[begin:end])
                begin = end
            yield runs
    except struct_error as error:
        raise CodecError(f"{blob}: {error}") from None


# The survey


def survey(state: State, log: Log) -> Survey:
    """Which addresses are alive, about how many bytes they hold, and which lie lowest."""
    floors: list[tuple[int, int, int]] = []
    messages = size = 0
    for lane in state.lanes.values():
        for chunk in lane.chunks.values():
            if chunk.live:
                lowest, sample = _lowest(chunk)
                floors.append((lowest, lane.queue, chunk.base))
                messages += chunk.live
                size += chunk.live * _bytes_of(log, sample)
    for stage in state.stages.by_id.values():
        for record in stage.records:
            floors.append((record.address, STAGED, 0))
            messages += len(record.push.bodies)
            size += record.bytes
    floors.sort()
    floor = floors[0][0] if floors else state.position
    return Survey(state.position, floor, messages, size, floors[:PINS_MAX], [], 0)


def _lowest(chunk: Chunk) -> tuple[int, int]:
    """(lowest live address, address of one live run)."""
    if chunk.live == len(chunk.states):
        return min(chunk.addresses), chunk.addresses[0]
    found = array("Q")
    for run, start in enumerate(chunk.starts):
        states = chunk.states[start : chunk.run_end(run)]
        if states.count(GONE) + states.count(TOMB) < len(states):
            found.append(chunk.addresses[run])
    return min(found), found[-1]


def _bytes_of(log: Log, address: int) -> int:
    """About how many bytes a message of this record takes."""
    record = log.fetch(address)
    return len(record) // messages_in(record) + 8 if record is not None else 0
