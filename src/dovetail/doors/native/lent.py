"""Producers that the node lends: to clients who number what they send so that it can be sent again, and have no name for it.

A producer is remembered for good, with its last results. Were each client to make up an identity of its own, every script that ever sent a
message would stay in the state. So a client asks for one, has it for as long as it is connected and KEPT_MS longer, to come back to what it
had under way; then the next client gets it, and numbers on from where it stands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

KEPT_MS = 300_000
ASKED = bytes(16)
"""The identity of a client that asks for one."""
MARK = b"lent"
"""What every lent identity begins with. The other twelve bytes are drawn, so that nobody comes upon somebody else's."""


class Lent:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._owners: dict[bytes, Any] = {}
        """Identity → the connection that has it."""
        self._free: dict[bytes, int] = {}
        """Those that nobody has, and since when, the longest first."""

    def take(self, owner: object) -> bytes:
        """One that nobody can come back for any more, or a new one."""
        oldest = next(iter(self._free), None)
        if oldest is None or self._now_ms() - self._free[oldest] < KEPT_MS:
            oldest = MARK + os.urandom(len(ASKED) - len(MARK))
        self.claim(oldest, owner)
        return oldest

    def claim(self, identity: bytes, owner: object) -> None:
        """Somebody comes back to one, perhaps from before this node was started."""
        self._free.pop(identity, None)
        self._owners[identity] = owner

    def left(self, owner: object, identities: Collection[bytes]) -> None:
        """A connection has ended that had opened these producers. It may have been slower to end than its client was to come back."""
        for identity in identities:
            if self._owners.get(identity) is owner:
                del self._owners[identity]
                self._free[identity] = self._now_ms()
