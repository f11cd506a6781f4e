"""Who calls, and who answers: keys that are proved, a secret that is never on the wire, a node that has to prove itself too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dovetail
from dovetail.client import AccessDenied
from dovetail.doors.native.codec import Frame, Reader, answers
from dovetail.service.accounts import Accounts, Key
from dovetail.settings import Settings
from tests.client.house import Served, Wire


@pytest.fixture
async def signed(tmp_path: Path) -> AsyncIterator[Served]:
    made = await Served(Settings(auth="signed"), Accounts.load(str(tmp_path / "accounts.json"))).open()
    yield made
    await made.close()


@pytest.fixture
def key(signed: Served) -> Key:
    assert signed.accounts is not None
    return signed.accounts.add_key(signed.accounts.create("shop").id, 0)


async def test_a_key_that_is_proved_is_let_in_and_its_secret_is_not_on_the_wire(signed: Served, key: Key) -> None:
    wire = await Wire(signed.port).open()
    async with dovetail.connect(wire.url, key=key.access_key_id, secret=key.secret, timeout_s=60) as node:
        queue = await node.queue("orders")
        await queue.send(b"a")
        producer = await node.producer("billing")
        assert (await producer.send(queue, b"b")).sequence == 2
        wire.cut()
        assert (await queue.send(b"c")).sequence == 3
        assert queue.namespace.startswith(f"{key.account}/")
    assert not any(key.secret.encode() in payload for _, payload in wire.payloads)
    await wire.close()


@pytest.mark.parametrize("wrong", ["key", "secret", "both"])
async def test_a_key_that_is_not_proved_is_refused_at_once(signed: Served, key: Key, wrong: str) -> None:
    given = (key.access_key_id if wrong == "secret" else "", key.secret if wrong == "key" else "wrong")
    with pytest.raises(AccessDenied):
        async with asyncio.timeout(60), dovetail.connect(signed.url, key=given[0], secret=given[1]):
            pass


async def test_a_node_that_cannot_prove_that_it_knows_the_secret_is_not_spoken_to() -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Reader(hello=True)
        while data := await reader.read(4096):
            for event in frames.feed(data):
                if not isinstance(event, Frame):
                    writer.write(answers.encode(answers.Hello(1, answers.CHALLENGE, os.urandom(32)), 0))
                else:
                    said = (0, 1 << 20, 1 << 20, 10_000, 1024, 1000, 120_000, 0, "a", "n", "disk", "node", "1", [])
                    writer.write(answers.encode(answers.Welcome(os.urandom(32), os.urandom(16), *said), event.number))

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    with pytest.raises(AccessDenied, match="not the one"):
        await dovetail.connect(f"dovetail://127.0.0.1:{server.sockets[0].getsockname()[1]}", key="KEY", secret="SECRET", timeout_s=60)
    server.close()


async def test_another_accounts_namespace_is_refused(signed: Served, key: Key) -> None:
    async with dovetail.connect(signed.url, key=key.access_key_id, secret=key.secret, timeout_s=60) as node:
        with pytest.raises(AccessDenied):
            await node.queue("orders", namespace="111111111111/us-east-1")


@pytest.mark.slow
async def test_a_key_that_was_taken_away_ends_the_connection_and_says_so(signed: Served, key: Key) -> None:
    async with dovetail.connect(signed.url, key=key.access_key_id, secret=key.secret, timeout_s=60) as node:
        queue = await node.queue("orders")
        waiting = asyncio.create_task(queue.receive(wait_s=60))
        assert signed.accounts is not None
        signed.accounts.remove_key(key.access_key_id)
        signed.accounts.reload_if_changed()
        with pytest.raises(AccessDenied):
            await asyncio.wait_for(waiting, 60)
        with pytest.raises(AccessDenied):
            await queue.send(b"a")
