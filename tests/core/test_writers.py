"""SEMANTICS §1.4: entries of writers take effect once, whatever is appended twice, late, or under a name that is over."""

from __future__ import annotations

import pytest

from dovetail.core.operation import Attributes, Fate, Head, Open, Pop, Refusal, Tick, Why
from dovetail.core.versions import APPLY_VERSION
from dovetail.core.writers import Writers
from dovetail.limits import WRITER_CLOSE_MS
from tests.core.test_waiting import A, B, Shared, push
from tests.core.world import Disagreement

NEW = b"n" * 16


def visible(log: Shared) -> int:
    return log.world.state.lanes[1].counts(log.now)[0]


def renew(log: Shared, before: bytes, applied: int = 0) -> object:
    return log.entry(Head(log.now, NEW, 0, applied), Open(NEW, APPLY_VERSION, before))


def test_a_number_that_comes_again_with_other_bytes_changes_nothing() -> None:
    log = Shared(Attributes())
    assert list(log.entry(Head(log.now, B, 1), push(b"x")).sequences) == [1]
    assert log.entry(Head(log.now, B, 1), push(b"something", b"else")) == Refusal(Why.NOT_OPEN)
    assert visible(log) == 1


def test_behind_a_gap_nothing_counts_until_it_is_filled() -> None:
    log = Shared(Attributes())
    assert log.entry(Head(log.now, B, 2), push(b"b")) == Refusal(Why.NOT_OPEN)
    log.entry(Head(log.now, B, 1), push(b"a"))
    assert visible(log) == 1
    log.entry(Head(log.now, B, 2), push(b"b"))
    assert visible(log) == 2


def test_what_a_writer_had_not_achieved_when_it_opened_anew_never_happens() -> None:
    log = Shared(Attributes())
    assert not isinstance(renew(log, before=B), Refusal)
    assert log.entry(Head(log.now, B, 1), push(b"late")) == Refusal(Why.NOT_OPEN)
    assert list(log.entry(Head(log.now, NEW, 1), push(b"x")).sequences) == [1]
    assert visible(log) == 1


def test_a_late_copy_of_an_open_does_not_bring_a_writer_back() -> None:
    log = Shared(Attributes())
    renew(log, before=B)
    assert log.entry(Head(log.now, B), Open(B, APPLY_VERSION)) == Refusal(Why.NOT_OPEN)
    assert log.entry(Head(log.now, B, 1), push(b"late")) == Refusal(Why.NOT_OPEN)
    assert visible(log) == 0


def test_an_open_that_overtakes_the_one_before_it_closes_it_all_the_same() -> None:
    """The writer that is given up may never have been seen here: its Open may still be on its way."""
    log = Shared(Attributes())
    renew(log, before=b"x" * 16)
    assert log.entry(Head(log.now, b"x" * 16), Open(b"x" * 16, APPLY_VERSION)) == Refusal(Why.NOT_OPEN)


def test_a_writer_opens_nobody_but_itself() -> None:
    log = Shared(Attributes())
    assert log.entry(Head(log.now, A), Open(NEW, APPLY_VERSION, B)) == Refusal(Why.NOT_OPEN)
    assert log(A, Open(NEW, APPLY_VERSION)) == Refusal(Why.NOT_OPEN)
    assert not isinstance(log.entry(Head(log.now, B, 1), push(b"x")), Refusal)


def test_whoever_opens_anew_loses_its_waiters_and_what_it_had_not_seen_and_keeps_what_it_had() -> None:
    log = Shared(Attributes(lease_ms=60_000))
    log(A, Pop(1, 1, wait_ms=60_000), Pop(1, 1, wait_ms=60_000), Pop(1, 1, wait_ms=60_000))
    log(B, push(b"seen"))
    seen = log.world.position
    log(B, push(b"unseen"))
    assert log.given == [[2]]
    renew(log, before=A, applied=seen)
    log(B, push(b"x"))
    assert log.given == []
    assert log.world.state.lanes[1].counts(log.now) == (2, 0, 1)


def test_an_hour_of_silence_closes_and_undoes_what_was_handed_out_unseen_however_it_passed() -> None:
    """In one step, it counts as one second of silence, and as an hour."""
    log = Shared(Attributes(lease_ms=2 * WRITER_CLOSE_MS))
    log(A, Pop(1, 1, wait_ms=1000))
    log(B, push(b"x"))
    log(B, Tick(), after=WRITER_CLOSE_MS)
    assert visible(log) == 1
    assert log(A, push(b"y")) == Refusal(Why.NOT_OPEN)
    assert list(log(B, Pop(1, 1)).taken[0].receives) == [1]


def test_copies_are_no_sign_of_life() -> None:
    log = Shared(Attributes())
    entry = Head(log.now, A, 2), Pop(1, 1, wait_ms=60_000)
    log(A, entry[1])
    for _ in range(4):
        log(B, Tick(), after=1000)
        log.entry(*entry)
        log.entry(Head(log.now, A), Open(A, APPLY_VERSION))
    log(B, push(b"x"))
    assert log.given == []


def test_a_log_in_which_a_copy_counts_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without the numbers an append that was repeated takes effect twice."""

    def judge(self: Writers, identity: bytes, number: int) -> Fate:
        return Fate.TAKEN if identity in self.by_id else Fate.VOID

    monkeypatch.setattr(Writers, "judge", judge)
    log = Shared(Attributes())
    log.entry(Head(log.now, B, 1), push(b"x"))
    with pytest.raises(Disagreement, match="AGAIN"):
        log.entry(Head(log.now, B, 1), push(b"x"))
