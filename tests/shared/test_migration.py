"""Moving a store: all that a state knows is there afterwards, to the byte; killed at any step it goes on; nobody serves meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from zlib import crc32

import pytest

import dovetail
from dovetail import Node, Outgoing
from dovetail.clock import SystemClock
from dovetail.core import moved, snapshot
from dovetail.core.relocate import needed, relocate
from dovetail.errors import BadRequest, DovetailError, FolderLocked, Moved, StorageError
from dovetail.lab.simengine import Faults, Service, SimEngine
from dovetail.limits import FACTS_MEMORY_BYTES_MAX
from dovetail.logs.shared.log import SharedLog
from dovetail.node import join, migrate
from dovetail.settings import Local, Settings, Shared
from dovetail.stores.migration import run as running
from dovetail.stores.migration.run import Summary, run
from dovetail.stores.migration.source import LocalSource, Seen, SharedSource, Source, local
from dovetail.stores.migration.target import LocalTarget, SharedTarget, Target
from dovetail.stores.replayed import Replayed

SETTINGS = Settings(shared=Shared(snapshot_bytes=1 << 40), local=Local(segment_bytes=2 << 20))


class Killed(BaseException):
    """In place of kill −9: nothing after it is done."""


class Place:
    """A store that can be opened by a node, moved from and moved to."""

    def __init__(self, kind: str, folder: Path, faults: Faults = Faults()) -> None:  # noqa: B008  # a constant
        self.kind = kind
        self._path = str(folder)
        self._service = Service(SystemClock())
        self._faults = faults

    async def node(self) -> Node:
        if self.kind == "local":
            return await dovetail.node.start(f"local:{self._path}", settings=SETTINGS)
        return await join(SimEngine(self._service), settings=SETTINGS)

    def source(self) -> Source:
        return local(self._path) if self.kind == "local" else SharedSource(self._log())

    def target(self) -> Target:
        return LocalTarget(self._path, 2 << 20) if self.kind == "local" else SharedTarget(self._log())

    def _log(self) -> SharedLog:
        return SharedLog(SimEngine(self._service, self._faults))

    async def state(self) -> bytes:
        """All that it knows, with what is in each record in place of where it lies."""
        source = self.source()
        try:
            seen = await source.last(moved.Note(moved.END, bytes(16))) if self.kind == "local" else await source.look()
            return canonical(seen)
        finally:
            await source.close()


def canonical(seen: Seen) -> bytes:
    def what(address: int) -> int:
        record = seen.fetch(address)
        assert record is not None
        return crc32(record)

    for lane in seen.state.lanes.values():
        lane.taps.recent.drop_below(lane.taps.lowest() or 0)
    for tap in seen.state.chronicle.taps.values():
        # On a shared log facts stay in memory, and less of them.
        tap.bytes = min(tap.bytes, FACTS_MEMORY_BYTES_MAX)
    relocate(seen.state, what, 0)
    return b"".join(snapshot.dump(seen.state))


async def lived(node: Node) -> None:
    """A life in which everything was used that a queue can do, and is still under way."""
    dead = await node.queue("dead")
    plain = await node.queue("plain", lease_s=600, dead_letter=dead, max_receives=2)
    await plain.send_many([Outgoing(b"plain %d" % number, attributes={"n": number}) for number in range(300)])
    await plain.tap("archive")
    facts = await node.facts("audit")
    for _ in range(2):
        await plain.requeue([message.receipt for message in await plain.receive(max=5)])
    await plain.complete([message.receipt for message in await plain.receive(max=100)][20:])
    await plain.send(b"later", delay_s=3600)
    grouped = await node.queue("grouped", groups=True, deduplication_s=300)
    for number in range(40):
        await grouped.send(b"grouped %d" % number, group=f"g{number % 4}", deduplication=f"d{number}")
    await grouped.receive(max=2)
    producer = await node.producer("till")
    for number in range(60):
        await plain.send(b"alone %d" % number * 10)
    for number in range(3):
        await producer.send(plain, b"numbered %d" % number)
    await node.stage("basket").send_many(plain, [b"staged %d" % number for number in range(10)])
    reservation = await plain.reservation("job")
    await reservation.reserve(0, max=30)
    await facts.advance(5)
    await (await node.queue("empty")).purge()


async def filled(place: Place, *, snapshot: bool = False) -> None:
    node = await place.node()
    await lived(node)
    if snapshot:
        await node.snapshot()
        await (await node.queue("plain")).send(b"after the snapshot")
    await node.close()


async def moving(source: Place, target: Place, say: Callable[[str], None] = lambda _: None) -> Summary:
    emptied, filled = source.source(), target.target()
    try:
        return await run(emptied, filled, SystemClock(), say, place="there")
    finally:
        await emptied.close()
        await filled.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many copies in place of one, and nobody waits for a second."""
    monkeypatch.setattr(running, "PACKET_BYTES", 500)
    monkeypatch.setattr(running, "LOOK_S", 0.001)


ROADS = [("local", "shared"), ("shared", "local"), ("local", "local"), ("shared", "shared")]


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize(("there", "here"), ROADS)
async def test_everything_that_a_state_knows_is_there_afterwards(tmp_path: Path, there: str, here: str, snapshot: bool) -> None:
    source, target = Place(there, tmp_path / "a"), Place(here, tmp_path / "b")
    await filled(source, snapshot=snapshot)
    before = await source.state()
    made = await moving(source, target)
    assert made.queues == 4 and made.messages > 100 and not made.before
    assert await target.state() == before


async def test_clients_go_on_with_what_they_had_in_their_hands(tmp_path: Path) -> None:
    source, target = Place("local", tmp_path / "a"), Place("shared", tmp_path / "b")
    node = await source.node()
    await lived(node)
    plain = await node.queue("plain")
    (held,) = await plain.receive(max=1)
    sent = await plain.send(b"last")
    archived = [message.body for message in (await (await plain.tap("archive")).read(max=1000)).messages]
    await node.close()
    await moving(source, target)
    node = await target.node()
    plain = await node.queue("plain")
    assert await plain.complete([held.receipt]) == [True]
    assert (await plain.peek(max=1000))[-1].id == sent.id
    assert [message.body for message in (await (await plain.tap("archive")).read(max=1000)).messages] == archived
    assert (await (await node.queue("grouped")).send(b"again", group="g3", deduplication="d39")).repeat
    assert (await node.producer("till")).last == 3
    assert await (await plain.reservation("job")).reserve(0, max=1) == 30
    await node.publish(["basket"], "owner", 0)
    assert (await plain.peek(max=1000))[-1].body == b"staged 9"
    await node.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("there", "here"), ROADS)
async def test_killed_at_any_step_it_goes_on_where_it_was(tmp_path: Path, there: str, here: str) -> None:
    source, target = Place(there, tmp_path / "a"), Place(here, tmp_path / "b")
    await filled(source)
    before = await source.state()
    kills = 0
    while True:
        # The first line tells of the run before; so each run takes one step, and is killed behind it.
        left = 1 if kills else 0

        def say(_: str) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1

        try:
            made = await moving(source, target, say)
            break
        except Killed:
            kills += 1
        if kills > 1 and not await snapshot_of(target):
            await refuses(target.node, Moved)
    assert kills > 10 and made.before, "the last one was killed behind the last step"
    assert await target.state() == before


async def snapshot_of(place: Place) -> bool:
    if place.kind == "local":
        return any(name.startswith("manifest") for name in os.listdir(Path(place._path) / "blobs"))
    return any(name.startswith("manifest") for name in place._service.blobs)


async def refuses(start: Callable[[], Awaitable[Node]], error: type[DovetailError]) -> None:
    with pytest.raises(error):
        await (await start()).close()


@pytest.mark.parametrize("faults", [Faults(double=0.5), Faults(lose=0.3), Faults(double=0.3, lose=0.2, delay=0.3)])
@pytest.mark.usefixtures("small", "impatient")
async def test_an_engine_that_loses_doubles_and_reorders_changes_nothing(tmp_path: Path, faults: Faults) -> None:
    source, target = Place("local", tmp_path / "a"), Place("shared", tmp_path / "b", faults)
    await filled(source)
    before = await source.state()
    await moving(source, target)
    assert await target.state() == before
    # Copies that came a second time lie behind the snapshot by now, or will.
    late = next(packet for _, packet in target._service.packets)
    target._service.store(late)
    node = await target.node()
    other = await target.node()
    assert await (await other.queue("plain")).receive(max=1) and (await (await node.queue("plain")).counts()).leased
    await node.close()
    await other.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.logs.shared import log

    monkeypatch.setattr(log, "RESEND_S", 0.02)
    monkeypatch.setattr(log, "RESEND_PAUSE_S", 0.005)
    monkeypatch.setattr(log, "WATCH_S", 0.005)


@pytest.mark.usefixtures("small")
async def test_what_comes_while_it_copies_is_moved_too(tmp_path: Path) -> None:
    source, target = Place("local", tmp_path / "a"), Place("shared", tmp_path / "b")
    node = await source.node()
    await lived(node)
    queue = await node.queue("plain")
    looks = 0

    class Beside(LocalSource):
        async def look(self) -> Seen:
            nonlocal looks
            looks += 1
            if looks > 1:
                await queue.send(b"look %d" % looks)
            if looks == 4:
                await node.close()
            return await super().look()

    emptied, filled = Beside(str(tmp_path / "a")), target.target()
    said: list[str] = []
    await run(emptied, filled, SystemClock(), said.append)
    await emptied.close()
    await filled.close()
    assert looks >= 4 and any("stop it when you like" in line for line in said)
    before, after = await source.state(), await target.state()
    assert after == before and b"look 4" in after + b"".join(record for packet in target._service.records() for record in packet)


async def test_nobody_serves_what_was_left_and_nobody_what_is_not_finished(tmp_path: Path) -> None:
    for there in ("local", "shared"):
        source, target = Place(there, tmp_path / f"{there}-a"), Place("shared", tmp_path / f"{there}-b")
        await filled(source)
        await moving(source, target)
        with pytest.raises(Moved, match="there"):
            await source.node()
        other = Place("shared", tmp_path / f"{there}-c")
        emptied, to = source.source(), other.target()
        with pytest.raises(BadRequest, match="already"):
            await run(emptied, to, SystemClock(), lambda _: None, place="elsewhere")
        await emptied.close()
        await to.close()


async def test_nodes_of_a_shared_log_stop_where_it_ends_and_say_where_it_went(tmp_path: Path) -> None:
    source, target = Place("shared", tmp_path / "a"), Place("local", tmp_path / "b")
    nodes = [await source.node() for _ in range(2)]
    await lived(nodes[0])
    queue = await nodes[1].queue("plain")
    going, acked = True, []

    async def sends() -> None:
        while going:
            body = b"sent %d" % len(acked)
            try:
                await queue.send(body)
            except DovetailError:
                return
            acked.append(body)

    sending = asyncio.ensure_future(sends())
    while len(acked) < 20:
        await asyncio.sleep(0)
    await moving(source, target)
    going = False
    await sending
    assert [node.ready for node in nodes] == [False, False]
    assert isinstance(nodes[0].store.failed, Moved) and "there" in str(nodes[0].store.failed)
    for node in nodes:
        await node.close()
    node = await target.node()
    there = {message.body for message in await (await node.queue("plain")).peek(max=100_000)}
    assert set(acked) <= there, "what was acknowledged was before the end"
    assert not {body for body in there if body.startswith(b"sent")} - set(acked) - {b"sent %d" % len(acked)}
    await node.close()


async def test_a_target_that_somebody_uses_is_refused(tmp_path: Path) -> None:
    source = Place("local", tmp_path / "a")
    await filled(source)
    for here in ("local", "shared"):
        target = Place(here, tmp_path / f"used-{here}")
        node = await target.node()
        await (await node.queue("mine")).send(b"mine")
        await node.close()
        with pytest.raises(DovetailError, match="in use"):
            await moving(source, target)
        node = await target.node()
        assert [message.body for message in await (await node.queue("mine")).receive()] == [b"mine"]
        await node.close()
    # It was not ended for that.
    await (await source.node()).close()


async def test_a_target_of_another_migration_is_refused(tmp_path: Path) -> None:
    one, two, target = Place("local", tmp_path / "a"), Place("local", tmp_path / "b"), Place("shared", tmp_path / "c")
    await filled(one)
    await filled(two)

    def say(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        await moving(one, target, say)
    with pytest.raises(StorageError, match="another migration"):
        await moving(two, target)
    assert not (await moving(one, target)).before


@pytest.mark.parametrize(("there", "here"), [("memory:", "local:x"), ("local:x", "memory:"), ("local:none", "local:x")])
async def test_what_cannot_be_moved_is_refused(tmp_path: Path, there: str, here: str) -> None:
    with pytest.raises(DovetailError):
        await migrate(*(url.replace("local:", f"local:{tmp_path}/") for url in (there, here)), lambda _: None)


async def test_a_folder_that_a_node_has_is_not_ended(tmp_path: Path) -> None:
    source = Place("local", tmp_path / "a")
    node = await source.node()
    emptied = source.source()
    await emptied.look()
    with pytest.raises(FolderLocked):
        await emptied.last(moved.Note(moved.END, bytes(16)))
    await emptied.close()
    await node.close()


# Twins: what each safeguard is for


async def test_without_the_notes_a_half_moved_log_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Place("local", tmp_path / "a"), Place("shared", tmp_path / "b")
    await filled(source)

    def say(text: str) -> None:
        if "copied" in text:
            raise Killed

    with pytest.raises(Killed):
        await moving(source, target, say)
    monkeypatch.setattr(moved, "passed", lambda head, records, key: head.writer == moved.MOVER)
    node = await target.node()
    assert await node.queues() == [], "a node begins where messages lie, and shows none of them"
    await node.close()


async def test_without_the_end_a_source_is_served_beside_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Place("local", tmp_path / "a"), Place("local", tmp_path / "b")
    await filled(source)

    async def left(self: LocalSource, end: moved.Note) -> None:
        """It is not ended."""

    monkeypatch.setattr(LocalSource, "leave", left)
    await moving(source, target)
    one, two = await source.node(), await target.node()
    (first,) = await (await one.queue("plain")).receive(max=1)
    (again,) = await (await two.queue("plain")).receive(max=1)
    assert first.id == again.id, "the same message twice"
    await one.close()
    await two.close()


def test_what_lives_is_needed_and_nothing_else(tmp_path: Path) -> None:
    async def looked() -> tuple[int, int]:
        place = Place("local", tmp_path / "a")
        node = await place.node()
        queue = await node.queue("plain")
        for number in range(10):
            await queue.send(b"%d" % number)
        await queue.complete([message.receipt for message in await queue.receive(max=4)])
        store = node.store
        assert isinstance(store, Replayed)
        found = sorted(needed(store.state))
        await node.close()
        return len(found), len(set(found))

    assert asyncio.run(looked()) == (6, 6)
