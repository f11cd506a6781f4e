"""What opens, moves, cuts and closes a tap, of a lane or of the facts. Reading one changes nothing and is not here."""

from __future__ import annotations

from dovetail.core import operation as op
from dovetail.core.chronicle import Chronicle
from dovetail.core.lane import Lane
from dovetail.core.operation import Done, Outcome, Refusal, Why
from dovetail.core.taps import Tap
from dovetail.limits import FACTS_TAPS_MAX, TAPS_PER_QUEUE_MAX


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
    _move(found, min(sequence, lane.next), cut=cut)
    lane.taps.forget()
    return Done(found.next)


def _move(tap: Tap, target: int, *, cut: bool) -> None:
    if cut and target > tap.next:
        if not tap.lost_count:
            tap.lost_first = tap.next
        tap.lost_count = target - tap.lost_first
    elif not cut and target >= tap.next:
        tap.lost_count = 0
    tap.next = max(tap.next, target)


# Facts


def facts_tap(chronicle: Chronicle, o: op.FactsTapping) -> Outcome:
    """Where nobody asks there are no facts, so a first tap begins with the next one, whatever it says."""
    taps, key = chronicle.taps, (o.namespace, o.name)
    known = taps.get(key)
    match o:
        case op.FactsOpen():
            if known is not None:
                return Done(known.next)
            if sum(namespace == o.namespace for namespace, _ in taps) >= FACTS_TAPS_MAX:
                return Refusal(Why.TOO_MANY_TAPS)
            start = chronicle.next if o.start == op.LATEST else max(chronicle.lowest(), min(o.start, chronicle.next))
            taps[key] = known = Tap(start, o.age_ms, o.bytes)
        case op.FactsClose():
            if taps.pop(key, None) is None:
                return Refusal(Why.NO_TAP)
        case op.FactsAdvance() | op.FactsCut():
            if known is None:
                return Refusal(Why.NO_TAP)
            _move(known, min(o.number, chronicle.next), cut=isinstance(o, op.FactsCut))
    chronicle.changed()
    return Done(known.next if known is not None else 0)
