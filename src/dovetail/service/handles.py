"""What people hold in their hands: queues, messages, taps and producers, with one set of names for embedded use and for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from dovetail.core import message as identity
from dovetail.core.message import Attribute, decode_attributes
from dovetail.core.operation import EARLIEST, LATEST
from dovetail.errors import BadRequest, LimitExceeded, NumberRefused, StorageFull
from dovetail.service.broker import Broker
from dovetail.service.redrive import Redrive
from dovetail.service.values import Batch, Outgoing, Peeked, Sent, SentMany, Tapped, Value, ms, outgoing, queue_rules, utf8
from dovetail.stores import store as seam
from dovetail.stores.store import Counts, Delivery, Lane, Number

__all__ = ["Attribute", "Batch", "Counts", "Message", "Outgoing", "Peeked", "Producer", "Queue", "Sent", "SentMany", "Tap", "Tapped"]

_DAY_S = 86_400
READ_MESSAGES_MAX = 100_000
"""Of one peek or one read of a tap."""


class Message:
    """A message that was received. It is yours until its lease ends; complete it, or give it back."""

    __slots__ = ("_delivery", "queue")

    def __init__(self, queue: Queue, delivery: Delivery) -> None:
        self.queue = queue
        self._delivery = delivery

    @property
    def id(self) -> str:
        return identity.id_text(self._delivery.id)

    @property
    def sequence(self) -> int:
        return self._delivery.sequence

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @property
    def attributes(self) -> dict[str, Attribute]:
        return decode_attributes(self._delivery.attributes)

    @property
    def group(self) -> str | None:
        return self._delivery.group.decode() or None

    @property
    def receives(self) -> int:
        """How often it has been handed out, this time included."""
        return self._delivery.receives

    @property
    def receipt(self) -> str:
        """Proof of this delivery; empty after receive-and-delete."""
        return self._delivery.receipt

    @property
    def sent_at_ms(self) -> int:
        return self._delivery.sent_at_ms

    @property
    def first_received_ms(self) -> int:
        return self._delivery.first_received_ms

    @property
    def lease_until_ms(self) -> int:
        return self._delivery.lease_until_ms

    @property
    def source(self) -> str | None:
        """The queue that a dead letter came from."""
        return self.queue.broker.catalog.name_of(self._delivery.source) if self._delivery.source else None

    async def complete(self) -> bool:
        """Done with it. False: too late, the message was handed out again or is gone."""
        return (await self.queue.complete([self.receipt]))[0]

    async def requeue(self, delay_s: float | None = None) -> bool:
        """Give it back, to be delivered again at once, after `delay_s`, or (None) as the queue's back-off says."""
        return (await self.queue.requeue([self.receipt], delay_s))[0]

    async def extend(self, lease_s: float | None = None) -> bool:
        """Keep it longer: the lease ends `lease_s` from now."""
        return (await self.queue.extend([self.receipt], lease_s))[0]

    async def release(self) -> bool:
        """Give it back as if it had not been delivered."""
        return (await self.queue.release([self.receipt]))[0]

    async def complete_and_send(self, queue: Queue, body: bytes | Outgoing, *more: bytes | Outgoing) -> list[Sent]:
        """Complete this one and send others, in one step: both happen or neither. Raises ReceiptInvalid if this delivery is over."""
        messages = [outgoing(one) for one in (body, *more)]
        answers = await self.queue.broker.complete_and_push(self.queue.lane, [self.receipt], [queue.lane], messages)
        return queue.sent(answers[0])

    def __repr__(self) -> str:
        return f"Message({self.id}, queue={self.queue.name!r}, receives={self.receives}, body={self.body[:40]!r})"


class Tap:
    """A named, durable reader of everything pushed to a queue, with its own position."""

    __slots__ = ("name", "queue")

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.name = name

    @property
    def position(self) -> int:
        return next((tap.next for tap in self.queue.lane.taps() if tap.name == self.name), 0)

    async def read(self, max: int = 1000, from_sequence: int | None = None) -> Batch:
        """Messages from the tap's position (or a later sequence) on. Reading again gives the same; `advance` lets go of them."""
        _check_most(max)
        found = self.queue.lane.tap_read(self.name, max, from_sequence)
        start = self.position if from_sequence is None else from_sequence
        messages = [
            Tapped(
                one.sequence, identity.id_text(one.id), one.body, one.group.decode() or None, decode_attributes(one.attributes), one.time_ms
            )
            for one in found
        ]
        return Batch(messages, found[-1].sequence + 1 if found else start)

    async def advance(self, sequence: int) -> int:
        """Everything below `sequence` is no longer needed."""
        if sequence < 0:
            raise BadRequest(f"{sequence} is no sequence")
        return await self.queue.lane.tap_advance(self.name, sequence)

    async def close(self) -> None:
        await self.queue.lane.tap_close(self.name)


class Producer:
    """Numbers its messages, so that one sent twice is stored once, also across restarts of the node and of the producer."""

    __slots__ = ("_broker", "_durability", "epoch", "identity", "last")

    def __init__(self, broker: Broker, producer: bytes, epoch: int, last: int) -> None:
        self._broker = broker
        self._durability = broker.store.promises.durability
        self.identity = producer
        self.epoch = epoch
        self.last = last
        """The last number that has been used."""

    @staticmethod
    def identity_of(name: str) -> bytes:
        return blake2b(utf8(name), digest_size=16).digest()

    async def send(self, queue: Queue, body: bytes | Outgoing, *, number: int | None = None) -> Sent:
        """Send under the next number, or under one that was used before and whose answer was lost."""
        return (await self.send_to([queue], body, number=number))[0]

    async def send_to(self, queues: Sequence[Queue], body: bytes | Outgoing, *, number: int | None = None) -> list[Sent]:
        message = outgoing(body)
        chosen = self.last + 1 if number is None else number
        self.last = max(self.last, chosen)
        numbered = Number(self.identity, self.epoch, chosen)
        try:
            answers = await self._broker.push_all([queue.lane for queue in queues], [message], numbered)
        except (LimitExceeded, StorageFull, NumberRefused):
            # Refused without using the number, and so are those that were sent behind it meanwhile. (A queue that is gone uses it.)
            if number is None:
                self.last = min(self.last, chosen - 1)
            raise
        return [queue.sent(answer)[0] for queue, answer in zip(queues, answers, strict=True)]

    async def skip(self, number: int) -> None:
        """Give a number up for good, so that later ones can follow."""
        await self._broker.store.producer_skip(Number(self.identity, self.epoch, number))
        self.last = max(self.last, number)


def _check_most(most: int) -> None:
    if type(most) is not int or not 1 <= most <= READ_MESSAGES_MAX:
        raise LimitExceeded(f"{most!r} messages asked for; 1 to {READ_MESSAGES_MAX} are allowed")


def _named(id: str | int) -> bytes | int:
    return identity.id_bytes(id) if isinstance(id, str) else id


class Queue:
    """A queue. Get one from `node.queue(name)`."""

    __slots__ = ("broker", "lane", "name", "namespace")

    def __init__(self, broker: Broker, lane: Lane, namespace: str, name: str) -> None:
        self.broker = broker
        self.lane = lane
        self.namespace = namespace
        self.name = name

    # Sending

    async def send(
        self,
        body: bytes,
        *,
        delay_s: float | None = None,
        group: str | None = None,
        attributes: Mapping[str, Value] | None = None,
        deduplication: str | None = None,
        id: str | None = None,
    ) -> Sent:
        """Store one message. It is durable, as `Sent.durability` says, when this returns."""
        if delay_s is None and group is None and not attributes and deduplication is None and id is None and type(body) is bytes:
            return Sent(self.lane, (await self.broker.push_bodies(self.lane, (body,)))[0], self.broker.store.promises.durability)
        one = outgoing(Outgoing(body, delay_s, group, attributes, deduplication, id))
        return self.sent(await self.broker.push(self.lane, [one]))[0]

    async def send_many(self, messages: Sequence[bytes | Outgoing]) -> Sequence[Sent]:
        """Store many in one step, in their order; repeats among them are recognised one by one."""
        plain = [one for one in messages if type(one) is bytes]
        if plain and len(plain) == len(messages):
            return SentMany(self.lane, await self.broker.push_bodies(self.lane, plain), self.broker.store.promises.durability)
        return self.sent(await self.broker.push(self.lane, [outgoing(one) for one in messages]))

    def sent(self, stored: Sequence[seam.Stored]) -> list[Sent]:
        durability = self.broker.store.promises.durability
        return [Sent(self.lane, one.sequence, durability, one.repeat, one.id) for one in stored]

    # Receiving

    async def receive(
        self, max: int = 1, *, wait_s: float = 0, lease_s: float | None = None, delete: bool = False, attempt: str = ""
    ) -> list[Message]:
        """Up to `max` messages, waiting up to `wait_s` for the first. `delete` removes them at once: at most once, no receipts."""
        got = await self.broker.receive(self.lane, max, ms(lease_s), wait_ms=ms(wait_s), delete=delete, attempt=utf8(attempt))
        return [Message(self, delivery) for delivery in got]

    async def complete(self, receipts: Sequence[str]) -> list[bool]:
        return await self.broker.complete(self.lane, receipts)

    async def requeue(self, receipts: Sequence[str], delay_s: float | None = None) -> list[bool]:
        return await self.broker.requeue(self.lane, receipts, ms(delay_s))

    async def extend(self, receipts: Sequence[str], lease_s: float | None = None) -> list[bool]:
        return await self.broker.extend(self.lane, receipts, ms(lease_s))

    async def release(self, receipts: Sequence[str]) -> list[bool]:
        return await self.lane.release(receipts)

    # Without a receipt: by the id that this queue made, or by sequence

    async def cancel(self, id: str | int) -> bool:
        """Remove a message that nobody has in hand: delayed, waiting, or given back."""
        return (await self.lane.cancel([_named(id)]))[0]

    async def reschedule(self, id: str | int, delay_s: float) -> bool:
        """Make a message that nobody has in hand visible `delay_s` from now."""
        return (await self.broker.reschedule(self.lane, [_named(id)], ms(delay_s)))[0]

    async def reclaim(self, id: str | int) -> bool:
        """Take a leased message back from whoever has it."""
        return (await self.lane.reclaim([_named(id)]))[0]

    # Looking and ruling

    async def peek(self, max: int = 10, after: int = 0) -> list[Peeked]:
        """Messages in order, bodies included, without receiving them."""
        _check_most(max)
        return [
            Peeked(
                identity.id_text(one.id),
                one.sequence,
                one.body,
                one.group.decode() or None,
                decode_attributes(one.attributes),
                one.receives,
                one.sent_at_ms,
                one.state,
            )
            for one in self.lane.peek(max, after)
        ]

    async def counts(self) -> Counts:
        return self.lane.counts()

    async def purge(self) -> int:
        """Remove everything, leased messages included; returns how many."""
        return await self.lane.purge()

    async def configure(self, *, dead_letter: Queue | str | None = None, **rules: Any) -> None:
        """Change the rules that are named (as in `node.queue`); the others stay."""
        changes = queue_rules(**rules)
        if dead_letter is not None:
            target = self.broker.catalog.get(self.namespace, dead_letter) if isinstance(dead_letter, str) else dead_letter.lane
            changes["dead_letter"] = target.queue
        await self.broker.catalog.configure(self.lane, **changes)

    async def redrive(self, to: Queue | None = None, *, rate_per_s: float = 500) -> Redrive:
        """Move dead letters back to where they came from, or to a queue that is named."""
        return self.broker.redrive(self.lane, to.lane if to is not None else None, rate_per_s)

    async def tap(self, name: str, *, start: str | int = "earliest", age_s: float = 7 * _DAY_S, bytes_max: int = 64 << 30) -> Tap:
        """Open a tap, or the one that has that name. `start` is earliest, latest or a sequence; past `age_s` or `bytes_max` it is cut."""
        utf8(name)
        if type(start) is not int and start not in ("earliest", "latest"):
            raise BadRequest(f"a tap starts at earliest, latest or a sequence, not {start!r}")
        begin = start if isinstance(start, int) else EARLIEST if start == "earliest" else LATEST
        if begin < 0 or bytes_max < 0:
            raise BadRequest("a tap's start and its bound in bytes are not negative")
        await self.lane.tap_open(name, begin, ms(age_s), bytes_max)
        return Tap(self, name)

    async def taps(self) -> list[seam.TapFacts]:
        return self.lane.taps()

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"
