"""Ids of a tap in columns: the same as those that the core makes one by one, wherever their limbs carry or change."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.core.message import id_of

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("first", [1, 2**32 - 5, 2**32, 2**40 + 7, 2**63 - 5, 2**64 - 10])
def test_a_column_of_ids_is_what_the_core_makes_of_each(first: int) -> None:
    from dovetail.doors.native.arrow import _ids

    random = Random(first)
    sequences = [first + index for index in range(10)]
    for bits in (1, 32, 64, 122, 128):
        queue, salt = random.getrandbits(min(bits, 64)), random.getrandbits(bits)
        made = bytes(_ids(queue, pa.array(sequences, pa.uint64()), salt))
        assert made == b"".join(id_of(queue, sequence, salt) for sequence in sequences), (queue, salt)


def test_sequences_that_are_far_apart_have_their_own_ids() -> None:
    from dovetail.doors.native.arrow import _ids

    for sequences in ([3, 2**32 + 1, 2**33, 2**64 - 1], [5, 2**40, 6]):
        assert bytes(_ids(7, pa.array(sequences, pa.uint64()), 12345)) == b"".join(id_of(7, one, 12345) for one in sequences)
