"""The chronicle: facts are what happened, all of it and in its order, however often it is replayed."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.core import noting, tapping
from dovetail.core import operation as op
from dovetail.core.chronicle import DONE, NONE, REFUSED, REPEAT, UNKNOWN, Chronicle, Fact, FactStretch, Page, Row, rows_of
from dovetail.core.column import Column
from dovetail.core.operation import (
    EARLIEST,
    LATEST,
    Attributes,
    FactsAdvance,
    FactsClose,
    FactsCut,
    FactsOpen,
    Numbered,
    Push,
    Refusal,
    Why,
)
from dovetail.core.state import State
from dovetail.limits import FACTS_TAPS_MAX
from tests.core.generator import Generator
from tests.core.world import Local, World, reloaded

OPEN = FactsOpen("", "t", LATEST, 0, 0)
KEY = b"k" * 16
GONE = (Fact.TAKE, Fact.COMPLETE, Fact.CANCEL, Fact.DEAD_LETTER, Fact.REDRIVE, Fact.EXPIRE, Fact.SETTLE)


def noted(state: State) -> list[Row]:
    return [row for page in state.chronicle.pages for row in rows_of(page)]


class Ledger:
    """Which messages are where, by nothing but facts."""

    def __init__(self) -> None:
        self.live: dict[int, set[int]] = {}
        self.reserved: dict[int, set[int]] = {}
        self.deliveries: dict[tuple[int, int], int] = {}
        self.seen = 0

    def read(self, rows: list[Row]) -> None:
        for row in rows:
            if row.number <= self.seen:
                continue
            assert row.number == self.seen + 1, "no number is left out, and none is given twice"
            self.seen = row.number
            if row.outcome == DONE:
                self._fact(row)

    def _fact(self, row: Row) -> None:
        live, reserved = self.live.setdefault(row.queue, set()), self.reserved.setdefault(row.queue, set())
        named = range(
            row.sequence, row.sequence + (row.third if row.kind in (Fact.EXPIRE, Fact.RESERVE, Fact.SETTLE, Fact.UNRESERVE) else 1)
        )
        if row.kind is Fact.PUSH:
            assert row.sequence not in live
            live.add(row.sequence)
        elif row.kind in GONE:
            assert live.issuperset(named), row
            live.difference_update(named)
            reserved.difference_update(named)
            if row.target:
                self.live.setdefault(row.target, set()).add(row.second)
        elif row.kind is Fact.DELIVERY:
            assert row.sequence in live and row.second > self.deliveries.get((row.queue, row.sequence), 0)
            self.deliveries[row.queue, row.sequence] = row.second
        elif row.kind is Fact.RESERVE:
            reserved.update(named)
        elif row.kind is Fact.UNRESERVE:
            reserved.difference_update(named)
        elif row.kind is Fact.PURGE:
            gone = {one for one in live - reserved if one <= row.sequence}
            assert len(gone) == row.third
            live -= gone
        elif row.kind is Fact.DROP:
            assert len(live) == row.third
            del self.live[row.queue]


class Watched(World):
    """Compares what the facts say with what the oracle has, after every entry."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        tapping.facts_tap(self.state.chronicle, OPEN)

    def compare(self) -> None:
        super().compare()
        self.ledger.read(noted(self.state))
        for number, queue in self.oracle.queues.items():
            assert sorted(self.ledger.live.get(number, ())) == [message.sequence for message in queue.messages]
            for message in queue.messages:
                if message.delivery:
                    assert self.ledger.deliveries[number, message.sequence] == message.delivery


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [{"grouped": False}, {"beyond": True}, {"shared": True, "silence": True, "beyond": True}], ids=str)
def test_the_facts_alone_tell_which_messages_are_where(seed: int, kind: dict[str, bool]) -> None:
    generator = Generator(seed, **kind)
    generator.world = Watched()
    generator.run(60)
    assert generator.world.ledger.seen > 10


def test_without_the_note_of_a_move_the_ledger_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noting, "moved", lambda *_: None)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(12):
            test_the_facts_alone_tell_which_messages_are_where(seed, {"grouped": False})


def test_facts_are_the_same_when_a_log_is_replayed_through_a_snapshot() -> None:
    generator = Generator(5, grouped=False, beyond=True)
    generator.world = Watched()
    generator.run(60)
    again = Watched()
    for index, entry in enumerate(generator.entries):
        again.apply(entry._replace(reload=index % 7 == 3))
    assert noted(again.state) == noted(generator.world.state)
    assert noted(reloaded(again.state)) == noted(again.state)


def test_without_its_pages_in_the_snapshot_a_restart_would_forget_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(Attributes())
    log.push(b"a")
    monkeypatch.setattr(Chronicle, "dump", lambda self: iter(()))
    assert noted(reloaded(log.state)) != noted(log.state)


# What a fact says


def facts(log: Local) -> list[tuple[Any, ...]]:
    """(kind, queue, sequence, second, third, outcome, duration) of what was noted since the last call."""
    chronicle = log.state.chronicle
    found = [row for row in noted(log.state) if row.number >= chronicle.lowest()]
    apply(log, FactsAdvance("", "t", chronicle.next))
    return [(row.kind.name.lower(), row.queue, row.sequence, row.second, row.third, row.outcome, row.duration) for row in found]


def apply(log: Local, operation: Any) -> Any:
    """The oracle knows no facts."""
    return tapping.facts_tap(log.state.chronicle, operation)


def opened(*rules: Attributes) -> Local:
    log = Local(*rules)
    log.state.version = 4
    tapping.facts_tap(log.state.chronicle, OPEN)
    return log


def test_facts_say_what_became_of_each_message() -> None:
    log = opened(Attributes(lease_ms=1000, delay_ms=5, backoff_ms=10))
    log.push(b"a", b"bcd", delays=[0, 70])
    [first] = log.pop()
    assert facts(log) == [
        ("push", 1, 1, 0, 1, DONE, 0),
        ("push", 1, 2, 0, 3, DONE, 70),
        ("delivery", 1, 1, first[1], 1, DONE, 1000),
    ]
    log(op.Requeue(1, [first[0]], [first[1]], op.DEFAULT))
    assert facts(log) == [("requeue", 1, 1, first[1], 0, DONE, 10)]
    [again, other] = log.pop(after=70)
    assert log.complete(first, again) == [False, True]
    log(op.Extend(1, [other[0]], [other[1]], 9000), op.Release(1, [other[0]], [other[1]]), op.Cancel(1, [2, 7]))
    assert facts(log) == [
        ("delivery", 1, 1, again[1], 2, DONE, 1000),
        ("delivery", 1, 2, other[1], 1, DONE, 1000),
        ("complete", 1, 1, first[1], 0, REFUSED, NONE),
        ("complete", 1, 1, again[1], 0, DONE, NONE),
        ("extend", 1, 2, other[1], 0, DONE, 9000),
        ("release", 1, 2, other[1], 0, DONE, NONE),
        ("cancel", 1, 2, 0, 0, DONE, NONE),
        ("cancel", 1, 7, 0, 0, REFUSED, NONE),
    ]
    log(op.Purge(1), op.Configure(1, Attributes()), op.Drop(1), Push((1,), Column.of([b"x"])))
    assert facts(log) == [
        ("purge", 1, 2, 0, 0, DONE, NONE),
        ("configure", 1, 0, 0, 0, DONE, NONE),
        ("drop", 1, 0, 0, 0, DONE, NONE),
        ("push", 1, 0, 0, 1, REFUSED, NONE),
    ]


def test_repeats_and_staged_messages_are_told_apart() -> None:
    log = opened(Attributes(dedup_ms=1000))
    log.push(b"a", dedups=KEY)
    log.push(b"b", b"cc", dedups=KEY + b"o" * 16)
    assert facts(log)[1:] == [("push", 1, 1, 0, 1, REPEAT, 0), ("push", 1, 2, 0, 2, DONE, 0)]
    log(op.ProducerOpen(KEY))
    for _ in range(2):
        log(Push((1,), Column.of([b"x", b"y"]), numbered=Numbered(KEY, 1, 1)))
    rows = noted(log.state)
    assert [(row.sequence, row.outcome, row.label, row.mark) for row in rows] == [
        (3, DONE, KEY, 1), (4, DONE, KEY, 2), (3, REPEAT, KEY, 1), (4, REPEAT, KEY, 2)
    ]  # fmt: skip
    facts(log)
    log.stage(b"s", b"staged")
    assert facts(log) == [], "nobody can see it yet"
    log.publish(b"s")
    assert facts(log) == [("push", 1, 5, 0, UNKNOWN, DONE, 0)]


def test_what_many_messages_have_in_common_stands_once() -> None:
    log = opened(Attributes())
    log.push(*[b"x"] * 1000)
    log.pop(1000)
    assert [len(page.starts) for page in log.state.chronicle.pages] == [2]


# Taps


def test_nothing_is_noted_before_somebody_asks_and_behind_the_last_who_did() -> None:
    log = Local(Attributes())
    log.push(b"a")
    assert log.state.chronicle.next == 1
    log.state.version = 4
    apply(log, OPEN)
    log.push(b"b")
    assert [row.sequence for row in noted(log.state)] == [2]
    apply(log, FactsClose("", "t"))
    log.push(b"c")
    assert (noted(log.state), log.state.chronicle.next) == ([], 2)


def test_a_facts_tap_begins_with_what_others_keep_and_goes_forward_only() -> None:
    log = opened(Attributes())
    log.push(b"a", b"b", b"c")
    assert apply(log, FactsOpen("", "early", EARLIEST, 0, 0)).value == 1
    assert apply(log, FactsOpen("", "late", LATEST, 0, 0)).value == 4
    assert apply(log, FactsAdvance("", "t", 3)).value == 3
    assert apply(log, FactsAdvance("", "t", 2)).value == 3
    assert apply(log, FactsAdvance("", "t", 99)).value == 4
    assert apply(log, FactsOpen("", "third", EARLIEST, 0, 0)).value == 1
    assert apply(log, FactsOpen("", "t", EARLIEST, 0, 0)).value == 4, "it is there already"
    for name in ("early", "third"):
        apply(log, FactsClose("", name))
    assert apply(log, FactsOpen("", "fourth", EARLIEST, 0, 0)).value == 4


def test_a_cut_facts_tap_names_what_it_lost_until_it_goes_on() -> None:
    log = opened(Attributes())
    log.push(b"a", b"b", b"c")
    apply(log, FactsCut("", "t", 2))
    apply(log, FactsCut("", "t", 3))
    cut = log.state.chronicle.taps["", "t"]
    assert (cut.next, cut.lost_first, cut.lost_count) == (3, 1, 2)
    apply(log, FactsAdvance("", "t", 3))
    assert cut.lost_count == 0


def test_a_namespace_has_a_limit_of_facts_taps() -> None:
    chronicle = Chronicle()
    for number in range(FACTS_TAPS_MAX):
        tapping.facts_tap(chronicle, FactsOpen("a", str(number), LATEST, 0, 0))
    assert tapping.facts_tap(chronicle, FactsOpen("a", "more", LATEST, 0, 0)) == Refusal(Why.TOO_MANY_TAPS)
    assert tapping.facts_tap(chronicle, FactsOpen("b", "more", LATEST, 0, 0)) == op.Done(1)
    for operation in (FactsClose("b", "x"), FactsAdvance("b", "x", 1), FactsCut("b", "x", 1)):
        assert tapping.facts_tap(chronicle, operation) == Refusal(Why.NO_TAP)


def test_before_its_version_a_facts_tap_is_refused() -> None:
    world = World()
    world.state.version = 3
    applied = world.state.apply(1, op.Head(5), [OPEN], [0])
    assert list(applied.outcomes) == [Refusal(Why.VERSION)]
    assert not world.state.chronicle.open


# Pages


def many() -> Chronicle:
    log = opened(Attributes(), Attributes())
    log(op.ProducerOpen(KEY))
    for number in range(10):
        log.push(*[b"x"] * (number + 1), queue=1 + number % 2)
        log(Push((1,), Column.of([b"y", b"z"]), numbered=Numbered(KEY, 1, 2 * number + 1)))
    return log.state.chronicle


def test_a_page_is_read_back_as_it_was_and_a_damaged_one_is_refused() -> None:
    [page] = many().pages
    data = page.dump()
    assert list(rows_of(Page.load(memoryview(data)))) == list(rows_of(page))
    for at in range(40, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(Exception, match="damaged"):
            Page.load(memoryview(changed))


def test_any_part_of_a_page_says_what_the_whole_does() -> None:
    [page] = many().pages
    whole = list(rows_of(page))
    for start in range(1, len(whole) + 2):
        for end in range(start, len(whole) + 3, 5):
            assert list(rows_of(page.cut(start, end))) == whole[start - 1 : end - 1]
            only = page.cut(start, end, lambda queue: queue == 2)
            assert list(rows_of(only)) == [row for row in whole[start - 1 : end - 1] if row.queue == 2]
    joined = Page()
    for start in range(1, len(whole) + 1, 7):
        joined.join(page.cut(start, start + 7))
    assert list(rows_of(joined)) == whole
    assert list(rows_of(page)) == whole, "cutting and joining change nothing"


def test_what_was_written_leaves_memory_and_what_came_meanwhile_stays() -> None:
    chronicle = many()
    whole = list(rows_of(chronicle.pages[0]))
    chronicle.written(FactStretch("blob", 1, 31, 100, 5))
    assert [row for page in chronicle.pages for row in rows_of(page)] == whole[30:]
    log = Local()
    log.state.chronicle = chronicle
    chronicle.note(1, 0, 9, Fact.CREATE, 7, ((0,), (0,), (0,), (DONE,)), NONE, 0, b"name", 3)
    assert [row for page in chronicle.pages for row in rows_of(page)][-1].label == b"name"
    tapping.facts_tap(chronicle, FactsAdvance("", "t", 40))
    assert not chronicle.stretches
