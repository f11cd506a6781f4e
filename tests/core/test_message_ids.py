"""Message ids: made from (queue, sequence), undone again, and never the same twice."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.message import id_bytes, id_of, id_text, of_id, salt_of
from dovetail.errors import CodecError
from dovetail.limits import SEQUENCE_MAX

SALT = salt_of(b"k" * 32)


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.integers(0, (1 << 58) - 1), st.integers(0, SEQUENCE_MAX))
def test_an_id_names_its_queue_and_sequence(queue: int, sequence: int) -> None:
    identity = id_of(queue, sequence, SALT)
    assert of_id(identity, SALT) == (queue, sequence)
    assert id_bytes(id_text(identity)) == identity
    assert UUID(id_text(identity)).version == 8


def test_neighbours_have_ids_that_differ() -> None:
    ids = {id_of(queue, sequence, SALT) for queue in range(1, 60) for sequence in range(300)}
    assert len(ids) == 59 * 300


def test_another_namespace_gives_the_same_message_another_id() -> None:
    assert id_of(1, 1, SALT) != id_of(1, 1, salt_of(b"l" * 32))


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.binary(min_size=16, max_size=16))
def test_an_id_that_a_caller_gave_can_be_asked_without_harm(identity: bytes) -> None:
    queue, sequence = of_id(identity, SALT)
    assert queue >= 0 and sequence >= 0


@pytest.mark.parametrize("text", ["", "x", "00", "zz" * 16, "é" * 16, "0" * 34])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        id_bytes(text)
