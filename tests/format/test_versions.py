"""Data folders of every released version stay readable, and everything in them means what it meant. `make_folder.py` made them."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail import Node
from dovetail.clock import ManualClock
from tests.format.make_folder import GIVEN_ID, MADE_AT_MS, SETTINGS, YEAR_S

ARCHIVES = sorted(Path(__file__).parent.glob("v*.tar.gz"))


async def states(node: Node, name: str, namespace: str = "default") -> list[tuple[bytes, str]]:
    queue = await node.queue(name, namespace=namespace)
    return [(one.body, one.state) for one in await queue.peek(max=100)]


async def look(folder: Path, facts: dict[str, Any]) -> None:
    clock = ManualClock(MADE_AT_MS + 1000)
    async with dovetail.open(f"local:{folder}", settings=SETTINGS, clock=clock) as node:
        assert (await node.queues(), await node.queues(namespace="eu")) == (["grouped", "once", "purged"], ["dead", "plain"])
        assert await states(node, "plain", "eu") == [
            (b"leased", "leased"),
            (b"in a year", "delayed"),
            (b"waiting", "visible"),
            (b"tail", "visible"),
            (b"tail in a year", "delayed"),
        ]
        plain = await node.queue("plain", namespace="eu")
        rules = plain.lane.attributes
        assert (rules.lease_ms, rules.receives_max, rules.backoff_ms, rules.backoff_max_ms) == (60_000, 2, 1000, 8000)
        dead = await node.queue("dead", namespace="eu")
        assert (dead.lane.queue, dict(dead.lane.attributes.extra)) == (rules.dead_letter, {"door": "sqs"})
        (letter,) = await dead.receive()
        assert (letter.id, letter.body, letter.source, letter.sent_at_ms) == (facts["ids"][0], b"letter", "plain", MADE_AT_MS)
        assert [tap.next for tap in await plain.taps()] == [2]
        tapped = (await (await plain.tap("archive")).read()).messages
        assert [one.body for one in tapped] == [b"leased", b"done", b"in a year", b"waiting", b"tail", b"tail in a year"]
        assert await plain.complete([facts["done"], facts["leased"]]) == [False, True]
        assert await plain.cancel(facts["ids"][3]) is True
        await look_at_groups_and_repeats(node, facts, clock)


async def look_at_groups_and_repeats(node: Node, facts: dict[str, Any], clock: ManualClock) -> None:
    assert await states(node, "grouped") == [
        (b"a1", "leased"),
        (b"b1", "delayed"),
        (b"a2", "visible"),
        (b"b2", "visible"),
        (b"a3", "visible"),
        (b"both", "visible"),
    ]
    grouped, once = await node.queue("grouped"), await node.queue("once")
    assert [one.body for one in await grouped.receive(max=9)] == [b"both"], "group a is busy, group b waits for its first"
    assert await grouped.complete([facts["a1"], facts["b1"]]) == [True, False]
    assert [one.body for one in await grouped.receive(max=9)] == [b"a2", b"a3"]
    assert (await once.send(b"again", deduplication="key")).repeat is True
    producer = await node.producer("billing")
    assert producer.last == 1 and (await producer.send(once, b"numbered", number=1)).repeat is True
    first, second, both = await once.receive(max=9)
    assert (first.id, first.body, second.body, both.body) == (GIVEN_ID, b"once", b"numbered", b"both")
    assert {name: one.value for name, one in first.attributes.items()} == {"text": "ä".encode(), "number": b"5", "raw": b"\0"}
    assert await states(node, "purged") == []
    clock.advance(YEAR_S)
    plain = await node.queue("plain", namespace="eu")
    assert b"tail in a year" in [one.body for one in await plain.receive(max=9)]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_a_folder_of_every_version_is_read_whole(archive: Path, tmp_path: Path) -> None:
    assert archive.stat().st_size < 50_000
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    asyncio.run(look(tmp_path / "data", json.loads((tmp_path / "facts.json").read_text())))


def test_there_is_a_folder_of_this_version() -> None:
    assert ARCHIVES, "make it: python -m tests.format.make_folder tests/format/v1.tar.gz"
