"""A node that stops: clients are told how far it read, what is under way is answered, whoever waits is answered at once."""

from __future__ import annotations

import signal
import struct
import threading
import time

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Stranger, record

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


def test_everything_up_to_the_last_request_that_was_read_is_answered(inside: Inside) -> None:
    strangers = [inside.stranger() for _ in range(5)]
    queue = strangers[0].declare("q")
    for one in strangers[1:]:
        one.open("q")
    stopping = threading.Event()

    def pushing(stranger: Stranger) -> None:
        try:
            while not stopping.is_set():
                stranger.send("PUSH", record([queue], [b"x"]))
        except OSError:
            return

    threads = [threading.Thread(target=pushing, args=(one,)) for one in strangers]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    # What was sent and is not read yet lies in the kernel. (Who goes on sending and reads nothing is reset in the end, and rightly.)
    stopping.set()
    assert inside.do(inside.server.drain(5))
    acknowledged = 0
    for one in strangers:
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
        assert last and answered == set(range(min(answered), last + 1))
        acknowledged += len(answered)
    for thread in threads:
        thread.join(10)
    lane = inside.node.store.lane(queue)
    assert lane is not None and inside.call(lane.counts).pushed == acknowledged
