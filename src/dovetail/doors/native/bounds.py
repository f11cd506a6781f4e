"""How much the native door takes from one connection, and how long it waits. What queues allow is smaller and is in limits.py."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.limits import ATTRIBUTES_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX, QUEUES_PER_PUSH_MAX

FRAME_BYTES_MAX = 16 * 1024 * 1024 + 64 * 1024
"""The largest payload of an answer. A client that takes this much takes every answer."""

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""The largest payload of a request, told in WELCOME: more than one log entry holds, so the largest legal push passes."""

GREETING_BYTES_MAX = 1024
"""The largest payload before somebody has said who it is: an AUTH is smaller."""

DELIVERY_BYTES_MAX = 8 * 1024 * 1024
"""Bodies, groups and attributes in one frame of deliveries, of a look at a queue, or of a read of a tap. The first message always goes."""

TAP_READ_MESSAGES_MAX = 16_384
"""Messages in one read of a tap: the loop is busy with it for some milliseconds, and others wait for so long."""

LIST_NAMES_MAX = 1_000
"""Names in one answer to LIST; the next ones are asked for by the last."""


@dataclass(frozen=True, slots=True)
class Bounds:
    connections_max: int = 20_000
    in_flight_max: int = 1_024
    """Requests of one connection that are under way; what comes beyond waits unread in the kernel."""
    waits_max: int = 10_000
    """Pulls that wait and consumes that are open, of one connection. They do not count as under way: a connection full of receivers must
    still be able to say that a message is done."""
    staging_bytes_max: int = 8 * 1024 * 1024
    """Of STAGE frames of one connection that are not durable yet; what comes beyond waits unread (room.py)."""
    staging_bytes_all_max: int = 64 * 1024 * 1024
    """Of all connections together."""
    turn_frames_max: int = 1_024
    """Frames of one connection that are taken before others have their turn. What is answered at once is never under way, and a delivery
    of the socket has room for a hundred thousand of it."""
    unfinished_bytes_max: int = 256 * 1024 * 1024
    """Frames that are not whole yet, of all connections together (held.py): beyond it the one that began first is ended."""
    unread_bytes_max: int = 256 * 1024 * 1024
    """Answers that clients leave unread, counted from where a connection is no longer written to; the same."""
    queues_max: int = 100_000
    """Queues that one connection may have opened."""
    handshake_s: float = 10.0
    """From the connection to the end of its TLS handshake …"""
    greeting_s: float = 10.0
    """… and from there to a valid AUTH."""
    idle_s: float = 120.0
    """A connection from which nothing comes for this long is closed. A client that only listens says PING now and then: so a peer that
    vanished without a word is found out."""
    write_s: float = 30.0
    """How long a client may leave its answers unread."""
    linger_s: float = 1.0
    """After the last answer the connection is read for this long: closing at once would reset it, and the answer might never be seen."""

    @property
    def sweep_s(self) -> float:
        return min(2.0, min(self.greeting_s, self.idle_s, self.write_s) / 4)


assert REQUEST_BYTES_MAX > MESSAGE_BYTES_MAX + 8 * QUEUES_PER_PUSH_MAX + 40 * BATCH_MESSAGES_MAX
assert FRAME_BYTES_MAX > DELIVERY_BYTES_MAX + MESSAGE_BYTES_MAX + ATTRIBUTES_BYTES_MAX + 128 * BATCH_MESSAGES_MAX
