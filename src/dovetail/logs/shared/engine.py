"""The engine seam: what a log service must supply so that nodes can share a log on it. All else is here or above, once for all engines.

An engine keeps *packets* (bytes, packet.py) in one order and gives each a *number*: the first that was ever published is 1, the next 2,
without a hole, for ever; a trim takes a prefix away and renumbers nothing.
(A sequence of JetStream is that; so is an offset of Kafka, plus one.)

To bring a new engine:

1. Write a class with the members of `Engine`, in a room of its own beside this one (`logs/nats`, `logs/kafka`).
2. `publish` may lose, double and reorder: every packet is numbered by its writer and is published again until it was replayed, and what
   came twice or too early has no effect (SEMANTICS §1.4). So it only puts bytes on their way: it neither waits nor raises nor repeats. An
   engine's own deduplication is an optimisation, and none is asked for.
3. `follow` must not lose, double or reorder: it is the one ordered reader of this node, and a number that is not the next one stops the
   node. It gives only what can no longer be lost within the durability that the engine names.
4. `open` looks at the settings of what is there and refuses, naming the setting and the value it needs, whatever would delete what waits
   (age, size, discarding the old), elect a leader that lacks what was acknowledged, or take less than `packet_bytes_max` at once. It makes
   what is not there, with settings that pass.
5. Blobs are named files, there whole or not at all, as durable as the log. A name may be put again: the later one counts.
6. Nothing here may block the loop; nothing is called from another thread.

Errors: `Unavailable` (the engine cannot be had now; it is tried again), `StorageError` (no use in trying again: the node stops, or does not
start). Whatever else comes out of an engine counts as the first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

Take = Callable[[int, int, bytes], None]
"""(number, the engine's stamp in milliseconds, packet)"""


class Engine(Protocol):
    name: str
    """For people: what it is and where, without passwords."""
    durability: str
    """memory · disk · memory×3 · disk×3, known once it is open. What the engine does by itself, unless the operator has declared more."""
    packet_bytes_max: int
    """The largest packet, known once it is open."""

    async def open(self) -> None:
        """Connect, look at version and settings, make what is missing."""

    async def bounds(self) -> tuple[int, int]:
        """(the number of the oldest packet that is kept, the number that the next one will get): equal where nothing is kept. Whoever leads
        is asked, and may be late all the same: an answer that must not be is an append that came back."""

    def publish(self, packet: bytes) -> None:
        """Put a packet on its way, behind those that were published before. Whether it arrived is seen in `follow`, and nowhere else."""

    async def follow(self, number: int, take: Take, heard: Callable[[], None]) -> None:
        """Give every packet from `number` on to `take`, in order, as long as it goes well, which may be for ever; ends by raising,
        also what `take` raises. `heard` is called when it has connected, and at least once in `HEARD_S` while nothing comes. It is called
        again after it has ended, with the number that is due then."""

    async def trim(self, number: int) -> None:
        """Everything below `number` may go. Any node may ask for it, again too, and for less than before, which does nothing."""

    async def put(self, name: str, source: Path) -> None:
        """Keep the file as a blob."""

    async def get(self, name: str, target: Path) -> None:
        """Write the blob to a file, checked; KeyError where there is none."""

    async def names(self) -> list[str]: ...

    async def remove(self, name: str) -> None:
        """Idempotent."""

    async def close(self) -> None:
        """Let go of everything. Never raises."""


HEARD_S = 2.0
"""At least so often an engine says that it is there."""
