"""Safeguards of the native door, each taken away: what it guards against must happen then, or the test that holds it proves nothing."""

from __future__ import annotations

import socket
import struct

import pytest

from dovetail.doors.native import consuming, pulling, slots
from dovetail.stores import columns, records
from tests.doors.native.house import Inside
from tests.doors.native.stranger import Stranger, record
from tests.doors.native.test_cuts import taken_before_the_first_is_answered


def test_without_seals_anybody_completes_what_others_have(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns.receipts, "seals_run", lambda *named: True)
    stranger = inside.stranger()
    queue = stranger.declare("q")
    stranger.push(record([queue], [b"x"]))
    (message,) = stranger.pull(queue)
    assert stranger.complete(queue, [message._replace(run=(*message.run[:3], bytes(8)))]) == [True]


def test_without_giving_back_what_was_not_written_is_hidden_for_a_lease(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling.Pulling, "give_up", lambda self: None)
    witness, slow = inside.stranger(), inside.narrow()
    queue = witness.declare("q")
    slow.open("q")
    for _ in range(20):
        witness.push(record([queue], [b"x" * 60_000] * 20))
    taken_before_the_first_is_answered(inside, slow, witness, queue)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    slow.close()
    inside.alone()
    assert witness.counts(queue)["leased"] == 400


def test_without_an_order_answers_come_as_they_are_known(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: slots.Slot, answer: bytes) -> None:
        self.answer = answer
        self.connection.ready.append(self)
        self.connection.schedule()

    monkeypatch.setattr(slots.Slot, "place", at_once)
    stranger = inside.stranger()
    queue = stranger.declare("q")
    sent = []
    frames = b""
    for _ in range(20):
        for kind, payload in ((16, record([queue], [b"x"])), (37, struct.pack("<Q", queue))):
            stranger.number += 1
            sent.append(stranger.number)
            frames += struct.pack("<IBBHQ", len(payload), kind, 0, 0, stranger.number) + payload
    stranger.socket.sendall(frames)
    assert [stranger.take().number for _ in sent] != sent


def test_without_looking_at_records_a_message_is_stored_that_nobody_can_read(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_check_attributes", lambda data: None)
    stranger = inside.stranger()
    queue = stranger.declare("q")
    stranger.push(record([queue], [b"x"], attributes=[b"\x05"]))

    async def read() -> object:
        (message,) = await (await inside.node.queue("q")).receive()
        return message.attributes

    with pytest.raises(Exception, match="attributes"):
        inside.do(read())


def test_without_a_bound_of_credit_a_consumer_is_given_everything(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = consuming.Consumer._got

    def generous(self: consuming.Consumer, runs: object) -> None:
        self._messages += 100
        taken(self, runs)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(consuming.Consumer, "_got", generous)
    stranger = inside.stranger()
    queue = stranger.declare("q")
    stranger.push(record([queue], [b"x"] * 10))
    consume = stranger.consume(queue, 3)
    got: list[object] = []
    while len(got) < 10:
        got += Stranger.deliveries(stranger.answer(consume))
    assert stranger.counts(queue)["leased"] == 10
