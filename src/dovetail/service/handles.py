"""What people hold in their hands: queues, taps and producers, with one set of names for embedded use and for clients. They check what is
said, put it into the words of the verbs, and know nothing of who answers. (Messages are in received.py, consumers in consumer.py.)
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from dovetail.core import message as identity
from dovetail.core.message import Attribute, decode_attributes
from dovetail.core.operation import DEFAULT, EARLIEST, LATEST, Published
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, Refused
from dovetail.limits import BATCH_MESSAGES_MAX, QUEUE_NAME_BYTES_MAX
from dovetail.service.consumer import CREDIT_BYTES, CREDIT_MESSAGES, HOLD_S, Consumer
from dovetail.service.fact import Happened
from dovetail.service.facts import Chronicled, Facts
from dovetail.service.once import Once, process_once
from dovetail.service.received import Message, Messages
from dovetail.service.reservation import Reservable, Reservation
from dovetail.service.stage import Stage, Staged
from dovetail.service.values import (
    ArrowBatch,
    Batch,
    FactsBatch,
    OpenStage,
    Outgoing,
    Peeked,
    Reserved,
    Sent,
    SentMany,
    Tapped,
    Value,
    ms,
    outgoing,
    queue_rules,
    utf8,
)
from dovetail.service.verbs import Place, Receipts, Redriving, Verbs
from dovetail.stores import store as seam
from dovetail.stores.store import Counts, Number

__all__ = [
    "ArrowBatch", "Attribute", "Batch", "Consumer", "Counts", "Facts", "FactsBatch", "Happened", "Message", "Messages", "Once", "OpenStage",
    "Outgoing", "Peeked", "Producer", "Published", "Queue", "Queues", "Reservation", "Reserved", "Sent", "SentMany", "Stage", "Tap",
    "Tapped", "process_once",
]  # fmt: skip

_DAY_S = 86_400
READ_MESSAGES_MAX = 100_000
"""Of one peek or one read of a tap."""


class Tap:
    """A named, durable reader of everything pushed to a queue, with its own position."""

    __slots__ = ("name", "position", "queue")

    def __init__(self, queue: Queue, name: str, position: int) -> None:
        self.queue = queue
        self.name = name
        self.position = position
        """Where it stood when this handle opened or advanced it."""

    async def read(self, max: int = 1000, from_sequence: int | None = None) -> Batch:
        """Messages from the tap's position (or a later sequence) on. Reading again gives the same; `advance` lets go of them."""
        _check_most(max)
        found, following = await self.queue.verbs.tap_read(self.queue.lane, self.name, max, _sequence(from_sequence))
        messages = [
            Tapped(
                one.sequence, identity.id_text(one.id), one.body, one.group.decode() or None, decode_attributes(one.attributes), one.time_ms
            )
            for one in found
        ]
        return Batch(messages, following)

    async def read_arrow(self, max: int = 1000, from_sequence: int | None = None) -> ArrowBatch:
        """The same as an Arrow IPC stream, without an object for each message. Needs pyarrow where the node runs."""
        _check_most(max)
        return ArrowBatch(*await self.queue.verbs.tap_read_arrow(self.queue.lane, self.name, max, _sequence(from_sequence)))

    async def advance(self, sequence: int) -> int:
        """Everything below `sequence` is no longer needed."""
        if sequence < 0:
            raise BadRequest(f"{sequence} is no sequence")
        self.position = await self.queue.verbs.tap_advance(self.queue.lane, self.name, sequence)
        return self.position

    async def close(self) -> None:
        await self.queue.verbs.tap_close(self.queue.lane, self.name)


class Producer:
    """Numbers its messages, so that one sent twice is stored once, also across restarts of the node and of the producer.

    Over a connection it is open on that connection and no longer: after a reconnect its sends end with NumberRefused until it is opened
    again with `producer(name)`. A client does not do that by itself, because it would end whoever has opened it meanwhile."""

    __slots__ = ("_verbs", "epoch", "identity", "last")

    def __init__(self, verbs: Verbs, producer: bytes, epoch: int, last: int) -> None:
        self._verbs = verbs
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
        before = self.last
        chosen = before + 1 if number is None else _number(number)
        self.last = max(before, chosen)
        numbered = Number(self.identity, self.epoch, chosen)
        try:
            answers = await self._verbs.push_all([queue.lane for queue in queues], [message], numbered)
        except NoSuchQueue:
            raise  # The one refusal that uses the number.
        except Refused:
            # Refused without using the number, and so are those that were sent behind it meanwhile.
            if chosen > before:
                self.last = min(self.last, before)
            raise
        return [queue.sent(answer)[0] for queue, answer in zip(queues, answers, strict=True)]

    async def skip(self, number: int) -> None:
        """Give a number up for good, so that later ones can follow."""
        await self._verbs.producer_skip(Number(self.identity, self.epoch, _number(number)))
        self.last = max(self.last, number)


class Queue(Reservable):
    """A queue. Get one from `node.queue(name)`."""

    __slots__ = ("lane", "ledger", "name", "namespace", "verbs")

    def __init__(self, verbs: Verbs, lane: Place, namespace: str, name: str) -> None:
        self.verbs = verbs
        self.ledger: Queue | None = None
        """Where `process_once` keeps what was finished, once it was asked."""
        self.lane: Any = lane  # what is in it, only the verbs that gave it know
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
            return Sent(self.lane, await self.verbs.push_body(self.lane, body), self.verbs.durability)
        one = outgoing(Outgoing(body, delay_s, group, attributes, deduplication, id))
        return self.sent(await self.verbs.push(self.lane, [one]))[0]

    async def send_many(self, messages: Sequence[bytes | Outgoing]) -> Sequence[Sent]:
        """Store many in one step, in their order; repeats among them are recognised one by one."""
        plain = [one for one in messages if type(one) is bytes]
        if plain and len(plain) == len(messages):
            return SentMany(self.lane, await self.verbs.push_bodies(self.lane, plain), self.verbs.durability)
        return self.sent(await self.verbs.push(self.lane, [outgoing(one) for one in messages]))

    def sent(self, stored: Sequence[seam.Stored]) -> list[Sent]:
        durability = self.verbs.durability
        return [Sent(self.lane, one.sequence, durability, one.repeat, one.id) for one in stored]

    # Receiving

    async def receive(
        self, max: int = 1, *, wait_s: float = 0, lease_s: float | None = None, delete: bool = False, attempt: str = ""
    ) -> Messages:
        """Up to `max` messages, waiting up to `wait_s` for the first. `delete` removes them at once: at most once, no receipts."""
        given = utf8(attempt) if attempt else b""
        lease_ms, wait_ms = DEFAULT if lease_s is None else ms(lease_s), ms(wait_s) if wait_s else 0
        receiving = self.verbs.receive(self.lane, max, lease_ms, wait_ms=wait_ms, delete=delete, attempt=given)
        try:
            return Messages(self, await receiving)
        except CancelledError:
            self.verbs.left(self.lane, receiving)
            raise

    def consume(
        self,
        *,
        credit: int = CREDIT_MESSAGES,
        credit_bytes: int = CREDIT_BYTES,
        lease_s: float | None = None,
        delete: bool = False,
        hold_s: float = HOLD_S,
    ) -> Consumer:
        """Messages as they come, for `async for`: at most `credit` of them, and about `credit_bytes`, are here and not settled. Leases are
        prolonged until a message is settled, for at most `hold_s`."""
        if type(credit) is not int or not 1 <= credit <= BATCH_MESSAGES_MAX or type(credit_bytes) is not int or credit_bytes < 1:
            raise LimitExceeded(f"a credit of {credit!r} messages and {credit_bytes!r} bytes; 1 to {BATCH_MESSAGES_MAX} and 1 or more")
        return Consumer(self, credit, credit_bytes, ms(lease_s), delete, hold_s)

    # Settling many at once: by what was received, or by receipts

    async def complete(self, receipts: Sequence[str | Message]) -> list[bool]:
        done = await self.verbs.complete(self.lane, _held(receipts))
        return _told(receipts, done)

    async def requeue(self, receipts: Sequence[str | Message], delay_s: float | None = None) -> list[bool]:
        done = await self.verbs.requeue(self.lane, _held(receipts), ms(delay_s))
        return _told(receipts, done)

    async def extend(self, receipts: Sequence[str | Message], lease_s: float | None = None) -> list[bool]:
        return [*map(bool, await self.verbs.extend(self.lane, _held(receipts), ms(lease_s)))]

    async def release(self, receipts: Sequence[str | Message]) -> list[bool]:
        done = await self.verbs.release(self.lane, _held(receipts))
        return _told(receipts, done)

    # Without a receipt: by the id that this queue made, or by sequence

    async def cancel(self, id: str | int) -> bool:
        """Remove a message that nobody has in hand: delayed, waiting, or given back."""
        return bool((await self.verbs.cancel(self.lane, [_named(id)]))[0])

    async def reschedule(self, id: str | int, delay_s: float) -> bool:
        """Make a message that nobody has in hand visible `delay_s` from now."""
        return bool((await self.verbs.reschedule(self.lane, [_named(id)], ms(delay_s)))[0])

    async def reclaim(self, id: str | int) -> bool:
        """Take a leased message back from whoever has it."""
        return bool((await self.verbs.reclaim(self.lane, [_named(id)]))[0])

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
            for one in await self.verbs.peek(self.lane, max, after)
        ]

    async def counts(self) -> Counts:
        return await self.verbs.counts(self.lane)

    async def purge(self) -> int:
        """Remove everything, leased messages included; returns how many."""
        return await self.verbs.purge(self.lane)

    async def configure(self, *, dead_letter: Queue | str | None = None, **rules: Any) -> None:
        """Change the rules that are named (as in `node.queue`); the others stay."""
        changes = queue_rules(**rules)
        if dead_letter is not None:
            changes["dead_letter"] = await _queue_of(self.verbs, self.namespace, dead_letter)
        await self.verbs.configure(self.lane, changes)

    async def redrive(self, to: Queue | None = None, *, rate_per_s: float = 500) -> Redriving:
        """Move dead letters back to where they came from, or to a queue that is named."""
        return await self.verbs.redrive(self.lane, to.lane if to is not None else None, rate_per_s)

    async def tap(self, name: str, *, start: str | int = "earliest", age_s: float = 7 * _DAY_S, bytes_max: int = 64 << 30) -> Tap:
        """Open a tap, or the one that has that name. `start` is earliest, latest or a sequence; past `age_s` or `bytes_max` it is cut."""
        utf8(name)
        if type(start) is not int and start not in ("earliest", "latest"):
            raise BadRequest(f"a tap starts at earliest, latest or a sequence, not {start!r}")
        begin = start if isinstance(start, int) else EARLIEST if start == "earliest" else LATEST
        if begin < 0 or bytes_max < 0:
            raise BadRequest("a tap's start and its bound in bytes are not negative")
        return Tap(self, name, await self.verbs.tap_open(self.lane, name, begin, ms(age_s), bytes_max))

    async def taps(self) -> list[seam.TapFacts]:
        return await self.verbs.taps(self.lane)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"


class Queues(Staged, Chronicled):
    """What a node in this process and a connection to one have in common: its queues and its producers."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs

    @property
    def durability(self) -> str:
        """What a send has reached when it is answered: memory, disk, memory×3 or disk×3."""
        return self.verbs.durability

    async def queue(
        self,
        name: str,
        *,
        namespace: str | None = None,
        lease_s: float | None = None,
        delay_s: float | None = None,
        retention_s: float | None = None,
        max_receives: int | None = None,
        dead_letter: Queue | str | None = None,
        deduplication_s: float | None = None,
        groups: bool | None = None,
        in_flight_max: int | None = None,
        backoff_s: float | None = None,
        backoff_max_s: float | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Queue:
        """The queue of that name, made if it is missing. A rule that is named must be the one it has, else QueueExists is raised."""
        changes = queue_rules(
            lease_s=lease_s,
            delay_s=delay_s,
            retention_s=retention_s,
            max_receives=max_receives,
            deduplication_s=deduplication_s,
            groups=groups,
            in_flight_max=in_flight_max,
            backoff_s=backoff_s,
            backoff_max_s=backoff_max_s,
            extra=extra,
        )
        if len(utf8(name)) > QUEUE_NAME_BYTES_MAX:
            raise LimitExceeded(f"a queue's name has at most {QUEUE_NAME_BYTES_MAX} bytes")
        space = self.verbs.namespace if namespace is None else namespace
        if dead_letter is not None:
            changes["dead_letter"] = await _queue_of(self.verbs, space, dead_letter)
        return Queue(self.verbs, await self.verbs.declare(space, name, changes), space, name)

    async def queues(self, prefix: str = "", *, namespace: str | None = None) -> list[str]:
        return sorted(await self.verbs.names(self.verbs.namespace if namespace is None else namespace, prefix))

    async def drop(self, name: str, *, namespace: str | None = None) -> None:
        """Remove the queue with everything in it."""
        await self.verbs.drop(self.verbs.namespace if namespace is None else namespace, name)

    async def send_to(self, names: Sequence[str | Queue], body: bytes | Outgoing, *, namespace: str | None = None) -> list[Sent]:
        """One message to several queues: stored once, and in all of them or in none."""
        space = self.verbs.namespace if namespace is None else namespace
        places = [await self.verbs.find(space, name) if isinstance(name, str) else name.lane for name in names]
        answers = await self.verbs.push_all(places, [outgoing(body)])
        return [Queue(self.verbs, place, space, "").sent(stored)[0] for place, stored in zip(places, answers, strict=True)]

    async def producer(self, name: str) -> Producer:
        """Open a numbered producer. Whoever opened it before under this name can no longer use it."""
        return Producer(self.verbs, *await self.verbs.producer_open(Producer.identity_of(name)))


async def _queue_of(verbs: Verbs, namespace: str, queue: Queue | str) -> int:
    place: Place = await verbs.find(namespace, queue) if isinstance(queue, str) else queue.lane
    return place.queue


def _held(receipts: Sequence[str | Message]) -> Receipts:
    if isinstance(receipts, Messages):
        return receipts.held
    if isinstance(receipts, str | bytes) or not isinstance(receipts, Sequence):
        raise BadRequest(f"receipts come as a list of texts or of messages, not as {type(receipts).__name__}")
    for one in receipts:
        if not isinstance(one, Message | str):
            raise BadRequest(f"a receipt is a text or the message itself, not {type(one).__name__}")
    return [one.held if isinstance(one, Message) else one for one in receipts]


def _told(receipts: Sequence[str | Message], done: Sequence[int]) -> list[bool]:
    """Whoever keeps these messages is told that they are settled."""
    if isinstance(receipts, Messages):
        receipts.over()
    else:
        for one in receipts:
            if isinstance(one, Message):
                one.over()
    return done if type(done) is list else [*map(bool, done)]


def _check_most(most: int) -> None:
    if type(most) is not int or not 1 <= most <= READ_MESSAGES_MAX:
        raise LimitExceeded(f"{most!r} messages asked for; 1 to {READ_MESSAGES_MAX} are allowed")


def _sequence(sequence: int | None) -> int | None:
    if sequence is not None and (type(sequence) is not int or sequence < 0):
        raise BadRequest(f"{sequence!r} is no sequence")
    return sequence


def _number(number: int) -> int:
    if type(number) is not int or not 1 <= number < 1 << 63:
        raise BadRequest(f"{number!r} is no number of a message: they are whole, from 1 on")
    return number


def _named(id: str | int) -> bytes | int:
    if type(id) is not int and not isinstance(id, str):
        raise BadRequest(f"a message is named by its id or its sequence, not by {id!r}")
    return identity.id_bytes(id) if isinstance(id, str) else id
