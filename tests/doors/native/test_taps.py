"""Taps over the wire: everything that was pushed, plain or as Arrow, the same either way."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Refused, Stranger, attribute_bytes, id_of, record

pa = pytest.importorskip("pyarrow")


def table(stranger: Stranger, queue: int, name: str, **given: Any) -> tuple[int, int, Any]:
    """(next, end, the rows)"""
    answer = stranger.ask("TAP_READ", stranger.tap_bytes(queue, name, **given), 1)
    assert answer.kind == "ARROW"
    told, following, end, count, zero = struct.unpack_from("<QQQII", answer.payload)
    assert told == queue and zero == 0
    made = pa.ipc.open_stream(pa.py_buffer(answer.payload[32:])).read_all()
    made.validate(full=True)
    assert made.num_rows == count
    return following, end, made


def plain(stranger: Stranger, queue: int, name: str, **given: Any) -> tuple[int, int, list[dict[str, Any]]]:
    return stranger.messages(stranger.ask("TAP_READ", stranger.tap_bytes(queue, name, **given)))


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


def same(stranger: Stranger, queue: int, name: str, **given: Any) -> list[dict[str, Any]]:
    """Both ways of reading tell the same; what they tell."""
    following, end, rows = plain(stranger, queue, name, **given)
    other, also, made = table(stranger, queue, name, **given)
    assert (following, end) == (other, also)
    salt = stranger.welcome.salt
    for row, arrow in zip(rows, made.to_pylist(), strict=True):
        own = row["id"] if any(row["id"]) else id_of(queue, row["sequence"], salt)
        assert arrow == {
            "queue": queue,
            "sequence": row["sequence"],
            "time": datetime.datetime.fromtimestamp(row["time"] / 1000, datetime.UTC),
            "id": own,
            "group": row["group"].decode() or None,
            "attributes": row["attributes"] or None,
            "body": row["body"],
        }
    return rows


def test_the_schema_is_as_the_page_says(stranger: Stranger, queue: int) -> None:
    stranger.tap_open(queue, "tap")
    following, end, made = table(stranger, queue, "tap")
    assert (following, end, made.num_rows) == (1, 1, 0)
    assert [(one.name, str(one.type)) for one in made.schema] == [
        ("queue", "uint64"), ("sequence", "uint64"), ("time", "timestamp[ms, tz=UTC]"), ("id", "fixed_size_binary[16]"),
        ("group", "string"), ("attributes", "binary"), ("body", "binary"),
    ]  # fmt: skip


def test_a_tap_reads_what_consumers_have_completed_and_reads_it_again(stranger: Stranger, queue: int) -> None:
    assert stranger.tap_open(queue, "tap") == 1
    stranger.push(record([queue], [b"a", b"b", b"c"]))
    stranger.complete(queue, stranger.pull(queue, 3))
    for _ in range(2):
        assert [one["body"] for one in same(stranger, queue, "tap")] == [b"a", b"b", b"c"]
    assert [one["body"] for one in same(stranger, queue, "tap", start=2, most=1)] == [b"b"]
    assert stranger.done(stranger.ask("TAP_ADVANCE", struct.pack("<QQ", queue, 3) + b"tap")) == 3
    assert [one["body"] for one in same(stranger, queue, "tap")] == [b"c"]
    refused("BAD_REQUEST", lambda: plain(stranger, queue, "tap", start=1))
    answer = stranger.ask("TAP_LIST", struct.pack("<Q", queue))
    assert answer.payload == struct.pack("<IIQQQQ", 1, 0, 3, 4, 0, 0) + b"\3\0tap"
    stranger.ask("TAP_CLOSE", struct.pack("<Q", queue) + b"tap")
    refused("NO_SUCH_TAP", lambda: plain(stranger, queue, "tap"))


def test_records_of_every_kind_are_read_the_same_either_way(stranger: Stranger, queue: int) -> None:
    random = Random(9)
    stranger.tap_open(queue, "tap")
    pushed: list[tuple[bytes, bytes, bytes, bytes]] = []
    for _ in range(60):
        count = random.choice((1, 1, 2, 5, 40))
        bodies = [random.randbytes(random.randrange(20)) for _ in range(count)]
        given: dict[str, Any] = {}
        if random.random() < 0.4:
            given["groups"] = [random.choice((b"", b"g", "größe".encode())) for _ in range(count)]
        if random.random() < 0.4:
            given["attributes"] = [random.choice((b"", attribute_bytes({"a": ("String", b"1")}))) for _ in range(count)]
        if random.random() < 0.4:
            given["ids"] = [random.choice((bytes(16), random.randbytes(16))) for _ in range(count)]
        stranger.push(record([queue], bodies, **given))
        columns = [given.get(name, [b""] * count) for name in ("groups", "attributes")]
        pushed += zip(bodies, *columns, given.get("ids", [bytes(16)] * count), strict=True)
    rows = same(stranger, queue, "tap", most=10_000)
    assert [(one["body"], one["group"], one["attributes"], one["id"]) for one in rows] == pushed
    assert [one["sequence"] for one in rows] == list(range(1, len(pushed) + 1))
    start = 1
    pieces: list[dict[str, Any]] = []
    while start <= len(pushed):
        found = same(stranger, queue, "tap", start=start, most=random.randint(1, 50), bytes_max=random.choice((0, 1, 100, 1000)))
        pieces += found
        start += len(found)
    assert pieces == rows


def test_repeats_are_not_read_again(stranger: Stranger, name: str) -> None:
    queue = stranger.declare(name, dedup_ms=60_000)
    stranger.tap_open(queue, "tap")
    keys = [bytes([number + 1]) * 16 for number in range(6)]
    stranger.push(record([queue], [b"0", b"1", b"2"], dedups=keys[:3]))
    stranger.push(
        record([queue], [b"0", b"3", b"2", b"4", b"5", b"plain"], dedups=[keys[0], keys[3], keys[2], keys[4], keys[5], bytes(16)])
    )
    assert [one["body"] for one in same(stranger, queue, "tap")] == [b"0", b"1", b"2", b"3", b"4", b"5", b"plain"]


def test_dead_letters_keep_their_ids(stranger: Stranger, name: str) -> None:
    dead = stranger.declare(f"{name}-dead")
    queue = stranger.declare(name, receives_max=1, dead_letter=dead)
    stranger.tap_open(dead, "tap")
    own = bytes(range(16))
    stranger.push(record([queue], [b"a", b"b"], ids=[own, bytes(16)]))
    stranger.settle("REQUEUE", queue, stranger.pull(queue, 2))
    stranger.pull(queue, 2)
    rows = same(stranger, dead, "tap")
    assert [(one["body"], one["id"]) for one in rows] == [(b"a", own), (b"b", id_of(queue, 2, stranger.welcome.salt))]


def test_a_tap_that_was_cut_says_what_is_lost(inside: Inside) -> None:
    stranger = inside.stranger()
    queue = stranger.declare("q")
    stranger.tap_open(queue, "tap", age_ms=1000)
    stranger.push(record([queue], [b"x"] * 5))
    inside.advance(120)
    inside.do(inside.node.snapshot())
    for _ in range(3):
        inside.advance(120)
    error = refused("TAP_CUT", lambda: plain(stranger, queue, "tap"))
    assert (error.first, error.second) == (1, 5)
    stranger.ask("TAP_ADVANCE", struct.pack("<QQ", queue, 6) + b"tap")
    assert same(stranger, queue, "tap") == []


@pytest.mark.slow
def test_taps_are_read_on_after_a_snapshot_and_a_restart(local: Process) -> None:
    local.flags = (*local.flags, "--local-snapshot-bytes", "1MiB")
    local.begin()
    stranger = Stranger(local.port)
    queue, beside = stranger.declare("q"), stranger.declare("beside")
    stranger.tap_open(queue, "tap")
    expected = []
    for number in range(80):
        bodies = [b"%d-%d-" % (number, index) + b"x" * 300 for index in range(100)]
        stranger.push(record([queue], bodies))
        stranger.push(record([beside], [b"y" * 1000] * 10))
        stranger.complete(queue, stranger.pull(queue, 100))
        expected += bodies
    for _ in range(2):
        seen: list[bytes] = []
        start = 1
        while start <= len(expected):
            following, end, made = table(stranger, queue, "tap", start=start, most=1777)
            assert end == len(expected) + 1
            seen += made["body"].to_pylist()
            start = following
        assert seen == expected
        stranger.close()
        local.end()
        local.begin()
        stranger = Stranger(local.port)
        assert stranger.open("q") == queue
    stranger.close()
