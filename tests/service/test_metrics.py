"""The metrics page is what Prometheus reads, to the letter."""

from __future__ import annotations

import pytest

from dovetail.service.metrics import Registry


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
