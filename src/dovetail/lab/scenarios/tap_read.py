"""Reading 10 million messages of 100 bytes through a tap, all columns, as Arrow, from `local:` to a client in another process.

Once from one queue; once from a hundred, which were pushed to in turn, a hundred messages in a frame, so that their records lie
interleaved in the log, and of whose messages three in a hundred are repeats that are recognised and not read again. The files were written
just before, so this is the page cache, not the disk. Five reads over the same messages each, in turns; the client opens every batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...doors.native.frames import Kind
from .. import tapload
from ..child import result_of
from ..drivers.native import NativeNode
from ..httpload import LoadFailed
from ..nativeload import PUSH, Load, NativePlayer
from ..nativewire import Line, push, record
from ..rawload import join, played
from ..rounds import ROUNDS, Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

QUEUES = 100
BATCH = 100
REPEATS = 3
"""Of each hundred."""
UNDER_WAY = 16
DEDUP_MS = 5_000
BODY = b"x" * 100


async def run(lab: Lab) -> Figures:
    messages = lab.size(10_000_000, 200_000)
    figures: Figures = {"messages": messages, "rounds": lab.size(ROUNDS, 1), "repeats_percent": 100 * REPEATS / BATCH}
    node = NativeNode(lab.folder / "node")
    await node.start()
    try:
        one = ["one"]
        await _opened(node.port, one)
        made = await Load(node.port, PUSH, messages, 4, BATCH, UNDER_WAY, queue="one").played()
        lab.say(f"one queue: {made['messages']:,} pushed, {made['per_s']:,.0f}/s")
        many = [f"queue-{number}" for number in range(QUEUES)]
        made = await result_of(f"{__name__}:interleaved", port=node.port, names=many, messages=messages)
        lab.say(f"{QUEUES} queues: {made['messages']:,} pushed, {made['per_s']:,.0f}/s")
        expected = {"one": messages, "many": messages - messages // BATCH * REPEATS + REPEATS * QUEUES}

        async def turn(notes: Notes) -> None:
            for name, names in (("one", one), ("many", many)):
                read = await tapload.result(node.port, names, node.pid)
                if read["messages"] != expected[name]:
                    raise LoadFailed(f"{name}: {read['messages']:,} read in place of {expected[name]:,}")
                notes.note(name, read)

        notes = await in_turns(lab, "one queue and a hundred", turn)
    finally:
        await node.stop()
    return {**figures, "one": notes.medians("one"), "many": notes.medians("many")}


async def _opened(port: int, names: list[str], **rules: Any) -> None:
    line = Line(port)
    for name in names:
        tapload.tapped(line, name, **rules)
    line.close()


async def interleaved(port: int, names: list[str], messages: int) -> dict[str, Any]:
    """In a child: frames to the queues in turn; in each, but the first of its queue, some messages repeat some of the frame before."""
    line = Line(port)
    queues = [tapload.tapped(line, name, dedup_ms=DEDUP_MS) for name in names]
    player = Interleaver(Load(port, PUSH, messages, batch=BATCH, under_way=UNDER_WAY), line, queues)
    await join([player], [line.socket])
    return await played([player])


class Interleaver(NativePlayer):
    def __init__(self, load: Load, line: Line, queues: list[int]) -> None:
        super().__init__(load, line, queues[0])
        self._frames = _frames(queues, load.messages // load.batch)
        self._open = 0

    def begin(self) -> None:
        for _ in range(self.under_way):
            self._push()

    def _push(self) -> None:
        pushed = next(self._frames, None)
        if pushed is not None:
            self.number += 1
            self._open += 1
            head, behind = push(pushed)
            self.transport.write(head + self.number.to_bytes(8, "little") + behind)

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        assert kind == Kind.PUSHED
        self.messages += self.batch
        self._open -= 1
        self._push()
        if not self._open:
            self.end()


def _frames(queues: list[int], count: int) -> Iterator[bytes]:
    repeated = [b""] * len(queues)
    bodies = [BODY] * BATCH
    for number in range(count):
        at = number % len(queues)
        again = repeated[at]
        dedups = again + os.urandom(16 * BATCH - len(again))
        repeated[at] = dedups[-16 * REPEATS :]
        yield record(queues[at], bodies, dedups)


SCENARIO = Scenario(
    "tap-read",
    SCENARIOS["tap-read"],
    [
        Bar("10 million of one queue as Arrow, messages a second", "one.per_s", least=3_000_000),
        Bar("10 million of 100 interleaved queues with repeats, messages a second", "many.per_s", least=1_000_000),
    ],
    run,
)
