"""Answers of one queue come in the order of the requests, and the requests take effect in that order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from tests.doors.native.stranger import Answer, Stranger, items, record


def taken(stranger: Stranger, count: int) -> list[Answer]:
    return [stranger.take() for _ in range(count)]


def test_requests_under_way_together_are_answered_in_their_order(stranger: Stranger, queue: int) -> None:
    sent = []
    for number in range(50):
        sent.append(stranger.send("PUSH", record([queue], [b"%d" % number])))
        sent.append(stranger.send("COUNTS", struct.pack("<Q", queue)))
    for number, answer in enumerate(taken(stranger, 100)):
        assert answer.number == sent[number]
        if number % 2:
            assert struct.unpack_from("<7Q", answer.payload)[4] > number // 2, "a count sees the pushes before it"


def test_a_refusal_keeps_its_place(stranger: Stranger, queue: int) -> None:
    sent = [
        stranger.send("PUSH", record([queue], [b"a"])),
        stranger.send("PULL", stranger.pull_bytes(queue, 10_001)),
        stranger.send("PULL", stranger.pull_bytes(queue, 10)),
        stranger.send("COMPLETE", struct.pack("<Qq", queue, 0) + struct.pack("<QQIIII8s", 1, 1, 1, 0, 1, 0, b"forged!!")),
        stranger.send("PURGE", struct.pack("<Q", queue)),
        stranger.send("COUNTS", struct.pack("<Q", queue)),
    ]
    got = taken(stranger, 6)
    in_place = [one for one in got if one.kind != "ERROR" or stranger.error(one.payload).code != "LIMIT_EXCEEDED"]
    assert [one.kind for one in in_place] == ["PUSHED", "DELIVERIES", "ERROR", "DONE", "COUNTED"]
    assert [one.number for one in in_place] == [number for number in sent if number != sent[1]]
    assert sorted(one.number for one in got) == sent


def test_a_pull_behind_a_push_finds_what_was_pushed(stranger: Stranger, queue: int) -> None:
    for _ in range(20):
        stranger.send("PUSH", record([queue], [b"x"]))
        stranger.send("PULL", stranger.pull_bytes(queue))
        pushed, pulled = taken(stranger, 2)
        assert pushed.kind == "PUSHED"
        (message,) = stranger.deliveries(pulled)
        assert stranger.complete(queue, [message]) == [True]


def test_what_changes_a_queue_takes_effect_in_its_place(stranger: Stranger, queue: int) -> None:
    stranger.send("PUSH", record([queue], [b"gone"]))
    stranger.send("PURGE", struct.pack("<Q", queue))
    stranger.send("CONFIGURE", struct.pack("<QHHIIIQ", queue, 1, 0, 0, 3, 0, 3_600_000))
    stranger.send("PUSH", record([queue], [b"delayed"]))
    stranger.send("TAP_OPEN", struct.pack("<QQQQ", queue, 2**64 - 1, 1 << 30, 1 << 30) + b"tap")
    stranger.send("PUSH", record([queue], [b"tapped"]))
    stranger.send("TAP_READ", stranger.tap_bytes(queue, "tap"))
    stranger.send("COUNTS", struct.pack("<Q", queue))
    got = taken(stranger, 8)
    assert [one.kind for one in got] == ["PUSHED", "DONE", "OPENED", "PUSHED", "DONE", "PUSHED", "MESSAGES", "COUNTED"]
    stranger.send("PUSH", record([queue], [b"too early"]))
    stranger.send("DROP", struct.pack("<Q", queue))
    stranger.send("PUSH", record([queue], [b"too late"]))
    stranger.send("COUNTS", struct.pack("<Q", queue))
    got += taken(stranger, 4)
    assert [one.kind for one in got[8:]] == ["PUSHED", "DONE", "ERROR", "ERROR"]
    assert [one.number for one in got] == sorted(one.number for one in got)
    assert stranger.done(got[1]) == 1
    assert stranger.opened(got[2])[1]["delay_ms"] == 3_600_000
    assert [one["body"] for one in stranger.messages(got[6])[2]] == [b"tapped"]
    assert struct.unpack("<8Q", got[7].payload)[:3] == (0, 2, 0)
    assert {stranger.error(one.payload).code for one in got[10:]} == {"NO_SUCH_QUEUE"}


def test_a_pull_that_waits_holds_nobody_up(stranger: Stranger, queue: int) -> None:
    waits = stranger.send("PULL", stranger.pull_bytes(queue, 5, wait_ms=60_000))
    counts = stranger.send("COUNTS", struct.pack("<Q", queue))
    assert stranger.take().number == counts
    push = stranger.send("PUSH", record([queue], [b"x"]))
    assert [one.number for one in taken(stranger, 2)] == [push, waits]


def test_requests_of_many_queues_go_their_own_ways_and_keep_their_own_order(stranger: Stranger, name: str) -> None:
    random = Random(7)
    queues = [stranger.declare(f"{name}-{number}") for number in range(5)]
    sent: dict[int, int] = {}
    act: dict[str, Callable[[int], int]] = {
        "push": lambda queue: stranger.send("PUSH", record([queue], [b"x"] * random.randint(1, 40))),
        "pull": lambda queue: stranger.send("PULL", stranger.pull_bytes(queue, random.randint(1, 40))),
        "counts": lambda queue: stranger.send("COUNTS", struct.pack("<Q", queue)),
        "peek": lambda queue: stranger.send("PEEK", struct.pack("<QQII", queue, 0, 5, 0)),
        "wrong": lambda queue: stranger.send("CANCEL", struct.pack("<QqQ", queue, 0, 10**6)),
    }
    for _ in range(900):
        queue = random.choice(queues)
        sent[act[random.choice(list(act))](queue)] = queue
    seen: dict[int, list[int]] = {queue: [] for queue in queues}
    for answer in taken(stranger, 900):
        seen[sent[answer.number]].append(answer.number)
    for queue in queues:
        assert seen[queue] == [number for number, of in sent.items() if of == queue]


def test_both_answers_of_complete_and_pull_stand_in_their_place(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b"]))
    first = stranger.pull(queue)
    number = stranger.send("COMPLETE_PULL", stranger.pull_bytes(queue) + items(first))
    counts = stranger.send("COUNTS", struct.pack("<Q", queue))
    assert [(one.kind, one.number) for one in taken(stranger, 3)] == [("SETTLED", number), ("DELIVERIES", number), ("COUNTED", counts)]
    # Where the pull has to wait, the settling is told at once.
    number = stranger.send("COMPLETE_PULL", stranger.pull_bytes(queue, wait_ms=60_000) + items(first))
    assert stranger.take().payload == b"\0"
    stranger.push(record([queue], [b"c"]))
    assert [one.body for one in stranger.deliveries(stranger.answer(number))] == [b"c"]


def test_more_requests_than_may_be_under_way_wait_and_are_all_answered(stranger: Stranger, queue: int) -> None:
    count = 3 * stranger.welcome.in_flight
    frames = b""
    for _ in range(count):
        stranger.number += 1
        data = record([queue], [b"x"])
        frames += struct.pack("<IBBHQ", len(data), 16, 0, 0, stranger.number) + data
    first = stranger.number - count + 1
    stranger.socket.sendall(frames)
    assert [one.number for one in taken(stranger, count)] == list(range(first, first + count))
    assert stranger.counts(queue)["pushed"] == count
