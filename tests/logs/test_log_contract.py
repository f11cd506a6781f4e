"""What every log promises, whatever keeps it: order, one delivery per entry, addresses, replay, trim, blobs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import Closed, LimitExceeded, StorageError
from dovetail.logs.local import CommitLog
from dovetail.logs.log import Entry
from dovetail.logs.memory import MemoryLog

Opener = Callable[[], Any]


@pytest.fixture(params=["memory", "local"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the log; called again after `close`, opens the same log again."""
    if request.param == "memory":
        log = MemoryLog()
        return lambda: log
    return lambda: CommitLog(tmp_path / "data", segment_bytes=64 * 1024)


def never(error: BaseException) -> None:
    raise AssertionError(f"the log failed: {error}")


def plain(entries: list[Entry]) -> list[tuple[int, int, list[bytes], list[int]]]:
    return [(e.position, e.after, [bytes(r) for r in e.records], list(e.addresses)) for e in entries]


def fill(log: Any, count: int, record_bytes: int = 100) -> list[Entry]:
    got: list[Entry] = []
    log.start(got.append, never)
    for number in range(count):
        log.append([b"head", number.to_bytes(4, "big") * (record_bytes // 4), b""])
    return got


def test_every_entry_is_delivered_once_and_in_order(opener: Opener) -> None:
    log = opener()
    got = fill(log, 300)
    assert [int.from_bytes(e.records[1][:4], "big") for e in got] == list(range(300))
    assert all(a.after == b.position for a, b in pairwise(got))
    assert log.tail == got[-1].after
    assert not log.busy
    log.close()


def test_a_replay_gives_the_same_entries_from_any_of_them_on(opener: Opener) -> None:
    log = opener()
    got = plain(fill(log, 2000))
    log.close()
    log = opener()
    for start in (0, 1, 777, 1999):
        assert plain(list(log.read(got[start][0]))) == got[start:]
    assert list(log.read(log.tail)) == []
    log.close()


def test_each_record_can_be_fetched_by_its_address_alone(opener: Opener) -> None:
    log = opener()
    got = fill(log, 1500, 800)
    for entry in got[::7]:
        for address, record in zip(entry.addresses, entry.records, strict=True):
            assert log.fetch(address) == record
            assert log.fetch(address) == record
    assert log.fetch(log.tail) is None
    log.close()


def test_addresses_are_unique_and_grow(opener: Opener) -> None:
    log = opener()
    addresses = [a for e in fill(log, 500) for a in e.addresses]
    assert addresses == sorted(set(addresses))
    log.close()


@pytest.mark.slow
def test_trim_removes_a_prefix_and_nothing_that_is_needed(opener: Opener) -> None:
    log = opener()
    got = fill(log, 6000)
    kept_before = log.bytes_kept
    log.trim(got[4500].position)
    assert 0 < log.first <= got[4500].position
    assert log.bytes_kept < kept_before
    assert log.fetch(got[0].addresses[0]) is None
    assert log.fetch(got[4500].addresses[1]) == got[4500].records[1]
    with pytest.raises(StorageError):
        list(log.read(0))
    log.close()
    log = opener()
    assert plain(list(log.read(got[4500].position))) == plain(got[4500:])
    log.close()


def test_an_append_from_inside_a_delivery_waits_for_it_to_return(opener: Opener) -> None:
    log = opener()
    seen: list[str] = []

    def deliver(entry: Entry) -> None:
        number = int(bytes(entry.records[0]))
        seen.append(f"in {number}")
        if number < 2000:
            log.append([b"%d" % (number + 1)])
        seen.append(f"out {number}")

    log.start(deliver, never)
    log.append([b"0"])
    assert seen == [f"{way} {n}" for n in range(2001) for way in ("in", "out")]
    log.close()


def test_an_entry_beyond_the_limit_is_refused_and_leaves_nothing(opener: Opener) -> None:
    log = opener()
    got = fill(log, 1)
    tail = log.tail
    with pytest.raises(LimitExceeded):
        log.append([bytes(log.entry_bytes_max + 1)])
    with pytest.raises(LimitExceeded):
        log.append([])
    assert (log.tail, len(got)) == (tail, 1)
    log.close()


def test_entries_that_follow_at_once_are_all_delivered(opener: Opener) -> None:
    log = opener()
    got = fill(log, 0)
    for number in range(10):
        log.append([b"%d" % number], more=number < 9)
    assert [bytes(e.records[0]) for e in got] == [b"%d" % n for n in range(10)]
    log.close()


def test_a_closed_log_refuses_appends(opener: Opener) -> None:
    log = opener()
    fill(log, 1)
    log.close()
    with pytest.raises(Closed):
        log.append([b"x"])


def test_blobs_are_there_whole_and_can_be_replaced_and_removed(opener: Opener) -> None:
    log = opener()
    assert log.blobs.names() == []
    assert log.blobs.put("snapshot-1", iter([b"a" * 5_000_000, memoryview(b"bc")])) == 5_000_002
    log.blobs.put("index.2", iter([]))
    assert log.blobs.names() == ["index.2", "snapshot-1"]
    assert bytes(log.blobs.get("snapshot-1")) == b"a" * 5_000_000 + b"bc"
    assert bytes(log.blobs.get("index.2")) == b""
    log.blobs.put("snapshot-1", iter([b"new"]))
    assert bytes(log.blobs.get("snapshot-1")) == b"new"
    log.blobs.remove("snapshot-1")
    log.blobs.remove("snapshot-1")
    with pytest.raises(KeyError):
        log.blobs.get("snapshot-1")
    log.close()
