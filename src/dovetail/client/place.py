"""A queue as this client knows it: its id, its rules, and what waits to be sent to it or settled in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.core import message
from dovetail.core.operation import Attributes

if TYPE_CHECKING:
    from dovetail.client.batch import Batch
    from dovetail.client.pulls import Line
    from dovetail.client.session import Session
    from dovetail.client.settles import Settling


class Place:
    __slots__ = ("attributes", "batch", "lines", "name", "namespace", "queue", "session", "settling")

    def __init__(self, session: Session, namespace: str, name: str, queue: int, attributes: Attributes) -> None:
        self.session = session
        self.namespace = namespace
        self.name = name
        self.queue = queue
        self.attributes = attributes
        """As they were last told: when it was opened, or configured from here."""
        self.batch: Batch | None = None
        """What can still be joined."""
        self.settling: dict[tuple[int, int], Settling] = {}
        """The same of what is settled, by kind and parameter."""
        self.lines: dict[tuple[int, bool, int], Line] = {}
        """Those who receive, by lease, mode, and how long they wait."""

    def id_of(self, sequence: int) -> bytes:
        return message.id_of(self.queue, sequence, self.session.salt)

    def __repr__(self) -> str:
        return f"Place({self.name!r})"
