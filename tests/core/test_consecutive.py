"""Numbers that follow one another are the same bytes as one by one, at every size and up to the last number there is."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.consecutive import consecutive, numbers

END = 1 << 64


@given(st.integers(0, END - 1), st.sampled_from([0, 1, 2, 3, 100, 255, 256, 257, 512, 1000]))
def test_numbers_that_follow_one_another_are_the_same_as_one_by_one(first: int, count: int) -> None:
    first = min(first, END - count)
    expected = array("Q", range(first, first + count))
    assert consecutive(first, count) == numbers(range(first, first + count)) == numbers(list(expected)) == expected.tobytes()
    assert numbers(expected) == numbers(tuple(expected)) == expected.tobytes()


@pytest.mark.parametrize(("first", "count"), [(-1, 3), (END - 2, 3), (END, 1)])
def test_what_does_not_fit_is_refused_and_carries_into_no_neighbour(first: int, count: int) -> None:
    with pytest.raises(OverflowError):
        consecutive(first, count)


def test_other_steps_are_taken_one_by_one() -> None:
    assert numbers(range(10, 0, -3)) == array("Q", [10, 7, 4, 1]).tobytes()
