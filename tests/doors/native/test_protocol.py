"""What docs/protocol.md says, held to by a client that was written from that page alone."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Refused, Stranger, attribute_bytes, column, id_of, items, record, text

Another = Callable[[], Stranger]


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


# Greeting


def test_the_node_says_who_it_is_and_what_it_takes(stranger: Stranger) -> None:
    welcome = stranger.welcome
    assert (welcome.account, welcome.namespace, welcome.durability, welcome.name) == ("000000000000", "default", "memory", "dovetail")
    assert welcome.version and welcome.addresses == [] and welcome.idle_ms > 0
    assert (welcome.messages, welcome.in_flight) == (10_000, 1_024)
    assert welcome.request_bytes > welcome.record_bytes > 1_056_768
    assert abs(welcome.now_ms - time.time() * 1000) < 60_000


def test_a_ping_is_answered_with_the_nodes_time(stranger: Stranger) -> None:
    answer = stranger.ask("PING")
    assert answer.kind == "PONG" and abs(struct.unpack("<Q", answer.payload)[0] - time.time() * 1000) < 60_000


# Queues


def test_a_queue_is_made_once_and_opened_by_its_name(stranger: Stranger, another: Another, name: str) -> None:
    refused("NO_SUCH_QUEUE", lambda: stranger.open(name))
    queue = stranger.declare(name, lease_ms=5_000, extra={"team": "blue"})
    assert stranger.declare(name) == stranger.declare(name, lease_ms=5_000) == another().open(name) == queue
    refused("QUEUE_EXISTS", lambda: stranger.declare(name, lease_ms=6_000))


def test_rules_are_told_and_changed_one_by_one(stranger: Stranger, name: str) -> None:
    queue, told = stranger.opened(stranger.ask("DECLARE", text("") + text(name) + struct.pack("<HHIIIQ", 1, 0, 0, 1, 0, 7_000)))
    assert told == {
        "lease_ms": 7_000, "lease_max_ms": 0, "delay_ms": 0, "retention_ms": 0, "receives_max": 0, "dead_letter": 0, "dedup_ms": 0,
        "grouped": 0, "in_flight_max": 0, "backoff_ms": 0, "backoff_max_ms": 0, "extra": {},
    }  # fmt: skip
    changed = stranger.opened(stranger.ask("CONFIGURE", struct.pack("<QHHIIIQ", queue, 1, 0, 0, 3, 0, 50)))
    assert changed == (queue, told | {"delay_ms": 50})


def test_names_are_listed_in_order_page_by_page(stranger: Stranger, name: str) -> None:
    made = {f"{name}-{letter}": stranger.declare(f"{name}-{letter}") for letter in "cab"}
    after, seen, more = "", {}, 1
    while more:
        answer = stranger.ask("LIST", struct.pack("<II", 2, 0) + text("") + text(f"{name}-") + text(after))
        count, more = struct.unpack_from("<II", answer.payload)
        at = 8
        for _ in range(count):
            queue, size = struct.unpack_from("<QH", answer.payload, at)
            after = answer.payload[at + 10 : at + 10 + size].decode()
            seen[after] = queue
            at += 10 + size
        assert at == len(answer.payload)
    assert seen == made and list(seen) == sorted(made)


def test_a_dropped_queue_is_gone_also_when_one_of_its_name_is_made_again(stranger: Stranger, name: str) -> None:
    queue = stranger.declare(name)
    stranger.push(record([queue], [b"lost"]))
    stranger.done(stranger.ask("DROP", struct.pack("<Q", queue)))
    again = stranger.declare(name)
    assert again != queue
    refused("NO_SUCH_QUEUE", lambda: stranger.push(record([queue], [b"x"])))
    refused("NO_SUCH_QUEUE", lambda: stranger.pull(queue))
    assert stranger.pull(again) == []


def test_a_queue_that_was_not_opened_here_is_refused(stranger: Stranger, another: Another, queue: int) -> None:
    other = another()
    refused("NOT_OPENED", lambda: other.push(record([queue], [b"x"])))
    refused("NOT_OPENED", lambda: other.pull(queue))
    refused("NOT_OPENED", lambda: stranger.push(record([queue, queue + 10_000], [b"x"])))
    assert stranger.counts(queue)["pushed"] == 0


def test_a_namespace_may_be_named_and_has_names_of_its_own(stranger: Stranger, name: str) -> None:
    here, there = stranger.declare(name), stranger.declare(name, namespace="000000000000/us-east-1")
    assert here != there == stranger.open(name, "000000000000/us-east-1")
    answer = stranger.ask("NAME", struct.pack("<Q", there))
    assert answer.payload == text("000000000000/us-east-1") + text(name)


# Messages in and out


def test_a_message_goes_in_and_comes_out_once(stranger: Stranger, queue: int) -> None:
    assert stranger.push(record([queue], [b"hello"])) == [([1], [0], [bytes(16)])]
    (message,) = stranger.pull(queue, 10)
    assert (message.body, message.sequence, message.receives, message.group, message.source) == (b"hello", 1, 1, b"", 0)
    assert abs(message.lease_until_ms - message.pushed_ms - 30_000) < 5_000
    assert stranger.pull(queue) == []
    assert stranger.complete(queue, [message]) == [True]
    assert stranger.complete(queue, [message]) == [False]
    assert stranger.counts(queue) == {
        "visible": 0, "delayed": 0, "leased": 0, "oldest_age_ms": 0, "pushed": 1, "dead_lettered": 0, "stranded": 0,
        "reserved": 0,
    }  # fmt: skip


def test_bodies_of_every_length_come_out_as_they_went_in(stranger: Stranger, queue: int) -> None:
    bodies = [bytes([length % 256]) * length for length in (*range(70), 1000, 65_537)]
    assert stranger.push(record([queue], bodies))[0][0] == list(range(1, len(bodies) + 1))
    first = stranger.pull(queue, 5)
    assert [one.body for one in first + stranger.pull(queue, 1) + stranger.pull(queue, 1000)] == bodies


def test_everything_a_message_can_carry_comes_out(stranger: Stranger, queue: int) -> None:
    attributes = attribute_bytes({"kind": ("String", "größer".encode()), "n": ("Number", b"3")})
    own = bytes(range(16))
    data = record(
        [queue], [b"a", b"b", b""], ids=[own, bytes(16), bytes(16)], groups=[b"", "g-ö".encode(), b""], attributes=[b"", b"", attributes]
    )
    assert stranger.push(data)[0][0] == [1, 2, 3]
    stranger.push(record([queue], [b"plain"]))
    got = sorted(stranger.pull(queue, 10), key=lambda one: one.sequence)
    assert [one.body for one in got] == [b"a", b"b", b"", b"plain"]
    assert [one.own_id for one in got] == [own, bytes(16), bytes(16), bytes(16)]
    assert [one.group for one in got] == [b"", "g-ö".encode(), b"", b""]
    assert [one.attributes for one in got] == [b"", b"", attributes, b""]


def test_ids_are_made_of_queue_and_sequence_as_the_page_says(stranger: Stranger, queue: int, served: Process) -> None:
    stranger.tap_open(queue, "ids")
    stranger.push(record([queue], [b"x"] * 3))
    answer = stranger.ask("TAP_READ", stranger.tap_bytes(queue, "ids"), 1)
    pa = pytest.importorskip("pyarrow")
    table = pa.ipc.open_stream(pa.py_buffer(answer.payload[32:])).read_all()
    assert table["id"].to_pylist() == [id_of(queue, sequence, stranger.welcome.salt) for sequence in (1, 2, 3)]


def test_one_receipt_covers_a_run_and_any_part_of_it_can_be_named(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [bytes([65 + i]) for i in range(10)]))
    got = stranger.pull(queue, 10)
    assert len({one.run for one in got}) == 1 and got[0].run[2] == 10
    assert stranger.complete(queue, [got[2], got[3], got[7]]) == [True] * 3
    assert stranger.settle("RELEASE", queue, [got[0]]) == [True]
    assert stranger.settle("REQUEUE", queue, got[1:4]) == [True, False, False]
    assert [one.body for one in stranger.pull(queue, 10)] == [b"A", b"B"]
    assert stranger.counts(queue)["leased"] == 7


def test_a_receipt_that_nobody_gave_refuses_the_whole_frame(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b"]))
    first, second = stranger.pull(queue, 2)
    for field, value in ((0, 99), (1, 99), (2, 3), (3, bytes(8))):
        run = list(second.run)
        run[field] = value
        forged = second._replace(run=tuple(run), at=0)  # type: ignore[arg-type]  # it is a lie
        refused("RECEIPT_INVALID", lambda forged=forged: stranger.complete(queue, [first, forged]))
    assert stranger.counts(queue)["leased"] == 2
    assert stranger.complete(queue, [first, second]) == [True, True]


def test_a_receipt_of_one_queue_says_nothing_in_another(stranger: Stranger, queue: int, name: str) -> None:
    other = stranger.declare(f"{name}-other")
    for one in (queue, other):
        stranger.push(record([one], [b"x"]))
    (message,), _ = stranger.pull(queue), stranger.pull(other)
    refused("RECEIPT_INVALID", lambda: stranger.complete(other, [message]))


def test_neighbours_that_were_pushed_apart_come_in_one_frame(stranger: Stranger, queue: int) -> None:
    for batch in range(5):
        stranger.push(record([queue], [b"%d.%d" % (batch, i) for i in range(batch + 1)]))
    got = stranger.pull(queue, 100)
    assert [one.body for one in got] == [b"%d.%d" % (batch, i) for batch in range(5) for i in range(batch + 1)]
    assert stranger.complete(queue, got) == [True] * 15


def test_a_delay_is_kept_for_all_or_for_each(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"later"], delay_ms=3_600_000))
    stranger.push(record([queue], [b"now", b"later"], delays=[0, 3_600_000]))
    stranger.push(record([queue], [b"as the queue says"], delay_ms=2**64 - 1))
    assert [one.body for one in stranger.pull(queue, 10)] == [b"now", b"as the queue says"]
    assert stranger.counts(queue)["delayed"] == 2


def test_a_pull_takes_as_many_bytes_as_it_said_and_always_the_first(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x" * 1000] * 10))
    assert len(stranger.pull(queue, 10, bytes_max=2_999)) == 2
    assert stranger.counts(queue)["leased"] == 2
    assert len(stranger.pull(queue, 10, bytes_max=1)) == 1
    assert len(stranger.pull(queue, 10, bytes_max=3_000)) == 3
    assert len(stranger.pull(queue, 10)) == 4


def test_receive_and_delete_needs_no_receipt(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b", b"c"]))
    (first,) = stranger.pull(queue, 1, delete=True)
    rest = stranger.pull(queue, 10, delete=True)
    assert [one.body for one in (first, *rest)] == [b"a", b"b", b"c"]
    assert {(one.run[1], one.run[3]) for one in (first, *rest)} == {(0, bytes(8))}
    assert stranger.counts(queue)["leased"] == stranger.counts(queue)["visible"] == 0


def test_receive_and_delete_keeps_what_did_not_fit(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x" * 100] * 5))
    assert len(stranger.pull(queue, 5, delete=True, bytes_max=250)) == 2
    assert stranger.counts(queue)["visible"] == 3


def test_the_same_attempt_gets_the_same_messages(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b"]))
    once = stranger.pull(queue, 1, attempt=b"try-1")
    assert once == [one._replace(lease_until_ms=once[0].lease_until_ms) for one in stranger.pull(queue, 1, attempt=b"try-1")]
    assert [one.body for one in stranger.pull(queue, 1, attempt=b"try-2")] == [b"b"]


def test_completing_and_pulling_in_one_round_trip(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b"]))
    (first,) = stranger.pull(queue)
    number = stranger.send("COMPLETE_PULL", stranger.pull_bytes(queue) + items([first]))
    assert stranger.answer(number).payload == b"\1"
    (second,) = stranger.deliveries(stranger.answer(number))
    assert second.body == b"b"
    number = stranger.send("COMPLETE_PULL", stranger.pull_bytes(queue) + items([first, second]))
    assert stranger.answer(number).payload == b"\0\1"
    assert stranger.deliveries(stranger.answer(number)) == []
    forged = second._replace(run=(*second.run[:3], bytes(8)))
    refused("RECEIPT_INVALID", lambda: stranger.ask("COMPLETE_PULL", stranger.pull_bytes(queue) + items([forged])))
    stranger.ask("PING")
    assert stranger.take_nothing()


def test_completing_and_pushing_happen_together_or_not_at_all(stranger: Stranger, queue: int, name: str) -> None:
    target = stranger.declare(f"{name}-next")
    stranger.tap_open(target, "tap")
    stranger.push(record([queue], [b"in"]))
    (message,) = stranger.pull(queue)

    def both() -> list[tuple[list[int], list[int], list[bytes]]]:
        payload = struct.pack("<QII", queue, 1, 0) + items([message]) + record([target], [b"out"])
        return stranger.pushed(stranger.ask("COMPLETE_PUSH", payload))

    assert both() == [([1], [0], [bytes(16)])]
    refused("RECEIPT_INVALID", both)
    assert (stranger.counts(queue)["leased"], stranger.counts(target)["pushed"]) == (0, 1)
    assert [one.body for one in stranger.pull(target, 5)] == [b"out"]
    answer = stranger.ask("TAP_READ", stranger.tap_bytes(target, "tap"))
    assert [one["body"] for one in stranger.messages(answer)[2]] == [b"out"]


def test_one_push_to_several_queues_reaches_all_or_none(stranger: Stranger, another: Another, name: str) -> None:
    queues = [stranger.declare(f"{name}-{i}") for i in range(3)]
    answers = stranger.push(record(queues, [b"a", b"b"]))
    assert answers == [([1, 2], [0, 0], [bytes(16)] * 2)] * 3
    stranger.done(stranger.ask("DROP", struct.pack("<Q", queues[1])))
    refused("NO_SUCH_QUEUE", lambda: stranger.push(record(queues, [b"c"])))
    assert [stranger.counts(queues[i])["pushed"] for i in (0, 2)] == [2, 2]
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queues[0], queues[0]], [b"c"])))


# Waiting


def test_a_pull_waits_for_a_message(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    number = stranger.send("PULL", stranger.pull_bytes(queue, 10, wait_ms=60_000))
    stranger.ask("PING")
    other = another()
    other.push(record([other.open(name)], [b"at last"]))
    assert [one.body for one in stranger.deliveries(stranger.answer(number))] == [b"at last"]


def test_a_pull_that_waited_in_vain_is_answered_with_nothing(inside: Inside) -> None:
    stranger = inside.stranger()
    queue = stranger.declare("q")
    number = stranger.send("PULL", stranger.pull_bytes(queue, wait_ms=3_600_000))
    stranger.ask("PING")
    inside.advance(3_599)
    assert stranger.take_nothing()
    inside.advance(2)
    assert stranger.deliveries(stranger.answer(number)) == []


def test_a_pull_that_waits_is_stopped_and_answers_first(stranger: Stranger, queue: int) -> None:
    number = stranger.send("PULL", stranger.pull_bytes(queue, wait_ms=60_000))
    stop = stranger.send("STOP", struct.pack("<Q", number))
    first, second = stranger.take(), stranger.take()
    assert (first.number, stranger.deliveries(first)) == (number, [])
    assert (second.number, stranger.done(second)) == (stop, 1)
    assert stranger.stop(number) == 0
    stranger.push(record([queue], [b"still there"]))
    assert [one.body for one in stranger.pull(queue)] == [b"still there"]


# Without a receipt


def test_messages_are_cancelled_rescheduled_and_reclaimed_by_sequence(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"a", b"b", b"c"]))
    (first,) = stranger.pull(queue)
    assert stranger.by_sequence("CANCEL", queue, [1, 2, 9]) == [False, True, False]
    assert stranger.by_sequence("RESCHEDULE", queue, [1, 3], 3_600_000) == [False, True]
    assert stranger.by_sequence("RECLAIM", queue, [1, 3]) == [True, False]
    assert stranger.complete(queue, [first]) == [False]
    assert [one.body for one in stranger.pull(queue, 10)] == [b"a"]
    assert stranger.done(stranger.ask("PURGE", struct.pack("<Q", queue))) == 2


def test_a_look_shows_every_message_and_takes_none(stranger: Stranger, queue: int) -> None:
    own = bytes(range(16))
    stranger.push(record([queue], [b"taken", b"x"]))
    stranger.push(record([queue], [b"delayed"], delay_ms=3_600_000, ids=[own], groups=[b"g"]))
    stranger.pull(queue)
    following, end, seen = stranger.peek(queue)
    assert (following, end) == (4, 4)
    assert [(one["sequence"], one["body"], one["state"], one["receives"]) for one in seen] == [
        (1, b"taken", 2, 1), (2, b"x", 0, 0), (3, b"delayed", 1, 0),
    ]  # fmt: skip
    assert [one["id"] for one in seen] == [bytes(16), bytes(16), own] and seen[2]["group"] == b"g"
    assert [one["sequence"] for one in stranger.peek(queue, most=1, after=following - 3)[2]] == [2]
    assert [one["sequence"] for one in stranger.peek(queue, bytes_max=1)[2]] == [1]


# Repeats, producers, dead letters


def test_repeats_are_recognised_one_by_one(stranger: Stranger, name: str) -> None:
    queue = stranger.declare(name, dedup_ms=60_000)
    one, two, own = b"1" * 16, b"2" * 16, b"i" * 16
    assert stranger.push(record([queue], [b"a", b"b"], dedups=[one, two], ids=[own, bytes(16)]))[0][:2] == ([1, 2], [0, 0])
    sequences, verdicts, ids = stranger.push(record([queue], [b"a", b"c", b"b"], dedups=[one, bytes(16), two]))[0]
    assert (sequences, verdicts) == ([1, 3, 2], [1, 0, 1])
    assert ids == [own, bytes(16), bytes(16)]


def test_a_numbered_message_is_stored_once_however_often_it_is_sent(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    identity = name.encode().ljust(16, b"\0")

    def opened(client: Stranger) -> tuple[bytes, int, int]:
        return struct.unpack("<16sQQ", client.ask("PRODUCER", identity).payload)  # type: ignore[return-value]  # three values

    given, epoch, last = opened(stranger)
    assert (given, last) == (identity, 0)
    data = record([queue], [b"a", b"b"], number=(given, epoch, 1))
    assert stranger.push(data)[0][:2] == ([1, 2], [0, 0])
    assert stranger.push(data)[0][:2] == ([1, 2], [1, 1])
    refused("NUMBER_REFUSED", lambda: stranger.push(record([queue], [b"gap"], number=(given, epoch, 9))))
    other = another()
    other.open(name)
    refused("NOT_OPENED", lambda: other.push(record([queue], [b"c"], number=(given, epoch, 3))))
    _, later, last = opened(other)
    assert (later, last) == (epoch + 1, 2)
    refused("NUMBER_REFUSED", lambda: stranger.push(record([queue], [b"old"], number=(given, epoch, 3))))
    assert other.push(record([queue], [b"b", b"c"], number=(given, later, 2)))[0][:2] == ([2, 3], [1, 0])
    other.ask("SKIP", struct.pack("<16sQQ", given, later, 4))
    refused("NUMBER_REFUSED", lambda: other.push(record([queue], [b"skipped"], number=(given, later, 4))))
    assert other.push(record([queue], [b"skipped", b"d"], number=(given, later, 4)))[0][:2] == ([0, 4], [2, 0])


def test_dead_letters_say_where_they_came_from_and_go_back(stranger: Stranger, name: str) -> None:
    dead = stranger.declare(f"{name}-dead")
    queue = stranger.declare(name, receives_max=1, dead_letter=dead)
    stranger.push(record([queue], [b"bad"]))
    stranger.settle("REQUEUE", queue, stranger.pull(queue))
    assert stranger.pull(queue) == []
    (message,) = stranger.pull(dead)
    assert (message.body, message.source, message.own_id) == (b"bad", queue, id_of(queue, 1, stranger.welcome.salt))
    assert stranger.ask("NAME", struct.pack("<Q", message.source)).payload == text("default") + text(name)
    stranger.settle("RELEASE", dead, [message])
    refused("NO_SUCH_QUEUE", lambda: stranger.ask("REDRIVE_STATUS", struct.pack("<Q", dead)))
    answer = stranger.ask("REDRIVE", struct.pack("<QQQ", dead, 0, 1_000_000))
    while answer.payload[0] == 1:
        answer = stranger.ask("REDRIVE_STATUS", struct.pack("<Q", dead))
    assert struct.unpack("<IIQ", answer.payload) == (2, 0, 1)
    assert struct.unpack("<IIQ", stranger.ask("REDRIVE_CANCEL", struct.pack("<Q", dead)).payload) == (2, 0, 1)
    assert [one.body for one in stranger.pull(queue)] == [b"bad"]


# What is no request


def test_a_request_that_is_garbled_is_refused_and_the_connection_goes_on(stranger: Stranger, queue: int) -> None:
    good = record([queue], [b"x"])
    for kind, payload, flags, code in [
        ("PULL", b"short", 0, "MALFORMED"),
        ("PULL", stranger.pull_bytes(queue), 6, "MALFORMED"),
        ("PULL", stranger.pull_bytes(queue)[:-4] + b"\1\0\0\0", 0, "MALFORMED"),
        ("COMPLETE", struct.pack("<Qq", queue, 0), 0, "MALFORMED"),
        ("COMPLETE", struct.pack("<Qq", queue, 5) + bytes(40), 0, "MALFORMED"),
        ("DECLARE", text("") + text("x") + struct.pack("<HHIIIQ", 1, 0, 0, 99, 0, 1), 0, "MALFORMED"),
        ("OPEN", text("") + b"\5\0\xff\xff\xff\xff\xff", 0, "MALFORMED"),
        ("PUSH", good, 1, "MALFORMED"),
        ("PUSH", good[:-1], 0, "CODEC_ERROR"),
        ("PUSH", good + b"\0\0\0\0", 0, "CODEC_ERROR"),
        ("PUSH", b"\x11" + good[1:], 0, "CODEC_ERROR"),
        ("PUSH", good[:1] + b"\x80" + good[2:], 0, "CODEC_ERROR"),
        ("PUSH", good[:1] + b"\x06" + good[2:], 0, "CODEC_ERROR"),
        ("PUSH", b"", 0, "CODEC_ERROR"),
        ("PUSH", struct.pack("<BBHIQ", 16, 0, 1, 2, queue) + struct.pack("<3I", 0, 9, 4) + b"xxxx", 0, "CODEC_ERROR"),
        ("PING", b"x", 0, "MALFORMED"),
        ("AUTH", bytes(64), 0, "BAD_REQUEST"),
        ("PONG", b"", 0, "NO_SUCH_KIND"),
    ]:
        refused(code, lambda kind=kind, payload=payload, flags=flags: stranger.ask(kind, payload, flags))
    assert stranger.push(good)[0][0] == [1]


def test_attributes_and_groups_that_nobody_could_read_are_refused(stranger: Stranger, queue: int) -> None:
    twice = struct.pack("<H", 2) + attribute_bytes({"a": ("S", b"1")})[2:] * 2
    for broken in (b"\1", b"\1\0", twice, attribute_bytes({"a": ("S", b"1")}) + b"x", b"\0\0"):
        refused("BAD_REQUEST", lambda broken=broken: stranger.push(record([queue], [b"x"], attributes=[broken])))
    refused("BAD_REQUEST", lambda: stranger.push(record([queue], [b"x"], groups=[b"\xff"])))
    # Each half of a letter is no letter, also where both together are one.
    refused("BAD_REQUEST", lambda: stranger.push(record([queue], [b"x", b"y"], groups=["ö".encode()[:1], "ö".encode()[1:]])))
    assert stranger.counts(queue)["pushed"] == 0


def test_a_number_that_is_not_the_next_ends_the_connection(stranger: Stranger) -> None:
    stranger.ask("PING")
    stranger.number += 1
    error = refused("PROTOCOL", lambda: stranger.ask("PING"))
    assert "should have" in error.text and stranger.closed()


def test_a_header_with_reserved_bits_ends_the_connection(stranger: Stranger) -> None:
    stranger.ask("PING")
    stranger.socket.sendall(struct.pack("<IBBHQ", 0, 2, 0, 1, stranger.number + 1))
    refused("PROTOCOL", lambda: stranger.answer(stranger.number + 1))
    assert stranger.closed()


def test_who_speaks_another_protocol_is_told(served: Process) -> None:
    import socket

    for hello in (b"GET / HTTP/1.1\r\n", struct.pack("<8sHHI", b"DOVETAIL", 2, 9, 0), struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 1)):
        with socket.create_connection(("127.0.0.1", served.port), 60) as raw:
            raw.sendall(hello)
            data = b""
            while piece := raw.recv(4096):
                data += piece
        assert data[4] == 130 and Stranger.error(data[16:]).code == "PROTOCOL"


def test_nothing_is_taken_before_the_greeting(served: Process) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", served.port), 60) as raw:
        raw.sendall(struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0) + struct.pack("<IBBHQ", 0, 2, 0, 0, 1))
        data = b""
        while piece := raw.recv(4096):
            data += piece
    hello = 16 + 40
    assert data[4] == 128 and Stranger.error(data[hello + 16 :]).code == "PROTOCOL"


def test_the_shortest_session_is_as_the_page_shows_it(stranger: Stranger, name: str) -> None:
    queue = stranger.declare(name)
    data = bytes.fromhex("10000100 01000000") + struct.pack("<Q", queue) + bytes.fromhex("00000000 02000000 68690000")
    assert data == record([queue], [b"hi"])
    assert stranger.ask("PUSH", data).payload[1:] == bytes.fromhex("000000 01000000 0100000000000000 01000000 00000000")
    answer = stranger.ask("PULL", struct.pack("<Q", queue) + bytes.fromhex("ffffffffffffffff 01000000 00000000 00000000 00000000"))
    assert answer.payload[:16] == struct.pack("<Q", queue) + bytes.fromhex("01000000 01000000")
    assert answer.payload[80:] == column([b"hi"]) == bytes.fromhex("00000000 02000000 68690000")
    run = answer.payload[16:80]
    item = run[:20] + bytes(4) + b"\1\0\0\0" + bytes(4) + run[56:]
    assert stranger.ask("COMPLETE", struct.pack("<Qq", queue, 0) + item).payload == b"\1"
