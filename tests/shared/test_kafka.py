"""Kafka by itself: which topics and brokers are refused, by name; what is read, trimmed and kept as snapshots."""

from __future__ import annotations

import asyncio
import gc
import os
import struct
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import dovetail
from dovetail.errors import BadRequest, Damaged, StorageError, Unavailable
from dovetail.logs.kafka import blobs, topic, version
from dovetail.logs.kafka.blobs import Made, TopicBlobs
from dovetail.logs.kafka.cluster import Cluster
from dovetail.logs.kafka.engine import PORT, Kafka
from dovetail.logs.kafka.reader import leader_speaks
from dovetail.logs.kafka.topic import Found
from dovetail.logs.shared.place import place_of
from dovetail.node import look, migrate, start
from tests.contract.shared_house import KAFKA, broker
from tests.shared.house import until

WRONG = {
    "retention.ms": "3600000",
    "retention.bytes": "1048576",
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": "true",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": "1048576",
    "min.insync.replicas": "2",
}


def good(namespace: str = "x", copies: int = 1, synced: bool = False) -> dict[str, str]:
    return topic.wanted(namespace, copies, synced)[topic.log(namespace)]


def make(name: str, settings: dict[str, str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker().partition("://")[2]})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)


# What is refused


@KAFKA
@pytest.mark.slow
@pytest.mark.parametrize("setting", WRONG)
async def test_a_topic_that_would_delete_or_lose_what_waits_is_refused_and_the_setting_named(setting: str) -> None:
    namespace = f"wrong-{setting.replace('.', '-')}"
    make(topic.log(namespace), good() | {setting: WRONG[setting]})
    with pytest.raises(StorageError, match=rf"{topic.log(namespace)}.*{setting} is {WRONG[setting]}, must be ") as refused:
        await start(f"{broker()}/{namespace}")
    assert str(refused.value).count("must be") == 1, "nothing else is wrong with it"


@KAFKA
@pytest.mark.slow
async def test_the_topics_of_snapshots_are_held_to_the_same() -> None:
    make(topic.blobs("deleting"), good())
    with pytest.raises(StorageError, match=r"deleting\.blobs.*cleanup\.policy is delete, must be compact"):
        await start(f"{broker()}/deleting")


@KAFKA
@pytest.mark.slow
async def test_a_log_in_several_partitions_is_refused() -> None:
    make(topic.log("two"), good(), partitions=2)
    with pytest.raises(StorageError, match="it has 2 partitions, must have 1"):
        await start(f"{broker()}/two")


@KAFKA
@pytest.mark.slow
async def test_who_says_synced_where_brokers_do_not_sync_is_refused() -> None:
    make(topic.log("lazy"), good())
    with pytest.raises(StorageError, match=r"flush\.messages is 9223372036854775807, must be 1"):
        await start(f"{broker()}/lazy?synced=yes")


@pytest.mark.parametrize("copies", [1, 3, 5])
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_topics_that_are_made_here_pass(copies: int, synced: bool, compacted: bool) -> None:
    wanted = topic.wanted("shop", copies, synced)[topic.blobs("shop") if compacted else topic.log("shop")]
    assert topic.wrong(Found(1, copies, wanted), synced, compacted=compacted) == []


@pytest.mark.parametrize(
    ("copies", "in_sync", "least_or_most"), [(3, 1, "at least 2"), (5, 1, "at least 2"), (3, 4, "at most 3"), (2, 3, "at most 2")]
)
def test_a_topic_of_three_that_one_broker_alone_would_acknowledge_is_refused(copies: int, in_sync: int, least_or_most: str) -> None:
    (told,) = topic.wrong(Found(1, copies, good(copies=copies) | {"min.insync.replicas": str(in_sync)}), False)
    assert told.startswith(f"min.insync.replicas is {in_sync}, must be {least_or_most}")


@KAFKA
@pytest.mark.slow
async def test_an_old_broker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "FETCH_MIN", 99)
    with pytest.raises(StorageError, match=r"older than 3\.7"):
        await start(f"{broker()}/old")


@pytest.mark.parametrize(("fetch", "old"), [(15, True), (16, False), (18, False)])
def test_versions_are_known_by_what_a_broker_speaks(fetch: int, old: bool) -> None:
    answer = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhh", 0, 0, 9) + struct.pack(">hhh", version.FETCH, 0, fetch)
    assert version.old(version.decoded(answer)) is old


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400", struct.pack(">ihi", 1, 35, 0), struct.pack(">ihi", 1, 0, 1 << 30), bytes(9)])
def test_what_is_no_answer_of_a_broker_is_an_error_of_the_line(data: bytes) -> None:
    with pytest.raises(OSError, match="as a Kafka broker does"):
        version.decoded(data)


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await start("kafka://127.0.0.1:1/shop")


def test_passwords_are_refused_and_not_ignored() -> None:
    with pytest.raises(BadRequest, match="no user and password"):
        Kafka("kafka://me:secret@a/shop")


@KAFKA
@pytest.mark.slow
async def test_one_broker_that_answers_is_enough() -> None:
    node = await start(broker().replace("://", "://127.0.0.1:1,") + "/some?replicas=1")
    assert (await (await node.queue("orders")).send(b"a")).sequence == 1
    await node.close()


@KAFKA
@pytest.mark.slow
@pytest.mark.parametrize(("asked", "word"), [("", "memory"), ("?synced=yes", "disk")], ids=["plain", "synced"])
async def test_an_answer_says_what_brokers_do(asked: str, word: str) -> None:
    node = await start(f"{broker()}/words-{word}{asked}")
    assert (await (await node.queue("orders")).send(b"a")).durability == word
    await node.close()


@KAFKA
@pytest.mark.slow
async def test_a_log_is_looked_at_without_a_node() -> None:
    url = f"{broker()}/looked"
    with pytest.raises(BadRequest, match="there is no log"):
        await look(url)
    node = await start(url)
    await (await node.queue("orders")).send_many([b"%d" % number for number in range(500)])
    await node.snapshot()
    await (await node.queue("orders")).send(b"one more")
    await node.close()
    told = await look(url)
    assert told.health.wrong == [] and told.health.durability == "memory" and told.health.first == 1
    (copy,) = told.health.copies
    assert copy.leads and copy.current and copy.server in url
    assert (told.queues, told.messages, told.unread) == (1, 501, "")
    (kept,) = told.snapshots
    assert kept.bytes > 0 and 1 < kept.entry < told.health.next
    assert (await look(url)).health.next == told.health.next, "nothing was written by looking"


@KAFKA
@pytest.mark.slow
async def test_whoever_looks_is_told_of_all_that_nodes_would_refuse() -> None:
    make(topic.log("two-things"), good() | {"retention.ms": "1000", "retention.bytes": "1000"})
    told = await look(f"{broker()}/two-things")
    assert [line.split()[1] for line in told.health.wrong] == ["retention.ms", "retention.bytes"]


@KAFKA
@pytest.mark.slow
async def test_a_data_folder_moves_to_kafka_and_back(tmp_path: Path) -> None:
    async with dovetail.open(f"local:{tmp_path / 'old'}") as node:
        await (await node.queue("orders")).send_many([b"%d" % number for number in range(200)])
    await migrate(f"local:{tmp_path / 'old'}", f"{broker()}/moved", lambda _: None)
    await migrate(f"{broker()}/moved", f"local:{tmp_path / 'new'}", lambda _: None)
    async with dovetail.open(f"local:{tmp_path / 'new'}") as node:
        assert [message.body for message in await (await node.queue("orders")).receive(max=1000)] == [
            b"%d" % number for number in range(200)
        ]


# The log


class Followed:
    """What an engine gives from a number on, as long as the test lasts."""

    def __init__(self, engine: Kafka, number: int) -> None:
        self.came: list[tuple[int, bytes]] = []
        self.stamps: list[int] = []
        self.heard = 0
        self.task = asyncio.ensure_future(engine.follow(number, self._take, self._heard))

    def _take(self, number: int, stamp_ms: int, packet: bytes) -> None:
        self.came.append((number, packet))
        self.stamps.append(stamp_ms)

    def _heard(self) -> None:
        self.heard += 1

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Kafka]:
    made = Kafka(f"{broker()}/e{abs(hash(request.node.name))}")
    await made.open()
    yield made
    await made.close()


@KAFKA
@pytest.mark.slow
async def test_packets_come_in_order_with_dense_numbers_and_stamps_of_the_broker(engine: Kafka) -> None:
    assert await engine.bounds() == (1, 1)
    followed = Followed(engine, 1)
    packets = [bytes([number % 251]) * (1 + 997 * number % 5000) for number in range(300)]
    packets[150] = bytes(engine.packet_bytes_max)
    for packet in packets:
        engine.publish(packet)
    await until(lambda: len(followed.came) == 300)
    assert followed.came == list(enumerate(packets, 1)) and await engine.bounds() == (1, 301)
    assert followed.stamps == sorted(followed.stamps) and followed.stamps[0] > 1_700_000_000_000
    later = Followed(engine, 299)
    await until(lambda: len(later.came) == 2)
    assert later.came == [(299, packets[298]), (300, packets[299])]
    before = later.heard
    await until(lambda: later.heard > before + 1)
    await followed.end()
    await later.end()


@KAFKA
@pytest.mark.slow
async def test_a_trim_takes_a_prefix_and_renumbers_nothing(engine: Kafka) -> None:
    followed = Followed(engine, 1)
    for number in range(20):
        engine.publish(b"%d" % number)
    await until(lambda: len(followed.came) == 20)
    await followed.end()
    for asked, first in ((0, 1), (1, 1), (6, 6), (3, 6), (0, 6), (21, 21)):
        await engine.trim(asked)
        assert await engine.bounds() == (first, 21)
    engine.publish(b"on")
    followed = Followed(engine, 21)
    await until(lambda: followed.came == [(21, b"on")])
    await followed.end()
    gone = Followed(engine, 5)
    with pytest.raises(Unavailable, match="cannot be followed"):
        await asyncio.wait_for(gone.task, 60)


@KAFKA
@pytest.mark.slow
async def test_what_taking_raises_ends_the_following(engine: Kafka) -> None:
    def take(number: int, stamp_ms: int, packet: bytes) -> None:
        raise StorageError("enough")

    engine.publish(b"one")
    with pytest.raises(StorageError, match="enough"):
        await asyncio.wait_for(engine.follow(1, take, lambda: None), 60)


def told(**changed: Any) -> dict[str, Any]:
    """librdkafka's statistics, as far as they are looked at."""
    leader = {"nodeid": 2, "state": "UP", "rxidle": 400_000} | {name: changed[name] for name in ("state", "rxidle") if name in changed}
    partition = {"broker": changed.get("broker", 2), "fetch_state": changed.get("fetch_state", "active")}
    others = {"other": {"nodeid": 1, "state": "UP", "rxidle": 10}, "bootstrap": {"nodeid": -1, "state": "UP", "rxidle": 10}}
    return {"brokers": {**others, "leader": leader}, "topics": {"t": {"partitions": {"0": partition, "-1": {}}}}}


def test_only_a_leader_that_has_just_spoken_counts_as_heard() -> None:
    assert leader_speaks(told(), "t")
    silent = [told(rxidle=5_000_000), told(rxidle=-1), told(state="DOWN"), told(broker=-1), told(fetch_state="stopped"), {"brokers": {}}]
    assert not any(leader_speaks(one, "t") for one in silent)
    assert not leader_speaks(told(), "another")


# Snapshots


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> TopicBlobs:
    return another(f"b{abs(hash(request.node.name))}")


def another(namespace: str) -> TopicBlobs:
    """As another node has it."""
    place = place_of(f"{broker()}/{namespace}", PORT)
    cluster = Cluster(place)
    cluster.topics()
    return TopicBlobs(place, cluster)


def put(kept: TopicBlobs, name: str, data: bytes, folder: Path) -> None:
    source = folder / f"source-{name}"
    source.write_bytes(data)
    kept.put(name, source)


def got(kept: TopicBlobs, name: str, folder: Path) -> bytes:
    kept.get(name, folder / "target")
    return (folder / "target").read_bytes()


@KAFKA
@pytest.mark.slow
def test_a_blob_comes_back_as_it_was_put_and_the_later_one_counts(kept: TopicBlobs, tmp_path: Path) -> None:
    large = os.urandom(3 * blobs.CHUNK_BYTES + 12_345)
    for name, data in (("large", large), ("empty", b""), ("small", b"x"), ("exact", large[: 2 * blobs.CHUNK_BYTES])):
        put(kept, name, data, tmp_path)
        assert got(kept, name, tmp_path) == data
    put(kept, "small", b"y", tmp_path)
    assert got(another(kept._place.namespace), "small", tmp_path) == b"y"
    kept.remove("small")
    kept.remove("never")
    assert sorted(another(kept._place.namespace).names()) == sorted(kept.names()) == ["empty", "exact", "large"]
    with pytest.raises(KeyError):
        kept.get("small", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@KAFKA
@pytest.mark.slow
def test_a_half_written_blob_is_nobodys(kept: TopicBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise Unavailable("died")

    with monkeypatch.context() as patched:
        patched.setattr(TopicBlobs, "_say", dies)
        with pytest.raises(Unavailable, match="died"):
            put(kept, "half", bytes(1_000_000), tmp_path)
    assert kept.names() == another(kept._place.namespace).names() == []
    assert kept._cluster.bounds(topic.chunks(kept._place.namespace)) == (0, 2), "its pieces are there"


@KAFKA
@pytest.mark.slow
@pytest.mark.parametrize("bad", ["cut", "other bytes", "trimmed"])
def test_a_blob_whose_pieces_are_not_what_they_were_is_not_given(kept: TopicBlobs, bad: str, tmp_path: Path) -> None:
    put(kept, "good", bytes(1_000_000), tmp_path)
    made = kept._look()["good"]
    changed = {"cut": made._replace(end=made.end - 1), "other bytes": made._replace(checksum=made.checksum ^ 1), "trimmed": made}[bad]
    kept._say("good", changed.value())
    if bad == "trimmed":
        kept._cluster.trim(topic.chunks(kept._place.namespace), made.first + 1)
    with pytest.raises(KeyError if bad == "trimmed" else Damaged):
        kept.get("good", tmp_path / "target")
    assert not (tmp_path / "target").exists() and Made.of(made.value()) == made


@KAFKA
@pytest.mark.slow
def test_two_nodes_that_write_at_once_do_not_mix(kept: TopicBlobs, tmp_path: Path) -> None:
    other = another(kept._place.namespace)
    bodies = {name: os.urandom(2_000_000) for name in ("one", "two")}
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(put, of, name, bodies[name], tmp_path) for of, name in ((kept, "one"), (other, "two"))]:
            done.result()
    assert {name: got(kept, name, tmp_path) for name in kept.names()} == bodies


@KAFKA
@pytest.mark.slow
def test_pieces_of_what_was_removed_go(kept: TopicBlobs, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        put(kept, name, bytes(600_000), tmp_path)
    kept.remove("a")
    kept.remove("b")
    assert kept._cluster.bounds(topic.chunks(kept._place.namespace)) == (4, 6)
    assert got(kept, "c", tmp_path) == bytes(600_000)


@KAFKA
@pytest.mark.slow
async def test_nodes_that_come_and_go_leave_no_client_behind() -> None:
    """The library stops at a thousand of them, and each has threads."""
    gc.collect()
    gc.disable()
    try:
        before, clients_before = threads(), clients()
        for _ in range(3):
            node = await start(f"{broker()}/coming")
            await (await node.queue("orders")).send(b"a")
            await node.snapshot()
            await node.close()
            assert clients() == clients_before
        await until(lambda: threads() <= before + 8)
    finally:
        gc.enable()


def clients() -> int:
    return sum(isinstance(made, (Consumer, Producer, AdminClient)) for made in gc.get_objects())


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
