"""Queues by name, within a namespace such as an account and region. Checks names and rules before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dovetail.core.operation import Attributes
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, QueueExists
from dovetail.limits import (
    DELAY_MS_MAX,
    IN_FLIGHT_MAX,
    LEASE_MS_MAX,
    NAMESPACE_BYTES_MAX,
    QUEUE_EXTRA_CHARS_MAX,
    QUEUE_NAME_BYTES_MAX,
    RECEIVES_COUNTED_MAX,
)
from dovetail.stores.store import Lane, Store

_MOST = {
    "lease_ms": LEASE_MS_MAX,
    "delay_ms": DELAY_MS_MAX,
    "retention_ms": DELAY_MS_MAX,
    "receives_max": RECEIVES_COUNTED_MAX,
    "dedup_ms": DELAY_MS_MAX,
    "in_flight_max": IN_FLIGHT_MAX,
    "backoff_ms": DELAY_MS_MAX,
    "backoff_max_ms": DELAY_MS_MAX,
}


class Catalog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._changing = asyncio.Lock()

    def find(self, namespace: str, name: str) -> Lane | None:
        queue = self._store.find(namespace, name)
        return self._store.lane(queue) if queue is not None else None

    def get(self, namespace: str, name: str) -> Lane:
        lane = self.find(namespace, name)
        if lane is None:
            raise NoSuchQueue(f"There is no queue named {name!r}.")
        return lane

    def names(self, namespace: str, prefix: str = "") -> Iterator[str]:
        return (name for name, _ in self._store.queues(namespace) if name.startswith(prefix))

    def name_of(self, queue: int) -> str | None:
        known = self._store.name_of(queue)
        return known[1] if known is not None else None

    async def create(self, namespace: str, name: str, attributes: Attributes) -> Lane:
        """Make the queue; where it exists with the same rules, that one. Other rules are refused."""
        _check_name(namespace, NAMESPACE_BYTES_MAX, least=0)
        _check_name(name, QUEUE_NAME_BYTES_MAX, least=1)
        await self._store.reach(attributes.dead_letter)
        self._check(attributes)
        queue = await self._store.create(namespace, name, attributes)
        lane = self._store.lane(queue)
        if lane is None:
            raise NoSuchQueue(f"The queue {name!r} was dropped while it was made.")
        if lane.attributes != attributes:
            raise QueueExists(f"A queue named {name!r} exists with other attributes.")
        return lane

    async def configure(self, lane: Lane, **changes: Any) -> Attributes:
        return await self.change(lane, lambda attributes: replace(attributes, **changes))

    async def change(self, lane: Lane, make: Callable[[Attributes], Attributes]) -> Attributes:
        """`make` is given the rules as they are and answers with what they shall be. One change at a time: of two that were made from the
        same rules, the second would undo the first."""
        async with self._changing:
            before = lane.attributes
            attributes = make(before)
            await self._store.reach(attributes.dead_letter)
            self._check(attributes, lane.queue, before.dead_letter)
            if attributes != before:
                await self._store.configure(lane.queue, attributes)
            return attributes

    async def drop(self, namespace: str, name: str) -> None:
        await self._store.drop(self.get(namespace, name).queue)

    def _check(self, attributes: Attributes, queue: int = 0, known_dead_letter: int = 0) -> None:
        """A dead-letter queue that the rules had already may be gone by now; that stops no other change."""
        promises = self._store.promises
        if attributes.grouped and not promises.groups:
            raise BadRequest("This store does not keep groups.")
        if attributes.dedup_ms and promises.dedup_scope == "none":
            raise BadRequest("This store does not recognise repeats.")
        for name, most in _MOST.items():
            value = getattr(attributes, name)
            if type(value) is not int or not 0 <= value <= most:
                raise LimitExceeded(f"{name} is {value!r}; a whole number of 0 to {most} is allowed")
        if type(attributes.grouped) is not bool:
            raise BadRequest(f"groups is True or False, not {attributes.grouped!r}")
        if not all(type(part) is str and part.isprintable() for pair in attributes.extra.items() for part in pair):
            raise BadRequest("what is kept with a queue is printable text by printable text")
        extra = sum(len(part) for pair in attributes.extra.items() for part in pair)
        if extra > QUEUE_EXTRA_CHARS_MAX:
            # Said here: a name would be in the catalog already when the log finds that the lane's record is too large for it.
            raise LimitExceeded(f"{extra} characters to be kept with a queue; at most {QUEUE_EXTRA_CHARS_MAX} are allowed")
        if attributes.dead_letter and attributes.dead_letter != known_dead_letter:
            target = self._store.lane(attributes.dead_letter)
            if target is None:
                raise NoSuchQueue("The dead-letter queue does not exist.")
            if target.queue == queue:
                raise BadRequest("A queue cannot be its own dead-letter queue.")
            if target.attributes.grouped != attributes.grouped:
                raise BadRequest("A queue with groups has a dead-letter queue with groups, and one without has one without.")
            if not attributes.receives_max:
                raise BadRequest("A dead-letter queue needs receives_max: after how many receives a message moves.")


def _check_name(name: str, most: int, *, least: int) -> None:
    # What is printable can be encoded: lone surrogates are not.
    if not name.isprintable() or not least <= len(name.encode()) <= most:
        raise LimitExceeded(f"A name has {least} to {most} bytes and only printable characters; {name[:40]!r} does not.")
