"""Resident memory of a node on `local:` with 1,000 native connections and 1 million messages of 100 bytes waiting.

The messages were pushed in frames of a hundred over other connections. Each of the 1,000 has opened its queue and waits in a pull on a
queue where nothing arrives, which is what idle consumers do. Told apart: an empty node, with the messages, with the connections as well.
"""

from __future__ import annotations

import asyncio
import resource

from ..child import Child, tell
from ..drivers.native import NativeNode
from ..httpload import LoadFailed
from ..nativeload import PUSH, Load
from ..nativewire import Line, pull
from ..process import resident_bytes
from ..scenario import SCENARIOS, Bar, Figures, Lab, Scenario

MB = 1_000_000
WAIT_MS = 600_000
SETTLE_S = 2.0


async def run(lab: Lab) -> Figures:
    connections, waiting = lab.size(1_000, 100), lab.size(1_000_000, 20_000)
    _allow_files()
    node = NativeNode(lab.folder / "node")
    await node.start()
    try:
        empty = resident_bytes(node.pid)
        made = await Load(node.port, PUSH, waiting, 4, 100, 4, queue="waiting").played()
        lab.say(f"{made['messages']:,} wait")
        await asyncio.sleep(SETTLE_S)
        filled = resident_bytes(node.pid)
        async with Child(f"{__name__}:connect", {"port": node.port, "connections": connections}) as child:
            counted = await child.told()
            if counted != waiting:
                raise LoadFailed(f"{counted} are waiting in place of {waiting}")
            await asyncio.sleep(SETTLE_S)
            full = resident_bytes(node.pid)
            lab.say(f"{connections:,} connections wait")
    finally:
        await node.stop()
    return {
        "connections": connections,
        "waiting": waiting,
        "empty_mb": empty / MB,
        "with_messages_mb": filled / MB,
        "with_connections_mb": full / MB,
        "bytes_a_message": (filled - empty) / waiting,
        "bytes_a_connection": (full - filled) / connections,
    }


def _allow_files() -> None:
    """A connection is a file on both sides; the child inherits what is allowed here."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def connect(port: int, connections: int) -> None:
    """In a child: open them, let each wait, tell how many messages there are, and stay until somebody ends it."""
    _allow_files()
    lines = [Line(port) for _ in range(connections)]
    for line in lines:
        idle = line.declare("idle")
        line.socket.sendall(pull(line.number + 1, idle, 10, WAIT_MS))
    asking = Line(port)
    tell(asking.counts(asking.declare("waiting")).visible)
    await asyncio.Event().wait()


SCENARIO = Scenario(
    "native-memory",
    SCENARIOS["native-memory"],
    [Bar("resident memory with 1,000 connections and 1 million waiting, MB", "with_connections_mb", most=250)],
    run,
)
