"""The peers of the native door and their raw clients: what they write, what they make of answers however cut, what they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dovetail.lab import amqpload, amqpwire, memcacheload
from dovetail.lab.driver import PeerMissing
from dovetail.lab.drivers import memcached, rabbitmq, spawned
from dovetail.lab.drivers.memcached import Memcached
from dovetail.lab.drivers.rabbitmq import RabbitMq
from dovetail.lab.httpload import LoadFailed
from dovetail.lab.rawload import Player
from tests.lab.peers import alive, listening, needed

CONFIRM = bytes.fromhex("01 0001 0000000d 003c 0050 0000000000000001 00 ce")


class Written(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[bytes] = []

    def write(self, data: Any) -> None:
        self.data.append(bytes(data))

    def taken(self) -> list[bytes]:
        data, self.data = self.data, []
        return data


def begun(player: Player) -> Written:
    wire = Written()
    player.connection_made(wire)
    player.begin()
    return wire


def fed(player: Player, data: bytes, cut: int) -> None:
    for at in range(0, len(data), cut):
        player.data_received(data[at : at + cut])


def delivery(queue: bytes, tag: int, body: bytes = amqpload.BODY) -> bytes:
    arguments = amqpwire.short(amqpwire.CONSUMER) + tag.to_bytes(8, "big") + b"\0" + amqpwire.short(b"") + amqpwire.short(queue)
    properties = bytes.fromhex("003c 0000") + len(body).to_bytes(8, "big") + b"\x10\x00\x02"
    head = amqpwire.method(1, amqpwire.DELIVER, arguments)
    return head + amqpwire.frame(amqpwire.HEADER, 1, properties) + amqpwire.frame(amqpwire.BODY, 1, body)


def test_a_publish_is_three_frames_as_the_standard_draws_them() -> None:
    assert amqpwire.publish(b"q", b"hi") == (
        bytes.fromhex("01 0001 0000000a 003c 0028 0000 00 01 71 00 ce")
        + bytes.fromhex("02 0001 0000000f 003c 0000 0000000000000002 1000 02 ce")
        + bytes.fromhex("03 0001 00000002 6869 ce")
    )
    assert amqpwire.ack(7) == bytes.fromhex("01 0001 0000000d 003c 0050 0000000000000007 00 ce") and len(CONFIRM) == amqpwire.ACK_BYTES


@pytest.mark.parametrize("cut", [1, 5, 100])
async def test_a_sender_publishes_again_only_when_the_confirm_is_whole(cut: int) -> None:
    sender = amqpload.Sender(b"q", 2)
    wire = begun(sender)
    assert wire.taken() == [amqpwire.publish(b"q", amqpload.BODY)]
    fed(sender, CONFIRM[:-1], cut)
    assert wire.taken() == [] and sender.messages == 0
    sender.data_received(CONFIRM[-1:])
    assert wire.taken() == [amqpwire.publish(b"q", amqpload.BODY)] and not sender.done.done()
    fed(sender, CONFIRM, cut)
    assert wire.taken() == [] and sender.messages == 2 and sender.done.done() and len(sender.took_ns) == 2


@pytest.mark.parametrize("cut", [1, 5, 1000])
async def test_a_taker_acks_each_delivery_by_its_number_and_cancels_before_the_last(cut: int) -> None:
    taker = amqpload.Taker(b"queue", 2)
    wire = begun(taker)
    assert wire.taken() == [amqpwire.Line.consume(b"queue")]
    assert len(delivery(b"queue", 1)) == amqpwire.delivery_bytes(b"queue", 100)
    fed(taker, delivery(b"queue", 1), cut)
    assert wire.taken() == [amqpwire.ack(1)] and taker.messages == 1
    fed(taker, delivery(b"queue", 2), cut)
    assert wire.taken() == [amqpwire.cancel() + amqpwire.ack(2)] and taker.done.done()


@pytest.mark.parametrize(
    ("player", "data"),
    [
        (lambda: amqpload.Sender(b"q", 2), amqpwire.method(1, (60, 120), bytes(10))),
        (lambda: amqpload.Taker(b"q", 2), amqpwire.method(1, (20, 40), b"\x01\x94" + amqpwire.short(b"NOT_FOUND") + bytes(4))),
        (lambda: amqpload.Taker(b"q", 2), delivery(b"q", 1, b"another body" * 20)),
        (lambda: memcacheload.Pairs(0, 4, 2, 1, 10), b"SERVER_ERROR out of memory storing object\r\n"),
        (lambda: memcacheload.Pairs(0, 4, 2, 1, 10), b"NOT_FOUND\r\n"),
    ],
    ids=["nack", "closed", "another length", "no memory", "not found"],
)
async def test_what_is_not_the_expected_answer_fails_the_load(player: Any, data: bytes) -> None:
    made = player()
    begun(made)
    made.data_received(data)
    with pytest.raises(LoadFailed):
        made.done.result()


@pytest.mark.parametrize("cut", [1, 17, 100, 10_000])
async def test_pairs_keep_as_many_units_under_way_as_they_shall_whatever_arrives_at_once(cut: int) -> None:
    pairs = memcacheload.Pairs(3, 10, 4, 2, 5)
    wire = begun(pairs)
    units = [memcacheload.unit(3, number, 2, 5) for number in range(4)]
    assert units[1].startswith(b"set 003-000001-0000 0 0 5\r\nxxxxx\r\nset 003-000001-0001") and units[1].count(b"delete ") == 2
    sent = b"".join(wire.taken())
    assert sent == b"".join(units)
    answer = b"STORED\r\n" * 2 + b"DELETED\r\n" * 2
    fed(pairs, answer * 4, cut)
    fed(pairs, answer * 4, cut)
    sent += b"".join(wire.taken())
    fed(pairs, answer * 2, cut)
    assert sent + b"".join(wire.taken()) == b"".join([units[number % 4] for number in range(10)])
    assert pairs.messages == 20 and pairs.done.done()


def test_ports_that_are_free_are_different() -> None:
    assert len(set(spawned.free_ports(20))) == 20


@pytest.mark.parametrize("peer", [RabbitMq, Memcached])
async def test_a_peer_that_is_not_installed_says_how_it_could_be(peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawned.shutil, "which", lambda *_, **__: None)
    with pytest.raises(PeerMissing, match=r"is not installed \(apt-get install "):
        await peer(tmp_path / "files").start()
    assert os.listdir(tmp_path) == []


async def test_a_peer_that_does_not_start_has_its_last_words_and_is_not_left_behind(tmp_path: Path) -> None:
    needed(memcached.present(), "memcached")
    server = Memcached(tmp_path / "files", "--no-such-option")
    with pytest.raises(PeerMissing, match=r"memcached did not start: .*no-such-option"):
        await server.start()
    assert server.pid == 0 and not (tmp_path / "files").exists()


@pytest.mark.slow
@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
async def test_rabbitmq_takes_and_gives_every_message_once_and_leaves_nothing(quorum: bool, tmp_path: Path) -> None:
    needed(rabbitmq.present(), "rabbitmq-server")
    broker = RabbitMq(tmp_path / "files")
    assert (await broker.start())[0].isdigit()
    try:
        assert listening(broker.pid) == {"127.0.0.1"}
        line = amqpwire.Line(broker.port)
        assert line.declare(b"q", quorum=quorum).waiting == 0
        sent = await amqpload.result(broker.port, amqpload.SEND, "q", 4, 25, broker.pid)
        taken = await amqpload.result(broker.port, amqpload.TAKE, "q", 2, 50, broker.pid)
        assert sent["messages"] == taken["messages"] == 100 and sent["p50_us"] > 0 and taken["server_cpu_us"] >= 0
        # Its acks have no answer: the last ones may still be on their way.
        end = time.monotonic() + 60
        while line.declare(b"q", quorum=quorum).waiting and time.monotonic() < end:
            await asyncio.sleep(0.05)
        assert line.declare(b"q", quorum=quorum).waiting == 0
        line.close()
    finally:
        await broker.stop()
    assert broker.pid == 0 and os.listdir(tmp_path) == []


@pytest.mark.slow
async def test_memcached_is_set_and_deleted_in_pairs(tmp_path: Path) -> None:
    needed(memcached.present(), "memcached")
    server = Memcached(tmp_path / "files")
    assert (await server.start()).startswith("1.")
    try:
        assert listening(server.pid) == {"127.0.0.1"}
        made = await memcacheload.result(server.port, 2, 4_000, 1_000, 10, 4, server.pid)
        assert made["messages"] == 4_000
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(b"stats\r\n")
            told = b""
            while not told.endswith(b"END\r\n"):
                told += line.recv(1 << 16)
        facts = dict(row.split(" ")[1:] for row in told.decode().splitlines() if row.startswith("STAT "))
        assert (facts["cmd_set"], facts["delete_hits"], facts["curr_items"]) == ("4000", "4000", "0")
    finally:
        await server.stop()
    assert server.pid == 0 and os.listdir(tmp_path) == []


STARTED = """
import asyncio, sys
from pathlib import Path
from dovetail.lab.drivers.{module} import {name}
async def main():
    server = {name}(Path(sys.argv[1]))
    await server.start()
    print(*server.pids, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(rabbitmq, "RabbitMq"), (memcached, "Memcached")], ids=["rabbitmq", "memcached"])
def test_a_peer_dies_with_the_process_that_started_it_even_by_kill_9(module: Any, name: str, tmp_path: Path) -> None:
    needed(module.present(), name)
    code = STARTED.format(module=module.__name__.rpartition(".")[2], name=name)
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "files")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pids = [int(one) for one in holder.stdout.readline().split()]
    assert pids and all(alive(pid) for pid in pids)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    end = time.monotonic() + 60
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
