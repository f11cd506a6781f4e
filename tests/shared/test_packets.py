"""Packets and the spool: what was put in comes out, and nothing that was harmed does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import CodecError, Damaged, LimitExceeded, StorageError
from dovetail.logs.shared.packet import HEADER_BYTES, SHIFT, decode, encode, mark_of, packet_bytes, record_at
from dovetail.logs.shared.spool import Spool

RECORDS = st.lists(st.binary(max_size=200), min_size=1, max_size=20)


@given(RECORDS)
@settings(max_examples=200, deadline=None)
def test_records_come_out_as_they_went_in(records: list[bytes]) -> None:
    packet = encode(records)
    assert len(packet) == packet_bytes(records) and decode(packet) == records
    assert [record_at(memoryview(b"before" + packet), 6, index) for index in range(len(records))] == records


@given(RECORDS, st.data())
@settings(max_examples=300, deadline=None)
def test_no_flipped_bit_and_no_cut_is_taken_for_a_packet(records: list[bytes], data: st.DataObject) -> None:
    packet = bytearray(encode(records))
    bit = data.draw(st.integers(0, 8 * len(packet) - 1))
    packet[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CodecError):
        decode(bytes(packet))
    packet[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CodecError):
        decode(bytes(packet[: data.draw(st.integers(0, len(packet) - 1))]))


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_not_be_a_packet(data: bytes) -> None:
    try:
        decode(data)
    except CodecError:
        pass


def test_packets_with_other_records_have_other_marks() -> None:
    marks = {mark_of(encode(records)) for records in ([b"a"], [b"b"], [b"a", b""], [b"", b"a"], [b"ab"], [b"a", b"b"])}
    assert len(marks) == 6


def test_a_packet_has_a_bounded_number_of_records() -> None:
    for count in (0, 1 << 16):
        with pytest.raises(LimitExceeded):
            encode([b""] * count)


def test_the_spool_gives_every_record_until_it_is_trimmed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 7, segment_bytes=4096)
    bodies = {number: [b"%d" % number * 100, bytes(number)] for number in range(7, 207)}
    for records in bodies.values():
        spool.add(encode(records))
    assert spool.next == 207 and not list(tmp_path.iterdir()), "its files have no names: they go with the process"
    held = spool.get(60 << SHIFT)
    for trimmed in (7, 50, 51, 206, 207):
        spool.trim(trimmed)
        for number, records in bodies.items():
            for index, record in enumerate(records):
                assert spool.get(number << SHIFT | index) == (record if number >= trimmed else None)
    assert held == bodies[60][0], "what somebody holds stays as long as it is held"
    assert spool.bytes_kept == 0 and spool.get(207 << SHIFT) is None
    spool.add(encode([b"on"]))
    assert spool.get(207 << SHIFT) == b"on"


def test_a_record_that_does_not_come_back_as_it_was_is_named(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1)
    spool.add(encode([b"x" * 1000]))
    import os

    os.pwrite(spool._segments[0].descriptor, b"y", HEADER_BYTES + 8 + 500)
    with pytest.raises(Damaged):
        spool.get(1 << SHIFT)


def test_a_full_cache_folder_is_an_error_and_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    spool = Spool(tmp_path, 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match="cannot take"):
        spool.add(encode([b"x"]))
