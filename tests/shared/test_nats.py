"""What is refused of a NATS server and its streams, by name."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import api

from dovetail.errors import StorageError, Unavailable
from dovetail.logs.nats import stream
from dovetail.logs.nats.engine import _place_of
from dovetail.node import start
from tests.contract.shared_house import NATS, server

WRONG: dict[str, dict[str, Any]] = {
    "max_age": {"max_age": 3600.0},
    "max_bytes": {"max_bytes": 1 << 20},
    "max_msgs": {"max_msgs": 10},
    "max_msgs_per_subject": {"max_msgs_per_subject": 10},
    "discard": {"discard": api.DiscardPolicy.OLD},
    "retention": {"retention": api.RetentionPolicy.WORK_QUEUE},
    "storage": {"storage": api.StorageType.MEMORY},
    "subjects": {"subjects": ["dovetail.x.log", "others.>"]},
    "purges": {"deny_purge": True},
}


@NATS
@pytest.mark.slow
@pytest.mark.parametrize("setting", WRONG)
async def test_a_stream_that_would_delete_what_waits_is_refused_and_the_setting_named(setting: str) -> None:
    import nats

    namespace = f"wrong-{setting}"
    connection = await nats.connect(server().split(","))
    changed = WRONG[setting] | ({"subjects": [stream.subject(namespace), "others.>"]} if setting == "subjects" else {})
    js = connection.jetstream()
    # It stays: a server that deletes its last stream and is asked for another in the same moment may fail to make it.
    await js.add_stream(stream.wanted(namespace, 1).evolve(**changed))
    await connection.close()
    with pytest.raises(StorageError, match=setting):
        await start(f"{server()}/{namespace}")


@NATS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "word"), [("", "memory"), ("?replicas=1", "memory"), ("?synced=yes", "disk")], ids=["plain", "one copy", "synced"]
)
async def test_an_answer_says_what_the_engine_does_or_what_the_operator_has_declared(asked: str, word: str) -> None:
    node = await start(f"{server()}/words{asked}")
    try:
        assert (await (await node.queue("orders")).send(b"a")).durability == word
    finally:
        await node.close()


@NATS
@pytest.mark.slow
async def test_a_server_that_takes_too_little_at_once_is_refused_and_the_setting_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "max_payload", property(lambda self: 1 << 20))
    with pytest.raises(StorageError, match="max_payload"):
        await start(f"{server()}/small")


@NATS
@pytest.mark.slow
async def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "VERSION_MIN", (99, 0))
    with pytest.raises(StorageError, match=r"at least 99\.0"):
        await start(f"{server()}/old")


@NATS
@pytest.mark.slow
async def test_one_server_that_answers_is_enough() -> None:
    for number in range(4):
        there = server().removeprefix("nats://")
        node = await start(f"nats://127.0.0.1:1,{there}/some?replicas=1")
        assert (await (await node.queue("orders")).send(b"a")).sequence == number + 1
        await node.close()


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await start("nats://127.0.0.1:1/shop")


def test_the_place_of_a_message_is_found_with_and_without_a_domain() -> None:
    assert _place_of("$JS.ACK.S.c.1.42.7.1700000000123456789.0") == (42, 1_700_000_000_123)
    assert _place_of("$JS.ACK.hub.ACC.S.c.1.42.7.1700000000123456789.0.x9") == (42, 1_700_000_000_123)
