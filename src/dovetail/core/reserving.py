"""What opens a reservation, takes a batch for it, settles, releases and closes it.

A reserved message has no lease and no time: it is given back or done with by name only. It blocks its group as a leased one does, and is
outside of what is in flight, of receive counts and with them of dead letters, of tenants' processing time, of expiry and of purge. Being
reserved ends the receipts of earlier deliveries, as a hand-out would.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush

from dovetail.core import operation as op
from dovetail.core.chunk import HELD, MASK, READY, RESERVED, SHIFT, SIZE, Chunk
from dovetail.core.lane import Lane
from dovetail.core.operation import Done, Opened, Outcome, Refusal, Reserved, Taken, Why
from dovetail.core.reservations import Batch, Reservation
from dovetail.limits import RESERVATIONS_PER_QUEUE_MAX, RESERVED_BATCHES_MAX

_READY_BYTE = bytes((READY,))
_READY_RUN = _READY_BYTE * SIZE
_RESERVED_RUN = bytes((RESERVED,)) * SIZE


def reservation(lane: Lane, o: op.Reserving) -> Outcome:
    """The lane has advanced to now."""
    known = lane.reservations.get(o.name)
    if isinstance(o, op.ReserveOpen):
        return _open(lane, o.name, known)
    if known is None:
        return Refusal(Why.NO_RESERVATION)
    match o:
        case op.ReserveRelease():
            return Done(_release(lane, known))
        case op.ReserveClose():
            del lane.reservations[o.name]
            return Done(_release(lane, known))
        case op.Reserve() | op.ReserveSettle():
            if not owns(known, o.epoch):
                return Refusal(Why.FENCED)
            return _reserve(lane, known, o) if isinstance(o, op.Reserve) else _settle(lane, known, o.batch)


def owns(known: Reservation, epoch: int) -> bool:
    """Is this the epoch of the owner? There is none after a release."""
    return epoch == known.epoch and epoch > 0


def _open(lane: Lane, name: str, known: Reservation | None) -> Outcome:
    """A new epoch, which ends the one before. What the owner before had reserved stays reserved."""
    if known is None:
        if len(lane.reservations) >= RESERVATIONS_PER_QUEUE_MAX:
            return Refusal(Why.TOO_MANY_RESERVATIONS)
        known = lane.reservations[name] = Reservation()
    lane.epochs += 1
    known.epoch = lane.epochs
    return Opened(known.epoch, known.last)


def _reserve(lane: Lane, known: Reservation, o: op.Reserve) -> Outcome:
    batch = known.batches.get(o.batch)
    if batch is not None:
        return Reserved(lane.queue, list(taken(lane, batch)), again=True)
    if o.batch <= known.last:
        return Refusal(Why.BATCH_PAST)
    if len(known.batches) >= RESERVED_BATCHES_MAX:
        return Refusal(Why.TOO_MANY_BATCHES)
    batch = known.batches[o.batch] = _take(lane, o.max)
    known.last = o.batch
    return Reserved(lane.queue, list(taken(lane, batch)))


def _settle(lane: Lane, known: Reservation, number: int) -> Outcome:
    """All batches up to this one are done with; the count of their messages. Said again, it finds nothing left to do."""
    if number <= known.settled:
        return Done(0)
    if number <= known.released:
        return Refusal(Why.RELEASED)
    if number > known.last:
        return Refusal(Why.NO_BATCH)
    count = 0
    for one in [one for one in known.batches if one <= number]:
        for first, length in known.batches.pop(one).runs():
            for chunk, at, part in _pieces(lane, first, length):
                end(lane, chunk, at, part)
            count += length
    known.settled = number
    return Done(count)


def _release(lane: Lane, known: Reservation) -> int:
    """Everything goes back to its place, and nobody owns the name."""
    count = 0
    for batch in known.batches.values():
        for first, length in batch.runs():
            for chunk, at, part in _pieces(lane, first, length):
                give_back(lane, chunk, at, part)
            count += length
    known.batches.clear()
    known.epoch, known.released = 0, known.last
    return count


# Taking


def _take(lane: Lane, most: int) -> Batch:
    """Up to `most` visible messages, in the order and by the discipline of a receive."""
    batch = Batch()
    tenants = lane.tenants
    if tenants is not None:
        tenants.begin_pop(lane)
    while most > 0:
        chunk = lane.first_ready()
        if chunk is None and tenants is not None:
            chunk = tenants.offer(lane)
        if chunk is None:
            break
        at = chunk.states.find(READY, chunk.low)
        chunk.low = at
        if tenants is not None and tenants.refuses(lane, chunk, at):
            continue
        name = chunk.named(at)
        if name and lane.groups is not None:
            most -= _take_group(lane, chunk, at, name, most, batch)
            continue
        count = _stretch(chunk, at, most) if chunk.groups is None else 1
        set_aside(lane, chunk, at, count)
        batch.add(chunk.base + at, count)
        if name and tenants is not None:
            tenants.hide(lane, chunk, at, name)
        most -= count
    return batch


def _stretch(chunk: Chunk, at: int, most: int) -> int:
    """How many neighbours from `at` on are READY."""
    part = chunk.states[at : at + most]
    return len(part) - len(part.lstrip(_READY_BYTE))


def _take_group(lane: Lane, chunk: Chunk, at: int, name: int, most: int, batch: Batch) -> int:
    """The lowest of a group and, as far as they are visible, those behind it."""
    groups = lane.groups
    assert groups is not None
    count = 0
    while True:
        count += 1
        behind = groups.next_visible(lane, chunk.base + at) if count < most else None
        set_aside(lane, chunk, at, 1)
        batch.add(chunk.base + at, 1)
        groups.busy[name] += 1
        if behind is None:
            return count
        chunk, at = behind


def set_aside(lane: Lane, chunk: Chunk, at: int, count: int) -> None:
    """`count` neighbours that are READY, or one member of a group that is HELD."""
    if chunk.states[at] == READY:
        chunk.ready -= count
        if chunk.low == at:
            chunk.low = at + count
    chunk.states[at : at + count] = _RESERVED_RUN[:count]
    chunk.end_receipts(at, count)
    lane.reserved += count


# Giving back, and ending


def _pieces(lane: Lane, first: int, length: int) -> Iterator[tuple[Chunk, int, int]]:
    """A run of sequences as (chunk, where in it, how many). All of them are RESERVED, so their chunks are there."""
    end = first + length
    while first < end:
        chunk, at = lane.chunks[first >> SHIFT], first & MASK
        count = min(end - first, SIZE - at)
        yield chunk, at, count
        first += count


def give_back(lane: Lane, chunk: Chunk, at: int, count: int) -> None:
    lane.reserved -= count
    if chunk.groups is None:
        chunk.states[at : at + count] = _READY_RUN[:count]
        chunk.ready += count
        chunk.low = min(chunk.low, at)
        if not chunk.listed:
            chunk.listed = True
            heappush(lane.ready_chunks, chunk.base >> SHIFT)
        return
    for index in range(at, at + count):
        name = chunk.named(index)
        if not name:
            lane.make_ready(chunk, index)
            continue
        chunk.states[index] = HELD
        if lane.groups is not None:
            lane.groups.busy[name] -= 1
            lane.groups.reconsider(lane, name)
        elif lane.tenants is not None:
            lane.tenants.show(lane, chunk, index, name)


def end(lane: Lane, chunk: Chunk, at: int, count: int) -> None:
    """Done with: they leave for good."""
    lane.reserved -= count
    if chunk.groups is None:
        chunk.states[at : at + count] = bytes(count)
        chunk.live -= count
        lane.live -= count
        lane.drop_if_empty(chunk)
        return
    for index in range(at, at + count):
        name = chunk.named(index)
        if name and lane.groups is not None:
            lane.groups.busy[name] -= 1
        # As if it had only been held: nothing counts it any more.
        chunk.states[index] = HELD
        lane.remove(chunk, index)


# Looking


def taken(lane: Lane, batch: Batch, skip: int = 0) -> Iterator[Taken]:
    """The messages of a batch as they lie in the log, run by run, from the `skip`-th on."""
    for first, length in batch.runs():
        if skip >= length:
            skip -= length
            continue
        for chunk, at, count in _pieces(lane, first + skip, length - skip):
            end = at + count
            while at < end:
                part = chunk.alike(at, end - at)
                yield _as_taken(chunk, at, part)
                at += part
        skip = 0


def _as_taken(chunk: Chunk, at: int, count: int) -> Taken:
    address, item = chunk.place(at)
    time, receives = chunk.pushed_at(at), chunk.received(at)
    first = time + chunk.first_received[at] if receives and chunk.first_received is not None else 0
    return Taken(chunk.base + at, count, 0, address, item, (receives,) * count, time, first, chunk.origin(at))
