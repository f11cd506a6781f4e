"""A session that is cut once: before each of its frames and in the middle of each, whichever end sent it. However it was cut, it ends as if
it had not been."""

from __future__ import annotations

import asyncio

import dovetail
from dovetail.doors.native.codec import Event, Frame
from dovetail.errors import Unknown
from tests.client.house import Served, Wire

AT_ONCE = 16
"""Sessions side by side, each with a node of its own: mostly they wait to connect again."""


class Cut:
    """Counts frames in one direction, and cuts once: before the one with this index, or in the middle of it."""

    def __init__(self, wire: Wire, asked: bool, index: int, middle: bool) -> None:
        self.wire = wire
        self.asked = asked
        self.left = index
        self.middle = middle
        self.done = False

    def __call__(self, asked: bool, event: Event) -> bool:
        if self.done or asked is not self.asked or not isinstance(event, Frame):
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        self.done = True
        if self.middle:
            # The next bytes to pass are this frame's: half of them do.
            self.wire.bytes_left = 8 + len(event.payload) // 2
            return False
        return True


async def session(node: dovetail.Client) -> list[object]:
    """What a program sees of it, in which nothing depends on the connection. A complete whose answer was lost may not know."""
    queue, bills = await node.queue("orders"), await node.queue("bills")
    seen: list[object] = [(await queue.send(b"a")).sequence]
    seen += [one.sequence for one in await queue.send_many([b"b", b"c", b"d", b"e"])]
    seen += [one.sequence for one in await node.send_to([queue, bills], b"f")]
    tap = await queue.tap("archive")
    seen.append([one.body for one in (await tap.read()).messages])
    await tap.advance(3)
    stage = node.stage()
    await stage.send_many(bills, [b"x", b"y"])
    await node.publish([stage], "job", 1)
    seen.append([one.body for one in await bills.peek()])
    seen.append([one.body for one in await queue.peek()])
    return seen


async def settling(node: dovetail.Client, served: Served) -> None:
    """Everything is received and completed; what was handed out in an answer that was lost comes again when its lease ends."""
    queue = await node.queue("orders")
    done: list[bytes] = []
    while len(done) < 6:
        for message in await queue.receive(max=2, lease_s=600):
            try:
                assert await message.complete()
            except Unknown:
                pass
            done.append(message.body)
        if not (await queue.counts()).visible:
            await served.clock.advance(601)
    assert sorted(done) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    counts = await queue.counts()
    assert (counts.visible, counts.leased, counts.pushed) == (0, 0, 6)


async def cut_at(asked: bool, index: int, middle: bool) -> tuple[list[object], bool]:
    served = await Served().open()
    wire = await Wire(served.port).open()
    try:
        cut = Cut(wire, asked, index, middle)
        wire.cut_before = cut
        async with dovetail.connect(wire.url, timeout_s=60) as node:
            seen = await session(node)
            await settling(node, served)
        return seen, cut.done
    finally:
        await wire.close()
        await served.close()


async def test_a_session_that_is_cut_at_any_frame_ends_as_if_it_had_not_been() -> None:
    whole, _ = await cut_at(True, 10_000, False)
    for asked in (True, False):
        for middle in (False, True):
            index, done = 0, True
            while done:
                cuts = range(index, index + AT_ONCE)
                ends = await asyncio.gather(*(cut_at(asked, at, middle) for at in cuts))
                assert {at: seen for at, (seen, _) in zip(cuts, ends, strict=True) if seen != whole} == {}, (asked, middle)
                done = ends[-1][1]
                index += AT_ONCE
            assert index > AT_ONCE, "it was cut in many places"
