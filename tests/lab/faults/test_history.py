"""Histories are written while things happen, and read back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import BadRequest
from dovetail.lab.faults import history
from dovetail.lab.faults.history import FOREVER, History, Op


def made() -> History:
    clock = iter(range(1000))
    written = History(now=lambda: next(clock))
    one, two = written.process(), written.process()
    asked = written.invoke(one, "send", queue="q", body="a")
    other = written.invoke(two, "receive", queue="q", most=1)
    written.ended(asked, "info")
    written.ended(other, "ok", messages=[])
    return written


def test_calls_are_invokes_with_their_ends() -> None:
    sent, received = made().calls()
    assert (sent.verb, sent.outcome, sent.began, sent.ended) == ("send", "info", 0, FOREVER)
    assert (received.outcome, received.ended, received.told) == ("ok", 3, {"messages": []})


def test_whoever_was_told_nothing_goes_on_as_another_process() -> None:
    written = made()
    asked = written.invoke(1, "send", queue="q", body="b")
    assert written.ended(asked, "fail") == 1
    asked = written.invoke(1, "send", queue="q", body="c")
    again = written.ended(asked, "info")
    assert again not in (0, 1)
    with pytest.raises(BadRequest, match="not known"):
        history.calls([*written.ops, Op(1, "invoke", "send", {}, 99)])


def test_what_was_never_answered_is_unknown() -> None:
    written = made()
    written.invoke(1, "counts", queue="q")
    assert written.calls()[-1].outcome == "info"


def test_answers_to_nothing_and_questions_inside_of_questions_are_refused() -> None:
    with pytest.raises(BadRequest):
        history.calls([Op(0, "ok", "send", {}, 1)])
    with pytest.raises(BadRequest):
        history.calls([Op(0, "invoke", "send", {}, 1), Op(0, "invoke", "send", {}, 2)])
    with pytest.raises(BadRequest):
        history.calls([Op(0, "invoke", "send", {}, 1), Op(0, "ok", "receive", {}, 2)])


@pytest.mark.parametrize("name", ["history.jsonl", "history.arrow"])
def test_a_history_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    ops = made().ops
    history.write(ops, tmp_path / name)
    assert history.read(tmp_path / name) == ops
    history.write([], tmp_path / name)
    assert history.read(tmp_path / name) == []


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text('{"process": 1, "type": "maybe", "verb": "x", "value": {}, "time": 1}\n')
    with pytest.raises(BadRequest, match="line 1"):
        history.read(tmp_path / "h.jsonl")
