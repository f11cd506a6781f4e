"""The raw client of the native door: it reads answers however they are cut, asks what it says it asks, and completes what it took."""

from __future__ import annotations

import pytest

from dovetail.core import codec
from dovetail.errors import NoSuchQueue
from dovetail.lab.httpload import LoadFailed
from dovetail.lab.nativeload import APART, CYCLE, PUSH, SEND, TAKE, Load, play
from dovetail.lab.nativewire import Line
from tests.lab.fakenode import FakeNode, serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("cut", [7, 100, 1 << 20])
async def test_what_is_sent_one_at_a_time_is_taken_one_at_a_time_and_completed(cut: int) -> None:
    with serving(FakeNode(cut)) as node:
        sent = await play(Load(node.port, SEND, 40, connections=4))
        taken = await play(Load(node.port, TAKE, 20, connections=4))
        apart = await play(Load(node.port, APART, 20, connections=2))
    assert (sent["messages"], taken["messages"], apart["messages"]) == (40, 20, 20) and sent["durability"] == 2
    assert not node.leased and not node.waiting[1].bodies and set(node.waiting[1].stored) == {b"x" * 100}
    assert {kind: node.asked[kind] for kind in ("PUSH", "PULL", "COMPLETE_PULL", "COMPLETE")} == {
        "PUSH": 40,
        "PULL": 4 + 20,
        "COMPLETE_PULL": 20 - 4,
        "COMPLETE": 4 + 20,
    }


@pytest.mark.parametrize(("cut", "runs"), [(1 << 20, 1 << 20), (1000, 3), (37, 1)])
async def test_a_cycle_pushes_pulls_and_completes_every_message_in_frames(cut: int, runs: int) -> None:
    with serving(FakeNode(cut, runs)) as node:
        made = await play(Load(node.port, CYCLE, 240, connections=2, batch=10, under_way=3, size=50, queue="queue-{}"))
    assert made["messages"] == 240 and len(node.queues) == 2 and not node.leased
    assert all(not lane.bodies and lane.stored == [b"x" * 50] * 120 for lane in node.waiting.values())
    assert node.asked["PUSH"] == 24 and node.asked["PULL"] == 6 and node.asked["COMPLETE_PULL"] == 18 and node.asked["COMPLETE"] == 6


async def test_pushes_are_as_many_as_they_say_and_in_frames() -> None:
    with serving(FakeNode()) as node:
        made = await play(Load(node.port, PUSH, 400, connections=2, batch=20, under_way=4))
    assert made["messages"] == 400 == len(node.waiting[1].stored) and node.asked["PUSH"] == 20


async def test_a_load_that_is_refused_fails_with_the_words_of_the_node() -> None:
    with serving(FakeNode(refuse=b"PUSH")) as node:
        with pytest.raises(LoadFailed, match="the node refused: no such thing"):
            await play(Load(node.port, SEND, 4))
        with pytest.raises(LoadFailed, match="0 messages in place of one"):
            await play(Load(node.port, TAKE, 4))


async def test_a_line_raises_what_the_node_refused() -> None:
    with serving(FakeNode(refuse=b"DECLARE")) as node:
        line = Line(node.port)
        assert line.welcome.durability == "disk"
        with pytest.raises(NoSuchQueue):
            line.declare("q")
        line.close()


@pytest.mark.parametrize("read_max", [1 << 20, 1000])
async def test_every_message_of_every_queue_is_read_once_through_taps(read_max: int) -> None:
    tapload = pytest.importorskip("dovetail.lab.tapload")
    node = FakeNode()
    node.read_max = read_max
    with serving(node):
        await play(Load(node.port, PUSH, 4_000, connections=2, batch=500, under_way=2, queue="queue-{}"))
        await play(Load(node.port, PUSH, 40_000, batch=10_000, queue="queue-1"))
        made = await tapload.play(node.port, ["queue-0", "queue-1"])
        assert made["messages"] == 44_000 and made["mb_per_s"] > 0
        assert node.asked["TAP_READ"] == (4 if read_max > 16_384 else 2 + 17 + 17 + 10)
        with pytest.raises(LoadFailed, match="nothing to read"):
            await tapload.play(node.port, ["empty"])


async def test_interleaved_pushes_repeat_three_of_each_hundred_but_the_first() -> None:
    tap_read = pytest.importorskip("dovetail.lab.scenarios.tap_read")
    frames = list(tap_read._frames([7, 8], 5))
    pushes = [codec.decode_push(one) for one in frames]
    assert [push.queues for push in pushes] == [(7,), (8,), (7,), (8,), (7,)]
    dedups = [[push.dedups[at : at + 16] for at in range(0, 1600, 16)] for push in pushes]
    assert dedups[2][:3] == dedups[0][-3:] and dedups[3][:3] == dedups[1][-3:] and dedups[4][:3] == dedups[2][-3:]
    assert len({one for several in dedups for one in several}) == 500 - 3 * 3
