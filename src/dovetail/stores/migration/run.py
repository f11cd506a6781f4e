"""A migration, step by step. Each step can be repeated, so that one that was killed anywhere goes on when it is run again.

    1  copy what lives, beside whoever uses the source, until the source can be ended
    2  end the source: what it has now is all that it will ever have
    3  copy what has come meanwhile
    4  END stands in the source: no node serves it again      (on a shared log this is step 2)
    5  write the snapshot: every message at its new address; its manifest makes it all true at once

The state goes over as it is: ids, order, leases with their receipts, receive counts, delays, groups, deduplication, producers, stages,
reservations, taps, facts. Only waiters, who have nothing yet, and the names of writers stay behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from dovetail.clock import Clock
from dovetail.core.moved import END, Note, identity_of
from dovetail.core.relocate import needed, relocate
from dovetail.core.state import State
from dovetail.errors import BadRequest, FolderLocked, StorageError
from dovetail.limits import FACTS_MEMORY_BYTES_MAX
from dovetail.stores.entrytime import ALARM_MS
from dovetail.stores.migration.source import Seen, Source
from dovetail.stores.migration.target import IN_USE, Target, check_room

PACKET_BYTES = 512 * 1024
RECORDS_MAX = 8_192
"""Of one copy: JetStream takes a megabyte at once, and records may be tiny."""
LOOK_S = 1.0
RECORD_OVERHEAD_BYTES = 24


class Summary(NamedTuple):
    queues: int
    messages: int
    records: int
    before: bool
    """It was finished by an earlier run."""


async def run(source: Source, target: Target, clock: Clock, say: Callable[[str], None], place: str = "") -> Summary:
    """`place` is how the source names the target to whoever starts a node on it."""
    place = place or target.name
    seen = await source.look()
    _check_end(source, place)
    ended = source.ended is not None
    if not seen.state.key:
        raise BadRequest("There is nothing to move: no node has ever served it.")
    if seen.state.logs > 1:
        raise BadRequest("A namespace of several logs cannot be moved.")
    identity = identity_of(seen.state.key)
    finished = await target.open(identity)
    if finished and source.ended is None:
        raise BadRequest(IN_USE.format(target.name))
    if finished:
        return Summary(len(seen.state.lanes), sum(lane.live for lane in seen.state.lanes.values()), 0, True)
    if len(target.places):
        say(f"{len(target.places):,} records are there from an earlier run")
    else:
        # It is claimed before anything is ended: a node that is started there now says why it does not serve.
        await target.put((), ())
    _check_facts(seen.state, target)
    copying = Copying(target, say)
    end = Note(END, identity, place=place)
    seen = await _ended(source, end, seen, copying, say)
    _check_end(source, place)
    _check_facts(seen.state, target)
    await copying.all(seen)
    await source.leave(end)
    if not ended:
        say("the source is ended")
    return await _finish(seen.state, target, clock, copying.records, say)


async def _ended(source: Source, end: Note, seen: Seen, copying: Copying, say: Callable[[str], None]) -> Seen:
    waiting = False
    while True:
        await copying.all(seen, most=seen.sure)
        try:
            return await source.last(end)
        except FolderLocked as error:
            if not waiting:
                say(f"{error}: what comes is copied until it is stopped; stop it when you like")
            waiting = True
        await asyncio.sleep(LOOK_S)
        seen = await source.look()


def _check_end(source: Source, place: str) -> None:
    if source.ended is not None and source.ended.place != place:
        raise BadRequest(f"What was here was moved to {source.ended.place} already.")


def _check_facts(state: State, target: Target) -> None:
    size = sum(page.size for page in state.chronicle.pages)
    if target.facts_in_memory and size > FACTS_MEMORY_BYTES_MAX:
        raise BadRequest(
            f"Facts taps keep {size} bytes, and nodes that share a log keep {FACTS_MEMORY_BYTES_MAX} at most:"
            " let their readers come up, or close them."
        )


async def _finish(state: State, target: Target, clock: Clock, records: int, say: Callable[[str], None]) -> Summary:
    def here(there: int) -> int:
        found = target.places.find(there)
        if found is None:
            raise StorageError(f"the record at {there} was not copied")
        return found

    if target.facts_in_memory:
        for tap in state.chronicle.taps.values():
            tap.bytes = min(tap.bytes or FACTS_MEMORY_BYTES_MAX, FACTS_MEMORY_BYTES_MAX)
    ahead = state.time - clock.wall_ms()
    if ahead > ALARM_MS:
        say(f"the source's time is {ahead / 1000:.1f} s ahead of this clock: time will stand still there for as long")
    relocate(state, here, target.following)
    await target.finish(state)
    say("the snapshot is written")
    return Summary(len(state.lanes), sum(lane.live for lane in state.lanes.values()), records, False)


class Copying:
    """Puts into the target what is not there yet."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        self._target = target
        self._say = say
        self.records = 0

    async def all(self, seen: Seen, most: int | None = None) -> None:
        """Every record that is needed, in the order of addresses; those below `most` only, where it is given. What is gone meanwhile is
        not needed any more: it is looked for once more when the source has ended."""
        find = self._target.places.find
        missing = sorted({address for address in needed(seen.state) if find(address) is None and (most is None or address < most)})
        if not missing:
            return
        records: list[memoryview] = []
        addresses: list[int] = []
        size = 0
        for at, address in enumerate(missing, 1):
            record = seen.fetch(address)
            if record is None:
                if most is None:
                    raise StorageError(f"the record at {address} cannot be had")
                continue
            own = len(record) + RECORD_OVERHEAD_BYTES
            if records and (size + own > PACKET_BYTES or len(records) >= RECORDS_MAX):
                await self._put(records, addresses, at - 1, len(missing))
                records, addresses, size = [], [], 0
            records.append(record)
            addresses.append(address)
            size += own
        if records:
            await self._put(records, addresses, len(missing), len(missing))

    async def _put(self, records: list[memoryview], addresses: list[int], done: int, of: int) -> None:
        check_room(self._target, sum(map(len, records)) + RECORD_OVERHEAD_BYTES * (len(records) + 8))
        await self._target.put(records, addresses)
        self.records += len(records)
        self._say(f"copied {done:,} of {of:,} records")
