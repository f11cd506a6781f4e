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
from dovetail.core.operation import Joined
from dovetail.errors import Fenced
from tests.format.make_folder import GIVEN_ID, MADE_AT_MS, OWNER, SETTINGS, YEAR_S, Raw

ARCHIVES = sorted(Path(__file__).parent.glob("v*.tar.gz"))


async def states(node: Node, name: str, namespace: str = "default") -> list[tuple[bytes, str]]:
    queue = await node.queue(name, namespace=namespace)
    return [(one.body, one.state) for one in await queue.peek(max=100)]


async def look(folder: Path, facts: dict[str, Any]) -> None:
    clock = ManualClock(MADE_AT_MS + 1000)
    async with dovetail.open(f"local:{folder}", settings=SETTINGS, clock=clock) as node:
        version = facts.get("version", 1)
        names = ["grouped", "once", "purged", *["fair"] * (version >= 2), *["sink", "job"] * (version >= 3), *["audited"] * (version >= 4)]
        assert (await node.queues(), await node.queues(namespace="eu")) == (sorted(names), ["dead", "plain"])
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
        if "fair" in names:
            await look_at_tenants(node)
        if "sink" in names:
            await look_at_stages_and_reservations(node, facts["epoch"], clock)
        if "audited" in names:
            await look_at_facts(node)
        await look_at_groups_and_repeats(node, facts, clock)


async def look_at_tenants(node: Node) -> None:
    fair = await node.queue("fair")
    assert [state for _, state in await states(node, "fair")] == ["leased"] * 35 + ["visible"] * 6
    assert [one.body for one in await fair.receive(max=2)] == [b"q", b"n35"], "the noisy one is known from before"


async def look_at_stages_and_reservations(node: Node, epoch: int, clock: ManualClock) -> None:
    sink, job, broker = await node.queue("sink"), await node.queue("job"), node.broker
    assert await states(node, "sink") == [(b"published", "visible"), (b"later", "delayed"), (b"published tail", "visible")]
    assert [(one.stage, one.messages, one.bytes) for one in broker.store.stages()] == [(b"2" * 16, 2, 9), (b"3" * 16, 1, 4)]
    assert (await broker.publish([b"2" * 16, b"3" * 16], OWNER, 6)).joined == (
        Joined(sink.lane.queue, 3, 0, 13),
        Joined(job.lane.queue, 2, 0, 9),
    )
    assert (await broker.publish([], OWNER, 6)).before
    assert [(one.body, one.group) for one in await sink.receive(max=9)] == [
        (b"published", "t"),
        (b"published tail", None),
        (b"staged", "t"),
        (b"tail", None),
    ]
    assert [one.repeat for one in await broker.push(sink.lane, [Raw(b"again", dedup=b"d" * 16)])] == [True]
    lane = job.lane
    assert [(one.name, one.last, one.settled, dict(one.batches)) for one in lane.reservations()] == [
        ("job", 3, 0, {1: 2, 2: 1, 3: 1}),
        ("released", 7, -1, {}),
    ]
    held = [[one.body for one in await broker.reserve(lane, "job", epoch, batch, 9)] for batch in (1, 2, 3)]
    assert held == [[b"1", b"2"], [b"3"], [b"4"]]
    with pytest.raises(Fenced):
        await broker.reserve(lane, "released", epoch + 1, 8, 1)
    assert await broker.reserve_settle(lane, "job", epoch, 3) == 4
    clock.advance(5)
    assert [one.body for one in await job.receive(max=9)] == [b"5", b"staged", b"too"]


async def look_at_facts(node: Node) -> None:
    assert [(one.name, one.next, one.lost_count) for one in await node.facts_taps()] == [("audit", 5, 0)]
    found = (await (await node.facts("audit")).read(max=10_000)).facts
    audited = [one for one in found if one.queue == "audited"]
    *written, tail = [one.number for one in audited]
    assert written == list(range(5, 1802)) and tail > 1802, "the last came behind the snapshot"
    assert [one.sequence for one in audited if one.kind == "push"] == [*range(4, 602)]
    assert [one.sequence for one in audited if one.kind in ("delivery", "complete")] == [*range(1, 601), *range(1, 601)]
    told = [(one.queue, one.kind, one.count) for one in found if one.kind in ("purge", "reserve", "requeue")]
    assert told == [("grouped", "requeue", 1), ("purged", "purge", 1), ("job", "reserve", 1)]


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
    assert ARCHIVES, "make it: python -m tests.format.make_folder tests/format/v6.tar.gz"
