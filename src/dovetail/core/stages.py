"""Stages: messages that are durable and belong to no lane yet, and who has published what.

| what happens | a stage | its messages |
| --- | --- | --- |
| Stage | begins, or gets one record more | outside of every lane, seen by no tap |
| Stage with a number that it has | as it was | there once |
| Publish | ends | join their lanes, as a push at that moment would |
| Publish of a batch that was stored before | ends | gone |
| Unstage, StageExpire | ends | gone |

Of a record is kept what joining needs (queues, how many, delays, names, hashes) and where it lies, never a body. An owner's batches only
grow: its last one is remembered for ever, so that a publish which is repeated, however late, stores nothing twice.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from dovetail.core.column import Column
from dovetail.core.operation import Push

NO_BATCH = -1


class Staged(NamedTuple):
    """One record. `push` has of its bodies only how many there are."""

    push: Push
    address: int
    bytes: int
    """Of bodies."""


class Stage:
    __slots__ = ("began", "records")

    def __init__(self, began: int) -> None:
        self.began = began
        self.records: list[Staged] = []


class Stages:
    __slots__ = ("by_id", "bytes", "owners")

    def __init__(self) -> None:
        self.bytes = 0
        """Of bodies, in all that are open."""
        self.by_id: dict[bytes, Stage] = {}
        """In the order in which they began."""
        self.owners: dict[bytes, int] = {}
        """owner → its last batch."""

    def last(self, owner: bytes) -> int:
        return self.owners.get(owner, NO_BATCH)

    def put(self, stage: bytes, began: int, record: Staged) -> None:
        known = self.by_id.get(stage)
        if known is None:
            known = self.by_id[stage] = Stage(began)
        known.records.append(record)
        self.bytes += record.bytes

    def drop(self, stage: bytes) -> bool:
        known = self.by_id.pop(stage, None)
        if known is None:
            return False
        self.bytes -= sum([record.bytes for record in known.records])
        return True

    def oldest(self) -> int | None:
        """When the oldest began."""
        first = next(iter(self.by_id.values()), None)
        return first.began if first is not None else None


def bodies_elsewhere(count: int) -> Column:
    """Stands for `count` bodies that lie in the log and nowhere else."""
    return Column(range(count + 1), b"")


def staged(push: Push, address: int) -> Staged:
    """What is kept of a push that lies at `address`, in memory of its own (the record may be a view into the log's)."""
    groups = push.groups
    bare = Push(
        tuple(push.queues),
        bodies_elsewhere(len(push.bodies)),
        array("q", push.delays) if push.delays is not None else None,
        Column(array("I", groups.offsets), bytes(groups.blob)) if groups is not None else None,
        bytes(push.dedups) if push.dedups is not None else None,
    )
    return Staged(bare, address, len(push.bodies.blob))
