"""A push to a lane that recognises repeats: what is new joins, what was seen before is answered with where it is.

Neighbours that are new join together, as they would without the rule: one run in the index and one note for a tap, not one for each of
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.lane import Lane
from dovetail.core.operation import Push, Pushed


def push_new(lane: Lane, o: Push, address: int, start: int, now: int, groups: Sequence[bytes] | None) -> Pushed:
    """The messages of `o` from the `start`-th on; its deduplication hashes are there, and the lane's rule is on."""
    assert o.dedups is not None
    window, count, dedup = lane.attributes.dedup_ms, len(o.bodies), lane.dedup
    delays = o.delays
    single = delays is None or len(delays) == 1
    sequences: list[int] = []
    repeats: list[int] = []
    begun = start  # Messages from here up to the one that is looked at are new, and have not joined yet.

    def join(end: int) -> None:
        if begun < end:
            own = delays if single or delays is None else delays[begun:end]
            lane.push(now, end - begun, address, begun, own, groups[begun:end] if groups is not None else None)

    for item in range(start, count):
        key = o.dedups[16 * item : 16 * item + 16]
        named = any(key)
        known = dedup.seen(key, now, window) if named else None
        if known is not None:
            join(item)
            begun = item + 1
            sequences.append(known)
            repeats.append(item - start)
            continue
        sequence = lane.next + item - begun
        if named:
            dedup.put(key, sequence, now, window)
        sequences.append(sequence)
    join(count)
    return Pushed(lane.queue, sequences, frozenset(repeats))
