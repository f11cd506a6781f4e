"""The table of hashes against a dictionary."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.core.deduplication import Deduplication


def test_it_knows_what_a_dictionary_knows() -> None:
    random, table, known, now = Random(5), Deduplication(), {}, 0
    keys = [random.randbytes(16) for _ in range(300)]
    for sequence in range(4000):
        now += random.choice((0, 0, 1, 3))
        key = random.choice(keys)
        wanted = known[key][0] if key in known and known[key][1] + 500 > now else None
        assert table.seen(key, now, 500) == wanted
        if wanted is None:
            table.put(key, sequence, now, 500)
            known[key] = (sequence, now)
        if sequence % 500 == 0:
            again = Deduplication()
            for part in table.dump():
                again.load(*part)
            table = again


@pytest.mark.slow
def test_keys_that_begin_alike_are_told_apart() -> None:
    table = Deduplication()
    keys = [bytes(8) + number.to_bytes(8, "big") for number in range(1, 2000)]
    for sequence, key in enumerate(keys):
        table.put(key, sequence, 0, 1000)
    assert [table.seen(key, 999, 1000) for key in keys] == list(range(len(keys)))
    assert len(table) == len(keys)


def test_hashes_older_than_two_windows_leave_memory() -> None:
    table, random = Deduplication(), Random(1)
    for now in range(0, 10_000, 10):
        table.put(random.randbytes(16), 1, now, 100)
    assert len(table) <= 2 * 100 // 10 + 2


def test_clearing_forgets_everything() -> None:
    table = Deduplication()
    table.put(b"k" * 16, 1, 0, 1000)
    table.clear()
    assert (table.seen(b"k" * 16, 0, 1000), len(table)) == (None, 0)
