"""How much the HTTP edge takes from one caller, and how long it waits. Everything here protects the node from a caller that is broken
or hostile; what a protocol allows is smaller and is checked in its door.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...limits import BODY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Bounds:
    target_bytes_max: int = 8 * 1024
    headers_max: int = 100
    header_bytes_max: int = 32 * 1024
    """All headers of one request together, as they were sent."""
    body_bytes_max: int = 8 * BODY_BYTES_MAX + 512 * 1024
    """Protocols over HTTP write bodies as text (base64, JSON), which is larger than what they mean. Each door asserts that its largest
    legal request fits."""
    bodies_bytes_max: int = 256 * 1024 * 1024
    """Of all bodies together that have begun and not ended. Nobody has said who they are by then: a signature is read with the body."""
    unread_bytes_max: int = 256 * 1024 * 1024
    """Of all answers together that were written and that callers have not taken."""
    connections_max: int = 20_000
    pipeline_max: int = 64
    """Requests of one connection that are under way at once; more of them wait unread in the kernel."""
    handshake_s: float = 10.0
    """From the connection to the end of its TLS handshake."""
    idle_s: float = 75.0
    """A kept connection without a request. Longer than the 60 s after which clients and balancers commonly drop theirs, so that the side
    that is about to send is also the side that closes."""
    head_s: float = 10.0
    body_s: float = 60.0
    write_s: float = 30.0
    """How long a caller may leave its answers unread."""
    linger_s: float = 1.0
    """After a refusal the connection is still read for this long: closing at once would reset it, and a caller whose
    sending fails seldom looks for an answer."""

    @property
    def sweep_s(self) -> float:
        """How often connections are looked at: late by a quarter of the shortest wait at most. Those that linger are looked at apart,
        or ten thousand that only wait would be looked at as often as they."""
        return min(2.0, min(self.idle_s, self.head_s, self.body_s, self.write_s) / 4)
