"""Connections that end at any byte, by either side: nothing that was acknowledged is lost, nothing numbered is doubled, and what was not
written to a client is not hidden for a lease."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import HEADER, KINDS, PATIENCE_S, Refused, Stranger, column, items, record, rules, text

LEASE_S = 30
HELLO = struct.pack("<8sHHI", b"DOVETAIL", 1, 1, 0)


def frames(*requests: tuple[str, bytes]) -> list[bytes]:
    """The bytes of a whole session, the hello first; an open node needs no answer to be spoken to."""
    made = [HELLO]
    for number, (kind, payload) in enumerate((("AUTH", bytes(64)), *requests), 1):
        made.append(HEADER.pack(len(payload), KINDS[kind], 0, 0, number) + payload)
    return made


def cuts(session: list[bytes]) -> Iterator[int]:
    """Every boundary between frames, and within each frame its header, its middle, and one byte before its end."""
    at = 0
    for frame in session:
        yield from sorted({at + 1, at + 8, at + 16, at + len(frame) // 2, at + len(frame) - 1, at + len(frame)})
        at += len(frame)


def spoken(inside: Inside, data: bytes, *, reset: bool, read: bool) -> bytes:
    """Say this and leave, politely or by a reset, with the answers read or not. Back when nobody but the witness is connected."""
    met = inside.met + 1
    with socket.create_connection(("127.0.0.1", inside.port), PATIENCE_S) as raw:
        raw.sendall(data)
        got = b""
        if read:
            raw.settimeout(0.02)
            try:
                while piece := raw.recv(1 << 20):
                    got += piece
            except (TimeoutError, ConnectionResetError):
                pass
        if reset:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    inside.alone(met)
    return got


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_a_client_that_leaves_at_any_byte_costs_no_message(inside: Inside, reset: bool, read: bool) -> None:
    witness = inside.stranger()
    for number, cut in enumerate(cuts(frames(*script(1)))):
        name = f"q-{number:03}"
        queue = witness.declare(name, lease_ms=LEASE_S * 1000)
        witness.push(record([queue], [b"seed-%d" % index for index in range(4)]))
        (held,) = witness.pull(queue)
        session = b"".join(frames(*script(queue, name, items([held]))))
        answered = spoken(inside, session[:cut], reset=reset, read=read)
        counts = witness.counts(queue)
        pushed = counts["pushed"] - 4
        assert pushed in (0, 1, 3)
        assert pushed >= acknowledged(answered)
        # Whatever was handed out comes back when its lease is over; what was completed does not.
        inside.advance(LEASE_S + 1)
        seen = [one["body"] for one in witness.peek(queue, 100)[2]]
        assert len(seen) == len(set(seen))
        kept = {b"seed-%d" % index for index in range(4)} - {held.body}
        assert kept <= set(seen) <= kept | {held.body, b"one", b"two", b"three"}
        assert len(seen) == witness.counts(queue)["visible"]
        witness.done(witness.ask("DROP", struct.pack("<Q", queue)))


def script(queue: int, name: str = "q-000", held: bytes = bytes(40)) -> list[tuple[str, bytes]]:
    return [
        ("OPEN", text("") + text(name)),
        ("PUSH", record([queue], [b"one"])),
        ("COMPLETE", struct.pack("<Qq", queue, 0) + held),
        ("PULL", Stranger.pull_bytes(queue, 2)),
        ("PUSH", record([queue], [b"two", b"three"])),
        ("PULL", Stranger.pull_bytes(queue, 100, bytes_max=5)),
        ("CONSUME", struct.pack("<QqQII", queue, -1, 1 << 20, 1, 1)),
        ("PULL", Stranger.pull_bytes(queue, 100)),
        ("PULL", Stranger.pull_bytes(queue, 100, wait_ms=60_000)),
    ]


def acknowledged(data: bytes) -> int:
    """How many messages these answers call stored."""
    at = count = 0
    while len(data) - at >= 16:
        size, kind, _, _, _ = HEADER.unpack_from(data, at)
        if len(data) - at - 16 < size:
            break
        if kind == KINDS["PUSHED"]:
            count += sum(len(one[0]) for one in Stranger.pushed(Answer(data[at + 16 : at + 16 + size])))
        at += 16 + size
    return count


class Answer:
    """A payload, as the stranger looks at one."""

    kind = "PUSHED"

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


def test_a_pull_whose_client_is_gone_hides_nothing_for_a_lease(inside: Inside) -> None:
    witness = inside.stranger()
    queue = witness.declare("q")
    for _ in range(50):
        witness.push(record([queue], [b"x"] * 3))
        # The client sends and leaves in the same moment: its pull is on its way, and nobody is there when it is answered.
        session = frames(("OPEN", text("") + text("q")), ("PULL", Stranger.pull_bytes(queue, 3)))
        spoken(inside, b"".join(session), reset=True, read=False)
        counts = witness.counts(queue)
        assert counts["visible"] + counts["leased"] == 3
        inside.advance(LEASE_S + 1)
        assert len(witness.pull(queue, 10, delete=True)) == 3


def taken_before_the_first_is_answered(inside: Inside, slow: Stranger, witness: Stranger, queue: int) -> None:
    """Twenty pulls of twenty messages. One behind the other, the node would stop to read them as soon as the socket takes no more of what
    it answers, and how soon that is depends on the machine: they lie there together when it looks, and it takes all before it writes."""
    with inside.held():
        slow.send_at_once("PULL", [slow.pull_bytes(queue, 20)] * 20)
    deadline = time.monotonic() + PATIENCE_S
    while (leased := witness.counts(queue)["leased"]) < 400 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert leased == 400, "all of it was asked for, and the client reads none"


def test_what_was_not_written_is_given_back_when_the_client_leaves(inside: Inside) -> None:
    witness, slow = inside.stranger(), inside.narrow()
    queue = witness.declare("q")
    slow.open("q")
    for _ in range(20):
        witness.push(record([queue], [b"x" * 60_000] * 20))
    taken_before_the_first_is_answered(inside, slow, witness, queue)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    slow.close()
    inside.alone()
    counts = witness.counts(queue)
    assert counts["leased"] < 400 and counts["visible"] + counts["leased"] == 400, "what the kernel had taken may have been read"
    inside.advance(LEASE_S + 1)
    assert witness.counts(queue)["visible"] == 400


def test_an_attempt_whose_client_is_gone_can_be_made_again(inside: Inside) -> None:
    witness = inside.stranger()
    queue = witness.declare("q")
    witness.push(record([queue], [b"x"] * 2))
    for _ in range(10):
        session = frames(("OPEN", text("") + text("q")), ("PULL", Stranger.pull_bytes(queue, 2, attempt=b"one")))
        spoken(inside, b"".join(session), reset=True, read=False)
        assert len(witness.pull(queue, 2, attempt=b"one")) == 2
        inside.advance(LEASE_S + 1)
        inside.advance(300)


def test_a_numbered_push_that_is_cut_anywhere_and_sent_again_is_stored_once(inside: Inside) -> None:
    witness = inside.stranger()
    queue = witness.declare("q")
    random = Random(3)
    for round_ in range(40):
        identity = struct.pack("<QQ", round_, 7)
        data = record([queue], [b"%d-a" % round_, b"%d-b" % round_], number=(identity, 1, 1))
        more = record([queue], [b"%d-c" % round_], number=(identity, 1, 3))
        session = b"".join(frames(("OPEN", text("") + text("q")), ("PRODUCER", identity), ("PUSH", data), ("PUSH", more)))
        cut = random.choice([*cuts([session]), *range(len(session) - len(data) - len(more) - 40, len(session) + 1)])
        spoken(inside, session[:cut], reset=random.random() < 0.5, read=False)
        again = inside.stranger()
        again.open("q")
        _, epoch, last = struct.unpack("<16sQQ", again.ask("PRODUCER", identity).payload)
        assert last in (0, 2, 3)
        for bodies, number in (([b"%d-a" % round_, b"%d-b" % round_], 1), ([b"%d-c" % round_], 3)):
            (sequences, verdicts, _) = again.push(record([queue], bodies, number=(identity, epoch, number)))[0]
            assert verdicts == [int(number <= last)] * len(bodies) and all(sequences)
        again.close()
    bodies = [one["body"] for one in witness.peek(queue, 1000)[2]]
    assert sorted(bodies) == sorted(b"%d-%s" % (round_, letter) for round_ in range(40) for letter in (b"a", b"b", b"c"))


@pytest.mark.slow
def test_a_node_that_is_killed_keeps_what_it_acknowledged_and_doubles_nothing(local: Process) -> None:
    """Pushes are under way when the node dies; what was not answered is sent again under its number."""
    random = Random(11)
    identity = b"producer".ljust(16, b"\0")
    last_acknowledged = 0
    for _ in range(4):
        local.begin()
        stranger = Stranger(local.port)
        queue = stranger.declare("q")
        _, epoch, last = struct.unpack("<16sQQ", stranger.ask("PRODUCER", identity).payload)
        assert last >= last_acknowledged
        number = last_acknowledged + 1
        sent: dict[int, int] = {}
        for _ in range(random.randrange(50, 500)):
            while len(sent) < 20:
                sent[stranger.send("PUSH", record([queue], [b"%d" % number], number=(identity, epoch, number)))] = number
                number += 1
            answer = stranger.take()
            assert stranger.pushed(answer)
            last_acknowledged = sent.pop(answer.number)
        local.end(signal.SIGKILL)
        stranger.close()
    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.open("q")
    seen: list[bytes] = []
    after = 0
    while found := stranger.peek(queue, 1000, after)[2]:
        seen += [one["body"] for one in found]
        after = found[-1]["sequence"]
    assert seen == [b"%d" % number for number in range(1, len(seen) + 1)]
    assert len(seen) >= last_acknowledged > 0
    stranger.close()


def test_receipts_are_good_on_another_connection_and_after_a_restart(local: Process) -> None:
    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.declare("q", lease_ms=3_600_000)
    stranger.push(record([queue], [b"a", b"b", b"c"]))
    got = stranger.pull(queue, 3)
    stranger.close()
    other = Stranger(local.port)
    other.open("q")
    assert other.complete(queue, got[:1]) == [True]
    other.close()
    local.end()
    local.begin()
    later = Stranger(local.port)
    assert later.open("q") == queue
    assert later.complete(queue, got) == [False, True, True]
    later.close()


def test_rubbish_behind_good_frames_ends_the_connection_and_nothing_else(inside: Inside) -> None:
    witness = inside.stranger()
    queue = witness.declare("q")
    random = Random(1)
    for _ in range(50):
        session = b"".join(frames(("DECLARE", text("") + text("q") + rules({})), ("PUSH", record([queue], [b"x"]))))
        spoken(inside, session + random.randbytes(200), reset=False, read=True)
    assert witness.counts(queue)["pushed"] == 50
    with pytest.raises(Refused):
        witness.push(record([queue], [b"x"])[:-4] + column([b"y"]))


def test_a_receiver_that_leaves_with_its_request_hides_nothing(inside: Inside) -> None:
    stranger = inside.stranger()
    queue = stranger.declare("orders")
    for _ in range(30):
        stranger.push(record([queue], [b"x"]))
    for _ in range(30):
        leaving = inside.stranger()
        leaving.open("orders")
        # The request leaves with the close that follows, so that no answer can come in between.
        leaving.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        leaving.send("PULL", leaving.pull_bytes(queue, lease_ms=600_000))
        leaving.close()
    lane = inside.node.store.lane(queue)
    assert lane is not None
    deadline = time.monotonic() + PATIENCE_S
    while (counts := inside.call(lane.counts)).visible != 30 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (counts.visible, counts.leased) == (30, 0)
