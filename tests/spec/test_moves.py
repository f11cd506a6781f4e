"""Moves between logs are what spec/Moves.tla says: any step that was ever possible, however late and however often, and its invariants.

Each safeguard has a twin without it, in which an invariant breaks, or the logs hold something else than the specification.
"""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.core import crossing, moves
from dovetail.core.lane import Lane
from dovetail.core.moves import Arrivals, Departures
from dovetail.core.operation import Outcome
from dovetail.core.state import State
from tests.spec.moves import Pair

MESSAGES, STEPS = 6, 150
SEEDS = range(40)


def walk(seed: int) -> Pair:
    """Raises AssertionError where a step leads elsewhere than in the specification, or an invariant breaks."""
    pair = Pair(seed, MESSAGES)
    for _ in range(STEPS):
        pair.step()
        is_, said = pair.variables(), pair.said
        assert is_ == said
        for message in range(1, MESSAGES + 1):
            places = (message in is_.here, message in is_.moving.values(), message in is_.there, message in pair.consumed)
            assert any(places), f"NoAckedPushLost: {message}"
            assert pair.copies[message] <= 1, f"MovedOnce: {message}"
            assert not (places[0] and (places[1] or places[2])), f"AtMostOneLiveDelivery: {message}"
            assert not (places[3] and (places[0] or places[2])), f"CompletedNeverReturns: {message}"
        assert all(number > is_.low for number in is_.moving), "NoneIsForgotten"
    return pair


def test_every_step_is_one_of_the_specification_and_its_invariants_hold() -> None:
    walks = [walk(seed) for seed in SEEDS]
    assert sum(len(pair.consumed) for pair in walks) > 4 * len(walks), "most of them arrived, and were taken there"
    assert any(pair.departures.gone for pair in walks), "some were refused and taken back"
    assert any(pair.variables().low > 3 for pair in walks)


def breaks(match: str | None = None) -> None:
    with pytest.raises((AssertionError, KeyError), match=match):
        for seed in SEEDS:
            walk(seed)


def test_with_a_high_water_mark_a_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of *low and the set above it*: 2 arrives first, and 1 counts as having been there before."""
    arrive = crossing.arrive

    def below_the_highest(state: State, o: Any, address: int) -> Outcome:
        known = state.arrivals.get((o.source, o.push.queues[0]))
        if known is not None and known.low < o.number < max(known.judged, default=0):
            known.judged.setdefault(o.number, 1)
        return arrive(state, o, address)

    _patched(monkeypatch, moves.Arrive, below_the_highest)
    breaks()


def test_with_a_set_that_forgets_a_message_is_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of *the set forgets nothing*: the target remembers only the last number."""
    arrive = crossing.arrive

    def only_the_last(state: State, o: Any, address: int) -> Outcome:
        known = state.arrivals.get((o.source, o.push.queues[0]), Arrivals())
        known.judged = {number: sequence for number, sequence in known.judged.items() if number == o.number}
        return arrive(state, o, address)

    _patched(monkeypatch, moves.Arrive, only_the_last)
    breaks()


def test_what_is_forgotten_before_it_is_settled_is_under_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of *only what is settled is forgotten*: somebody names what was given, not what was settled."""
    monkeypatch.setattr(Departures, "settled", lambda self: self.next - 1)
    breaks("NoneIsForgotten")


def test_a_step_that_does_not_name_its_number_settles_anothers_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin of *every step names its number*: an answer settles what is under way longest."""
    settle_one = crossing._settle_one

    def the_oldest(state: State, lane: Lane, target: int, number: int, arrived: int) -> bool:
        oldest = next(iter(lane.departures[target].under_way), number)
        return settle_one(state, lane, target, oldest, arrived)

    monkeypatch.setattr(crossing, "_settle_one", the_oldest)
    breaks()


def _patched(monkeypatch: pytest.MonkeyPatch, kind: type[Any], handler: Any) -> None:
    from dovetail.core import state

    monkeypatch.setitem(state._HANDLERS, kind, handler)
