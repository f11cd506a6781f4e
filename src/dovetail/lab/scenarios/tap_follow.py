"""What a tap that is followed costs those who send: 20,000 messages of 100 bytes a second, durable on `local:`, from eight connections that
send ten at a time, each at its own rate; with nobody reading, and with a reader that takes everything through a tap as Arrow as it comes
and lets go of it. Five rounds in turns, each on a queue of its own; what counts is the ratio of the p99 of a send in each pair.

The reader is a process of its own and asks for what came every 50 ms, as a stream of micro-batches would at its fastest.
"""

from __future__ import annotations

from ..drivers.native import NativeNode
from ..followload import Follow, followed, paced
from ..rounds import ROUNDS, Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

RATE = 20_000


async def run(lab: Lab) -> Figures:
    seconds, rate = lab.size(10, 2), lab.size(RATE, 2_000)
    node = NativeNode(lab.folder / "node")
    await node.start()
    number = 0
    looks: list[int] = []
    try:

        async def turn(notes: Notes) -> None:
            nonlocal number
            for which in ("alone", "followed"):
                number += 1
                follow = Follow(node.port, f"queue-{number}", rate, seconds, node.pid)
                made = await (followed(follow, looks) if which == "followed" else paced(follow))
                notes.note(which, made)

        notes = await in_turns(lab, "sends alone and followed", turn, ROUNDS)
    finally:
        await node.stop()
    return {
        "rate": rate,
        "seconds": seconds,
        "alone": notes.medians("alone"),
        "followed": notes.medians("followed"),
        "p99_ratio": notes.ratio("followed", "alone", "p99_us"),
        "p50_ratio": notes.ratio("followed", "alone", "p50_us"),
        "rate_ratio": notes.ratio("followed", "alone", "per_s"),
        "read_at_once_most": max(looks, default=0),
    }


SCENARIO = Scenario(
    "tap-follow",
    SCENARIOS["tap-follow"],
    [
        Bar("p99 of sends at 20,000 messages/s with a tap that is followed, times that without", "p99_ratio", most=1.5),
        Bar("the rate of sends with it, times that without", "rate_ratio", least=0.98),
    ],
    run,
)
