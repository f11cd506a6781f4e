"""Receipts are sealed: nobody makes one up, alters one, or carries one to another namespace."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.receipts import Receipt, seal, unseal
from dovetail.errors import ReceiptInvalid

KEY = b"k" * 32
U64 = st.integers(0, (1 << 64) - 1)


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(U64, U64, U64)
def test_a_receipt_comes_back_as_it_went(queue: int, sequence: int, delivery: int) -> None:
    assert unseal(KEY, seal(KEY, queue, sequence, delivery)) == Receipt(queue, sequence, delivery)


def test_a_receipt_of_another_key_is_refused() -> None:
    with pytest.raises(ReceiptInvalid):
        unseal(b"l" * 32, seal(KEY, 1, 2, 3))


def test_an_altered_receipt_never_names_another_delivery() -> None:
    random, text = Random(2), seal(KEY, 1, 2, 3)
    for at in range(len(text)):
        for character in ("A", "_", "=", "\n", "é", random.choice("bcdefgh")):
            altered = text[:at] + character + text[at + 1 :]
            try:
                assert unseal(KEY, altered) == Receipt(1, 2, 3)
            except ReceiptInvalid:
                pass


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.one_of(st.text(max_size=60), st.text(min_size=43, max_size=43)))
def test_arbitrary_text_is_refused(text: str) -> None:
    with pytest.raises(ReceiptInvalid):
        unseal(KEY, text)


def test_a_receipt_has_one_spelling() -> None:
    text = seal(b"k" * 32, 1, 2, 3)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for letter in alphabet.replace(text[-1], ""):
        with pytest.raises(ReceiptInvalid):
            unseal(b"k" * 32, text[:-1] + letter)
