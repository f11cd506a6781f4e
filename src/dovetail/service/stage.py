"""A stage in somebody's hands: what a task writes before its driver publishes it.

    stage = node.stage()                                    one for each attempt of each task
    await stage.send_many(orders, rows)                     durable, and seen by nobody
    await node.publish([stage, other], "my query", 7)       everything at once, and once for each batch of "my query"

Of two attempts at the same work only the one whose stage is published counts; the other is given up, or forgotten, and goes after a day.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from dovetail.core.operation import Published
from dovetail.errors import BadRequest
from dovetail.service.values import OpenStage, Outgoing, outgoing, utf8
from dovetail.service.verbs import Verbs

if TYPE_CHECKING:
    from dovetail.service.handles import Queue

NAME_BYTES = 16


class Stage:
    """Messages that are put by. Whoever sends to one waits until what was sent is durable: a task is never further than the node.

    Over a connection what was cut off is sent again and there once. If the node refuses something, or it stays unknown what became of it,
    the stage is broken: it takes nothing more, since what it holds is not what was meant. Begin another one."""

    __slots__ = ("_staging", "_verbs", "messages", "name")

    def __init__(self, verbs: Verbs, name: bytes) -> None:
        self._verbs = verbs
        self._staging = verbs.stage(name)
        self.name = name
        """16 bytes; who publishes it elsewhere needs them."""
        self.messages = 0
        """So many are in it, as far as they were put by from here."""

    async def send(self, queue: Queue, body: bytes | Outgoing) -> int:
        return await self.send_to([queue], [body])

    async def send_many(self, queue: Queue, messages: Sequence[bytes | Outgoing]) -> int:
        """Many in one step; how many."""
        return await self.send_to([queue], messages)

    async def send_to(self, queues: Sequence[Queue], messages: Sequence[bytes | Outgoing]) -> int:
        """Each of them to each of these queues, stored once."""
        count = await self._staging.put([queue.lane for queue in queues], [outgoing(one) for one in messages])
        self.messages += count
        return count

    async def discard(self) -> None:
        """Give it up, with everything in it."""
        await self._verbs.unstage([self.name])

    def __repr__(self) -> str:
        return f"Stage({self.name.hex()})"


class Staged:
    """For the node, which is one of these."""

    if TYPE_CHECKING:
        verbs: Verbs

    def stage(self, name: bytes | str | None = None) -> Stage:
        """A new stage; or one that is named, by 16 bytes or by text, for one writer. It is there once something is sent to it."""
        return Stage(self.verbs, os.urandom(NAME_BYTES) if name is None else _name_of(name))

    async def publish(self, stages: Sequence[Stage | bytes | str], owner: bytes | str, batch: int) -> Published:
        """Everything that was sent to these stages joins its queues, all or nothing, and once: if the owner has published this batch, or a
        later one, before, nothing joins and `before` says so. (After a lost connection it may say so of this very call.)"""
        if type(batch) is not int:
            raise BadRequest(f"{batch!r} is no batch: they are numbered from 0")
        return await self.verbs.publish(_names_of(stages), _name_of(owner), batch)

    async def unstage(self, stages: Sequence[Stage | bytes | str | OpenStage]) -> int:
        """Give stages up, or some that `stages` told of; how many of them there were."""
        found = [one.name for one in stages if isinstance(one, OpenStage)]
        given = _names_of([one for one in stages if not isinstance(one, OpenStage)])
        done = [await self.verbs.unstage(names, kept=kept) for names, kept in ((given, False), (found, True)) if names]
        return sum(done)

    async def stages(self) -> list[OpenStage]:
        """Those that hold messages for one's own queues and were not published yet."""
        return [OpenStage(*one[:4]) for one in await self.verbs.stages()]


def _name_of(one: Stage | bytes | str) -> bytes:
    """The name of a stage or an owner: 16 bytes as they are, or any text."""
    if isinstance(one, Stage):
        return one.name
    if isinstance(one, str):
        return blake2b(utf8(one), digest_size=NAME_BYTES).digest()
    if type(one) is not bytes or len(one) != NAME_BYTES:
        raise BadRequest(f"a stage or an owner is named by text or by {NAME_BYTES} bytes, not by {one!r}")
    return one


def _names_of(stages: Sequence[Stage | bytes | str]) -> list[bytes]:
    if isinstance(stages, str | bytes):
        raise BadRequest(f"stages come as a list, not as {type(stages).__name__}")
    return [_name_of(one) for one in stages]
