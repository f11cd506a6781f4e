"""The metrics page is what Prometheus reads, to the letter."""

from __future__ import annotations

import re

import pytest

from dovetail.service.metrics import Counter, Registry


def test_counters_gauges_and_histograms_are_rendered_in_the_text_format() -> None:
    registry = Registry()
    sent = registry.counter("sent_total", "Messages sent.", ("queue",))
    sent.of("b").add(2)
    sent.of('a"\\\n').add()
    depth = registry.gauge("depth", "How\nmany.")
    depth.of().read(lambda: 1.5)
    wait = registry.histogram("wait_seconds", "Waits.", bounds=(0.1, 1))
    for value in (0.1, 0.5, 3):
        wait.of().observe(value)
    assert registry.render() == (
        "# HELP depth How\\nmany.\n# TYPE depth gauge\ndepth 1.5\n"
        "# HELP sent_total Messages sent.\n# TYPE sent_total counter\n"
        'sent_total{queue="a\\"\\\\\\n"} 1\nsent_total{queue="b"} 2\n'
        "# HELP wait_seconds Waits.\n# TYPE wait_seconds histogram\n"
        'wait_seconds_bucket{le="0.1"} 1\nwait_seconds_bucket{le="1"} 2\nwait_seconds_bucket{le="+Inf"} 3\n'
        "wait_seconds_sum 3.6\nwait_seconds_count 3\n"
    )


def test_the_page_in_pieces_is_the_page_whole_lines_only_and_of_one_order() -> None:
    registry = Registry()
    sent = registry.counter("sent_total", "Messages sent.", ("queue",))
    wait = registry.histogram("wait_seconds", "Waits.", ("queue",), bounds=(0.1, 1))
    for number in (7, 3, 9, 1):
        sent.of(str(number)).add(number)
        wait.of(str(number)).observe(number / 10)
    whole = registry.render()
    for lines_max in (1, 2, 3, 7, 1000):
        pieces = list(registry.pieces(lines_max))
        assert "".join(pieces) == whole and all(piece.endswith("\n") for piece in pieces)
        assert max(piece.count("\n") for piece in pieces) < 2 * lines_max + 7, "a histogram is not cut"
    assert [line for line in whole.splitlines() if line.startswith("sent")] == [f'sent_total{{queue="{n}"}} {n}' for n in (1, 3, 7, 9)]


def test_children_may_come_and_go_between_two_pieces() -> None:
    registry = Registry()
    sent = registry.counter("sent_total", "Messages sent.", ("queue",))
    for name in "abcd":
        sent.of(name)
    pieces = registry.pieces(3)
    page = next(pieces)
    sent.forget("c")
    sent.of("aa")
    page += "".join(pieces)
    assert re.findall('queue="(.*)"', page) == ["a", "b", "c", "d"], "a page that was begun is finished as it was begun"
    assert re.findall('queue="(.*)"', registry.render()) == ["a", "aa", "b", "d"]


def test_a_counter_that_counted_before_its_label_was_known_is_shown_under_it() -> None:
    registry = Registry()
    sent = registry.counter("sent_total", "Messages sent.", ("queue",))
    early = Counter()
    early.add(3)
    sent.adopt(early, "a")
    assert sent.of("a") is early and 'sent_total{queue="a"} 3\n' in registry.render()
    with pytest.raises(ValueError):
        sent.adopt(early, "a", "b")


def test_a_child_is_made_once_and_can_be_forgotten() -> None:
    registry = Registry()
    sent = registry.counter("sent_total", "Messages sent.", ("queue",))
    assert sent.of("a") is sent.of("a")
    sent.forget("a")
    assert "queue" not in registry.render()


@pytest.mark.parametrize(
    "declare",
    [
        lambda r: (r.counter("x", ""), r.gauge("x", "")),
        lambda r: r.counter("1x", ""),
        lambda r: r.counter("x", "", ("le",)),
        lambda r: r.histogram("x", "", bounds=(2, 1)),
        lambda r: r.counter("x", "", ("a",)).of("1", "2"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_made(declare) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        declare(Registry())
