"""SEMANTICS §7: a number has one outcome, stored or refused, and is never used again."""

from __future__ import annotations

from typing import Any

from dovetail.core.column import Column
from dovetail.core.operation import (
    Attributes,
    Complete,
    CompletePush,
    Create,
    Numbered,
    Opened,
    ProducerOpen,
    Push,
    Pushed,
    Refusal,
    Skip,
    Why,
)
from tests.core.world import Local

NAME = b"n" * 16


def opened(*rules: Attributes) -> Local:
    log = Local(*(rules or (Attributes(),)))
    assert log(ProducerOpen(NAME)) == Opened(1, 0)
    return log


def numbered(number: int, count: int = 1, queue: int = 1, epoch: int = 1) -> Push:
    return Push((queue,), Column.of([b"x"] * count), numbered=Numbered(NAME, epoch, number))


def answer(outcome: Any) -> Any:
    return (list(outcome.sequences), set(outcome.repeats)) if isinstance(outcome, Pushed) else outcome.why


def test_a_repeated_number_is_answered_with_its_first_outcome() -> None:
    log = opened()
    assert answer(log(numbered(1))) == ([1], set())
    assert answer(log(numbered(1))) == ([1], {0})
    assert log.counts() == (1, 0, 0)


def test_a_batch_that_repeats_in_part_stores_only_the_rest() -> None:
    log = opened()
    log(numbered(1, 2))
    assert answer(log(numbered(2, 3))) == ([2, 3, 4], {0})


def test_a_gap_and_a_producer_that_is_not_open_use_no_number() -> None:
    log = opened()
    assert answer(log(numbered(2))) == Why.GAP
    assert answer(log(numbered(0))) == Why.GAP
    assert answer(log(numbered(1, epoch=2))) == Why.NOT_OPEN
    assert answer(log(numbered(1))) == ([1], set())
    assert log(ProducerOpen(NAME)) == Opened(2, 1)
    assert answer(log(numbered(2))) == Why.NOT_OPEN
    assert answer(log(numbered(2, epoch=2))) == ([2], set())


def test_the_last_64_results_are_kept_and_older_ones_are_stored_before() -> None:
    log = opened()
    log(numbered(1, 65))
    assert answer(log(numbered(1))) == ([0], {0})
    assert answer(log(numbered(2))) == ([2], {0})


def test_skip_fills_a_number_that_was_given_up() -> None:
    log = opened()
    assert log(Skip(NAME, 1, 1)).value == 1
    assert log(Skip(NAME, 1, 1)).value == 0
    assert answer(log(numbered(2))) == ([1], set())


def test_a_number_that_was_refused_stays_refused() -> None:
    log = opened()
    assert answer(log(numbered(1, queue=2))) == Why.NO_QUEUE
    log(Create(2, Attributes()))
    assert answer(log(numbered(1, queue=2))) == Why.NO_QUEUE
    assert log.counts(2) == (0, 0, 0)
    assert answer(log(numbered(2, queue=2))) == ([1], set())


def test_a_repeat_of_a_refused_number_does_not_complete_what_it_came_with() -> None:
    log = opened()
    log.push(b"work")
    [(sequence, delivery)] = log.pop()
    step = CompletePush(Complete(1, [sequence], [delivery]), numbered(1, queue=2))
    assert log(step).why == Why.NO_QUEUE
    assert isinstance(log(step), Refusal)
    assert log.counts() == (0, 0, 1)


def test_a_number_in_two_lanes_reports_the_repeats_of_each() -> None:
    log = opened(Attributes(dedup_ms=1000), Attributes())
    log(Push((1,), Column.of([b"x"]), dedups=b"k" * 16))
    one, two = log(Push((1, 2), Column.of([b"x"]), dedups=b"k" * 16, numbered=Numbered(NAME, 1, 1))).lanes
    assert (set(one.repeats), set(two.repeats)) == ({0}, set())
