"""The frame's decoder is total: any bytes give a frame or a CodecError, and nothing but what was encoded comes out as a frame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import CodecError
from dovetail.logs.frame import FRAME_BYTES_MAX, HEADER_BYTES, decode, encode, frame_bytes, peek, record_at

records_of = st.lists(st.binary(max_size=300), max_size=12)
places = st.integers(0, 1 << 60)
salts = st.integers(0, (1 << 32) - 1)


@given(records_of, places, salts, st.integers(0, 5))
def test_what_is_encoded_comes_out_again(records: list[bytes], position: int, salt: int, before_units: int) -> None:
    frame, addresses = encode(records, position, position // 2, salt)
    assert len(frame) == frame_bytes(records) and len(frame) % 8 == 0
    view = memoryview(bytes(before_units * 8) + frame + b"rest" * 4)
    size, synced, found, found_addresses = decode(view, before_units * 8, position, salt)
    assert (size, synced, [bytes(r) for r in found], found_addresses) == (len(frame), position // 2, records, addresses)
    assert peek(view, before_units * 8, position, salt) == (size, synced, len(records))
    for address, record in zip(addresses, records, strict=True):
        assert record_at(view, (before_units + address - position) * 8) == record


@given(st.binary(max_size=400), st.integers(-8, 420), places)
def test_any_bytes_give_a_frame_or_a_codec_error(data: bytes, offset: int, position: int) -> None:
    view = memoryview(data)
    for reader in (lambda: decode(view, max(0, offset), position), lambda: record_at(view, offset)):
        with pytest.raises(CodecError):
            reader()
            raise CodecError  # A lucky guess of a checksum is a frame, too.
    peek(view, max(0, offset), position)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
def test_no_flipped_bit_outside_the_padding_passes(records: list[bytes], data: st.DataObject) -> None:
    frame, _ = encode(records, 77, 70, 5)
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    broken = bytearray(frame)
    broken[bit // 8] ^= 1 << (bit % 8)
    try:
        _, synced, found, _ = decode(memoryview(broken), 0, 77, 5)
    except CodecError:
        return
    assert (synced, [bytes(r) for r in found]) == (70, records), "only padding may change unseen"


@given(records_of, st.data())
def test_a_cut_frame_is_no_frame(records: list[bytes], data: st.DataObject) -> None:
    frame, _ = encode(records, 1, 0)
    kept = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(CodecError):
        decode(memoryview(frame)[:kept], 0, 1)


@given(records_of.filter(bool), salts, salts)
def test_a_frame_of_another_log_or_another_place_is_no_frame(records: list[bytes], ours: int, theirs: int) -> None:
    frame, _ = encode(records, 10, 3, ours)
    with pytest.raises(CodecError):
        decode(memoryview(frame), 0, 11, ours)
    if ours != theirs:
        with pytest.raises(CodecError):
            decode(memoryview(frame), 0, 10, theirs)


@given(st.binary(min_size=1, max_size=200), st.binary(min_size=1, max_size=200))
def test_a_record_of_another_frame_of_the_same_shape_does_not_pass(old: bytes, new: bytes) -> None:
    size = min(len(old), len(new))
    old, new = old[:size], new[:size]
    stale, _ = encode([b"head", old], 8, 0)
    fresh, _ = encode([b"head", new], 8, 0)
    mixed = fresh[: HEADER_BYTES + 16] + stale[HEADER_BYTES + 16 :]
    if old == new:
        return
    with pytest.raises(CodecError):
        decode(memoryview(mixed), 0, 8)


def test_zeros_are_neither_a_frame_nor_a_record() -> None:
    view = memoryview(bytes(4096))
    assert peek(view, 0, 0) is None
    with pytest.raises(CodecError):
        decode(view, 0, 0)
    with pytest.raises(CodecError):
        record_at(view, 64)


def test_a_length_that_lies_allocates_nothing() -> None:
    frame, _ = encode([b"x"], 0, 0)
    for length in (0, 8, 31, 33, FRAME_BYTES_MAX + 8, 0xFFFFFFF8):
        lying = length.to_bytes(4, "little") + frame[4:]
        with pytest.raises(CodecError):
            decode(memoryview(lying), 0, 0)
