"""Stages over the wire: seen by nobody until one publish makes them visible, once for each batch, and no business of other accounts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.doors.native import room, staging
from dovetail.settings import QuotaDefaults
from tests.doors.native.house import Inside, Process
from tests.doors.native.stranger import Refused, Stranger, record
from tests.doors.native.test_auth import Signed, signed, statement  # noqa: F401  # the fixture

Another = Callable[[], Stranger]
OWNER = b"o" * 16


def refused(code: str, act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code, caught.value
    return caught.value


def name_of(test: str, index: int = 0) -> bytes:
    """A stage's name that no other test has."""
    return f"{test}/{index}".encode().ljust(16, b".")


def bodies(stranger: Stranger, queue: int) -> list[bytes]:
    return [one["body"] for one in stranger.peek(queue)[2]]


def test_what_is_staged_is_seen_by_nobody_until_it_is_published(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    stranger.tap_open(queue, "tap")
    first, second = name_of(name, 1), name_of(name, 2)
    assert stranger.stage(first, record([queue], [b"b", b"c"], groups=[b"g", b""]), 1) == 2
    assert another().welcome.features & 2
    other = another()
    assert other.open(name) == queue
    assert other.stage(second, record([queue], [b"a"]), 1) == 1
    assert (bodies(stranger, queue), stranger.counts(queue)["pushed"]) == ([], 0)
    assert other.publish([second, first], name_of(name)) == (False, [(queue, 3, 0, 3)])
    assert [(one.body, one.group) for one in stranger.pull(queue, 9)] == [(b"a", b""), (b"b", b"g"), (b"c", b"")]
    tapped = stranger.messages(stranger.ask("TAP_READ", stranger.tap_bytes(queue, "tap")))
    assert [one["body"] for one in tapped[2]] == [b"a", b"b", b"c"]


def test_a_batch_is_published_once_and_says_so(stranger: Stranger, queue: int, name: str) -> None:
    for index, batch in enumerate((7, 7, 3)):
        stranger.stage(name_of(name, index), record([queue], [b"x"]))
        before, joined = stranger.publish([name_of(name, index)], name_of(name), batch)
        assert (before, joined) == ((False, [(queue, 1, 0, 1)]) if not index else (True, []))
    assert stranger.counts(queue)["visible"] == 1
    assert stranger.publish([], name_of(name), 8) == (False, []), "an empty batch is published too"
    refused("NO_SUCH_STAGE", lambda: stranger.publish([name_of(name)], name_of(name), 9))


def test_one_stage_may_hold_messages_for_several_queues(stranger: Stranger, name: str) -> None:
    one, two = stranger.declare(name), stranger.declare(f"{name}-b", dedup_ms=60_000)
    stage = name_of(name)
    stranger.stage(stage, record([one, two], [b"both"], dedups=[b"d" * 16]), 1)
    stranger.stage(stage, record([two], [b"again", b"late"], dedups=[b"d" * 16, bytes(16)], delay_ms=60_000), 2)
    assert stranger.publish([stage], stage) == (False, [(one, 1, 0, 4), (two, 2, 1, 13)])
    assert (bodies(stranger, one), bodies(stranger, two)) == ([b"both"], [b"both", b"late"])


def test_a_publish_names_what_is_missing_and_stores_nothing(stranger: Stranger, queue: int, name: str) -> None:
    stranger.stage(name_of(name, 1), record([queue], [b"x"]))
    error = refused("NO_SUCH_STAGE", lambda: stranger.publish([name_of(name, 1), name_of(name, 2)], name_of(name)))
    assert name_of(name, 2).hex() in error.text and not error.unknown
    gone = stranger.declare(f"{name}-gone")
    stranger.stage(name_of(name, 3), record([gone], [b"y"]))
    stranger.ask("DROP", struct.pack("<Q", gone))
    refused("NO_SUCH_QUEUE", lambda: stranger.publish([name_of(name, 1), name_of(name, 3)], name_of(name)))
    assert stranger.counts(queue)["visible"] == 0
    assert stranger.publish([name_of(name, 1)], name_of(name))[0] is False


def test_a_frame_that_is_sent_again_under_its_number_is_there_once(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    """The connection was lost; what the old one had sent may arrive behind what the new one sends again."""
    stage, later = name_of(name), another()
    later.open(name)
    first, second = record([queue], [b"a", b"b"]), record([queue], [b"c"])
    assert stranger.stage(stage, first, 1) == 2
    for one, data, number in ((later, first, 1), (later, second, 2), (stranger, second, 2), (stranger, first, 1)):
        assert one.stage(stage, data, number) == (2 if number == 1 else 1)
    refused("NUMBER_REFUSED", lambda: stranger.stage(stage, second, 4))
    refused("NUMBER_REFUSED", lambda: stranger.stage(stage, record([queue], [b"other", b"size"]), 1))
    assert stranger.publish([stage], stage)[1] == [(queue, 3, 0, 3)]
    assert bodies(stranger, queue) == [b"a", b"b", b"c"]
    refused("NUMBER_REFUSED", lambda: stranger.stage(stage, second, 3))


def test_without_its_number_a_frame_that_is_sent_again_is_there_twice(stranger: Stranger, queue: int, name: str) -> None:
    for _ in range(2):
        stranger.stage(name_of(name), record([queue], [b"x"]))
    assert stranger.publish([name_of(name)], name_of(name))[1] == [(queue, 2, 0, 2)]


def test_stages_are_listed_in_pages_and_given_up(inside: Inside) -> None:
    stranger = inside.stranger()
    queue = stranger.declare("q")
    names = sorted(name_of("list", index) for index in range(7))
    for index, name in enumerate(names):
        stranger.stage(name, record([queue], [b"x" * index] * 2))
        inside.advance(1)
    found: list[tuple[bytes, int, int, int]] = []
    more = True
    while more:
        page, more = stranger.stages(found[-1][0] if found else bytes(16), 3)
        assert len(page) == (3 if more else 1)
        found += page
    assert [(one[0], one[2], one[3]) for one in found] == [(name, 2, 2 * index) for index, name in enumerate(names)]
    assert all(later[1] - earlier[1] >= 1000 for earlier, later in pairwise(found)), "when each began"
    assert stranger.unstage([*names[:3], b"unknown".ljust(16)]) == 3
    assert [one[0] for one in stranger.stages()[0]] == names[3:]
    assert stranger.unstage(names, kept=True) == 4, "on an open node every name is kept as it is"
    assert stranger.counts(queue)["pushed"] == 0


def test_a_stage_survives_the_connection_and_the_node_that_was_killed(local: Process) -> None:
    import signal

    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.declare("q")
    stranger.stage(name_of("kill"), record([queue], [b"kept"]), 1)
    stranger.close()
    local.end(signal.SIGKILL)
    local.begin()
    stranger = Stranger(local.port)
    assert stranger.open("q") == queue
    stranger.stage(name_of("kill"), record([queue], [b"kept"]), 1)
    stranger.stage(name_of("kill"), record([queue], [b"more"]), 2)
    assert stranger.publish([name_of("kill")], OWNER, 5)[1] == [(queue, 2, 0, 8)]
    local.end(signal.SIGKILL)
    local.begin()
    stranger = Stranger(local.port)
    queue = stranger.open("q")
    assert stranger.publish([], OWNER, 5) == (True, [])
    assert bodies(stranger, queue) == [b"kept", b"more"]
    stranger.close()


def test_what_cannot_be_staged_is_refused_and_changes_nothing(stranger: Stranger, another: Another, queue: int, name: str) -> None:
    stage, good = name_of(name), record([queue], [b"x"])
    head = struct.pack("<16sII", stage, 0, 0)
    for payload, code in [
        (head[:10], "MALFORMED"),
        (struct.pack("<16sII", stage, 0, 1) + good, "MALFORMED"),
        (head, "CODEC_ERROR"),
        (head + good[:-1], "CODEC_ERROR"),
        (head + record([queue], [b"x"], number=(b"p" * 16, 1, 1)), "BAD_REQUEST"),
        (head + record([queue], [b"x"], delay_ms=(1 << 43) + 1), "LIMIT_EXCEEDED"),
        (head + record([queue], [bytes(1_048_577)]), "LIMIT_EXCEEDED"),
        (head + record([10_000_000], [b"x"]), "NOT_OPENED"),
    ]:
        refused(code, lambda payload=payload: stranger.ask("STAGE", payload))
    for payload, code in [
        (struct.pack("<16sqII", OWNER, 0, 1, 0), "MALFORMED"),
        (struct.pack("<16sqII", OWNER, 0, 0, 0) + b"x", "MALFORMED"),
        (struct.pack("<16sqII", OWNER, 0, 10_001, 0) + bytes(160_016), "MALFORMED"),
        (struct.pack("<16sqII", OWNER, -1, 0, 0), "BAD_REQUEST"),
    ]:
        refused(code, lambda payload=payload: stranger.ask("PUBLISH", payload))
    refused("MALFORMED", lambda: stranger.ask("UNSTAGE", stranger.names([]), 2))
    refused("NOT_OPENED", lambda: another().stage(stage, good))
    assert all(one[0] != stage for one in stranger.stages()[0])


# Accounts


def test_accounts_that_use_the_same_names_do_not_meet(signed: Signed) -> None:  # noqa: F811
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue, other = mine.declare("q"), theirs.declare("q")
    stage = name_of("same")
    mine.stage(stage, record([queue], [b"mine"]), 1)
    assert theirs.stages() == ([], False)
    assert theirs.unstage([stage]) == 0
    error = refused("NO_SUCH_STAGE", lambda: theirs.publish([stage], OWNER, 9))
    assert stage.hex() in error.text, "it is named as the caller names it"
    assert theirs.stage(stage, record([other], [b"theirs!"]), 1) == 1
    assert theirs.publish([stage], OWNER, 9) == (False, [(other, 1, 0, 7)])
    assert mine.publish([stage], OWNER, 4) == (False, [(queue, 1, 0, 4)]), "the owner of another account has another last batch"
    assert (bodies(mine, queue), bodies(theirs, other)) == ([b"mine"], [b"theirs!"])


def test_without_the_account_in_the_name_a_stranger_publishes_what_is_anothers(
    signed: Signed,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "kept", lambda caller, name, what: name)
    monkeypatch.setattr(staging, "_check_publish", lambda connection, stages: None)
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue = mine.declare("q")
    mine.stage(OWNER, record([queue], [b"not yet"]))
    theirs.publish([OWNER], OWNER)
    assert bodies(mine, queue) == [b"not yet"]


def test_whoever_stages_and_publishes_must_be_allowed_to_send(signed: Signed) -> None:  # noqa: F811
    mine, theirs = signed.stranger(), signed.stranger(signed.other_key)
    queue = mine.declare("orders")
    space = f"{signed.shop}/us-east-1"
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage"))
    theirs.open("orders", space)
    refused("ACCESS_DENIED", lambda: theirs.stage(OWNER, record([queue], [b"x"])))
    signed.configure(queue, statement("Allow", signed.other, "SendMessage"))
    assert theirs.stage(OWNER, record([queue], [b"x"]), 1) == 1
    signed.configure(queue, statement("Allow", signed.other, "ReceiveMessage"))
    refused("ACCESS_DENIED", lambda: theirs.publish([OWNER], OWNER))
    assert bodies(mine, queue) == []
    # Whose queues they are may see what is staged for them, and give it up.
    ((kept, _, messages, size),), _ = mine.stages()
    assert kept != OWNER and (messages, size) == (1, 1)
    assert theirs.unstage([kept], kept=True) == theirs.unstage([kept]) == mine.unstage([kept]) == 0
    assert mine.unstage([kept], kept=True) == 1
    refused("NO_SUCH_STAGE", lambda: theirs.publish([OWNER], OWNER))


def test_quotas_of_queues_hold_for_what_is_staged_and_once_more_when_it_is_published(tmp_path: Path) -> None:
    made = Signed(tmp_path, quota=QuotaDefaults(queue_messages=3))
    try:
        stranger = made.stranger()
        queue = stranger.declare("q")
        refused("OVER_QUOTA", lambda: stranger.stage(OWNER, record([queue], [b"x"] * 4)))
        for index in range(2):
            stranger.stage(name_of("quota", index), record([queue], [b"x"] * 2))
            made.inside.advance(1)
        assert stranger.publish([name_of("quota", 0)], OWNER, 0)[1] == [(queue, 2, 0, 2)]
        made.inside.advance(1)
        refused("OVER_QUOTA", lambda: stranger.publish([name_of("quota", 1)], OWNER, 1))
        assert stranger.publish([], OWNER, 0) == (True, []), "a batch that was published is answered whatever there is room for"
        stranger.complete(queue, stranger.pull(queue, 2))
        made.inside.advance(1)
        assert stranger.publish([name_of("quota", 1)], OWNER, 1)[0] is False
    finally:
        made.inside.close()


def test_all_stages_together_hold_as_much_as_the_operator_allows(tmp_path: Path) -> None:
    made = Signed(tmp_path, quota=QuotaDefaults(staged_bytes=1000))
    try:
        mine, theirs = made.stranger(), made.stranger(made.other_key)
        queue, other = mine.declare("q"), theirs.declare("q")
        mine.stage(OWNER, record([queue], [bytes(600)]), 1)
        refused("OVER_QUOTA", lambda: theirs.stage(OWNER, record([other], [bytes(401)]), 1))
        assert theirs.push(record([other], [bytes(5000)])), "whoever sends is not touched by it"
        assert theirs.stage(OWNER, record([other], [bytes(400)]), 1) == 1
        mine.publish([OWNER], OWNER)
        assert theirs.stage(OWNER, record([other], [bytes(600)]), 2) == 1
        refused("OVER_QUOTA", lambda: mine.stage(OWNER, record([queue], [b"x"]), 1))
        theirs.unstage([OWNER])
        assert mine.stage(OWNER, record([queue], [b"x"]), 1) == 1
    finally:
        made.inside.close()


# Room


class Watched(room.Room):
    """Notes how much was under way at most, and that nothing is left of it."""

    def __init__(self, writer_bytes_max: int, bytes_max: int) -> None:
        super().__init__(writer_bytes_max, bytes_max)
        self.most = 0

    def take(self, writer: room.Writer, size: int) -> None:
        super().take(writer, size)
        self.most = max(self.most, self.bytes)


def flood(inside: Inside, room: Watched, connections: int) -> None:
    """Many frames from several at once, none of which waits for an answer; all of them arrive."""
    inside.door.room = room
    strangers = [inside.stranger() for _ in range(connections)]
    queue = strangers[0].declare("q")
    for index, stranger in enumerate(strangers):
        stranger.open("q")
        frames = b""
        for number in range(1, 101):
            payload = struct.pack("<16sII", name_of("room", index), number, 0) + record([queue], [bytes(2000)])
            stranger.number += 1
            frames += struct.pack("<IBBHQ", len(payload), 56, 0, 0, stranger.number) + payload
        stranger.socket.sendall(frames)
    for stranger in strangers:
        for _ in range(100):
            assert stranger.take().kind == "DONE"
    stages = [name_of("room", index) for index in range(connections)]
    assert strangers[0].publish(stages, OWNER)[1] == [(queue, 100 * connections, 0, 200_000 * connections)]
    assert room.bytes == 0


def test_of_what_is_staged_no_more_is_under_way_than_there_is_room_for(inside: Inside) -> None:
    watched = Watched(10_000, 1 << 30)
    flood(inside, watched, 1)
    assert watched.most < 10_000 + 2100


def test_all_connections_share_the_room(inside: Inside) -> None:
    watched = Watched(1 << 30, 10_000)
    flood(inside, watched, 4)
    # Each of them gets as far as its first frame behind the bound.
    assert watched.most < 10_000 + 4 * 2100


def test_without_the_room_everything_that_came_is_under_way_at_once(inside: Inside) -> None:
    watched = Watched(1 << 30, 1 << 30)
    flood(inside, watched, 1)
    assert watched.most > 12_100


def test_whoever_leaves_takes_no_room_with_it(inside: Inside) -> None:
    inside.door.room = watched = Watched(1 << 30, 5_000)
    stranger, bystander = inside.stranger(), inside.stranger()
    queue = stranger.declare("q")
    bystander.open("q")
    for index in range(50):
        leaver = inside.stranger()
        leaver.open("q")
        leaver.send("STAGE", struct.pack("<16sII", name_of("leave", index), 1, 0) + record([queue], [bytes(3000)]))
        leaver.close()
        assert bystander.stage(name_of("stay", index), record([queue], [bytes(3000)]), 1) == 1
    inside.gone(2)
    assert inside.call(lambda: (inside.server.connections, watched.bytes)) == (2, 0)
