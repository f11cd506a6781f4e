"""The index of time against a sorted list."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.core.timeindex import TimeIndex

DAY = 86_400_000
STEPS = (0, 1, 7, 500, 1023, 1024, 1025, 60_000, 1 << 20, DAY, 3 * DAY, 60 * DAY, 4000 * DAY)


@pytest.mark.parametrize("seed", range(12))
def test_it_gives_what_a_sorted_list_gives(seed: int) -> None:
    random = Random(seed)
    index, known = TimeIndex(), []
    now, sequence = random.choice((0, 999_999, 1_700_000_000_000)), 1
    for _ in range(400):
        what = random.random()
        if what < 0.55:
            time, count = now + 1 + random.choice(STEPS) + random.randrange(3), random.choice((1, 1, 3, 40))
            index.add_run(time, sequence, count, now)
            known += [(time, sequence + offset) for offset in range(count)]
            sequence += count
        elif what < 0.85:
            now += random.choice(STEPS[:9]) if random.random() < 0.8 else random.choice(STEPS)
            due = [entry for entry in known if entry[0] <= now]
            assert sorted(index.peek_due(now)) == sorted(due)
            assert index.any_due(now, lambda time, sequence: True) == bool(due)
            assert sorted(index.take_due(now)) == sorted(due)
            known = [entry for entry in known if entry[0] > now]
        elif what < 0.95:
            following = index.next_due(now)
            assert (following is None) == (not known)
            if following is not None:
                assert now < following <= min(known)[0]
        else:
            index = TimeIndex.of([(start, entries[:]) for start, entries in index.buckets()])
        assert len(index) == len(known)
        assert index.earliest <= min(known, default=(1 << 63, 0))[0]


def test_whoever_sleeps_until_the_next_due_time_arrives_in_few_steps() -> None:
    index, now = TimeIndex(), 1_700_000_000_000
    index.add(now + 400 * DAY + 123, 1, now)
    wakes = 0
    while not list(index.take_due(now)):
        wakes += 1
        assert wakes < 8
        following = index.next_due(now)
        assert following is not None
        now = following
    assert now == 1_700_000_000_000 + 400 * DAY + 123


def test_asking_with_stale_entries_drops_only_those() -> None:
    index = TimeIndex()
    index.add_run(5000, 1, 10, 0)
    assert index.any_due(9000, lambda time, sequence: sequence == 4)
    assert (5000, 4) in list(index.take_due(9000))


@pytest.mark.parametrize("time", [500_500, 262_143, 262_144, 1_048_575, (1 << 28) + (1 << 19)])
def test_in_the_last_second_before_it_the_next_due_time_is_exact(time: int) -> None:
    """An answer in the past would make the sleeper spin until the moment comes."""
    index = TimeIndex()
    index.add(time, 1, 0)
    assert index.next_due(time - time % 1024 + 1 if time % 1024 > 1 else time - 1) == time
