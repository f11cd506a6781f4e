"""A consumer: messages as they come, as many as it has credit for, with leases that are prolonged until somebody is done with them.

    async for message in queue.consume(credit=100):
        async with message:
            handle(message.body)

What came in one frame is a hand: it is counted as one, prolonged as one, and its credit goes back as its messages are settled. The consumer
asks a Stream for messages and knows nothing of where they come from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

from dovetail.errors import BadRequest, DovetailError
from dovetail.service.received import Kept, Messages
from dovetail.service.verbs import Columns, Held

if TYPE_CHECKING:
    from dovetail.service.handles import Queue

CREDIT_MESSAGES = 100
CREDIT_BYTES = 8 * 1024 * 1024
HOLD_S = 3_600.0
BEAT_S_MIN = 0.05


class Hand:
    """What came together. `over` may be said of a message twice, and of all of them at any time."""

    __slots__ = ("_consumer", "_done", "came", "held", "left", "looked", "prolonged", "size")

    def __init__(self, consumer: Consumer, held: Sequence[Held], now: float) -> None:
        self._consumer = consumer
        self._done = bytearray(len(held))
        self.held = held
        self.left = len(held)
        self.looked = 0
        """So many of them, from the first on, were given to the program."""
        self.came = self.prolonged = now
        self.size = held.size if isinstance(held, Columns) else sum([len(one.body) + len(one.group) + len(one.attributes) for one in held])

    def over(self, index: int) -> None:
        if not self._done[index]:
            self._done[index] = 1
            self._gone(1)

    def all_over(self) -> None:
        if self.left:
            self._done = bytearray(b"\1" * len(self.held))
            self._gone(self.left)

    def _gone(self, messages: int) -> None:
        # Bytes go back in proportion: to ask each message for its own would cost more than it is worth, and the sum is exact at the end.
        before = self.size * self.left // len(self.held)
        self.left -= messages
        self._consumer.returned(self, messages, before - self.size * self.left // len(self.held))

    def forgotten(self, index: int) -> None:
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            if self._consumer.thread == get_ident():
                self.over(index)
            else:
                # The blocking face hands messages to other threads, and the last to look decides where they end.
                self._consumer.loop.call_soon_threadsafe(self.over, index)

    def unsettled(self) -> list[Held]:
        return [self.held[index] for index, done in enumerate(self._done) if not done]


class Consumer:
    """Made by `queue.consume`. Leaving the loop, or the `async with` block, gives back what was not looked at; what was looked at and is
    not settled stays the program's. A message that the program forgets is left to its lease, and its credit comes back."""

    def __init__(self, queue: Queue, messages: int, size: int, lease_ms: int, delete: bool, hold_s: float) -> None:
        if not hold_s >= 0:
            raise BadRequest(f"{hold_s} is no duration in seconds")
        self.queue = queue
        self._credit, self._credit_bytes = messages, size
        self._owed = self._owed_bytes = 0
        self._lease_ms = lease_ms
        self._delete = delete
        self._hold_s = hold_s
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self._stream = queue.verbs.consume(queue.lane, messages, size, lease_ms, delete=delete)
        self._hands: dict[Hand, None] = {}
        self._beat: asyncio.TimerHandle | None = None
        self._prolonging: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._open = True
        self._wait_for_beat()

    @property
    def unsettled(self) -> int:
        """Messages that are here: given to the program or about to be."""
        return sum(hand.left for hand in self._hands)

    def __aiter__(self) -> AsyncIterator[Kept]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Kept]:
        queue, delete = self.queue, self._delete
        try:
            while hand := await self._next():
                for index, one in enumerate(hand.held):
                    hand.looked = index + 1
                    if delete:
                        hand.over(index)
                    # It has no name here: what the program forgets is forgotten.
                    yield Kept(queue, one, hand, index, settled=delete)
        finally:
            await self.close()

    async def batches(self) -> AsyncIterator[Messages]:
        """The same in the batches in which they came: `await batch.complete()` settles all of one at once."""
        try:
            while hand := await self._next():
                hand.looked = len(hand.held)
                if self._delete:
                    hand.all_over()
                yield Messages(self.queue, hand.held, hand)
        finally:
            await self.close()

    async def _next(self) -> Hand | None:
        held = await self._stream.next() if self._open else ()
        if not self._open:
            # Perhaps somebody else closed the consumer while this came.
            await self._given_back(held)
            return None
        if not held:
            return None
        hand = Hand(self, held, self.loop.time())
        self._hands[hand] = None
        return hand

    # Credit

    def returned(self, hand: Hand, messages: int, size: int) -> None:
        """Some are settled: their credit goes back, in quarters, or when nothing else is here."""
        self._owed += messages
        self._owed_bytes += size
        if not hand.left:
            self._hands.pop(hand, None)
        if self._open and (not self._hands or 4 * self._owed >= self._credit or 4 * self._owed_bytes >= self._credit_bytes):
            self._stream.give(self._owed, self._owed_bytes)
            self._owed = self._owed_bytes = 0

    # Leases

    @property
    def _lease_s(self) -> float:
        lease_ms = self._lease_ms if self._lease_ms >= 0 else self.queue.lane.attributes.lease_ms
        return float(lease_ms / 1000)

    def _wait_for_beat(self) -> None:
        """A third of a lease: whoever came since the last beat is prolonged at the latest when two thirds are over."""
        if self._lease_s > 0 and not self._delete:
            self._beat = self.loop.call_later(max(BEAT_S_MIN, self._lease_s / 3), self._prolong)

    def _prolong(self) -> None:
        self._beat = None
        if not self._open and not self._hands:
            return
        now = self.loop.time()
        due = [hand for hand in self._hands if now - hand.prolonged >= 0.9 * self._lease_s / 3 and now - hand.came < self._hold_s]
        held = [one for hand in due for one in hand.unsettled()] + [one for come in self._stream.came for one in come]
        if held and (self._prolonging is None or self._prolonging.done()):
            for hand in due:
                hand.prolonged = now
            self._prolonging = self.loop.create_task(self._extended(held))
        self._wait_for_beat()

    async def _extended(self, held: list[Held]) -> None:
        # What cannot be prolonged lapses and comes again; who has it in hand is told when it is completed.
        with contextlib.suppress(DovetailError):
            await self.queue.verbs.extend(self.queue.lane, held, self._lease_ms)

    # The end

    async def close(self) -> None:
        """Ask for no more, and give back what was not looked at. What handlers still have is prolonged until they are done with it."""
        if not self._open:
            return
        self._open = False
        # To its end, also where whoever closes is cancelled on the way: else what nobody has looked at would be prolonged for an hour.
        self._closing = self.loop.create_task(self._closed())
        await asyncio.shield(self._closing)

    async def _closed(self) -> None:
        left = list(await self._stream.stop())
        for hand in list(self._hands):
            left += hand.held[hand.looked :]
            for index in range(hand.looked, len(hand.held)):
                hand.over(index)
        await self._given_back(left)

    async def _given_back(self, held: Sequence[Held]) -> None:
        if held and not self._delete:
            with contextlib.suppress(DovetailError):  # Their leases end by themselves.
                await self.queue.verbs.release(self.queue.lane, held)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
