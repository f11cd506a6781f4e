"""Every limit: what is at it passes, what is one past it is refused, and the refusal says which limit it was."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from dovetail import limits
from dovetail.doors.native.bounds import DELIVERY_BYTES_MAX, REQUEST_BYTES_MAX, TAP_READ_MESSAGES_MAX, Bounds
from tests.doors.native.house import Inside
from tests.doors.native.stranger import PATIENCE_S, Refused, Stranger, attribute_bytes, record, rules, text


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


@pytest.fixture
def tight() -> Iterator[Inside]:
    """A node whose bounds can be met."""
    made = Inside(bounds=Bounds(connections_max=3, in_flight_max=4, waits_max=3, queues_max=3, linger_s=0.2))
    yield made
    made.close()


# Messages


def test_a_body_may_have_a_mebibyte(stranger: Stranger, queue: int) -> None:
    assert stranger.push(record([queue], [b"x" * limits.BODY_BYTES_MAX]))[0][0] == [1]
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x" * (limits.BODY_BYTES_MAX + 1)])))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"", b"x" * (limits.BODY_BYTES_MAX + 1)])))
    (message,) = stranger.pull(queue, 10)
    assert len(message.body) == limits.BODY_BYTES_MAX


def test_the_largest_legal_message_passes(stranger: Stranger, queue: int) -> None:
    room = limits.MESSAGE_BYTES_MAX - limits.BODY_BYTES_MAX
    overhead = len(attribute_bytes({"a": ("String", b"")}))
    given = attribute_bytes({"a": ("String", b"v" * (room - overhead))})
    more = attribute_bytes({"a": ("String", b"v" * (room - overhead + 1))})
    body, group = b"x" * limits.BODY_BYTES_MAX, b"g" * limits.GROUP_BYTES_MAX
    assert stranger.push(record([queue], [body], attributes=[given], groups=[group]))[0][0] == [1]
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [body], attributes=[more])))
    (message,) = stranger.pull(queue)
    assert (message.body, message.attributes, message.group) == (body, given, group)


def test_a_group_has_128_bytes(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x", b"y"], groups=["ö".encode() * 64, b"g" * 128]))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x"], groups=[b"g" * 129])))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x", b"y"], groups=[b"g" * 129, b""])))


def test_attributes_have_bounds(stranger: Stranger, queue: int) -> None:
    many = {f"name-{index}": ("String", b"v") for index in range(65)}
    stranger.push(record([queue], [b"x"], attributes=[attribute_bytes(dict(list(many.items())[:64]))]))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x"], attributes=[attribute_bytes(many)])))
    stranger.push(record([queue], [b"x"], attributes=[attribute_bytes({"n" * 256: ("t" * 256, b"v")})]))
    for broken in ({"n" * 257: ("t", b"v")}, {"": ("t", b"v")}, {"n": ("t" * 257, b"v")}):
        refused("LIMIT_EXCEEDED", lambda broken=broken: stranger.push(record([queue], [b"x"], attributes=[attribute_bytes(broken)])))


def test_a_push_has_ten_thousand_messages(stranger: Stranger, queue: int) -> None:
    assert len(stranger.push(record([queue], [b"x"] * 10_000))[0][0]) == 10_000
    refused("CODEC_ERROR", lambda: stranger.push(record([queue], [b"x"] * 10_001)))
    refused("CODEC_ERROR", lambda: stranger.push(record([queue], [])))
    refused("CODEC_ERROR", lambda: stranger.push(record([], [b"x"])))


def test_a_push_goes_to_a_thousand_queues(stranger: Stranger, name: str) -> None:
    sent = [stranger.send("DECLARE", text("") + text(f"{name}-{number}") + rules({})) for number in range(limits.QUEUES_PER_PUSH_MAX + 1)]
    queues = [stranger.opened(stranger.answer(number))[0] for number in sent]
    assert len(stranger.push(record(queues[:-1], [b"x"]))) == limits.QUEUES_PER_PUSH_MAX
    refused("CODEC_ERROR", lambda: stranger.push(record(queues, [b"x"])))
    for queue in queues:
        stranger.send("DROP", struct.pack("<Q", queue))
    stranger.ask("PING")


def test_a_record_is_as_large_as_the_node_said(stranger: Stranger, queue: int) -> None:
    most = stranger.welcome.record_bytes
    spare = most - len(record([queue], [b"x" * limits.BODY_BYTES_MAX, b""]))
    assert stranger.push(record([queue], [b"x" * limits.BODY_BYTES_MAX, b"y" * spare]))[0][0] == [1, 2]
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x" * limits.BODY_BYTES_MAX] * 2)))


def test_delays_leases_and_waits_have_bounds(stranger: Stranger, queue: int) -> None:
    assert stranger.push(record([queue], [b"x"], delay_ms=limits.DELAY_MS_MAX))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x"], delay_ms=limits.DELAY_MS_MAX + 1)))
    refused("LIMIT_EXCEEDED", lambda: stranger.push(record([queue], [b"x", b"y"], delays=[0, 2**64 - 2])))
    stranger.push(record([queue], [b"x"]))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, lease_ms=limits.LEASE_MS_MAX + 1))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, lease_ms=-2))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, wait_ms=limits.WAIT_MS_MAX + 1))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, attempt=b"a" * 129))
    refused("LIMIT_EXCEEDED", lambda: stranger.answer(stranger.consume(queue, 1, lease_ms=limits.LEASE_MS_MAX + 1)))
    got = stranger.pull(queue, lease_ms=limits.LEASE_MS_MAX, attempt=b"a" * 128, wait_ms=limits.WAIT_MS_MAX)
    for kind, most in (("EXTEND", limits.LEASE_MS_MAX), ("REQUEUE", limits.DELAY_MS_MAX)):
        refused("LIMIT_EXCEEDED", lambda kind=kind, most=most: stranger.settle(kind, queue, got, most + 1))
        refused("LIMIT_EXCEEDED", lambda kind=kind: stranger.settle(kind, queue, got, -2))
        assert stranger.settle(kind, queue, got, most) == [True]


def test_a_pull_and_a_frame_have_ten_thousand_messages(stranger: Stranger, queue: int) -> None:
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, 0))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, 10_001))
    refused("LIMIT_EXCEEDED", lambda: stranger.answer(stranger.consume(queue, 1, frame=0)))
    refused("LIMIT_EXCEEDED", lambda: stranger.answer(stranger.consume(queue, 1, frame=10_001)))
    refused("LIMIT_EXCEEDED", lambda: stranger.peek(queue, 10_001))
    stranger.push(record([queue], [b"x"] * 10_000))
    got = stranger.pull(queue, 10_000)
    assert len(got) == 10_000
    assert all(stranger.complete(queue, got))


def test_a_settle_names_ten_thousand_messages(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x"] * 10_000))
    got = stranger.pull(queue, 10_000)
    scattered = got[::2] + got[1::2]
    assert stranger.settle("EXTEND", queue, scattered, 60_000) == [True] * 10_000
    refused("MALFORMED", lambda: stranger.settle("EXTEND", queue, [*scattered, got[0]], 60_000))
    refused("MALFORMED", lambda: stranger.settle("EXTEND", queue, [*got, got[0]], 60_000))
    sequences = [one.sequence for one in got]
    assert stranger.by_sequence("RECLAIM", queue, sequences) == [True] * 10_000
    refused("MALFORMED", lambda: stranger.by_sequence("RECLAIM", queue, [*sequences, 1]))
    refused("MALFORMED", lambda: stranger.by_sequence("RECLAIM", queue, []))


def test_a_part_of_a_run_that_is_none_is_refused(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x"] * 3))
    (sequence, delivery, length, seal) = stranger.pull(queue, 3)[0].run
    for start, end, zero in ((0, 4, 0), (2, 2, 0), (2, 1, 0), (0, 1, 1)):
        item = struct.pack("<QQIIII8s", sequence, delivery, length, start, end, zero, seal)
        refused("MALFORMED", lambda item=item: stranger.ask("COMPLETE", struct.pack("<Qq", queue, 0) + item))
        refused("MALFORMED", lambda item=item: stranger.ask("REQUEUE", struct.pack("<Qq", queue, 0) + item))


def test_a_frame_of_deliveries_is_bounded_and_so_is_a_look(stranger: Stranger, queue: int) -> None:
    for _ in range(10):
        stranger.push(record([queue], [b"x" * limits.BODY_BYTES_MAX]))
    most = DELIVERY_BYTES_MAX // limits.BODY_BYTES_MAX
    assert len(stranger.peek(queue, 100)[2]) == most
    assert len(stranger.pull(queue, 100)) == most
    assert stranger.counts(queue)["leased"] == most
    assert len(stranger.deliveries(stranger.answer(stranger.consume(queue, 100, 1 << 40)))) == 2


def test_a_read_of_a_tap_is_bounded(stranger: Stranger, queue: int) -> None:
    stranger.tap_open(queue, "tap")
    for _ in range(2):
        stranger.push(record([queue], [b"x"] * 10_000))
    following, end, seen = stranger.messages(stranger.ask("TAP_READ", stranger.tap_bytes(queue, "tap", most=1_000_000)))
    assert (len(seen), following, end) == (TAP_READ_MESSAGES_MAX, TAP_READ_MESSAGES_MAX + 1, 20_001)
    refused("LIMIT_EXCEEDED", lambda: stranger.ask("TAP_READ", stranger.tap_bytes(queue, "tap", most=0)))
    assert len(stranger.messages(stranger.ask("TAP_READ", stranger.tap_bytes(queue, "tap", bytes_max=7)))[2]) == 7


# Queues, taps, names


def test_names_have_bounds(stranger: Stranger, queue: int, name: str) -> None:
    longest = name.ljust(256, "n")
    assert stranger.open(longest) if stranger.declare(longest) else False
    for broken in (longest + "n", "", "line\nend"):
        refused("LIMIT_EXCEEDED", lambda broken=broken: stranger.declare(broken))
    refused("LIMIT_EXCEEDED", lambda: stranger.declare(name, "n" * 257))
    stranger.tap_open(queue, "t" * 128)
    for broken in ("t" * 129, ""):
        refused("LIMIT_EXCEEDED", lambda broken=broken: stranger.tap_open(queue, broken))
    refused("NO_SUCH_TAP", lambda: stranger.ask("TAP_READ", stranger.tap_bytes(queue, "none")))


def test_rules_have_bounds(stranger: Stranger, queue: int, name: str) -> None:
    refused("LIMIT_EXCEEDED", lambda: stranger.declare(f"{name}-a", lease_ms=limits.LEASE_MS_MAX + 1))
    refused("MALFORMED", lambda: stranger.declare(f"{name}-a", lease_ms=1 << 63))
    refused("MALFORMED", lambda: stranger.declare(f"{name}-a", grouped=2))
    refused("BAD_REQUEST", lambda: stranger.declare(f"{name}-a", extra={"a": "line\nend"}))
    refused("LIMIT_EXCEEDED", lambda: stranger.ask("CONFIGURE", struct.pack("<Q", queue) + rules({"delay_ms": limits.DELAY_MS_MAX + 1})))
    assert stranger.declare(f"{name}-b", extra={"k": "v" * (32 * 1024 - 1)})
    refused("LIMIT_EXCEEDED", lambda: stranger.declare(f"{name}-c", extra={"k": "v" * 32 * 1024}))
    refused("LIMIT_EXCEEDED", lambda: stranger.tap_open(queue, "tap", age_ms=limits.DELAY_MS_MAX + 1))
    refused("LIMIT_EXCEEDED", lambda: stranger.tap_open(queue, "tap", size=1 << 63))
    refused("BAD_REQUEST", lambda: stranger.ask("REDRIVE", struct.pack("<QQQ", queue, 0, 0)))


# Connections


def test_a_request_is_as_large_as_the_node_said(stranger: Stranger, another: Callable[[], Stranger], queue: int) -> None:
    assert stranger.welcome.request_bytes == REQUEST_BYTES_MAX
    refused("CODEC_ERROR", lambda: stranger.ask("PUSH", bytes(REQUEST_BYTES_MAX)))
    other = another()
    other.number += 1
    other.socket.sendall(struct.pack("<IBBHQ", REQUEST_BYTES_MAX + 1, 16, 0, 0, other.number))
    assert "at most" in refused("PROTOCOL", lambda: other.answer(other.number)).text
    assert other.closed()


def test_an_auth_is_small(served: object) -> None:
    port = served.port  # type: ignore[attr-defined]  # a Process
    for size, code in ((1024, None), (1025, "PROTOCOL")):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw:
            raw.sendall(
                struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0) + struct.pack("<IBBHQ", size, 1, 0, 0, 1) + bytes(64) + b"k" * (size - 64)
            )
            data = b""
            while len(data) < 56 + 16 + 8:
                data += raw.recv(4096)
            assert data[56 + 4] == (129 if code is None else 130)


def test_there_are_as_many_connections_as_may_be(tight: Inside) -> None:
    strangers = [tight.stranger() for _ in range(3)]
    with socket.create_connection(("127.0.0.1", tight.port), 60) as raw:
        data = b""
        while piece := raw.recv(4096):
            data += piece
    assert data[4] == 130 and Stranger.error(data[16:]).code == "LIMIT_EXCEEDED"
    strangers[0].close()
    tight.gone(2)
    tight.stranger().ask("PING")


def test_waiting_pulls_and_consumes_are_counted_and_hold_no_request_up(tight: Inside) -> None:
    stranger = tight.stranger()
    queue = stranger.declare("q")
    waits = [stranger.send("PULL", stranger.pull_bytes(queue, wait_ms=60_000)) for _ in range(2)]
    waits.append(stranger.consume(queue, 1))
    refused("LIMIT_EXCEEDED", lambda: stranger.pull(queue, wait_ms=60_000))
    refused("LIMIT_EXCEEDED", lambda: stranger.answer(stranger.consume(queue, 1)))
    for _ in range(10):
        stranger.ask("PING")
    assert stranger.stop(waits[0]) == 1
    assert stranger.deliveries(stranger.answer(waits[0])) == []
    stranger.send("PULL", stranger.pull_bytes(queue, wait_ms=60_000))
    stranger.push(record([queue], [b"x"]))
    assert stranger.deliveries(stranger.answer(waits[1]))


def test_more_requests_than_may_be_under_way_are_answered_one_behind_the_other(tight: Inside) -> None:
    stranger = tight.stranger()
    queue = stranger.declare("q")
    sent = [stranger.send("PUSH", record([queue], [b"x"])) for _ in range(100)]
    assert [stranger.take().number for _ in range(100)] == sent


def test_a_connection_has_as_many_queues_open_as_may_be(tight: Inside) -> None:
    stranger = tight.stranger()
    queues = [stranger.declare(f"q-{number}") for number in range(3)]
    refused("LIMIT_EXCEEDED", lambda: stranger.declare("q-3"))
    assert stranger.open("q-0") == queues[0]
    stranger.ask("DROP", struct.pack("<Q", queues[0]))
    assert stranger.open("q-3")  # The one that is gone makes room.
    refused("LIMIT_EXCEEDED", lambda: stranger.declare("q-4"))
    for number in range(3):
        stranger.ask("PRODUCER", bytes([number]) * 16)
    stranger.ask("PRODUCER", bytes([1] * 16))
    refused("LIMIT_EXCEEDED", lambda: stranger.ask("PRODUCER", b"another".ljust(16, b"\0")))


def test_a_connection_from_which_nothing_comes_is_closed_and_a_ping_keeps_it(inside: Inside) -> None:
    passed, server = 0.0, inside.server
    server.now = lambda: server.loop.time() + passed
    quiet, lively = inside.stranger(), inside.stranger()
    queue = lively.declare("q")
    consume = quiet.consume(quiet.declare("q"), 5)

    def look() -> None:
        for connection in list(server._connections):
            connection.sweep(server.now())

    assert lively.welcome.idle_ms == 120_000
    for _ in range(5):
        passed += 30
        lively.ask("PING")
        inside.call(look)
    assert quiet.error(quiet.take().payload).code == "PROTOCOL" and quiet.closed()
    lively.push(record([queue], [b"x"]))
    assert [one.body for one in lively.pull(queue)] == [b"x"], "who was closed takes nothing"
    assert consume


def test_a_client_that_leaves_its_answers_unread_is_cut_off() -> None:
    impatient = Inside(bounds=Bounds(write_s=0.4))
    try:
        filler, slow = impatient.stranger(), impatient.narrow()
        queue = filler.declare("q")
        slow.open("q")
        for _ in range(20):
            filler.push(record([queue], [b"x" * 500_000]))
        slow.send_at_once("PEEK", [struct.pack("<QQII", queue, 0, 100, 0)] * 20)
        impatient.gone(1)
        filler.ask("PING")
    finally:
        impatient.close()
