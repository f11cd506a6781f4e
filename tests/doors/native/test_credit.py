"""Consumers: what is given is what there is credit for, and what a client does not take stays where it was."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import PATIENCE_S, Message, Stranger, record

Another = Callable[[], Stranger]
MUCH = (1 << 63) - 1


def given(stranger: Stranger, consume: int, count: int) -> list[Message]:
    """Deliveries of this consume until so many messages have come; none comes beyond them."""
    got: list[Message] = []
    while len(got) < count:
        got += stranger.deliveries(stranger.answer(consume))
    assert len(got) == count
    return got


def leased(stranger: Stranger, queue: int) -> int:
    return stranger.counts(queue)["leased"]


def test_a_consumer_gets_what_is_there_and_what_comes(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"before"]))
    consume = stranger.consume(queue, 10)
    assert [one.body for one in given(stranger, consume, 1)] == [b"before"]
    stranger.push(record([queue], [b"a", b"b"]))
    assert [one.body for one in given(stranger, consume, 2)] == [b"a", b"b"]


def test_no_message_is_given_or_taken_beyond_the_credit(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x"] * 10))
    consume = stranger.consume(queue, 3)
    given(stranger, consume, 3)
    assert stranger.take_nothing() and leased(stranger, queue) == 3
    stranger.credit(consume, 2)
    given(stranger, consume, 2)
    assert stranger.take_nothing() and leased(stranger, queue) == 5
    stranger.credit(consume, 100)
    given(stranger, consume, 5)


def test_credit_that_was_given_while_nothing_was_there_is_kept(stranger: Stranger, queue: int) -> None:
    consume = stranger.consume(queue, 1)
    stranger.credit(consume, 2)
    stranger.push(record([queue], [b"x"] * 5))
    given(stranger, consume, 3)
    assert stranger.take_nothing() and leased(stranger, queue) == 3


def test_without_credit_nothing_comes(stranger: Stranger, queue: int) -> None:
    consume = stranger.consume(queue, 0)
    other = stranger.consume(queue, 5, 0)
    stranger.push(record([queue], [b"x"]))
    assert stranger.take_nothing() and leased(stranger, queue) == 0
    stranger.credit(other, 0, 1)
    given(stranger, other, 1)
    assert consume != other


def test_bytes_are_credit_too_and_only_the_first_of_a_frame_may_overdraw_it(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x" * 100] * 10))
    consume = stranger.consume(queue, 10, 250)
    given(stranger, consume, 3)
    assert stranger.take_nothing() and leased(stranger, queue) == 3
    stranger.credit(consume, 0, 50)  # Back at nothing.
    assert stranger.take_nothing() and leased(stranger, queue) == 3
    stranger.credit(consume, 0, 1)
    given(stranger, consume, 1)
    assert stranger.take_nothing() and leased(stranger, queue) == 4


def test_groups_and_attributes_count_as_bytes(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x"] * 4, groups=[b"g" * 99] * 4))
    consume = stranger.consume(queue, 10, 200)
    given(stranger, consume, 2)
    assert stranger.take_nothing()


def test_a_frame_has_as_many_messages_as_was_asked_for(stranger: Stranger, queue: int) -> None:
    stranger.push(record([queue], [b"x"] * 10))
    consume = stranger.consume(queue, 10, frame=4)
    assert [len(stranger.deliveries(stranger.answer(consume))) for _ in range(3)] == [4, 4, 2]


def test_credit_is_counted_and_never_runs_over(stranger: Stranger, queue: int) -> None:
    consume = stranger.consume(queue, (1 << 32) - 1, MUCH)
    for _ in range(3):
        stranger.credit(consume, (1 << 32) - 1, (1 << 64) - 1)
    stranger.push(record([queue], [b"x"]))
    given(stranger, consume, 1)


def test_a_consumer_that_deletes_gets_each_message_for_good(stranger: Stranger, queue: int) -> None:
    consume = stranger.consume(queue, 4, delete=True)
    stranger.push(record([queue], [b"x"] * 6))
    got = given(stranger, consume, 4)
    assert {one.run[1] for one in got} == {0}
    assert stranger.take_nothing()
    counts = stranger.counts(queue)
    assert (counts["leased"], counts["visible"]) == (0, 2)


def test_stop_is_answered_behind_the_last_delivery(stranger: Stranger, queue: int) -> None:
    for _ in range(20):
        consume = stranger.consume(queue, 1000, frame=1)
        for _ in range(5):
            stranger.send("PUSH", record([queue], [b"x"]))
        stop = stranger.send("STOP", struct.pack("<Q", consume))
        seen = []
        while {stop - 1, stop} - {one.number for one in seen}:
            seen.append(stranger.take())
        done = next(index for index, one in enumerate(seen) if one.number == stop)
        assert stranger.done(seen[done]) == 1
        assert all(one.number != consume for one in seen[done:])
        got = sum(len(stranger.deliveries(one)) for one in seen if one.number == consume)
        assert stranger.take_nothing(0.002)
        counts = stranger.counts(queue)
        assert counts["leased"] == got and counts["visible"] == 5 - got
        stranger.ask("PURGE", struct.pack("<Q", queue))


def test_what_a_stopped_consumer_did_not_take_is_there_for_others(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    consume = stranger.consume(queue, 100)
    stranger.stop(consume)
    stranger.credit(consume, 5)
    other = another()
    own = other.open(name)
    other.push(record([own], [b"x"]))
    assert [one.body for one in other.pull(own)] == [b"x"]
    assert stranger.take_nothing()


def test_two_consumers_share_a_queue(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    other = another()
    theirs = other.consume(other.open(name), 5)
    ours = stranger.consume(queue, 5)
    for number in range(10):
        stranger.push(record([queue], [b"%d" % number]))
    got = given(stranger, ours, 5) + given(other, theirs, 5)
    assert sorted(one.body for one in got) == [b"%d" % number for number in range(10)]


def test_a_queue_that_is_dropped_ends_its_consumers_and_pulls(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    idle, pull = stranger.consume(queue, 5), stranger.send("PULL", stranger.pull_bytes(queue, wait_ms=60_000))
    other = another()
    other.done(other.ask("DROP", struct.pack("<Q", other.open(name))))
    ends = {one.number: stranger.error(one.payload).code for one in (stranger.take(), stranger.take())}
    assert ends == {idle: "NO_SUCH_QUEUE", pull: "NO_SUCH_QUEUE"}
    assert stranger.stop(idle) == 0


def test_a_consumer_waits_where_as_many_are_in_flight_as_may_be(stranger: Stranger, name: str) -> None:
    queue = stranger.declare(name, in_flight_max=2)
    stranger.push(record([queue], [b"a", b"b", b"c"]))
    consume = stranger.consume(queue, 10)
    first = given(stranger, consume, 2)
    assert stranger.take_nothing()
    stranger.complete(queue, first[:1])
    assert [one.body for one in given(stranger, consume, 1)] == [b"c"]


# A client that leaves


def test_what_was_written_keeps_its_lease_when_the_client_leaves(inside: Inside) -> None:
    stranger, witness = inside.stranger(), inside.stranger()
    queue = stranger.declare("q", lease_ms=20_000)
    witness.open("q")
    stranger.push(record([queue], [b"x"] * 5))
    consume = stranger.consume(queue, 3)
    given(stranger, consume, 3)
    stranger.close()
    assert (witness.counts(queue)["leased"], witness.counts(queue)["visible"]) == (3, 2)
    inside.advance(21)
    assert witness.counts(queue)["visible"] == 5


def test_a_consumer_that_waits_and_leaves_takes_no_message_with_it(inside: Inside) -> None:
    witness = inside.stranger()
    queue = witness.declare("q")
    for _ in range(10):
        stranger = inside.stranger()
        stranger.consume(stranger.open("q"), 100)
        stranger.send("PULL", stranger.pull_bytes(queue, 5, wait_ms=60_000))
        stranger.ask("PING")
        stranger.close()
    inside.alone()
    witness.push(record([queue], [b"x"] * 3))
    assert len(witness.pull(queue, 10)) == 3


# A client that is slow


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Process]:
    process = Process("--store", f"local:{tmp_path / 'data'}", "--http", "off").begin()
    yield process
    process.end()


def anonymous_bytes(process: Process) -> int:
    """Memory that is the process's own, and not a file's that the system shows it."""
    assert process.process is not None
    for line in Path(f"/proc/{process.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["consume", "pulls", "looks"])
def test_a_client_that_does_not_read_costs_the_node_no_memory(roomy: Process, way: str) -> None:
    filler, slow = Stranger(roomy.port), Stranger(roomy.port)
    queue = filler.declare("q")
    slow.open("q")
    for _ in range(100):
        filler.push(record([queue], [b"x" * 65_536] * 20))  # 130 MB in all
    before = anonymous_bytes(roomy)
    if way == "consume":
        slow.consume(queue, (1 << 32) - 1, MUCH, frame=100)
    elif way == "pulls":
        for _ in range(1_000):
            slow.send("PULL", slow.pull_bytes(queue, 100))
    else:
        for _ in range(1_000):
            slow.send("PEEK", struct.pack("<QQII", queue, 0, 100, 0))
    if way != "looks":
        deadline = time.monotonic() + PATIENCE_S
        while not leased(filler, queue):
            assert time.monotonic() < deadline, "it is given nothing"
            time.sleep(0.01)
    # Nobody else waits for it: these would not be answered before it reads. Meanwhile the node has time to do what it should not.
    grown = 0
    for _ in range(20):
        filler.push(record([queue], [b"quick"]))
        time.sleep(0.05)
        grown = max(grown, anonymous_bytes(roomy) - before)
    # An answer of 6 MB that is being put together is there a few times over. A node that kept what is not read would have it all.
    assert grown < 60 << 20, f"{grown >> 20} MB"
    if way == "pulls":
        # It reads at last, and everything is there.
        total = 0
        while total < 2_000:
            total += len(slow.deliveries(slow.take()))
