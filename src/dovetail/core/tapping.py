"""What opens, moves, cuts and closes a tap. Reading one changes nothing and is not here."""

from __future__ import annotations

from dovetail.core import operation as op
from dovetail.core.lane import Lane
from dovetail.core.operation import Done, Outcome, Refusal, Why
from dovetail.core.taps import Tap
from dovetail.limits import TAPS_PER_QUEUE_MAX


def tap(lane: Lane, operation: op.TapOpen | op.TapAdvance | op.TapCut | op.TapClose) -> Outcome:
    match operation:
        case op.TapOpen():
            return _open(lane, operation)
        case op.TapAdvance(_, name, sequence):
            return _moved(lane, name, sequence, cut=False)
        case op.TapCut(_, name, sequence):
            return _moved(lane, name, sequence, cut=True)
        case op.TapClose(_, name):
            if lane.taps.by_name.pop(name, None) is None:
                return Refusal(Why.NO_TAP)
            lane.taps.forget()
            return Done()


def _open(lane: Lane, o: op.TapOpen) -> Outcome:
    """A new tap, or the one that has the name. It can begin no lower than the earliest message that waits or is noted."""
    taps = lane.taps
    known = taps.by_name.get(o.name)
    if known is not None:
        return Done(known.next)
    if len(taps.by_name) >= TAPS_PER_QUEUE_MAX:
        return Refusal(Why.TOO_MANY_TAPS)
    if o.start < taps.floor(lane.next):
        lane.tap_live(taps.floor(lane.next))
    start = lane.next if o.start == op.LATEST else max(taps.floor(lane.next), min(o.start, lane.next))
    taps.by_name[o.name] = Tap(start, o.age_ms, o.bytes)
    taps.forget()
    return Done(start)


def _moved(lane: Lane, name: str, sequence: int, *, cut: bool) -> Outcome:
    """Forward only. What a cut loses is remembered until the tap has been told and goes on."""
    found = lane.taps.by_name.get(name)
    if found is None:
        return Refusal(Why.NO_TAP)
    target = min(sequence, lane.next)
    if cut and target > found.next:
        if not found.lost_count:
            found.lost_first = found.next
        found.lost_count = target - found.lost_first
    elif not cut and target >= found.next:
        found.lost_count = 0
    found.next = max(found.next, target)
    lane.taps.forget()
    return Done(found.next)
