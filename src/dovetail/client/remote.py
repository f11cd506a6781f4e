"""The verbs of a node at the other end of a connection: each is put into frames, checked first as far as it can be checked here, so that
nobody's mistake refuses the frame that others share with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from dovetail.client.checks import check_duration, check_messages, check_places
from dovetail.client.chronicling import RemoteFacts
from dovetail.client.handout import Row, Rows, parts_of, texts_to_parts
from dovetail.client.place import Place
from dovetail.client.redriving import Redriving, rate_of
from dovetail.client.reserving import RemoteReservations
from dovetail.client.session import Session
from dovetail.client.staging import RemoteStages
from dovetail.client.stream import Stream
from dovetail.core import message
from dovetail.core.operation import DEFAULT
from dovetail.core.receipts import Part
from dovetail.doors.native import answers
from dovetail.doors.native.answers import Counted, Done, Opened, Producing, Queues, Settled, Taps
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest, LimitExceeded, NoSuchQueue, NumberRefused, ReceiptInvalid
from dovetail.limits import (
    ATTEMPT_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    DELAY_MS_MAX,
    LEASE_MS_MAX,
    PRODUCER_RESULTS_KEPT,
    WAIT_MS_MAX,
)
from dovetail.service.verbs import Held, Receipts
from dovetail.stores.batches import body_pieces, pieces, whole
from dovetail.stores.store import Counts, Number, Outgoing, Stored, TapFacts, Tapped, Waiting

T = TypeVar("T")

COMPLETE, REQUEUE, EXTEND, RELEASE = int(Kind.COMPLETE), int(Kind.REQUEUE), int(Kind.EXTEND), int(Kind.RELEASE)
_COMPLETE, _RELEASE = (COMPLETE, 0), (RELEASE, 0)
_U64 = 1 << 64
LIST_NAMES = 1_000


class Remote(RemoteStages, RemoteReservations, RemoteFacts):
    def __init__(self, session: Session) -> None:
        self._session = session
        self._ask = session.asks.ask
        self._pushes = session.pushes
        self._settles = session.settles

    @property
    def durability(self) -> str:
        return self._session.durability

    @property
    def namespace(self) -> str:
        return self._session.namespace

    # Queues

    async def find(self, namespace: str, name: str) -> Place:
        return self._session.opened(namespace, name, await self._ask(requests.Open(name, namespace), Opened, again=True))

    async def declare(self, namespace: str, name: str, rules: Mapping[str, Any]) -> Place:
        return self._session.opened(namespace, name, await self._ask(requests.Declare(name, rules, namespace), Opened, again=True))

    async def configure(self, place: Place, rules: Mapping[str, Any]) -> None:
        answer = await self._ask(requests.Configure(place.queue, rules), Opened, again=True)
        self._session.opened(place.namespace, place.name, answer)

    async def drop(self, namespace: str, name: str) -> None:
        place = self._session.places.get((namespace, name))
        if place is not None:
            try:
                await self._drop(place)
                return
            except NoSuchQueue:
                pass  # It was dropped by somebody else; there may be a new one of its name.
        await self._drop(await self.find(namespace, name))

    async def _drop(self, place: Place) -> None:
        await self._ask(requests.About(Kind.DROP, place.queue), Done, again=False)
        if self._session.places.get((place.namespace, place.name)) is place:
            del self._session.places[place.namespace, place.name]

    async def names(self, namespace: str, prefix: str) -> list[str]:
        found: list[str] = []
        more = True
        while more:
            request = requests.List(prefix, found[-1] if found else "", LIST_NAMES, namespace)
            answer = await self._ask(request, Queues, again=True)
            found += [name for name, _ in answer.queues]
            more = answer.more
        return found

    def name_of(self, queue: int) -> str | None:
        return self._session.names.get(queue)

    # In

    def push_body(self, place: Place, body: bytes) -> Awaitable[int]:
        if len(body) > BODY_BYTES_MAX:
            raise LimitExceeded(f"a message of {len(body)} bytes; at most {BODY_BYTES_MAX} are allowed")
        return self._pushes.body(place, body)

    def push_bodies(self, place: Place, bodies: Sequence[bytes]) -> Awaitable[Sequence[int]]:
        cut = body_pieces(bodies)
        if len(cut) == 1:
            return self._pushes.bodies(place, bodies)
        return _joined([self._pushes.bodies(place, piece) for piece in cut])

    async def push(self, place: Place, messages: Sequence[Outgoing]) -> Sequence[Stored]:
        check_messages(messages)
        cut = [piece for part in pieces(messages) for piece in self._keyed_apart(part)]
        sent = [self._pushes.messages(place, piece) for piece in cut]
        if len(sent) == 1:
            return (await sent[0])[0]
        return [one for lanes in await whole(sent) for one in lanes[0]]

    def _keyed_apart(self, messages: Sequence[Outgoing]) -> list[Sequence[Outgoing]]:
        most = PRODUCER_RESULTS_KEPT if self._pushes.cuts(messages) else len(messages)
        return [messages[start : start + most] for start in range(0, len(messages), most)]

    async def push_all(
        self, places: Sequence[Place], messages: Sequence[Outgoing], number: Number | None = None
    ) -> Sequence[Sequence[Stored]]:
        check_places(places)
        check_messages(messages)
        return await self._pushes.alone(places, messages, number)

    async def complete_and_push(
        self, place: Place, receipts: Receipts, targets: Sequence[Place], messages: Sequence[Outgoing]
    ) -> Sequence[Sequence[Stored]]:
        check_places(targets)
        check_messages(messages)
        if not receipts:
            raise ReceiptInvalid("Something is completed, or nothing is sent.")
        return await self._pushes.alone(targets, messages, None, (place, _parts(place, receipts)[0]))

    # Out

    def receive(
        self, place: Place, most: int, lease_ms: int, *, wait_ms: int = 0, delete: bool = False, attempt: bytes = b""
    ) -> Awaitable[Sequence[Held]]:
        if lease_ms != DEFAULT:
            check_duration("lease", lease_ms, LEASE_MS_MAX)
        if type(most) is not int or not 1 <= most <= BATCH_MESSAGES_MAX:
            raise LimitExceeded(f"{most!r} messages asked for; 1 to {BATCH_MESSAGES_MAX} are allowed")
        if not 0 <= wait_ms <= WAIT_MS_MAX:
            raise LimitExceeded(f"a wait of {wait_ms} ms; at most {WAIT_MS_MAX} are allowed")
        if len(attempt) > ATTEMPT_BYTES_MAX:
            raise LimitExceeded(f"an attempt id has at most {ATTEMPT_BYTES_MAX} bytes")
        if delete and wait_ms:
            return self._receive_and_delete(place, most, lease_ms, wait_ms)
        return self._session.pulls.receive(place, most, lease_ms, wait_ms, bool(delete), attempt)

    async def _receive_and_delete(self, place: Place, most: int, lease_ms: int, wait_ms: int) -> Sequence[Held]:
        """Of somebody who waits: leased first and completed when it is here. A receiver that left meanwhile takes nothing with it."""
        until = self._session.loop.time() + wait_ms / 1000
        while True:
            receiving = self._session.pulls.receive(place, most, lease_ms, wait_ms, False, b"")
            try:
                held = await receiving
            except asyncio.CancelledError:
                self._session.pulls.left(place, receiving)
                raise
            if not held:
                return held
            done = await self.complete(place, held)
            kept = [row.deleted() for row, mine in zip(held, done, strict=True) if mine and type(row) is Row]
            wait_ms = round((until - self._session.loop.time()) * 1000)
            if kept or wait_ms <= 0:
                return kept

    def left(self, place: Place, receiving: Awaitable[Sequence[Held]]) -> None:
        if isinstance(receiving, asyncio.Future):
            self._session.pulls.left(place, receiving)

    def consume(self, place: Place, messages: int, size: int, lease_ms: int, *, delete: bool = False) -> Stream:
        if lease_ms != DEFAULT:
            check_duration("lease", lease_ms, LEASE_MS_MAX)
        return Stream(self._session, place, messages, size, lease_ms, delete)

    def complete(self, place: Place, receipts: Receipts) -> Awaitable[Sequence[int]]:
        if len(receipts) == 1:
            # One message: by far the most frequent.
            row = receipts[0]
            if type(row) is Row and row.handout.queue == place.queue and row.run.delivery:
                return self._settles.row(place, _COMPLETE, row)
        return self._settle(place, _COMPLETE, receipts)

    def requeue(self, place: Place, receipts: Receipts, after_ms: int = DEFAULT) -> Awaitable[Sequence[int]]:
        check_duration("delay", after_ms, DELAY_MS_MAX)
        return self._settle(place, (REQUEUE, after_ms), receipts)

    def extend(self, place: Place, receipts: Receipts, lease_ms: int = DEFAULT) -> Awaitable[Sequence[int]]:
        check_duration("lease", lease_ms, LEASE_MS_MAX)
        return self._settle(place, (EXTEND, lease_ms), receipts)

    def release(self, place: Place, receipts: Receipts) -> Awaitable[Sequence[int]]:
        return self._settle(place, _RELEASE, receipts)

    def _settle(self, place: Place, key: tuple[int, int], receipts: Receipts) -> Awaitable[Sequence[int]]:
        if not 1 <= len(receipts) <= BATCH_MESSAGES_MAX:
            raise LimitExceeded(f"{len(receipts)} receipts in one call; 1 to {BATCH_MESSAGES_MAX} are allowed")
        parts, trusted = _parts(place, receipts)
        return self._settles.parts(place, key, parts, len(receipts), trusted=trusted)

    # Without a receipt

    def cancel(self, place: Place, ids: Sequence[bytes | int]) -> Awaitable[Sequence[int]]:
        return self._by_sequence(Kind.CANCEL, place, ids)

    def reschedule(self, place: Place, ids: Sequence[bytes | int], after_ms: int) -> Awaitable[Sequence[int]]:
        check_duration("delay", after_ms, DELAY_MS_MAX)
        return self._by_sequence(Kind.RESCHEDULE, place, ids, max(after_ms, 0))

    def reclaim(self, place: Place, ids: Sequence[bytes | int]) -> Awaitable[Sequence[int]]:
        return self._by_sequence(Kind.RECLAIM, place, ids)

    async def _by_sequence(self, kind: Kind, place: Place, ids: Sequence[bytes | int], parameter: int = 0) -> Sequence[int]:
        sequences = [self._sequence(place, one) for one in ids]
        request = requests.BySequence(kind, place.queue, sequences, parameter)
        return (await self._ask(request, Settled, again=kind is Kind.RESCHEDULE)).done

    def _sequence(self, place: Place, one: bytes | int) -> int:
        queue, sequence = message.of_id(one, self._session.salt) if isinstance(one, bytes) else (place.queue, one)
        if queue != place.queue or not 0 <= sequence < _U64:
            raise BadRequest("This queue did not make the id. A message with an id of its own, or moved here, is named by its sequence.")
        return sequence

    # Looking and ruling

    async def peek(self, place: Place, most: int, after: int) -> list[Waiting]:
        found: list[Waiting] = []
        while len(found) < most:
            request = requests.Peek(place.queue, min(most - len(found), BATCH_MESSAGES_MAX), after)
            answer = await self._ask(request, answers.Messages, again=True)
            found += self._waiting(place, answer)
            after = answer.next - 1
            if not answer.sequences or answer.next >= answer.end:
                break
        return found

    def _waiting(self, place: Place, looked: answers.Messages) -> list[Waiting]:
        receives, states = looked.receives, looked.states
        if receives is None or states is None:
            return []
        return [
            Waiting(one.id, one.sequence, one.body, one.group, one.attributes, received, one.time_ms, answers.STATES[state])
            for one, received, state in zip(self._messages(place, looked), receives, states, strict=True)
        ]

    @staticmethod
    def _messages(place: Place, looked: answers.Messages) -> list[Tapped]:
        count = len(looked.sequences)
        empty = [b""] * count
        ids = looked.ids
        own = [bytes(ids[at : at + 16]) for at in range(0, 16 * count, 16)] if ids is not None else empty
        columns = (looked.bodies, looked.groups or empty, looked.attributes or empty)
        return [
            Tapped(sequence, identity if any(identity) else place.id_of(sequence), body, group, attributes, time)
            for sequence, identity, time, body, group, attributes in zip(looked.sequences, own, looked.times, *columns, strict=True)
        ]

    async def counts(self, place: Place) -> Counts:
        return Counts(*await self._ask(requests.About(Kind.COUNTS, place.queue), Counted, again=True))

    async def purge(self, place: Place) -> int:
        return (await self._ask(requests.About(Kind.PURGE, place.queue), Done, again=False)).value

    async def redrive(self, place: Place, target: Place | None, rate_per_s: float) -> Redriving:
        request = requests.Redrive(place.queue, target.queue if target is not None else 0, rate_of(rate_per_s))
        return Redriving(self._session, place, await self._ask(request, answers.Redriving, again=False))

    # Taps

    async def tap_open(self, place: Place, name: str, start: int, age_ms: int, size: int) -> int:
        return (await self._ask(requests.TapOpen(place.queue, name, start, age_ms, size), Done, again=True)).value

    async def taps(self, place: Place) -> list[TapFacts]:
        return [TapFacts(*tap) for tap in (await self._ask(requests.About(Kind.TAP_LIST, place.queue), Taps, again=True)).taps]

    async def tap_read(self, place: Place, name: str, most: int, from_sequence: int | None) -> tuple[list[Tapped], int]:
        found: list[Tapped] = []
        start = requests.TAP_POSITION if from_sequence is None else from_sequence
        while True:
            answer = await self._ask(requests.TapRead(place.queue, name, start, most - len(found)), answers.Messages, again=True)
            found += self._messages(place, answer)
            start = answer.next
            if len(found) >= most or not answer.sequences or answer.next >= answer.end:
                return found, answer.next

    async def tap_read_arrow(self, place: Place, name: str, most: int, from_sequence: int | None) -> tuple[bytes, int]:
        start = requests.TAP_POSITION if from_sequence is None else from_sequence
        answer = await self._ask(requests.TapRead(place.queue, name, start, most, arrow=True), answers.Arrow, again=True)
        return bytes(answer.stream), answer.next

    async def tap_advance(self, place: Place, name: str, sequence: int) -> int:
        return (await self._ask(requests.TapAdvance(place.queue, name, sequence), Done, again=True)).value

    async def tap_close(self, place: Place, name: str) -> None:
        await self._ask(requests.TapClose(place.queue, name), Done, again=False)

    # Producers

    async def producer_open(self, identity: bytes) -> tuple[bytes, int, int]:
        answer = await self._ask(requests.Producer(identity), Producing, again=True)
        return answer.identity, answer.epoch, answer.last

    async def producer_skip(self, number: Number) -> None:
        try:
            await self._ask(requests.Skip(*number), Done, again=True)
        except NoSuchQueue:
            raise NumberRefused("The producer is not open on this connection: open it again.") from None


def _parts(place: Place, receipts: Receipts) -> tuple[Sequence[Part], bool]:
    """(what a request names, whether it came from a node: a receipt that came as a text may be none)"""
    if type(receipts) is Rows:
        if receipts.handout.queue != place.queue:
            raise ReceiptInvalid("The receipt belongs to another queue.")
        return _alive(receipts.parts), True
    rows = [one for one in receipts if type(one) is Row]
    if len(rows) == len(receipts):
        if any(row.handout.queue != place.queue for row in rows):
            raise ReceiptInvalid("The receipt belongs to another queue.")
        return _alive(parts_of(rows)), True
    return texts_to_parts(place.queue, [one if isinstance(one, str) else one.receipt for one in receipts]), False


def _alive(parts: Sequence[Part]) -> Sequence[Part]:
    if not all(part.delivery for part in parts):
        raise ReceiptInvalid("The message was removed when it was received; there is nothing to settle.")
    return parts


async def _joined(sent: Sequence[asyncio.Future[Sequence[int]]]) -> list[int]:
    return [sequence for sequences in await whole(sent) for sequence in sequences]
