"""How much a batch reads, and how it is shared out among tasks. Pure decisions over ranges of sequences."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.spark.offsets import Range

PARTITION_ROWS = 200_000
"""A task costs about as much as reading some ten thousand rows; more than this many rows are worth another task …"""
FEW = 8
LARGE_PARTITION_ROWS = 1_000_000
"""… until there are a few of them: beyond that tasks only grow."""
PARTITIONS_MAX = 64


def limited(ranges: Sequence[Range], rows: int) -> list[Range]:
    """Ranges of at most `rows` together, each from its start. A queue gets its share of what waits, so that all catch up at one time, and
    at least one row, so that none stands still behind a large one."""
    total = sum(one.rows for one in ranges)
    if total <= rows:
        return list(ranges)
    taken: list[Range] = []
    left = max(1, rows)
    # The smallest first: whatever a share leaves over by rounding goes to those who have more.
    for index, one in enumerate(sorted(ranges, key=lambda one: one.rows)):
        if not left:
            break
        share = max(1, min(one.rows, left * one.rows // max(1, total))) if index < len(ranges) - 1 else min(one.rows, left)
        taken.append(one._replace(end=one.start + share))
        left -= share
        total -= one.rows
    return sorted(taken)


def shared(ranges: Sequence[Range], partitions: int | None = None) -> list[Range]:
    """The same ranges cut into parts, several to a queue where it is long. The same ranges always give the same parts."""
    total = sum(one.rows for one in ranges)
    if not total:
        return []
    wanted = partitions or min(PARTITIONS_MAX, max(min(FEW, -(-total // PARTITION_ROWS)), -(-total // LARGE_PARTITION_ROWS)))
    size = -(-total // wanted)
    parts: list[Range] = []
    for one in ranges:
        count = -(-one.rows // size)
        parts += [
            one._replace(start=one.start + one.rows * index // count, end=one.start + one.rows * (index + 1) // count)
            for index in range(count)
        ]
    return parts
