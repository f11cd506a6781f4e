"""Reservations over the wire: the same messages for the same batch, read in ranges by whoever may, plain or as Arrow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Message, Refused, Stranger, attribute_bytes, id_of, record
from tests.doors.native.test_auth import Signed, signed, statement  # noqa: F401  # the fixture

Another = Callable[[], Stranger]


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


def bodies(found: list[Message]) -> list[bytes]:
    return [one.body for one in found]


def whole(stranger: Stranger, queue: int, batch: int, total: int, most: int = 1000, bytes_max: int = 0) -> list[Message]:
    """A batch, page by page."""
    found: list[Message] = []
    while page := stranger.reserve_read(queue, "job", batch, len(found), most, bytes_max):
        found += page
    assert len(found) == total
    return found


def test_a_batch_is_the_same_whenever_it_is_asked_for_until_it_is_settled(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"1", b"2", b"3", b"4"], groups=[b"", b"t", b"", b""]))
    assert stranger.welcome.features & 4
    assert stranger.reserve_open(queue, "job") == (1, -1)
    assert stranger.reserve(queue, "job", 1, 5, 3) == (3, False)
    assert stranger.reserve(queue, "job", 1, 6, 9) == (1, False)
    assert stranger.reserve(queue, "job", 1, 5, 1) == (3, True)
    assert [stranger.reserve(queue, "job", 1, 7, 9) for _ in range(2)] == [(0, False), (0, True)]
    assert stranger.pull(queue, 9) == []
    counts = stranger.counts(queue)
    assert (counts["visible"], counts["leased"], counts["reserved"]) == (0, 0, 4)
    found = stranger.reserve_read(queue, "job", 5)
    assert [(one.body, one.group, one.receives, one.lease_until_ms) for one in found] == [
        (b"1", b"", 0, 0),
        (b"2", b"t", 0, 0),
        (b"3", b"", 0, 0),
    ]
    assert all(one.run[1] == 0 and one.run[3] == bytes(8) for one in found), "they have no receipts"
    assert stranger.reservations(queue) == [("job", 1, 7, -1, {5: 3, 6: 1, 7: 0})]
    assert stranger.reserve_settle(queue, "job", 1, 6) == 4
    assert stranger.reserve_settle(queue, "job", 1, 6) == 0
    refused("BATCH_REFUSED", lambda: stranger.reserve(queue, "job", 1, 5, 3))
    refused("BATCH_REFUSED", lambda: stranger.reserve_read(queue, "job", 5))
    assert stranger.reserve_read(queue, "job", 7) == []
    assert stranger.reservations(queue) == [("job", 1, 7, 6, {7: 0})]


def test_a_later_owner_ends_the_one_before_and_gets_what_it_had(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    stranger.push(record([queue], [b"1", b"2"]))
    stranger.reserve_open(queue, "job")
    stranger.reserve(queue, "job", 1, 0, 9)
    other = another()
    other.open(name)
    assert other.reserve_open(queue, "job") == (2, 0)
    refused("FENCED", lambda: stranger.reserve(queue, "job", 1, 0, 9))
    refused("FENCED", lambda: stranger.reserve_settle(queue, "job", 1, 0))
    assert bodies(stranger.reserve_read(queue, "job", 0)) == [b"1", b"2"], "reading asks for no epoch"
    assert other.reserve(queue, "job", 2, 0, 9) == (2, True)
    assert other.reserve_settle(queue, "job", 2, 0) == 2


@pytest.mark.parametrize("kind", ["RESERVE_RELEASE", "RESERVE_CLOSE"])
def test_what_an_operator_releases_goes_back(stranger: Stranger, queue: int, kind: str) -> None:
    stranger.push(record([queue], [b"1", b"2"]))
    stranger.reserve_open(queue, "job")
    stranger.reserve(queue, "job", 1, 0, 9)
    assert stranger.reserve_end(kind, queue, "job") == 2
    closed = kind == "RESERVE_CLOSE"
    refused("NO_SUCH_RESERVATION" if closed else "FENCED", lambda: stranger.reserve_settle(queue, "job", 1, 0))
    refused("NO_SUCH_RESERVATION" if closed else "BATCH_REFUSED", lambda: stranger.reserve_read(queue, "job", 0))
    assert stranger.reservations(queue) == ([] if closed else [("job", 0, 0, -1, {})])
    assert bodies(stranger.pull(queue, 9)) == [b"1", b"2"]


def test_a_batch_of_every_kind_of_message_is_read_the_same_in_any_pieces(stranger: Stranger, queue: int) -> None:
    random = Random(5)
    pushed: list[tuple[bytes, bytes, bytes, bytes]] = []
    for _ in range(40):
        count = random.choice((1, 1, 3, 20))
        columns: dict[str, Any] = {}
        if random.random() < 0.4:
            columns["groups"] = [random.choice((b"", b"g", "größe".encode())) for _ in range(count)]
        if random.random() < 0.4:
            columns["attributes"] = [random.choice((b"", attribute_bytes({"a": ("String", b"1")}))) for _ in range(count)]
        if random.random() < 0.4:
            columns["ids"] = [random.choice((bytes(16), random.randbytes(16))) for _ in range(count)]
        sent = [random.randbytes(random.randrange(30)) for _ in range(count)]
        stranger.push(record([queue], sent, **columns))
        given = [columns.get(name, [b""] * count) for name in ("groups", "attributes")]
        pushed += zip(sent, *given, columns.get("ids", [bytes(16)] * count), strict=True)
    # Some are received and given back, so that they have a history of their own.
    stranger.settle("REQUEUE", queue, stranger.pull(queue, 7), 0)
    stranger.reserve_open(queue, "job")
    total = len(pushed)
    assert stranger.reserve(queue, "job", 1, 0, 10_000) == (total, False)
    once = stranger.reserve_read(queue, "job", 0, 0, 10_000)
    assert [(one.body, one.group, one.attributes, one.own_id) for one in once] == pushed
    assert [one.sequence for one in once] == list(range(1, total + 1))
    assert [one.receives for one in once] == [1] * 7 + [0] * (total - 7)
    for _ in range(5):
        pages = whole(stranger, queue, 0, total, random.randint(1, 60), random.choice((0, 1, 100, 1000)))
        assert [one._replace(run=(0, 0, 0, b""), at=0) for one in pages] == [one._replace(run=(0, 0, 0, b""), at=0) for one in once]
    assert bodies(stranger.reserve_read(queue, "job", 0, 10, 3)) == [one[0] for one in pushed[10:13]]
    assert stranger.reserve_read(queue, "job", 0, total) == stranger.reserve_read(queue, "job", 0, 2**32 - 1) == []


def test_arrow_tells_the_same_rows(stranger: Stranger, queue: int) -> None:
    pa = pytest.importorskip("pyarrow")
    own = bytes(range(16))
    stranger.push(
        record([queue], [b"a", b"bb"], groups=[b"g", b""], attributes=[b"", attribute_bytes({"n": ("Number", b"1")})], ids=[own, bytes(16)])
    )
    stranger.push(record([queue], [b"ccc"]))
    stranger.reserve_open(queue, "job")
    stranger.reserve(queue, "job", 1, 0, 9)

    def table(**given: int) -> tuple[int, int, list[dict[str, Any]]]:
        answer = stranger.ask("RESERVE_READ", stranger.read_bytes(queue, "job", 0, **given), 1)
        assert answer.kind == "ARROW"
        told, following, end, count, zero = struct.unpack_from("<QQQII", answer.payload)
        made = pa.ipc.open_stream(pa.py_buffer(answer.payload[32:])).read_all()
        made.validate(full=True)
        assert (told, zero, count) == (queue, 0, made.num_rows)
        return following, end, made.to_pylist()

    following, end, rows = table()
    assert (following, end) == (3, 3)
    plain = stranger.reserve_read(queue, "job", 0)
    for row, one in zip(rows, plain, strict=True):
        assert (row["queue"], row["sequence"], row["body"], row["group"]) == (queue, one.sequence, one.body, one.group.decode() or None)
        assert row["id"] == (one.own_id if any(one.own_id) else id_of(queue, one.sequence, stranger.welcome.salt))
        assert (row["attributes"] or b"", round(row["time"].timestamp() * 1000)) == (one.attributes, one.pushed_ms)
    assert [(following, [row["body"] for row in rows]) for following, _, rows in (table(start=1, most=1), table(bytes_max=1))] == [
        (2, [b"bb"]), (1, [b"a"]),
    ]  # fmt: skip
    assert table(start=7) == (7, 3, [])


def test_a_batch_larger_than_a_frame_is_read_in_ranges_over_connections_of_their_own(
    stranger: Stranger, another: Another, queue: int, name: str
) -> None:
    for part in range(4):
        stranger.push(record([queue], [b"%d" % (part * 9000 + index) for index in range(9000)]))
    big = [bytes([65 + index]) * 1_000_000 for index in range(20)]
    for body in big:
        stranger.push(record([queue], [body]))
    stranger.reserve_open(queue, "job")
    total = 36_020
    assert stranger.reserve(queue, "job", 1, 0, 100_000) == (total, False)
    assert len(stranger.reserve_read(queue, "job", 0, 0, 100_000)) == 16_384
    wanted = [*(b"%d" % index for index in range(36_000)), *big]
    for start, end in ((0, 12_000), (12_000, 24_000), (24_000, total)):
        reader = another()
        reader.open(name)
        found: list[bytes] = []
        while start + len(found) < end:
            page = reader.reserve_read(queue, "job", 0, start + len(found), end - start - len(found))
            assert len(page) >= 1 and sum(map(len, bodies(page))) <= 8 << 20
            found += bodies(page)
        assert found == wanted[start:end]
        reader.close()
    stranger.reserve_settle(queue, "job", 1, 0)


def test_a_batch_survives_a_node_that_was_killed(local: Process) -> None:
    import signal

    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.declare("q")
    stranger.push(record([queue], [b"1", b"2", b"3"]))
    stranger.reserve_open(queue, "job")
    stranger.reserve(queue, "job", 1, 0, 2)
    stranger.close()
    local.end(signal.SIGKILL)
    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.open("q")
    assert stranger.reserve(queue, "job", 1, 0, 9) == (2, True), "the epoch outlives the node"
    assert bodies(stranger.reserve_read(queue, "job", 0)) == [b"1", b"2"]
    assert bodies(stranger.pull(queue, 9)) == [b"3"]
    stranger.close()


def test_answers_come_in_the_order_of_the_queue(stranger: Stranger, queue: int) -> None:
    numbers = [
        stranger.send("PUSH", record([queue], [b"1", b"2"])),
        stranger.send("RESERVE_OPEN", struct.pack("<Q", queue) + b"job"),
        stranger.send("RESERVE", struct.pack("<QQqII", queue, 1, 0, 9, 0) + b"job"),
        stranger.send("RESERVE_READ", stranger.read_bytes(queue, "job", 0)),
        stranger.send("RESERVE_LIST", struct.pack("<Q", queue)),
    ]
    answers = [stranger.take() for _ in numbers]
    assert [one.number for one in answers] == numbers
    assert [one.kind for one in answers] == ["PUSHED", "RESERVING", "RESERVED", "DELIVERIES", "RESERVATIONS"]
    assert bodies(stranger.deliveries(answers[3])) == [b"1", b"2"]


def test_what_is_no_reservation_is_refused(stranger: Stranger, another: Another, queue: int) -> None:
    refused("LIMIT_EXCEEDED", lambda: stranger.reserve_open(queue, ""))
    refused("LIMIT_EXCEEDED", lambda: stranger.reserve_open(queue, "x" * 129))
    refused("MALFORMED", lambda: stranger.ask("RESERVE_OPEN", struct.pack("<Q", queue) + b"\xff"))
    refused("NOT_OPENED", lambda: another().reserve_open(queue, "job"))
    stranger.reserve_open(queue, "job")
    for act, code in (
        (lambda: stranger.reserve(queue, "job", 1, -1, 1), "BAD_REQUEST"),
        (lambda: stranger.reserve(queue, "job", 1, 0, 0), "LIMIT_EXCEEDED"),
        (lambda: stranger.reserve(queue, "job", 1, 0, 100_001), "LIMIT_EXCEEDED"),
        (lambda: stranger.reserve(queue, "job", 0, 0, 1), "FENCED"),
        (lambda: stranger.reserve(queue, "other", 1, 0, 1), "NO_SUCH_RESERVATION"),
        (lambda: stranger.reserve_settle(queue, "job", 1, 0), "BATCH_REFUSED"),
        (lambda: stranger.reserve_settle(queue, "other", 1, 0), "NO_SUCH_RESERVATION"),
        (lambda: stranger.reserve_read(queue, "other", 0), "NO_SUCH_RESERVATION"),
        (lambda: stranger.reserve_read(queue, "job", 0), "BATCH_REFUSED"),
        (lambda: stranger.reserve_read(queue, "job", 0, most=0), "LIMIT_EXCEEDED"),
        (lambda: stranger.reserve_end("RESERVE_CLOSE", queue, "other"), "NO_SUCH_RESERVATION"),
        (lambda: stranger.ask("RESERVE", struct.pack("<QQqII", queue, 1, 0, 1, 1) + b"job"), "MALFORMED"),
        (lambda: stranger.ask("RESERVE_READ", stranger.read_bytes(queue, "job", 0), 2), "MALFORMED"),
    ):
        refused(code, act)
    assert stranger.reservations(queue) == [("job", 1, -1, -1, {})]
    stranger.reserve(queue, "job", 1, 2**63 - 1, 1)
    assert stranger.reserve_open(queue, "job") == (2, 2**63 - 1)


def test_a_job_of_another_account_needs_the_right_to_receive_and_to_delete(signed: Signed) -> None:  # noqa: F811
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue = mine.declare("orders")
    mine.push(record([queue], [b"x"]))
    mine.reserve_open(queue, "job")
    mine.reserve(queue, "job", 1, 0, 1)
    space = f"{signed.shop}/us-east-1"
    for right in ("ReceiveMessage", "DeleteMessage"):
        signed.configure(queue, statement("Allow", signed.other, right))
        theirs.open("orders", space)
        refused("ACCESS_DENIED", lambda: theirs.reserve_open(queue, "job"))
    refused("ACCESS_DENIED", lambda: theirs.reserve_read(queue, "job", 0))
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage"))
    assert bodies(theirs.reserve_read(queue, "job", 0)) == [b"x"]
    refused("ACCESS_DENIED", lambda: theirs.reserve_settle(queue, "job", 1, 0))
    refused("ACCESS_DENIED", lambda: theirs.reservations(queue))
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage", "DeleteMessage"))
    assert theirs.reserve_open(queue, "job") == (2, 0)
    for kind in ("RESERVE_RELEASE", "RESERVE_CLOSE"):
        refused("ACCESS_DENIED", lambda kind=kind: theirs.reserve_end(kind, queue, "job"))
    assert theirs.reserve_settle(queue, "job", 2, 0) == 1


def test_of_large_messages_no_more_is_read_from_the_log_than_one_frame_takes(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.doors.native import deliveries, reserving

    stranger = inside.stranger()
    queue = stranger.declare("q")
    for _ in range(30):
        stranger.push(record([queue], [bytes(1_000_000)]))
    stranger.reserve_open(queue, "job")
    stranger.reserve(queue, "job", 1, 0, 30)
    looked: list[int] = []

    class Counting:
        @staticmethod
        def cut(runs: Any) -> Any:
            looked.append(len(runs))
            return deliveries.cut(runs)

        fit, frame, empty_frame = deliveries.fit, deliveries.frame, deliveries.empty_frame

    monkeypatch.setattr(reserving, "deliveries", Counting)
    assert len(stranger.reserve_read(queue, "job", 0)) == 8
    assert sum(looked) == 9
