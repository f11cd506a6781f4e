"""What ends, returns or prolongs a delivery, and what operators do to a message without one.

Each function takes the sequences (and delivery numbers) that one operation names and answers, for each, whether anything changed.
A receipt is fenced by its delivery number: once a message was handed out again, settled, released or purged, an older number
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.chunk import HELD, LATER, LEASED, MASK, READY, RESERVED, SHIFT, Chunk
from dovetail.core.consecutive import consecutive, numbers
from dovetail.core.lane import Lane
from dovetail.core.operation import DEFAULT
from dovetail.limits import DELAY_MS_MAX


def complete(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int]) -> list[bool]:
    """The message is done. After its lease lapsed this is still honoured, unless the queue has groups or it was handed out again."""
    if len(sequences) > 1 and _complete_run(lane, sequences, deliveries):
        return [True] * len(sequences)
    done = []
    for sequence, delivery in zip(sequences, deliveries, strict=True):
        found = _delivered(lane, sequence, delivery)
        if found is not None and lane.groups is not None and found[0].states[found[1]] != LEASED:
            found = None
        if found is not None:
            lane.remove(*found)
        done.append(found is not None)
    return done


def all_alive(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int]) -> bool:
    """Would completing succeed for every one of them?"""
    for sequence, delivery in zip(sequences, deliveries, strict=True):
        found = _delivered(lane, sequence, delivery)
        if found is None or (lane.groups is not None and found[0].states[found[1]] != LEASED):
            return False
    return len(set(sequences)) == len(sequences)


def _complete_run(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int]) -> bool:
    """Neighbours of one chunk that were taken together and are completed together: the usual case of a batch."""
    first, count = sequences[0], len(sequences)
    chunk, at = lane.chunks.get(first >> SHIFT), first & MASK
    if chunk is None or chunk.deliveries is None or chunk.groups is not None or lane.groups is not None:
        return False
    if sequences[-1] != first + count - 1:
        return False
    if chunk.states[at : at + count] != bytes((LEASED,)) * count:
        return False
    if chunk.deliveries[at : at + count].tobytes() != numbers(deliveries):
        return False
    if type(sequences) is not range and numbers(sequences) != consecutive(first, count):
        return False
    chunk.states[at : at + count] = bytes(count)
    chunk.live -= count
    lane.live -= count
    lane.end_lease(0, count, lane.tenants.now if lane.tenants is not None else 0)
    lane.drop_if_empty(chunk)
    return True


def requeue(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int], after_ms: int, now: int) -> list[bool]:
    """The message is given back and its receipt ends; DEFAULT waits as the queue's back-off says."""
    done = []
    for sequence, delivery in zip(sequences, deliveries, strict=True):
        found = _leased(lane, sequence, delivery)
        if found is not None:
            chunk, at = found
            chunk.end_receipts(at, 1)
            _give_back(lane, chunk, at, backoff(lane, chunk.received(at)) if after_ms == DEFAULT else after_ms, now)
        done.append(found is not None)
    return done


def backoff(lane: Lane, receives: int) -> int:
    """Doubles with each receive from `backoff_ms` up to `backoff_max_ms`."""
    rules = lane.attributes
    if not rules.backoff_ms:
        return 0
    wait = rules.backoff_ms << min(max(receives - 1, 0), 40)
    return min(wait, rules.backoff_max_ms or DELAY_MS_MAX)


def extend(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int], lease_ms: int, now: int) -> list[bool]:
    """The lease ends `lease_ms` from now; 0 gives the message back."""
    done = []
    for sequence, delivery in zip(sequences, deliveries, strict=True):
        found = _leased(lane, sequence, delivery)
        if found is not None:
            chunk, at = found
            if lease_ms:
                chunk.wait(at, 1, now + lease_ms, now)
                lane.index.add(now + lease_ms, sequence, now)
            else:
                chunk.end_receipts(at, 1)
                _give_back(lane, chunk, at, 0, now)
        done.append(found is not None)
    return done


def renew(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int], lease_ms: int, now: int) -> bool:
    """Begin the leases of these deliveries anew, also of lapsed ones; False, and nothing changes, once one was settled or re-delivered."""
    found = [_delivered(lane, sequence, delivery) for sequence, delivery in zip(sequences, deliveries, strict=True)]
    if any(place is None for place in found):
        return False
    for place in found:
        assert place is not None
        chunk, at = place
        if chunk.states[at] != LEASED:
            _lease_again(lane, chunk, at)
        chunk.wait(at, 1, now + lease_ms, now)
        lane.index.add(now + lease_ms, chunk.base + at, now)
    return True


def _lease_again(lane: Lane, chunk: Chunk, at: int) -> None:
    """A lapsed message, visible since, is leased once more under its old delivery number."""
    if chunk.states[at] == READY:
        chunk.ready -= 1
    chunk.states[at] = LEASED
    lane.leased += 1
    group = chunk.named(at)
    if lane.tenants is not None:
        lane.tenants.take(lane, chunk, at, 1)
    elif group and lane.groups is not None:
        lane.groups.busy[group] += 1
        head = lane.groups.heads[group]
        place = lane.chunks[head >> SHIFT]
        if place.states[head & MASK] == READY:
            lane.hold(place, head & MASK)


def release(lane: Lane, sequences: Sequence[int], deliveries: Sequence[int], now: int) -> list[bool]:
    """The receiver had left: the delivery is undone, its receive count included, never its number."""
    done = []
    for sequence, delivery in zip(sequences, deliveries, strict=True):
        found = _leased(lane, sequence, delivery)
        if found is not None:
            chunk, at = found
            assert chunk.receives is not None
            chunk.receives[at] -= 1
            chunk.end_receipts(at, 1)
            _give_back(lane, chunk, at, 0, now)
        done.append(found is not None)
    return done


def reclaim(lane: Lane, sequences: Sequence[int], now: int) -> list[bool]:
    """An operator gives a leased message back, without a receipt."""
    done = []
    for sequence in sequences:
        found = lane.find(sequence)
        leased = found is not None and found[0].states[found[1]] == LEASED
        if found is not None and leased:
            found[0].end_receipts(found[1], 1)
            _give_back(lane, *found, 0, now)
        done.append(leased)
    return done


def cancel(lane: Lane, sequences: Sequence[int]) -> list[bool]:
    """A message that nobody has received (or that was given back) leaves."""
    done = []
    for sequence in sequences:
        found = lane.find(sequence)
        idle = found is not None and found[0].states[found[1]] not in (LEASED, RESERVED)
        if found is not None and idle:
            lane.remove(*found)
        done.append(idle)
    return done


def reschedule(lane: Lane, sequences: Sequence[int], after_ms: int, now: int) -> list[bool]:
    """A message that nobody has becomes visible `after_ms` from now."""
    done = []
    for sequence in sequences:
        found = lane.find(sequence)
        idle = found is not None and found[0].states[found[1]] not in (LEASED, RESERVED)
        if found is not None and idle:
            chunk, at = found
            chunk.end_receipts(at, 1)
            name = chunk.named(at)
            if not chunk.received(at):
                # Nobody has seen it yet, so its first time is still to come: a long delay must outlive the retention.
                chunk.set_born(at, 1, now + after_ms)
            if chunk.states[at] == READY:
                lane.hold(chunk, at)
            if chunk.states[at] != LATER:
                lane.delayed += 1
            chunk.states[at] = LATER
            if name and lane.tenants is not None:
                lane.tenants.hide(lane, chunk, at, name)
            _wait(lane, chunk, at, after_ms, now)
            if name and lane.groups is not None:
                lane.groups.reconsider(lane, name)
        done.append(idle)
    return done


def _delivered(lane: Lane, sequence: int, delivery: int) -> tuple[Chunk, int] | None:
    """The message, if `delivery` is its last one: leased, or lapsed and still READY."""
    chunk, at = lane.chunks.get(sequence >> SHIFT), sequence & MASK
    if chunk is None or not delivery or chunk.delivery(at) != delivery or chunk.states[at] not in (LEASED, READY, HELD):
        return None
    return chunk, at


def _leased(lane: Lane, sequence: int, delivery: int) -> tuple[Chunk, int] | None:
    found = _delivered(lane, sequence, delivery)
    return found if found is not None and found[0].states[found[1]] == LEASED else None


def _give_back(lane: Lane, chunk: Chunk, at: int, after_ms: int, now: int) -> None:
    """A leased message returns to its place, at once or after a while."""
    if after_ms <= 0:
        lane.appear(chunk, at, now)
        return
    name = chunk.named(at)
    lane.end_lease(name, 1, now)
    lane.delayed += 1
    _wait(lane, chunk, at, after_ms, now)
    if name and lane.groups is not None:
        lane.groups.reconsider(lane, name)


def _wait(lane: Lane, chunk: Chunk, at: int, after_ms: int, now: int) -> None:
    """Its counters have been moved to *delayed*; now its state and its time."""
    chunk.states[at] = LATER
    if after_ms <= 0:
        lane.appear(chunk, at, now)
        return
    chunk.wait(at, 1, now + after_ms, now)
    lane.index.add(now + after_ms, chunk.base + at, now)
