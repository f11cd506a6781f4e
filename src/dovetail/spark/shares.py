"""Where a stream of mode=reserve stands, as Spark keeps it in a checkpoint. Pure; knows JSON, and nothing of nodes.

    {"version": 1, "origin": "5f0c…", "reservation": "billing", "queues": {"orders": {"id": 7, "lanes": {"0":
        {"first": 12, "next": 14, "rows": 150000, "given": 11, "epoch": 3}}}}}

The offset at the end of a micro-batch says by itself what is in it: the batches `first` … `next` − 1 of the reservation, which are taken
for up to `rows` messages when Spark has this text in its write-ahead log, and are the same messages whenever they are asked for again. So
a replay needs neither the offset before nor what the queue holds by then.

`given` is the last batch that the reservation had given out when the text was made. A reservation that has given out fewer has forgotten
some; one that has given out more than the checkpoint knows has served another one. `epoch` is the owner's, for whoever settles the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from dovetail.errors import BadRequest
from dovetail.limits import RESERVE_MESSAGES_MAX
from dovetail.spark.offsets import LANE, VERSION, checked_version

NONE = -1
"""As a batch: none was."""


class Facts(Protocol):
    """What a node says of a reservation."""

    @property
    def last(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def batches(self) -> Mapping[int, int]: ...


class Share(NamedTuple):
    """What a micro-batch takes of one queue."""

    queue: int
    first: int
    next: int
    rows: int = 0
    given: int = NONE
    epoch: int = 0

    def wanted(self) -> Iterator[tuple[int, int]]:
        """(batch, how many messages at most). A batch that comes last may be wanted for more of them than are there."""
        for index, batch in enumerate(range(self.first, self.next)):
            yield batch, max(1, min(RESERVE_MESSAGES_MAX, self.rows - index * RESERVE_MESSAGES_MAX))


@dataclass(frozen=True, slots=True)
class Shares:
    origin: str
    reservation: str
    shares: Mapping[str, Share]

    def told(self, waiting: Mapping[str, int] | None = None) -> dict[str, Any]:
        """As values of JSON, in one order; `waiting` is for those who look at a query's progress."""
        queues = {}
        for name, (queue, *numbers) in sorted(self.shares.items()):
            lane = dict(zip(Share._fields[1:], numbers, strict=True))
            if waiting is not None:
                lane["waiting"] = waiting.get(name, 0)
            queues[name] = {"id": queue, "lanes": {LANE: lane}}
        return {"version": VERSION, "origin": self.origin, "reservation": self.reservation, "queues": queues}

    @classmethod
    def of(cls, told: Any) -> Shares:
        checked_version(told)
        if "tap" in told:
            raise BadRequest(f"the checkpoint belongs to the tap {told['tap']!r}: a reservation needs a new one")
        try:
            shares = {
                name: Share(int(of["id"]), *(int(of["lanes"][LANE][field]) for field in Share._fields[1:]))
                for name, of in told["queues"].items()
            }
            return cls(str(told["origin"]), str(told["reservation"]), shares)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"the checkpoint's offsets cannot be read: {error!r}") from None

    def at(self, shares: Mapping[str, Share]) -> Shares:
        return replace(self, shares=shares)


def beginning(queue: int, facts: Facts | None) -> Share:
    """Where a checkpoint that knows nothing begins: with what is set aside, if anything is, which `complaint` then tells of."""
    last = NONE if facts is None else facts.last
    first = min(facts.batches, default=last + 1) if facts is not None else 0
    return Share(queue, first, first, 0, last)


def complaint(share: Share, facts: Facts | None, *, done: bool) -> str | None:
    """Why the reservation and the checkpoint do not belong together; None where they do. `done`: Spark has the micro-batch in its commit
    log; else it is to be run, perhaps again."""
    last, settled = (NONE, NONE) if facts is None else (facts.last, facts.settled)
    batches: Mapping[int, int] = {} if facts is None else facts.batches
    if last < share.given:
        return (
            f"it has given out batches up to {last}, and the checkpoint knows of {share.given}: it was closed and begun anew, or the node's"
            " data is older than the checkpoint. Messages that were read may come again"
        )
    for batch in range(share.first, min(share.next, last + 1)):
        if batch in batches or (done and batch <= settled):
            continue
        if batch <= settled:
            return f"batch {batch} is to be read again and was settled: the checkpoint has lost its last commits, or is an older copy"
        return (
            f"batch {batch} was released before it was settled: its messages are back in the queue and come again, to whoever receives"
            " them, also if the sink has them already"
        )
    if last >= share.next:
        return (
            f"it has given out batches up to {last}, and the checkpoint knows those below {share.next}: the others belong to another"
            f" checkpoint, or this one is an older copy. {sum(batches.values())} messages are set aside"
        )
    return None
