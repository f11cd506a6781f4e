"""What makes many messages leave at once, whoever they are for: purge and expiry. Both spare what is reserved: a batch that was given out
must be the same when it is asked for again. Whoever wants it gone releases the reservation first.
"""

from __future__ import annotations

from dovetail.core.chunk import HELD, LATER, LEASED, READY, RESERVED, SHIFT
from dovetail.core.groups import Groups
from dovetail.core.lane import Lane
from dovetail.core.noting import ready_runs
from dovetail.core.timeindex import TimeIndex


def purge(lane: Lane) -> int:
    """Everything leaves, receipts and deduplication with it. Taps keep what they have, and reservations too."""
    count = lane.live - lane.reserved
    if lane.reserved:
        for chunk, at in list(lane.walk()):
            if chunk.states[at] != RESERVED:
                lane.remove(chunk, at)
    else:
        lane.chunks, lane.tail, lane.ready_chunks = {}, None, []
        lane.index = TimeIndex()
        lane.live = lane.leased = lane.delayed = 0
        lane.groups, lane.tenants = Groups() if lane.groups is not None else None, None
    lane.dedup.clear()
    lane.attempts.clear()
    return count


def expire(lane: Lane, before: int, gone: list[tuple[int, int]] | None = None) -> int:
    """What was pushed, and first visible, before `before` leaves, unless it is leased or reserved. `gone` gets its runs of sequences."""
    count = 0
    for chunk in list(lane.chunks.values()):
        if chunk.time >= before:
            break
        plain = chunk.groups is None and chunk is not lane.tail and chunk.born is None and chunk.ready == chunk.live
        if plain and chunk.time + chunk.mark_ms[-1] < before:
            # The usual case of old messages that nobody wanted: a whole chunk at once.
            count += chunk.live
            if gone is not None:
                gone += ready_runs(chunk)
            lane.live -= chunk.live
            del lane.chunks[chunk.base >> SHIFT]
            continue
        for at in range(len(chunk.states)):
            if chunk.states[at] in (READY, HELD, LATER) and chunk.born_at(at) < before:
                lane.remove(chunk, at)
                count += 1
                if gone is not None:
                    gone.append((chunk.base + at, 1))
    return count


def has_expired(lane: Lane, before: int, now: int) -> bool:
    """Would `expire` find something at `now`, when leases that are over by then have lapsed?"""
    for chunk in lane.chunks.values():
        if chunk.time >= before:
            break
        for at, state in enumerate(chunk.states):
            waits = state in (READY, HELD, LATER) or (state == LEASED and chunk.visible_at(at, now) <= now)
            if waits and chunk.born_at(at) < before:
                return True
    return False
