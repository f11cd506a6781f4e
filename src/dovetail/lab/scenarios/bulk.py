"""Frames of 100 messages of 100 bytes through the native door, durable on `local:`: pushes alone, and whole cycles.

A cycle is a push and, in the same breath, a request that completes what the pull before brought and pulls the next hundred. Four frames are
under way on each connection. Beside it, in the same rounds, as many senders of hundreds share nothing but write and fdatasync on a bare
file (`commit-log` has it beside SQLite and Redis): what no queue can exceed that syncs before it answers.
"""

from __future__ import annotations

from ...doors.native import requests
from ...doors.native.frames import Kind
from ..drivers.barefile import BareFile
from ..drivers.native import NativeNode
from ..httpload import LoadFailed
from ..load import play
from ..measure import rate_per_s
from ..nativeload import CYCLE, DISK, PUSH, Load
from ..nativewire import Line
from ..rounds import ROUNDS, Notes, in_turns
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario
from ..trace import ACKED, Trace
from ..workload import Workload

BATCH = 100
UNDER_WAY = 4
CONNECTIONS = (1, 4, 16)
BARRED = 4
"""The bars are on so many connections."""
OPERATIONS = {PUSH: "pushes", CYCLE: "cycles"}


async def run(lab: Lab) -> Figures:
    messages = lab.size(400_000, 8_000)
    node = NativeNode(lab.folder / "node")
    await node.start()

    async def turn(notes: Notes) -> None:
        for connections in CONNECTIONS:
            load = Load(node.port, PUSH, messages, connections, BATCH, UNDER_WAY, pid=node.pid)
            for operation, word in OPERATIONS.items():
                made = await load.playing(operation).played()
                if made["durability"] != DISK:
                    raise LoadFailed(f"a push reached durability {made['durability']}, and the disk was asked for")
                notes.note(f"{word} {connections}", made)
                _emptied(node.port, load.queue)
            notes.note(f"bare {connections}", {"per_s": await _bare(lab, connections, 0.5 if not lab.quick else 0.1)})

    try:
        notes = await in_turns(lab, "pushes, cycles and the bare file", turn)
    finally:
        await node.stop()
    figures: Figures = {"rounds": lab.size(ROUNDS, 1), "batch": BATCH, "under_way": UNDER_WAY, "messages": messages}
    for word in (*OPERATIONS.values(), "bare"):
        figures[word] = {f"{connections}_connections": notes.medians(f"{word} {connections}") for connections in CONNECTIONS}
    for word in OPERATIONS.values():
        ratios = {f"{connections}_connections": notes.ratio(f"{word} {connections}", f"bare {connections}") for connections in CONNECTIONS}
        figures[f"{word}_to_bare"] = ratios
    return figures


def _emptied(port: int, queue: str) -> None:
    line = Line(port)
    line.ask(requests.About(Kind.PURGE, line.declare(queue)))
    line.close()


async def _bare(lab: Lab, connections: int, seconds: float) -> float:
    driver, trace = BareFile(lab.folder / "bare"), Trace()
    senders = connections * UNDER_WAY
    await driver.open(1, senders)
    try:
        await play(Workload(senders=senders, batch=BATCH, seconds=seconds), driver, trace)
    finally:
        await driver.close()
    return rate_per_s(trace.table(), ACKED)


SCENARIO = Scenario(
    "bulk",
    SCENARIOS["bulk"],
    [
        Bar("durable pushes in hundreds, messages a second", f"pushes.{BARRED}_connections.per_s", least=300_000),
        Bar("push, receive and complete in hundreds, messages a second", f"cycles.{BARRED}_connections.per_s", least=150_000),
    ],
    run,
)
