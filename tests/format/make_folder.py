"""Makes the data folder that is kept of each released version, and says what is in it.

    python -m tests.format.make_folder tests/format/v1.tar.gz

Run it once for a version, before the release, and never again for that version: what it made is what users have on their disks.
The zeros of segments that are not full take no room in the archive.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import dovetail
from dovetail import Messages, Node, Outgoing, Queue
from dovetail.clock import ManualClock
from dovetail.core import operation as op
from dovetail.settings import Local, Settings
from dovetail.stores.store import Outgoing as Raw

SETTINGS = Settings(local=Local(segment_bytes=2 << 20, snapshot_bytes=1 << 40, sync="inline"))
MADE_AT_MS = 1_700_000_000_000
YEAR_S = 365 * 86_400
OWNER = b"o" * 16
GIVEN_ID = "00112233-4455-6677-8899-aabbccddeeff"


async def before_the_snapshot(node: Node) -> dict[str, object]:
    dead = await node.queue("dead", namespace="eu", extra={"door": "sqs"})
    plain = await node.queue("plain", namespace="eu", max_receives=2, dead_letter=dead, lease_s=60, backoff_s=1, backoff_max_s=8)
    tap = await plain.tap("archive")
    sent = await plain.send_many([b"letter", b"leased", b"done", Outgoing(b"in a year", delay_s=YEAR_S), b"waiting"])
    for _ in range(2):
        (letter,) = await plain.receive()
        await letter.requeue(0)
    leased, done = await plain.receive(max=2, lease_s=YEAR_S)
    await done.complete()
    await tap.advance(2)
    grouped = await node.queue("grouped", groups=True)
    await grouped.send_many([Outgoing(b"%s%d" % (name.encode(), number), group=name) for number in (1, 2) for name in "ab"])
    (a1,) = await grouped.receive(lease_s=YEAR_S)
    once = await node.queue("once", deduplication_s=YEAR_S)
    await once.send(b"once", deduplication="key", attributes={"text": "ä", "number": 5, "raw": b"\0"}, id=GIVEN_ID)
    producer = await node.producer("billing")
    await producer.send(once, b"numbered")
    gone = await node.queue("gone")
    await gone.send(b"gone")
    await node.drop("gone")
    facts = {"leased": leased.receipt, "done": done.receipt, "a1": a1.receipt, "ids": [one.id for one in sent]}
    return facts | await tenants(node)


async def tenants(node: Node) -> dict[str, object]:
    """Since apply version 2: names in a queue without groups."""
    fair = await node.queue("fair")
    await fair.send_many([Outgoing(b"n%d" % number, group="noisy") for number in range(40)])
    for message in await fair.receive(max=35, lease_s=YEAR_S):
        await message.extend(YEAR_S)
    await fair.send(b"q", group="quiet")
    return {"version": 2} | await stages_and_reservations(node)


async def stages_and_reservations(node: Node) -> dict[str, object]:
    """Since apply version 3."""
    sink, job, broker = await node.queue("sink", deduplication_s=YEAR_S), await node.queue("job"), node.broker
    await broker.stage(b"1" * 16, [sink.lane], [Raw(b"published", group=b"t"), Raw(b"later", delay_ms=YEAR_S * 1000)])
    await broker.publish([b"1" * 16], OWNER, 4)
    await broker.stage(b"2" * 16, [sink.lane, job.lane], [Raw(b"staged", group=b"t", dedup=b"d" * 16), Raw(b"too", delay_ms=5000)])
    await job.send_many([b"%d" % number for number in range(6)])
    epoch, _ = await broker.reserve_open(job.lane, "job")
    for batch, most in ((0, 1), (1, 2), (2, 1)):
        await broker.reserve(job.lane, "job", epoch, batch, most)
    await broker.reserve_settle(job.lane, "job", epoch, 0)
    await broker.reserve_open(job.lane, "released")
    await broker.reserve(job.lane, "released", epoch + 1, 7, 1)
    await broker.reserve_release(job.lane, "released")
    return {"version": 3, "epoch": epoch} | await facts_taps(node)


async def facts_taps(node: Node) -> dict[str, object]:
    """Since apply version 4. So many facts that they are written beside the log."""
    tap, other = await node.facts("audit"), await node.facts("gone", start="latest")
    job = await node.queue("audited")
    for message in [*await job.receive(), *await _sent(job, 600)]:
        await message.complete()
    await other.close()
    await tap.advance(5)
    return {"version": 5} | moves()


def moves() -> dict[str, object]:
    """Since apply version 6. A folder holds one log, between which and others nothing moves; what it keeps says so."""
    return {"version": 6}


async def _sent(queue: Queue, count: int) -> Messages:
    await queue.send_many([b"audited"] * count)
    return await queue.receive(max=count)


async def after_the_snapshot(node: Node) -> dict[str, object]:
    """The same kinds again, so that they are read from the log too."""
    plain = await node.queue("plain", namespace="eu")
    await plain.send_many([b"tail", Outgoing(b"tail in a year", delay_s=YEAR_S)])
    grouped = await node.queue("grouped")
    (b1,) = await grouped.receive(lease_s=YEAR_S)
    await b1.requeue(YEAR_S)
    await grouped.send(b"a3", group="a")
    once = await node.queue("once")
    await node.send_to([once, grouped], b"both")
    purged = await node.queue("purged")
    await purged.send(b"purged")
    await purged.purge()
    sink, job = await node.queue("sink"), await node.queue("job")
    await node.broker.stage(b"3" * 16, [sink.lane], [Raw(b"tail")])
    await node.broker.stage(b"4" * 16, [sink.lane], [Raw(b"published tail")])
    await node.broker.publish([b"4" * 16], OWNER, 5)
    await node.broker.reserve(job.lane, "job", 1, 3, 1)
    audited = await node.queue("audited")
    await audited.send(b"tail")
    # Since apply version 5. Nobody waits in the lanes of a data folder, but what says so can be read.
    for operation in (op.Pop(purged.lane.queue, 3, wait_ms=20_000, once=True), op.Withdraw(purged.lane.queue, [16, 32])):
        await node.store.committer.submit(operation)
    return {"b1": b1.receipt}


async def make(folder: Path) -> dict[str, object]:
    async with dovetail.open(f"local:{folder}", settings=SETTINGS, clock=ManualClock(MADE_AT_MS)) as node:
        facts = await before_the_snapshot(node)
        await node.snapshot()
        return facts | await after_the_snapshot(node)


def main(archive: str) -> None:
    with tempfile.TemporaryDirectory() as place, tarfile.open(archive, "w:gz", compresslevel=9) as tar:
        facts = asyncio.run(make(Path(place) / "data"))
        (Path(place) / "facts.json").write_text(json.dumps(facts, indent=1))
        for name in ("data", "facts.json"):
            tar.add(Path(place) / name, name)


if __name__ == "__main__":
    main(sys.argv[1])
