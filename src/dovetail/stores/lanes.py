"""A lane of a replayed store: turns what callers say into operations, and outcomes into what callers get. It holds no state of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.core import message, receipts
from dovetail.core import operation as op
from dovetail.core.chunk import LATER, LEASED, RESERVED
from dovetail.core.codec import Item, bodies_in
from dovetail.core.column import Column
from dovetail.core.lane import Lane
from dovetail.core.operation import DEFAULT, Attributes, Done, Outcome, Popped, Push, Refusal, Settled, Taken
from dovetail.errors import BadRequest, Damaged, LimitExceeded, NoSuchQueue, NoSuchTap, TapCut
from dovetail.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, TAP_NAME_BYTES_MAX
from dovetail.stores.batches import body_pieces, check_batch, error_of, pieces, push_of, pushed_to, stored, whole
from dovetail.stores.columns import LaneColumns
from dovetail.stores.committer import Share, parts
from dovetail.stores.handed import HandedOut
from dovetail.stores.reserving import LaneReservations
from dovetail.stores.singles import LaneSingles
from dovetail.stores.store import Counts, Delivery, Handed, Number, Outgoing, Reply, Standing, Stored, TapFacts, Tapped, Waiting

if TYPE_CHECKING:
    from dovetail.stores.replayed import Replayed


class ReplayedPopping:
    """A pop on its way through the committer."""

    def __init__(self, lane: ReplayedLane, future: asyncio.Future[Any], lease_ms: int) -> None:
        self._lane = lane
        self._future = future
        self._lease_ms = lease_ms

    def __await__(self) -> Generator[Any, None, list[Delivery]]:
        answer = yield from self._future
        return self._lane.taken(answer, self._lease_ms)

    async def runs(self) -> list[Handed]:
        return self._lane.handed(await self._future, self._lease_ms)

    def abandon(self) -> None:
        if not self._future.done():
            self._future.cancel()  # The committer gives the messages to others, or back.
        elif not self._future.cancelled() and self._future.exception() is None:
            self._lane.give_up(self._future.result())


class ReplayedLane(LaneColumns, LaneSingles, LaneReservations):
    def __init__(self, store: Replayed, lane: Lane) -> None:
        self._store = store
        self._lane = lane
        self._submit = store.committer.submit
        self._marks = HandedOut()

    @property
    def queue(self) -> int:
        return self._lane.queue

    @property
    def attributes(self) -> Attributes:
        return self._lane.attributes

    def _alive(self) -> Lane:
        """The core's lane. A queue that was dropped fails loudly, also when there is a new one of its name."""
        if self._store.state.lanes.get(self._lane.queue) is not self._lane:
            raise NoSuchQueue("The queue was dropped.")
        return self._lane

    # Messages

    async def push(self, messages: Sequence[Outgoing], number: Number | None = None) -> list[Stored]:
        if len(messages) == 1 and number is None:
            body, delay_ms, *rest = messages[0]
            if rest == _PLAIN and len(body) <= BODY_BYTES_MAX:
                future: asyncio.Future[Sequence[int]] = self._store.loop.create_future()
                self._store.committer.push(self._lane.queue, (body,), future, delay_ms)
                self._store.pushing(self._lane.queue, 1)
                (sequence,) = await future
                return [Stored(message.id_of(self._lane.queue, sequence, self._store.state.salt), sequence, False)]
        check_batch(messages)
        batches = pieces(messages) if number is None else [messages]
        submitted = [self._submit(push_of((self._lane.queue,), batch, number)) for batch in batches]
        self._store.pushing(self._lane.queue, len(messages))
        answers = await whole(submitted)
        made: list[Stored] = []
        for batch, outcome in zip(batches, answers, strict=True):
            made += stored(pushed_to(outcome)[0], batch, self._store.state.salt)
        return [self._as_first_stored(one) if one.repeat else one for one in made]

    async def push_bodies(self, bodies: Sequence[bytes]) -> Sequence[int]:
        future: asyncio.Future[Sequence[int]] = self._store.loop.create_future()
        self.push_for(future, bodies)
        return await future

    def push_for(self, reply: Reply, bodies: Sequence[bytes]) -> None:
        """No object per message: a column in, a range of sequences out. (Objects for messages and answers took 8 of 10 µs a message.)"""
        queue, committer = self._lane.queue, self._store.committer
        cut = body_pieces(bodies)
        if len(cut) == 1:
            committer.push(queue, bodies, reply)
        else:
            submitted = [committer.submit(Push((queue,), Column.of(piece))) for piece in cut]
            asyncio.ensure_future(_sequences(submitted)).add_done_callback(lambda done: _tell(reply, done))
        self._store.pushing(queue, len(bodies))

    def id_of(self, sequence: int) -> bytes:
        return message.id_of(self._lane.queue, sequence, self._store.state.salt)

    def _as_first_stored(self, repeat: Stored) -> Stored:
        """A repeat answers with the id that the first one got, as long as that can be looked up."""
        place = self._lane.find(repeat.sequence)
        if place is None:
            return repeat
        address, index = place[0].place(place[1])
        return repeat._replace(id=_id(Item(self._record(address), index), self.queue, repeat.sequence, self._store.state.salt))

    def pop(self, most: int, lease_ms: int = DEFAULT, *, delete: bool = False, attempt: bytes = b"") -> ReplayedPopping:
        check_most(most)
        self._alive()
        if attempt:
            return ReplayedPopping(self, self._submit(op.Pop(self._lane.queue, most, lease_ms, delete, 0, attempt)), lease_ms)
        future: asyncio.Future[Any] = self._store.loop.create_future()
        self._store.committer.pop(self._lane.queue, most, lease_ms, delete, future, alone=self._alone(most))
        return ReplayedPopping(self, future, lease_ms)

    def stand(self, most: int, lease_ms: int, wait_ms: int) -> Standing | None:
        return None

    def pop_for(self, reply: Reply, most: int, lease_ms: int = DEFAULT) -> None:
        self._alive()
        self._store.committer.pop(self._lane.queue, most, lease_ms, False, reply, alone=self._alone(most))

    def taken(self, answer: Popped | Refusal | Share, lease_ms: int = DEFAULT) -> list[Delivery]:
        if isinstance(answer, Share):
            shared = answer.of
            if shared.made is None:
                # Receivers that share a pop share its record too: looking it up for each of them took longer than all the rest.
                shared.made = self._deliveries(shared.taken, self._until(lease_ms))
            return shared.made[answer.start : answer.start + answer.count]
        if isinstance(answer, Refusal):
            raise error_of(answer)
        return self._deliveries(answer.taken, self._until(lease_ms))

    def _until(self, lease_ms: int) -> int:
        return self._store.state.time + self._lane.lease_for(lease_ms)

    def give_up(self, answer: Popped | Refusal | Share) -> None:
        """The receiver left after its messages were handed out: undo that."""
        if isinstance(answer, Share):
            runs = parts(answer.of.taken, answer.start, answer.count)
        else:
            runs = parts(() if isinstance(answer, Refusal) else answer.taken, 0, BATCH_MESSAGES_MAX)
        for sequences, deliveries in runs:
            self._submit(op.Release(self.queue, sequences, deliveries))

    def _deliveries(self, taken: Sequence[Taken], until: int) -> list[Delivery]:
        made, key, queue = [], self._store.state.key, self._lane.queue
        if taken:
            self._marks.note(taken[0].delivery, self._store.state.time)
        for run in taken:
            record = self._record(run.address)
            bodies = bodies_in(record, run.item, run.length) if run.origin is None else None
            if bodies is not None:
                made += self._plain(run, bodies, until)
                continue
            for offset in range(run.length):
                item = Item(record, run.item + offset)
                origin = run.origin
                home = (queue, run.sequence + offset) if origin is None else (origin.queue, origin.sequence)
                made.append(
                    Delivery(
                        receipts.seal(key, queue, run.sequence + offset, run.delivery + offset) if run.delivery else "",
                        _id(item, *home, self._store.state.salt),
                        run.sequence + offset,
                        item.body,
                        item.group,
                        item.attributes,
                        run.receives[offset],
                        run.time if origin is None else origin.time,
                        run.first_received,
                        until,
                        0 if origin is None else origin.source,
                    )
                )
        return made

    def _plain(self, run: Taken, bodies: list[bytes], until: int) -> list[Delivery]:
        """Nothing but bodies, by far the most frequent: what they have in common is looked up once for all of them."""
        state, queue, first = self._store.state, self._lane.queue, run.sequence
        sealed = receipts.seal_run(state.key, queue, first, run.delivery, run.length) if run.delivery else [""] * run.length
        salt, id_of, time, first_received = state.salt, message.id_of, run.time, run.first_received
        return [
            Delivery(receipt, id_of(queue, sequence, salt), sequence, body, b"", b"", receives, time, first_received, until, 0)
            for sequence, receipt, body, receives in zip(range(first, first + run.length), sealed, bodies, run.receives, strict=True)
        ]

    def _record(self, address: int) -> memoryview:
        record = self._store.log.fetch(address)
        if record is None:
            raise Damaged(f"the record at address {address} of queue {self._lane.queue} is not in the log")
        return record

    # Settling

    def _receipts(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        if not 1 <= len(texts) <= BATCH_MESSAGES_MAX:
            raise LimitExceeded(f"{len(texts)} receipts in one call; 1 to {BATCH_MESSAGES_MAX} are allowed")
        return receipts.unseal_all(self._store.state.key, self._alive().queue, texts)

    def complete(self, texts: Sequence[str]) -> Awaitable[list[bool]]:
        future: asyncio.Future[list[bool]] = self._store.loop.create_future()
        self.complete_for(future, texts)
        return future

    def complete_for(self, reply: Reply, texts: Sequence[str]) -> None:
        self._store.committer.complete(self._lane.queue, *self._receipts(texts), reply)

    async def requeue(self, texts: Sequence[str], after_ms: int = DEFAULT) -> list[bool]:
        return await self._settle(op.Requeue(self._lane.queue, *self._receipts(texts), after_ms))

    async def extend(self, texts: Sequence[str], lease_ms: int = DEFAULT) -> list[bool]:
        return await self._settle(op.Extend(self._lane.queue, *self._receipts(texts), lease_ms))

    async def release(self, texts: Sequence[str]) -> list[bool]:
        return await self._settle(op.Release(self._lane.queue, *self._receipts(texts)))

    def exists(self, texts: Sequence[str]) -> list[bool]:
        return [self._lane.find(sequence) is not None for sequence in self._receipts(texts)[0]]

    def held_ms(self, text: str) -> int:
        return self._marks.held_ms(self._receipts((text,))[1][0], self._store.state.time)

    async def reclaim(self, ids: Sequence[bytes | int]) -> list[bool]:
        return await self._settle(op.Reclaim(self._lane.queue, self._sequences(ids)))

    async def cancel(self, ids: Sequence[bytes | int]) -> list[bool]:
        return await self._settle(op.Cancel(self._lane.queue, self._sequences(ids)))

    async def reschedule(self, ids: Sequence[bytes | int], after_ms: int) -> list[bool]:
        return await self._settle(op.Reschedule(self._lane.queue, self._sequences(ids), after_ms))

    def _sequences(self, ids: Sequence[bytes | int]) -> list[int]:
        """Sequences of messages named by an id that this queue made, or by the sequence itself."""
        if not 1 <= len(ids) <= BATCH_MESSAGES_MAX:
            raise LimitExceeded(f"{len(ids)} ids in one call; 1 to {BATCH_MESSAGES_MAX} are allowed")
        found = []
        for one in ids:
            queue, sequence = message.of_id(one, self._store.state.salt) if isinstance(one, bytes) else (self.queue, one)
            if queue != self.queue:
                raise BadRequest(
                    "This queue did not make the id. A message with an id of its own, or moved here, is named by its sequence."
                )
            found.append(sequence)
        return found

    async def _settle(self, operation: op.Operation) -> list[bool]:
        outcome = await self._submit(operation)
        if not isinstance(outcome, Settled):
            raise error_of(_refusal(outcome))
        return list(outcome.done)

    async def purge(self) -> int:
        return await self._counted(op.Purge(self._lane.queue))

    async def move(self, target: int, most: int) -> int:
        return await self._counted(op.Move(self._lane.queue, target, most))

    async def _counted(self, operation: op.Operation) -> int:
        outcome = await self._submit(operation)
        if not isinstance(outcome, Done):
            raise error_of(_refusal(outcome))
        return outcome.value

    # Looking

    def peek(self, most: int, after: int = 0) -> list[Waiting]:
        found: list[Waiting] = []
        now = self._store.now()
        for chunk, at in self._alive().walk(after):
            if len(found) == most:
                break
            state = chunk.states[at]
            until = chunk.visible_at(at, now) if state in (LATER, LEASED) else 0
            address, index = chunk.place(at)
            item = Item(self._record(address), index)
            origin = chunk.origin(at)
            home = (self.queue, chunk.base + at) if origin is None else (origin.queue, origin.sequence)
            word = "visible" if until <= now else "leased" if state == LEASED else "delayed"
            if state == RESERVED:
                word = "reserved"
            sent = chunk.pushed_at(at) if origin is None else origin.time
            found.append(
                Waiting(
                    _id(item, *home, self._store.state.salt),
                    chunk.base + at,
                    item.body,
                    item.group,
                    item.attributes,
                    chunk.received(at),
                    sent,
                    word,
                )
            )
        return found

    def counts(self) -> Counts:
        now, lane = self._store.now(), self._alive()
        oldest = lane.oldest()
        age = max(0, now - oldest[0].pushed_at(oldest[1])) if oldest is not None else 0
        return Counts(*lane.counts(now), age, lane.next - 1, lane.buried, lane.stranded, lane.reserved)

    def has_visible(self) -> bool:
        lane = self._alive()
        return (lane.has_ready() or lane.has_visible(self._store.now())) and not self.is_full()

    def is_full(self) -> bool:
        most = self._lane.attributes.in_flight_max
        return bool(most) and self._lane.leased >= most and self._lane.counts(self._store.now())[2] >= most

    def next_visible_at(self) -> int | None:
        now = self._store.now()
        # With as many in flight as may be, only the end of a lease helps.
        return self._lane.index.next_due(now) if self.is_full() else self._lane.next_visible_at(now)

    def watch(self, changed: Callable[[int], None] | None) -> None:
        if changed is None:
            self._store.watchers.pop(self._lane.queue, None)
        else:
            self._store.watchers[self._lane.queue] = changed

    # Taps

    async def tap_open(self, name: str, start: int, age_ms: int, size: int) -> int:
        if not 1 <= len(name.encode()) <= TAP_NAME_BYTES_MAX:
            raise LimitExceeded(f"a tap's name has 1 to {TAP_NAME_BYTES_MAX} bytes")
        return await self._counted(op.TapOpen(self.queue, name, start, age_ms, size))

    async def tap_advance(self, name: str, sequence: int) -> int:
        return await self._counted(op.TapAdvance(self.queue, name, sequence))

    async def tap_close(self, name: str) -> None:
        await self._counted(op.TapClose(self.queue, name))

    def tap_read(self, name: str, most: int, from_sequence: int | None = None) -> list[Tapped]:
        """Up to `most` messages from the tap's position on, or from a later sequence. Reading changes nothing and may be repeated."""
        start = self._tap_start(name, from_sequence)
        found: list[Tapped] = []
        for run in self._store.tap_runs(self._lane, start):
            record = self._record(run.address)
            for offset in range(max(0, start - run.first), run.length):
                if len(found) == most:
                    return found
                item = Item(record, run.item + offset)
                sequence = run.first + offset
                home = (run.home_queue, run.home_sequence) if run.home_queue else (self.queue, sequence)
                identity = _id(item, *home, self._store.state.salt)
                found.append(Tapped(sequence, identity, item.body, item.group, item.attributes, run.time))
        return found

    def _tap_start(self, name: str, from_sequence: int | None) -> int:
        tap = self._alive().taps.by_name.get(name)
        if tap is None:
            raise NoSuchTap
        start = tap.next if from_sequence is None else from_sequence
        if tap.lost_count and start <= tap.lost_first + tap.lost_count:
            raise TapCut(
                f"The tap {name!r} fell behind its bound: sequences {tap.lost_first} to {tap.lost_first + tap.lost_count - 1} are lost;"
                f" advance to {tap.next} to go on.",
                lost_first=tap.lost_first,
                lost_count=tap.lost_count,
            )
        if start < tap.next:
            raise BadRequest(f"The tap {name!r} has advanced to {tap.next} and no longer keeps {start}.")
        return start

    def taps(self) -> list[TapFacts]:
        taps, end = self._alive().taps.by_name, self._lane.next
        return [TapFacts(name, tap.next, end, tap.lost_first, tap.lost_count) for name, tap in taps.items()]

    def tap_age_ms(self, name: str) -> int:
        tap = self._alive().taps.by_name.get(name)
        if tap is None:
            raise NoSuchTap
        pushed = self._lane.taps.time_of(tap.next)
        return 0 if pushed is None or tap.next >= self._lane.next else max(0, self._store.now() - pushed)


async def _sequences(submitted: Sequence[asyncio.Future[Outcome]]) -> Sequence[int]:
    """Those of a batch of plain messages that was cut."""
    return [sequence for outcome in await whole(submitted) for sequence in pushed_to(outcome)[0].sequences]


def _tell(reply: Reply, done: asyncio.Future[Any]) -> None:
    if reply.done() or done.cancelled():
        return
    error = done.exception()
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(done.result())


def check_most(most: int) -> None:
    if not 1 <= most <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{most} messages asked for; 1 to {BATCH_MESSAGES_MAX} are allowed")


_PLAIN = list(Outgoing(b""))[2:]


def _id(item: Item, queue: int, sequence: int, salt: int) -> bytes:
    return item.id if any(item.id) else message.id_of(queue, sequence, salt)


def _refusal(outcome: Outcome) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome
