"""Where a stream stands, as Spark keeps it in a checkpoint. Pure; knows JSON, and nothing of nodes.

    {"version": 1, "origin": "5f0c…", "tap": "archive", "queues": {"orders": {"id": 7, "lanes": {"0": {"first": 1, "next": 200001}}}}}

`origin` names the namespace (never its address or key), `id` the queue: another queue of the same name is another queue. A queue has one
lane today; the lane is named so that a checkpoint of today stays readable when it has several. `first` is where the stream began to read
the lane: a queue that a pattern finds later is not in the batch's start, and a replay must begin where the batch did.

Spark compares offsets as text, so the same place always has the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dovetail.errors import BadRequest, FormatUnknown

VERSION = 1
LANE = "0"


class Place(NamedTuple):
    """In one queue: everything from `first` to `next` − 1 was read."""

    queue: int
    first: int
    next: int


class Range(NamedTuple):
    """What a batch reads of one queue."""

    name: str
    queue: int
    start: int
    end: int
    batch: int = -1
    """Of a reservation: start and end then count its messages, from 0; else they are sequences."""

    @property
    def rows(self) -> int:
        """Of sequences at most: messages that were settled before the tap was opened leave gaps."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Offsets:
    origin: str
    tap: str
    places: Mapping[str, Place]

    def told(self) -> dict[str, Any]:
        """As values of JSON, in one order."""
        queues = {
            name: {"id": place.queue, "lanes": {LANE: {"first": place.first, "next": place.next}}}
            for name, place in sorted(self.places.items())
        }
        return {"version": VERSION, "origin": self.origin, "tap": self.tap, "queues": queues}

    @classmethod
    def of(cls, told: Any) -> Offsets:
        checked_version(told)
        if "reservation" in told:
            raise BadRequest(f"the checkpoint belongs to the reservation {told['reservation']!r}: a tap needs a new one")
        try:
            places = {
                name: Place(int(of["id"]), int(of["lanes"][LANE]["first"]), int(of["lanes"][LANE]["next"]))
                for name, of in told["queues"].items()
            }
            return cls(str(told["origin"]), str(told["tap"]), places)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"the checkpoint's offsets cannot be read: {error!r}") from None

    def at(self, places: Mapping[str, Place]) -> Offsets:
        return replace(self, places=places)

    def ranges_to(self, end: Offsets) -> list[Range]:
        """What lies between here and there, queue by queue in the order of names."""
        found = []
        for name, place in sorted(end.places.items()):
            before = self.places.get(name)
            start = place.first if before is None or before.queue != place.queue else before.next
            if start < place.next:
                found.append(Range(name, place.queue, start, place.next))
        return found


def checked_version(told: Any) -> None:
    """What another Dovetail may have written, or somebody else."""
    version = told.get("version") if isinstance(told, dict) else None
    if not isinstance(version, int):
        raise BadRequest(f"the checkpoint holds no offsets of Dovetail: {str(told)[:200]}")
    if version > VERSION:
        raise FormatUnknown(
            f"the checkpoint was written by a newer Dovetail (offsets of version {version}; this one reads up to {VERSION})"
        )
