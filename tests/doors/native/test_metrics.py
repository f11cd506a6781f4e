"""What the native door counts, on the page that operators read."""

from __future__ import annotations

import re
import urllib.request

import pytest

from tests.doors.native.house import Process
from tests.doors.native.stranger import Refused, Stranger, items, record


def page(process: Process) -> str:
    with urllib.request.urlopen(f"{process.http}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def value(text: str, series: str) -> float:
    match = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match is not None else 0.0


def test_requests_are_counted_by_kind_and_outcome(served: Process, stranger: Stranger, name: str) -> None:
    before = page(served)
    queue = stranger.declare(name)
    for _ in range(3):
        stranger.push(record([queue], [b"ten bytes."]))
    stranger.push(record([queue], [b"ten bytes."] * 5))
    got = stranger.pull(queue, 4)
    stranger.complete(queue, got[:3])
    number = stranger.send("COMPLETE_PULL", stranger.pull_bytes(queue, 10) + items(got[3:]))
    stranger.answer(number), stranger.answer(number)
    stranger.counts(queue)
    with pytest.raises(Refused):
        stranger.pull(queue, 0)
    with pytest.raises(Refused):
        stranger.pull(queue + 100_000)
    after = page(served)

    def grown(series: str) -> float:
        return value(after, series) - value(before, series)

    for kind, code, count in [
        ("PUSH", "ok", 4), ("PULL", "ok", 2), ("COMPLETE", "ok", 1), ("COMPLETE_PULL", "ok", 1), ("COUNTS", "ok", 1),
        ("PULL", "LIMIT_EXCEEDED", 1), ("PULL", "NOT_OPENED", 1),
    ]:  # fmt: skip
        assert grown(f'dovetail_requests_total{{action="{kind}",code="{code}"}}') == count, (kind, code)
    assert grown('dovetail_request_seconds_count{action="PUSH"}') == 4
    labels = f'{{namespace="default",queue="{name}"}}'
    assert value(after, f"dovetail_messages_pushed_total{labels}") == 8
    assert value(after, f"dovetail_bytes_pushed_total{labels}") == 80
    assert value(after, f"dovetail_messages_delivered_total{labels}") == 8
    assert value(after, f"dovetail_messages_completed_total{labels}") == 4
    assert value(after, f"dovetail_publishers{labels}") == value(after, f"dovetail_consumers{labels}") == 1


def test_connections_are_counted(served: Process, stranger: Stranger) -> None:
    before = page(served)
    others = [Stranger(served.port) for _ in range(3)]
    during = page(served)
    assert value(during, "dovetail_native_connections") == value(before, "dovetail_native_connections") + 3
    assert value(during, "dovetail_native_connections_total") == value(before, "dovetail_native_connections_total") + 3
    assert value(during, "dovetail_native_answer_bytes_total") > value(before, "dovetail_native_answer_bytes_total")
    for one in others:
        one.close()
