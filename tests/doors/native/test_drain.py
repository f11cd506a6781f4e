"""A node that stops: clients are told how far it read, what is under way is answered, whoever waits is answered at once."""

from __future__ import annotations

import asyncio
import signal
import struct

import pytest

from dovetail.doors.native.bounds import Bounds
from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import PATIENCE_S, Stranger, record

pytestmark = pytest.mark.slow

PATIENT = ("--drain-s", "3600")
"""A stop that were held up would be held up for longer than anybody waits for it here."""


def test_a_stop_says_goodbye_and_answers_everybody_who_waits() -> None:
    process = Process("--store", "memory:", "--http", "off", *PATIENT).begin()
    stranger = Stranger(process.port)
    queue = stranger.declare("q")
    pull = stranger.send("PULL", stranger.pull_bytes(queue, 5, wait_ms=60_000))
    consume = stranger.consume(queue, 5)
    last = stranger.send("PING")
    stranger.answer(last)
    assert process.process is not None
    process.process.send_signal(signal.SIGTERM)
    seen = {}
    while len(seen) < 3:
        answer = stranger.take()
        seen[answer.kind, answer.number] = answer.payload
    assert struct.unpack_from("<Q", seen["BYE", 0]) == (last,)
    assert stranger.error(seen["ERROR", consume]).code == "CLOSED"
    assert ("DELIVERIES", pull) in seen
    assert stranger.closed()
    assert process.end(None) == 0
    stranger.close()


def test_idle_connections_do_not_hold_a_stop_up() -> None:
    process = Process("--store", "memory:", "--http", "off", *PATIENT).begin()
    strangers = [Stranger(process.port) for _ in range(20)]
    assert process.end() == 0
    for one in strangers:
        assert one.take().kind == "BYE" and one.closed()
        one.close()


@pytest.mark.parametrize("turns", [0, 2, 5, 12, 40])
def test_everything_up_to_the_last_request_that_was_read_is_answered(turns: int) -> None:
    """A few requests are taken at a time, and the node is stopped after so many turns of its loop."""
    inside = Inside(bounds=Bounds(in_flight_max=16))
    strangers = [inside.stranger() for _ in range(5)]
    queue = strangers[0].declare("q")
    for one in strangers[1:]:
        one.open("q")
    first = [one.number + 1 for one in strangers]

    async def stop() -> bool:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await inside.server.drain(50)

    # What was sent and is not read yet lies in the kernel. (Who goes on sending and reads nothing is reset in the end, and rightly.)
    with inside.held():
        for one in strangers:
            one.send_at_once("PUSH", [record([queue], [b"x"])] * 300)
        stopping = asyncio.run_coroutine_threadsafe(stop(), inside.loop)
    assert stopping.result(PATIENCE_S)
    acknowledged = 0
    for one, begin in zip(strangers, first, strict=True):
        answered, last = set(), 0
        try:
            while True:
                answer = one.take()
                if answer.kind == "BYE":
                    (last,) = struct.unpack_from("<Q", answer.payload)
                elif answer.kind == "PUSHED":
                    answered.add(answer.number)
        except ConnectionError:
            pass
        assert last and answered == set(range(begin, last + 1))
        acknowledged += len(answered)
        one.close()
    lane = inside.node.store.lane(queue)
    assert lane is not None and inside.call(lane.counts).pushed == acknowledged
    inside.close()
