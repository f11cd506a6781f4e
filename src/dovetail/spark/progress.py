"""What a query's progress says about our sources: where they stand, and how far behind they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.errors import DovetailError
from dovetail.spark.offsets import Offsets
from dovetail.spark.shares import Shares


def lag(progress: Any) -> dict[str, int]:
    """Queue → messages that wait to be read, from a query's progress (`query.lastProgress`, or an event's)."""
    behind: dict[str, int] = {}
    for source in sources(progress):
        latest, end = offsets_of(source, "latestOffset"), offsets_of(source, "endOffset")
        for name, count in (_waiting(source) if isinstance(latest, Shares) else _unread(latest, end)).items():
            behind[name] = behind.get(name, 0) + count
    return behind


def _waiting(source: Any) -> dict[str, int]:
    """Of a reservation: what nobody has taken yet, as the node counts it."""
    queues = _told(source, "latestOffset")["queues"]
    return {name: sum(int(lane.get("waiting", 0)) for lane in queue["lanes"].values()) for name, queue in queues.items()}


def _unread(latest: Offsets | Shares | None, end: Offsets | Shares | None) -> dict[str, int]:
    """Of a tap: what lies between the end of the batch and the end of the queue."""
    if not isinstance(latest, Offsets):
        return {}
    read = end.places if isinstance(end, Offsets) else {}
    behind = {}
    for name, place in latest.places.items():
        known = read.get(name)
        behind[name] = place.next - (known.next if known is not None and known.queue == place.queue else place.first)
    return behind


def sources(progress: Any) -> Iterator[Any]:
    return iter(progress["sources"] if isinstance(progress, Mapping) else progress.sources)


def offsets_of(source: Any, which: str) -> Offsets | Shares | None:
    """The offsets in one source's progress; None where it is another kind of source."""
    try:
        told = _told(source, which)
        return Shares.of(told) if "reservation" in told else Offsets.of(told)
    except (DovetailError, ValueError, TypeError):
        return None


def _told(source: Any, which: str) -> Any:
    told = source.get(which) if isinstance(source, Mapping) else getattr(source, which)
    return json.loads(told) if isinstance(told, str) else told
