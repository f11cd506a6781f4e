"""Room for what is being staged: how many bytes of STAGE frames may be on their way to the disk.

A sink writes as fast as it can, and hundreds of its tasks at a time. What has come and is not durable yet lies in the node's memory, and
everybody else's next sync waits behind it. So a connection that has put so much under way is not read until some of it is durable, and when
all of them together have, none of those that stage is: their own sockets hold them back. Whoever does not stage is never held back here.
"""

from __future__ import annotations

from typing import Protocol


class Writer(Protocol):
    """A connection."""

    held: bool
    """What comes now waits unread."""

    def schedule(self) -> None: ...


class Room:
    def __init__(self, writer_bytes_max: int, bytes_max: int) -> None:
        self._writer_bytes_max = writer_bytes_max
        self._bytes_max = bytes_max
        self._by_writer: dict[Writer, int] = {}
        self._held: dict[Writer, None] = {}
        self.bytes = 0

    def take(self, writer: Writer, size: int) -> None:
        """So much more is under way. It is there already, so it is taken in any case; whoever has too much is held from here on."""
        self.bytes += size
        mine = self._by_writer[writer] = self._by_writer.get(writer, 0) + size
        if mine >= self._writer_bytes_max or self.bytes >= self._bytes_max:
            writer.held = True
            self._held[writer] = None

    def give(self, writer: Writer, size: int) -> None:
        """It is durable, or was refused."""
        if writer not in self._by_writer:
            return  # It has left, with all that it had.
        self._by_writer[writer] -= size
        if not self._by_writer[writer]:
            del self._by_writer[writer]
        self._given(size)

    def left(self, writer: Writer) -> None:
        """Nobody waits for what it had under way."""
        self._held.pop(writer, None)
        self._given(self._by_writer.pop(writer, 0))

    def _given(self, size: int) -> None:
        self.bytes -= size
        if self.bytes >= self._bytes_max:
            return
        for writer in [one for one in self._held if self._by_writer.get(one, 0) < self._writer_bytes_max]:
            del self._held[writer]
            writer.held = False
            writer.schedule()
