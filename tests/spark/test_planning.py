"""How a batch is limited and shared out: over random ranges. No node, no JVM."""

from __future__ import annotations

import random

import pytest

from dovetail.spark.offsets import Offsets, Place, Range
from dovetail.spark.planning import limited, shared
from dovetail.spark.progress import lag
from dovetail.spark.shares import Share, Shares


def some_ranges(chance: random.Random) -> list[Range]:
    starts = [chance.randrange(1, 1000) for _ in range(chance.randrange(1, 8))]
    return [Range(f"q{number}", number, start, start + chance.choice([1, 5, 1000, 3_000_000])) for number, start in enumerate(starts)]


@pytest.mark.parametrize("seed", range(200))
def test_a_limit_is_kept_and_no_queue_stands_still(seed: int) -> None:
    chance = random.Random(seed)
    ranges = some_ranges(chance)
    rows = chance.choice([1, 3, 10, 999, 10**6, 10**9])
    taken = limited(ranges, rows)
    assert sum(one.rows for one in taken) == min(rows, sum(one.rows for one in ranges))
    whole = {one.name: one for one in ranges}
    assert all(one.start == whole[one.name].start and one.start < one.end <= whole[one.name].end for one in taken)
    assert len(taken) >= min(rows, len(ranges))


@pytest.mark.parametrize("seed", range(200))
def test_parts_cover_their_ranges_without_gap_or_overlap(seed: int) -> None:
    chance = random.Random(seed)
    ranges = some_ranges(chance)
    partitions = chance.choice([None, 1, 2, 7, 50])
    parts = shared(ranges, partitions)
    assert parts == shared(ranges, partitions)
    covered = [(part.name, number) for part in parts for number in (part.start, part.end)]
    for one in ranges:
        ends = [number for name, number in covered if name == one.name]
        assert ends[0] == one.start and ends[-1] == one.end and ends[1:-1:2] == ends[2:-1:2]
    assert all(part.rows for part in parts)
    assert len(parts) <= (partitions or 64) + len(ranges)


def test_a_small_batch_is_one_task_and_a_large_one_has_tasks_worth_their_cost() -> None:
    assert [len(shared([Range("q", 1, 1, 1 + rows)])) for rows in (1, 200_000, 400_000, 1_600_000, 10_000_000, 10**9)] == [
        1,
        1,
        2,
        8,
        10,
        64,
    ]
    assert shared([]) == []


def test_the_same_place_always_has_the_same_text_and_reads_back() -> None:
    one = Offsets("o", "t", {"b": Place(2, 1, 5), "a": Place(1, 3, 4)})
    other = Offsets("o", "t", {"a": Place(1, 3, 4), "b": Place(2, 1, 5)})
    assert repr(one.told()) == repr(other.told())
    assert Offsets.of(one.told()) == one


def test_a_checkpoint_of_version_1_stays_readable() -> None:
    told = {"version": 1, "origin": "5f0c", "tap": "archive", "queues": {"orders": {"id": 7, "lanes": {"0": {"first": 1, "next": 200001}}}}}
    assert Offsets.of(told) == Offsets("5f0c", "archive", {"orders": Place(7, 1, 200001)})
    assert Offsets.of(told).told() == told


def test_a_reservations_checkpoint_of_version_1_stays_readable() -> None:
    lane = {"first": 12, "next": 14, "rows": 150000, "given": 11, "epoch": 3}
    told = {"version": 1, "origin": "5f0c", "reservation": "billing", "queues": {"orders": {"id": 7, "lanes": {"0": lane}}}}
    assert Shares.of(told) == Shares("5f0c", "billing", {"orders": Share(7, 12, 14, 150000, 11, 3)})
    assert Shares.of(told).told() == told


def test_the_lag_is_what_lies_between_the_end_of_a_batch_and_of_the_queue() -> None:
    read, known = Offsets("o", "t", {"a": Place(1, 1, 50)}), Offsets("o", "t", {"a": Place(1, 1, 80), "b": Place(2, 10, 15)})
    other = {"endOffset": "12", "latestOffset": None}
    assert lag({"sources": [{"endOffset": read.told(), "latestOffset": known.told()}, other]}) == {"a": 30, "b": 5}
