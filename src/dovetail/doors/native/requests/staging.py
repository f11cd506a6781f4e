"""Requests about stages: messages are put by under a name, and one publish makes them visible."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from dovetail.doors.native import fields
from dovetail.doors.native.fields import Malformed, Walk
from dovetail.doors.native.frames import Data
from dovetail.limits import STAGES_PER_PUBLISH_MAX

KEPT = 1
"""Flag of UNSTAGE: the names are those that STAGED tells."""
NAME_BYTES = 16

_STAGE = Struct("<16sII")
_PUBLISH = Struct("<16sqII")
_COUNT = Struct("<II")


class Stage(NamedTuple):
    """Put messages by: the same record as in PUSH. `number` says which frame of its stage it is, from 1 on; 0 does not say."""

    stage: bytes
    record: Data
    number: int = 0

    def encode(self) -> bytes:
        return _STAGE.pack(_name(self.stage), self.number, 0) + self.record

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Stage:
        stage, number, zero = walk.fixed(_STAGE)
        fields.reserved(zero)
        return cls(stage, walk.take(len(walk.data) - walk.at), number)


class Publish(NamedTuple):
    """The messages of these stages join their queues, all or none, unless the owner has published this batch, or a later one, before."""

    stages: Sequence[bytes]
    owner: bytes
    batch: int

    def encode(self) -> bytes:
        return _PUBLISH.pack(_name(self.owner), self.batch, len(self.stages), 0) + b"".join(map(_name, self.stages))

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Publish:
        owner, batch, count, zero = walk.fixed(_PUBLISH)
        fields.reserved(zero)
        return cls(_names(walk, count), owner, batch)


class Unstage(NamedTuple):
    """Give stages up. `kept`: by the names that STAGED tells, which only the owner of all their queues may."""

    stages: Sequence[bytes]
    kept: bool = False

    def encode(self) -> bytes:
        return _COUNT.pack(len(self.stages), 0) + b"".join(map(_name, self.stages))

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Unstage:
        count, zero = walk.fixed(_COUNT)
        fields.reserved(zero)
        return cls(_names(walk, count), bool(flags & KEPT))


class Stages(NamedTuple):
    """Those that are open, in the order of their names, behind `after`."""

    after: bytes = bytes(NAME_BYTES)
    most: int = 1000

    def encode(self) -> bytes:
        return _STAGE.pack(_name(self.after), self.most, 0)

    @classmethod
    def decode(cls, walk: Walk, flags: int) -> Stages:
        after, most, zero = walk.fixed(_STAGE)
        fields.reserved(zero)
        return cls(after, most)


def _name(name: bytes) -> bytes:
    """struct would fill up a short name and cut a long one."""
    if len(name) != NAME_BYTES:
        raise ValueError(f"a name of {len(name)} bytes; stages and owners have {NAME_BYTES}")
    return name


def _names(walk: Walk, count: int) -> list[bytes]:
    if count > STAGES_PER_PUBLISH_MAX:
        raise Malformed(f"{count} stages in one frame; at most {STAGES_PER_PUBLISH_MAX} are allowed")
    names = bytes(walk.take(NAME_BYTES * count))
    return [names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES)]
