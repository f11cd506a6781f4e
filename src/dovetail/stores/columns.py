"""The verbs of a replayed lane in columns: a push whose record is ready, messages handed out as they lie in the log, deliveries settled by
runs. Nothing here makes an object for each message.

    push     record, as it came ──► the log                         (checked, never put together again)
    pop      Taken ──► Handed: a run, its record, where in it       (whoever answers cuts columns out of the record)
    settle   Part ──► one operation for each run
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from dovetail.core import codec, message, receipts
from dovetail.core import operation as op
from dovetail.core.codec import Item
from dovetail.core.operation import DEFAULT, Kind, Outcome, Popped, Push, Refusal, Settled, Taken
from dovetail.core.receipts import Part
from dovetail.core.taps import Runs
from dovetail.errors import DovetailError
from dovetail.stores.batches import error_of, pushed_to
from dovetail.stores.committer import Committer, Share
from dovetail.stores.records import push_of_record
from dovetail.stores.snapshots import stretch_runs
from dovetail.stores.store import Handed, Landed, Noted, Reply

if TYPE_CHECKING:
    from dovetail.core.lane import Lane
    from dovetail.core.state import State
    from dovetail.logs.log import Log
    from dovetail.stores.handed import HandedOut
    from dovetail.stores.replayed import Replayed

RECORD_SLACK = 8192
"""What an entry needs beside its one record: its head, frames, and the part of a complete-and-push that is not the push."""
NOTES_KEPT = 400_000
"""Runs of taps that were read from beside the log and are kept, 48 bytes each."""
OWN_RUN_MESSAGES = 16
"""A run of so many is an operation of its own: neighbours that were taken together are settled together, whatever else is settled."""
_SETTLES = {Kind.COMPLETE: op.Complete, Kind.REQUEUE: op.Requeue, Kind.EXTEND: op.Extend, Kind.RELEASE: op.Release}


class StoreColumns:
    """For the store, which is one of these."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, int], list[Runs]] = {}

    if TYPE_CHECKING:
        committer: Committer
        state: State
        log: Log

        def pushing(self, queue: int, count: int) -> None: ...

        def _check_queues(self, queues: Sequence[int], *, exist: bool = True) -> None: ...

    @property
    def salt(self) -> bytes:
        return self.state.salt.to_bytes(16, "big")

    @property
    def record_bytes_max(self) -> int:
        return self.log.entry_bytes_max - RECORD_SLACK

    @staticmethod
    def push_of_record(record: bytes) -> Push:
        return push_of_record(record)

    def push_record_for(self, reply: Reply, push: Push, record: bytes) -> None:
        self._check_queues(push.queues, exist=push.numbered is None)
        self.committer.submit_for(reply, push, record)
        for queue in push.queues:
            self.pushing(queue, len(push.bodies))

    def complete_and_push_record_for(self, reply: Reply, queue: int, parts: Sequence[Part], push: Push, record: bytes) -> None:
        self._check_queues(push.queues, exist=push.numbered is None)
        receipts.check_parts(self.state.key, queue, parts)
        complete = op.Complete(queue, *_named(parts))
        head = codec.encode(complete)
        self.committer.submit_for(reply, op.CompletePush(complete, push), bytes((Kind.COMPLETE_PUSH,)) + head[1:] + record)
        for target in push.queues:
            self.pushing(target, len(push.bodies))

    def tap_notes(self, blob: str, queue: int) -> list[Runs]:
        """The runs of one lane that were written beside the log. Those read last are kept: a reader comes back for the next thousands."""
        key = blob, queue
        known = self._notes.pop(key, None)
        if known is None:
            known = list(stretch_runs(self.log, blob, queue))
        self._notes[key] = known
        while len(self._notes) > 1 and sum(len(runs) for kept in self._notes.values() for runs in kept) > NOTES_KEPT:
            del self._notes[next(iter(self._notes))]
        return known

    def landed(self, outcome: Outcome, push: Push) -> list[Landed]:
        """What a push did, lane by lane; its refusal is raised."""
        return [
            Landed(one.queue, one.sequences, one.repeats, one.refused, self._own_ids(one, push) if one.repeats else b"")
            for one in pushed_to(outcome)
        ]

    def _own_ids(self, pushed: op.Pushed, push: Push) -> bytes:
        """The ids of the first ones, where those had an id of their own. A repeat may have another one, which counts for nothing."""
        lane = self.state.lanes.get(pushed.queue)
        ids = bytearray(push.ids if push.ids is not None else bytes(16 * len(pushed.sequences)))
        for index in pushed.repeats:
            found = lane.find(pushed.sequences[index]) if lane is not None else None
            own = b""
            if found is not None:
                address, item = found[0].place(found[1])
                record = self.log.fetch(address)
                own = Item(record, item).id if record is not None else b""
                ids[16 * index : 16 * index + 16] = own or bytes(16)
        return bytes(ids) if any(ids) else b""


class LaneColumns:
    """For the lane, which is one of these."""

    if TYPE_CHECKING:
        _store: Replayed
        _lane: Lane
        _marks: HandedOut

        @property
        def queue(self) -> int: ...

        def _alive(self) -> Lane: ...

        def _record(self, address: int) -> memoryview: ...

        def _tap_start(self, name: str, from_sequence: int | None) -> int: ...

    def take_for(self, reply: Reply, most: int, lease_ms: int = DEFAULT, *, delete: bool = False, attempt: bytes = b"") -> None:
        lane = self._alive()
        committer = self._store.committer
        if attempt:
            committer.submit_for(reply, op.Pop(lane.queue, most, lease_ms, delete, 0, attempt))
            return
        committer.pop(lane.queue, most, lease_ms, delete, reply, alone=self._alone(most))

    def _alone(self, most: int) -> bool:
        """Whether a pop must not join an earlier one: in a queue with groups two receivers must not be taken for one, and a limit of what
        is in flight must see what was completed just before. (It sees nothing that matters while it is far: SQS queues have one of
        120,000, and receivers that share a pop cost a third less.)"""
        lane = self._lane
        limit = lane.attributes.in_flight_max
        return lane.groups is not None or (limit > 0 and lane.leased + self._store.committer.asked + most > limit)

    def handed(self, answer: Popped | Refusal | Share, lease_ms: int = DEFAULT) -> list[Handed]:
        """What a reply was told of a pop, run by run; or its refusal, raised. To be asked in the turn in which the reply is told."""
        if isinstance(answer, Refusal):
            raise error_of(answer)
        taken, start, count = (answer.of.taken, answer.start, answer.count) if isinstance(answer, Share) else (answer.taken, 0, -1)
        if taken:
            self._marks.note(taken[0].delivery, self._store.state.time)
        until = self._store.state.time + self._lane.lease_for(lease_ms)
        return [self._run_of(run, at, length, until) for run, at, length in _cut(taken, start, count)]

    def _run_of(self, run: Taken, at: int, length: int, until: int) -> Handed:
        sequence, _, delivery, address, item, receives, time, first_received, origin = run
        record = self._record(address)
        if origin is None:
            made, source = b"", 0
        else:
            made, source, time = message.id_of(origin.queue, origin.sequence, self._store.state.salt), origin.source, origin.time
        if delivery:
            delivery += at
        return Handed(sequence + at, delivery, length, receives[at], time, first_received, until, source, record, item + at, made)

    def seal_run(self, sequence: int, delivery: int, length: int) -> bytes:
        return receipts.seal_of_run(self._store.state.key, self._lane.queue, sequence, delivery, length)

    def take_back(self, runs: Sequence[tuple[int, int, int]]) -> asyncio.Future[Any] | None:
        """(sequence, delivery, length) of what was handed out and did not reach its receiver: undone, as if it had never been. Done when
        they are back; None where there is nothing to wait for."""
        lane = self._store.state.lanes.get(self._lane.queue)
        done: asyncio.Future[Any] | None = None
        for sequence, delivery, length in runs:
            if delivery and lane is self._lane:
                sequences, deliveries = range(sequence, sequence + length), range(delivery, delivery + length)
                done = self._store.committer.submit(op.Release(self._lane.queue, sequences, deliveries))
                done.add_done_callback(_ignored)
        return done

    def settle_for(self, reply: Reply, kind: Kind, parts: Sequence[Part], parameter: int = 0) -> None:
        """Complete, requeue, extend or release parts of runs; the reply is told what `settled` reads. A seal that does not hold refuses
        all of it."""
        queue = self._alive().queue
        receipts.check_parts(self._store.state.key, queue, parts)
        committer = self._store.committer
        if kind is Kind.COMPLETE:
            if len(parts) == 1:
                run = _ranges(parts[0])
                if len(run[0]) < OWN_RUN_MESSAGES:
                    committer.complete(queue, *run, reply)
                else:
                    committer.submit_for(reply, op.Complete(queue, *run))
                return
            groups = _grouped(parts)
            whole = _Whole(reply, len(groups)) if len(groups) > 1 else reply
            for index, group in enumerate(groups):
                named = _ranges(group[0]) if len(group) == 1 else _named(group)
                committer.submit_for(whole.part(index) if isinstance(whole, _Whole) else whole, op.Complete(queue, *named))
            return
        extra = (parameter,) if kind in (Kind.REQUEUE, Kind.EXTEND) else ()
        committer.submit_for(reply, _SETTLES[kind](queue, *(_ranges(parts[0]) if len(parts) == 1 else _named(parts)), *extra))

    def tap_runs(self, name: str, from_sequence: int | None = None) -> tuple[int, Iterator[Noted]]:
        start = self._tap_start(name, from_sequence)
        taps = self._lane.taps
        sources: list[tuple[int, int, Callable[[], list[Runs]]]] = [
            (one.first, one.end, partial(self._store.tap_notes, one.blob, self.queue)) for one in taps.stretches if one.end > start
        ]
        sources.append((taps.recent.firsts[0] if len(taps.recent) else 1 << 64, 1 << 64, lambda: [taps.recent]))
        sources.sort(key=itemgetter(0))
        if all(before[1] <= after[0] for before, after in pairwise(sources)):
            return start, (noted for _, _, notes in sources for runs in notes() for noted in self._noted(runs, start))
        found = [self._noted(runs, start) for _, _, notes in sources for runs in notes()]
        return start, merge(*found, key=itemgetter(0))

    def _noted(self, runs: Runs, start: int) -> Iterator[Noted]:
        firsts, counts, addresses, items, times, home_queues, home_sequences = runs.columns()
        for index in range(max(bisect_right(firsts, start) - 1, 0), len(firsts)):
            first, length = firsts[index], counts[index]
            skip = start - first if start > first else 0
            if skip >= length:
                continue
            home = home_queues[index]
            made = message.id_of(home, home_sequences[index], self._store.state.salt) if home else b""
            yield Noted(first + skip, length - skip, times[index], self._record(addresses[index]), items[index] + skip, made)

    @staticmethod
    def settled(answer: Settled | Refusal | Sequence[bool]) -> bytes:
        """One byte for each message that was named; or the refusal, raised."""
        if isinstance(answer, Refusal):
            raise error_of(answer)
        return bytes(answer.done if isinstance(answer, Settled) else answer)


class _Whole:
    """The answers to the operations of one request become one answer."""

    def __init__(self, reply: Reply, count: int) -> None:
        self._reply = reply
        self._done: list[bytes] = [b""] * count
        self._left = count

    def part(self, index: int) -> _PartReply:
        return _PartReply(self, index)

    def told(self, index: int, answer: Any) -> None:
        try:
            self._done[index] = LaneColumns.settled(answer)
        except DovetailError as error:
            self.failed(error)
            return
        self._left -= 1
        if not self._left and not self._reply.done():
            self._reply.set_result(b"".join(self._done))

    def failed(self, error: BaseException) -> None:
        # The parts of one request stand side by side in the log: one is refused where all of them are.
        if self._left > 0:
            self._left = -1
            if not self._reply.done():
                self._reply.set_exception(error)


class _PartReply:
    __slots__ = ("_index", "_whole")

    def __init__(self, whole: _Whole, index: int) -> None:
        self._whole = whole
        self._index = index

    def done(self) -> bool:
        return False

    def set_result(self, answer: Any, /) -> None:
        self._whole.told(self._index, answer)

    def set_exception(self, error: BaseException, /) -> None:
        self._whole.failed(error)


def _cut(taken: Sequence[Taken], start: int, count: int) -> Iterator[tuple[Taken, int, int]]:
    """(run, where in it, how many): `count` messages (all: -1) from the `start`-th on."""
    for run in taken:
        if not count:
            return
        if start < run.length:
            length = run.length - start if count < 0 else min(count, run.length - start)
            yield run, start, length
            count -= length if count > 0 else 0
            start = 0
        else:
            start -= run.length


def _grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """Long runs alone, short ones with their neighbours."""
    groups: list[list[Part]] = []
    short = False
    for part in parts:
        if part.end - part.start >= OWN_RUN_MESSAGES:
            groups.append([part])
            short = False
        elif short:
            groups[-1].append(part)
        else:
            groups.append([part])
            short = True
    return groups


def _ranges(part: Part) -> tuple[range, range]:
    sequence, delivery, _, start, end, _ = part
    return range(sequence + start, sequence + end), range(delivery + start, delivery + end)


def _named(parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    sequences: list[int] = []
    deliveries: list[int] = []
    for part in parts:
        named = _ranges(part)
        sequences += named[0]
        deliveries += named[1]
    return sequences, deliveries


def _ignored(done: Any) -> None:
    """The lease ends by itself then."""
    if not done.cancelled():
        done.exception()
