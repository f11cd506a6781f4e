"""Help for consumers that must not do a thing twice: what was finished under a key is remembered, and not begun again.

    async with process_once(message, key=order.number) as once:
        if once.first:
            once.send(bills, bill(order))

The memory is a queue of its own, the ledger, which recognises repeats. What is begun under a key leaves a mark there; what is finished
takes it away, and the repeat of a mark that is gone was finished. docs/client.md says what this promises, and what nobody can.

| the mark of the key in the ledger | what it says |
| --- | --- |
| was never set (or so long ago that the ledger has forgotten it) | not begun: set it, and go |
| is set | begun and not finished: somebody died, or is at it now: go |
| was set and is gone | finished: nothing is to be done |
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from dovetail.errors import BadRequest, DovetailError, QueueExists
from dovetail.service.received import Message
from dovetail.service.values import Outgoing, Sent

if TYPE_CHECKING:
    from dovetail.service.handles import Queue

REMEMBERED_MS = 24 * 3_600_000
"""How long a ledger that nobody made before remembers what was finished."""
LEDGER_SUFFIX = ".once"


class Once:
    """One message under one key. Its block ends in one step: what it sent is stored and the message completed, both or neither. When the
    block raises, the message is requeued and nothing was sent."""

    def __init__(self, message: Message, key: str, ledger: Queue | None) -> None:
        self.message = message
        self.key = key
        self._ledger = ledger
        self._mark = 0
        self._results: list[Outgoing] = []
        self._target: Queue | None = None
        self.first = True
        """False: this was finished before, and nothing is to be done."""
        self.sent: list[Sent] = []
        """What became of the results, once the block has ended."""

    def send(self, queue: Queue, body: bytes | Outgoing) -> None:
        """A result, stored in the step that completes the message. All results of a block go to one queue; where that recognises repeats,
        they are stored once for the key however often the block runs."""
        if self._target is not None and queue is not self._target and queue.lane.queue != self._target.lane.queue:
            raise BadRequest("the results of one block go to one queue: they are stored in one step")
        self._target = queue
        one = Outgoing(body) if isinstance(body, bytes) else body
        self._results.append(one if one.deduplication else replace(one, deduplication=f"{self.key} #{len(self._results)}"))

    async def __aenter__(self) -> Once:
        try:
            await self._begin()
        except BaseException as error:
            await self._given_back(error)
            raise
        return self

    async def _begin(self) -> None:
        if self._ledger is None:
            self._ledger = await ledger_of(self.message.queue)
        mark = await self._ledger.send(b"", deduplication=self.key)
        self._mark = mark.sequence
        # A repeat of a mark that is still there: `reschedule` to now changes nothing but says whether it is.
        self.first = not mark.repeat or await self._ledger.reschedule(mark.sequence, 0)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            await self.message.__aexit__(kind, error, trace)
            return
        try:
            await self._finish()
        except BaseException as fault:
            await self._given_back(fault)
            raise

    async def _given_back(self, error: BaseException) -> None:
        """Cancelled, or cut off, on the way into the block or out of it: nobody else settles the message. Where it was completed all the
        same this is too late and changes nothing."""
        with suppress(DovetailError):  # Its lease ends by itself.
            await self.message.__aexit__(type(error), error, error.__traceback__)

    async def _finish(self) -> None:
        message, ledger = self.message, self._ledger
        assert ledger is not None
        if not self.first:
            await message.complete()
        elif self._target is None:
            # Finished first: whoever gets the message again, because we died before it was completed, has nothing to do.
            await ledger.cancel(self._mark)
            await message.complete()
        else:
            self.sent = await message.complete_and_send(self._target, *self._results)
            await ledger.cancel(self._mark)


def process_once(message: Message, key: str, *, ledger: Queue | None = None) -> Once:
    """For `async with`. The key is what must not be done twice (the number of an order, not the id of a message: whoever sends an order
    twice makes two messages of it). Without a ledger of yours it is a queue named after the message's own, with `.once` behind it."""
    if not key:
        raise BadRequest("a key that is empty names nothing")
    return Once(message, key, ledger)


async def ledger_of(queue: Queue) -> Queue:
    """The ledger of a queue, made when it is first needed."""
    if queue.ledger is None:
        name, rules = queue.name + LEDGER_SUFFIX, {"dedup_ms": REMEMBERED_MS, "retention_ms": REMEMBERED_MS}
        try:
            place = await queue.verbs.declare(queue.namespace, name, rules)
        except QueueExists:
            place = await queue.verbs.find(queue.namespace, name)
        queue.ledger = type(queue)(queue.verbs, place, queue.namespace, name)
    return queue.ledger
