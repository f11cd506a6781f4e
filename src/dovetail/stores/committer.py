"""Group commit: operations of many callers become entries, and the answers of apply find their way back.

append → durable → apply → reply. Whatever is submitted in one turn of the loop, or while a sync is under way, rides one entry. Strangers
share operations too: plain pushes to one queue become one push in columns, completes of one queue one complete, receives one pop. Items of
a batch are judged one by one, so nobody can tell, and a hundred messages cost one record, one run in the index and one step of apply.

Sharing keeps the order that a caller can see: an operation that is not shared ends all sharing before it, and a pop is never moved before a
push that was submitted before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import error as struct_error
from time import perf_counter
from typing import Any

from dovetail.core import codec
from dovetail.core.column import Column
from dovetail.core.operation import (
    DEFAULT,
    Carry,
    Complete,
    CompletePush,
    Head,
    Operation,
    Outcome,
    Pop,
    Popped,
    Push,
    Pushed,
    Refusal,
    Release,
    Settled,
    Taken,
)
from dovetail.errors import BadRequest, Closed, CodecError, DovetailError, LimitExceeded, StorageError, StorageFull, Unknown
from dovetail.limits import BATCH_MESSAGES_MAX, ENTRY_BYTES_TARGET
from dovetail.logs.log import Entry, Log
from dovetail.stores.batches import error_of
from dovetail.stores.entrytime import EntryTime

Answer = Callable[[Outcome], None]
_RECORD_OVERHEAD = 64
_UNWRITABLE = (struct_error, OverflowError, UnicodeEncodeError, TypeError, ValueError, AttributeError)
ENTRY_OVERHEAD = 4096
"""What the head, the frame and the padding of an entry may take."""


class _Slot:
    """One operation to be: shared by several callers, or one caller's own."""

    __slots__ = ("answers", "bodies", "delays", "deliveries", "key", "kind", "most", "operation", "record", "sequences", "size")

    def __init__(self, kind: str, key: tuple[Any, ...]) -> None:
        self.kind = kind
        self.key = key
        self.answers: list[tuple[asyncio.Future[Any], int]] = []
        self.bodies: list[bytes] = []
        self.delays: list[int] | None = None
        self.sequences: list[int] = []
        self.deliveries: list[int] = []
        self.most = 0
        self.size = _RECORD_OVERHEAD
        self.operation: Operation | None = None
        self.record = b""

    def build(self) -> Operation:
        if self.operation is not None:
            return self.operation
        if self.kind == "push":
            return Push((self.key[0],), Column.of(self.bodies), self.delays)
        if self.kind == "complete":
            return Complete(self.key[0], self.sequences, self.deliveries)
        queue, lease_ms, delete = self.key
        return Pop(queue, self.most, lease_ms, delete)


class Committer:
    """Between callers and one log. `applied(entry, head, operations)` is the store's: it applies and returns the outcomes."""

    def __init__(self, log: Log, time: EntryTime, applied: Callable[[Entry, Head, Sequence[Operation]], Sequence[Outcome]]) -> None:
        self._log = log
        self._time = time
        self._applied = applied
        self._loop = asyncio.get_running_loop()
        self._slots: list[_Slot] = []
        self._shared: dict[tuple[Any, ...], _Slot] = {}
        self._flying: deque[tuple[Head, list[_Slot], list[Operation], float]] = deque()
        self._scheduled = False
        self._error: DovetailError | None = None
        self.entries = 0
        self.refused_full = 0
        self.on_commit: Callable[[float], None] | None = None
        """Told how many seconds each entry took until it was durable."""

    # Submitting

    def push(self, queue: int, body: bytes, delay_ms: int = DEFAULT) -> asyncio.Future[Sequence[int]]:
        """One message, plain or delayed; the future gives its sequence, as a batch of one."""
        slot = self._share("push", ("push", queue), (queue,), len(body) + 12)
        if delay_ms != DEFAULT and slot.delays is None:
            slot.delays = [DEFAULT] * len(slot.bodies)
        if slot.delays is not None:
            slot.delays.append(delay_ms)
        slot.bodies.append(body)
        return self._answer(slot, 1)

    def complete(self, queue: int, sequence: int, delivery: int) -> asyncio.Future[list[bool]]:
        slot = self._share("complete", ("complete", queue), (queue,), 16)
        slot.sequences.append(sequence)
        slot.deliveries.append(delivery)
        return self._answer(slot, 1)

    def pop(self, queue: int, most: int, lease_ms: int, delete: bool, *, alone: bool = False) -> asyncio.Future[list[Taken] | Refusal]:
        """A receive. `alone` does not share: where one receive may take several of a group, two receivers must not be taken for one."""
        name = ("pop", queue, lease_ms, delete)
        known = self._shared.get(name)
        if alone or (known is not None and known.most + most > BATCH_MESSAGES_MAX):
            self._shared.pop(name, None)
        slot = self._share("pop", name, name[1:], 0)
        if alone:
            del self._shared[name]
        slot.most += most
        return self._answer(slot, most)

    def submit(self, operation: Operation) -> asyncio.Future[Outcome]:
        """Any other operation; the future gives its outcome. What cannot be written is refused here, before it can touch its neighbours."""
        slot = _Slot("own", ())
        slot.operation = operation
        try:
            slot.record = codec.encode(operation)
            if not isinstance(operation, Push | CompletePush | Carry):
                # Nothing is written that could not be read: an entry that replay refuses would close the folder for good.
                codec.decode(slot.record)
        except (*_UNWRITABLE, CodecError) as error:
            raise BadRequest(f"{type(operation).__name__} with a value that cannot be kept: {error}") from None
        slot.size += len(slot.record)
        if slot.size > self._log.entry_bytes_max - ENTRY_OVERHEAD:
            raise LimitExceeded(f"{slot.size} bytes in one step; at most {self._log.entry_bytes_max - ENTRY_OVERHEAD} are allowed")
        self._shared.clear()
        self._slots.append(slot)
        return self._answer(slot, 1)

    def _share(self, kind: str, name: tuple[Any, ...], key: tuple[Any, ...], size: int) -> _Slot:
        slot = self._shared.get(name)
        if slot is None or slot.size + size > ENTRY_BYTES_TARGET or len(slot.answers) >= BATCH_MESSAGES_MAX:
            slot = self._shared[name] = _Slot(kind, key)
            self._slots.append(slot)
            if kind == "push":
                # A later pop must come behind this push.
                for other in [other for other in self._shared if other[0] == "pop"]:
                    del self._shared[other]
        slot.size += size
        return slot

    def _answer(self, slot: _Slot, weight: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error)
            return future
        slot.answers.append((future, weight))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)
        return future

    # Committing

    def _flush(self) -> None:
        self._scheduled = False
        if self._error is not None or self._log.busy:
            # After the sync that is under way `deliver` comes here again.
            return
        slots, self._slots = self._slots, []
        self._shared.clear()
        entry: list[_Slot] = []
        size = 0
        for slot in slots:
            if entry and size + slot.size > ENTRY_BYTES_TARGET:
                self._append(entry, more=True)
                entry, size = [], 0
            entry.append(slot)
            size += slot.size
        if entry:
            self._append(entry, more=False)

    def _append(self, slots: list[_Slot], *, more: bool) -> None:
        slots, operations, records = self._encoded(slots)
        if not slots:
            return
        pushes = any(isinstance(operation, Push | CompletePush) for operation in operations)
        head = Head(self._time.now(), ahead_s=self._time.ahead_s())
        self._flying.append((head, slots, operations, perf_counter()))
        try:
            self._log.append([codec.encode_head(head), *records], vital=not pushes, more=more)
        except StorageFull as error:
            self._flying.pop()
            self._refuse_pushes(slots, operations, error, more=more)
        except DovetailError as error:
            if self._flying:
                self._flying.pop()
            _refuse(slots, error)

    @staticmethod
    def _encoded(slots: list[_Slot]) -> tuple[list[_Slot], list[Operation], list[bytes]]:
        """What can be written. A shared operation that cannot (somebody asked for half a message) is refused without its neighbours."""
        good: list[_Slot] = []
        operations: list[Operation] = []
        records: list[bytes] = []
        for slot in slots:
            try:
                made = slot.build()
                record = slot.record or codec.encode(made)
            except _UNWRITABLE as error:
                _refuse([slot], BadRequest(f"a value that cannot be kept: {error}"))
                continue
            good.append(slot)
            operations.append(made)
            records.append(record)
        return good, operations, records

    def _refuse_pushes(self, slots: list[_Slot], operations: list[Operation], error: StorageFull, *, more: bool) -> None:
        """No room: pushes are refused, the rest goes on in the reserve."""
        full = [isinstance(operation, Push | CompletePush) for operation in operations]
        self.refused_full += 1
        _refuse([slot for slot, refused in zip(slots, full, strict=True) if refused], error)
        rest = [slot for slot, refused in zip(slots, full, strict=True) if not refused]
        if not any(full):
            _refuse(rest, error)
        elif rest:
            self._append(rest, more=more)

    def deliver(self, entry: Entry) -> None:
        """An entry of ours is durable: apply it, answer, and let the next one go."""
        head, slots, operations, began = self._flying.popleft()
        self.entries += 1
        if self.on_commit is not None:
            self.on_commit(perf_counter() - began)
        try:
            outcomes = self._applied(entry, head, operations)
        except BaseException as error:
            # A state that may be half changed answers nobody any more.
            _refuse(slots, Unknown(f"The outcome is not known: {error!r}"))
            self.fail(StorageError(f"The node stopped: an entry could not be applied: {error!r}"))
            raise
        for slot, outcome in zip(slots, outcomes, strict=True):
            self._deal(slot, outcome)
        if self._slots and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _deal(self, slot: _Slot, outcome: Outcome) -> None:
        """Deal an outcome out to the callers that share it, in the order in which they came."""
        if slot.kind in ("push", "complete") and isinstance(outcome, Refusal):
            _refuse([slot], error_of(outcome))
        elif slot.kind == "own" or isinstance(outcome, Refusal):
            for future, _ in slot.answers:
                _resolve(future, outcome)
        elif isinstance(outcome, Pushed):
            for (future, _), sequence in zip(slot.answers, outcome.sequences, strict=True):
                _resolve(future, (sequence,))
        elif isinstance(outcome, Settled):
            for (future, _), done in zip(slot.answers, outcome.done, strict=True):
                _resolve(future, [done])
        elif isinstance(outcome, Popped):
            for run in _deal_taken(slot, deque(outcome.taken)):
                # The receiver left while its pop was on its way: it takes no message with it. (Receive-and-delete has no way back.)
                if run.delivery:
                    sequences = range(run.sequence, run.sequence + run.length)
                    self.submit(Release(outcome.queue, sequences, range(run.delivery, run.delivery + run.length)))

    def fail(self, error: BaseException) -> None:
        """The log stopped. What was on its way is unknown; what had not left is refused."""
        self._error = error if isinstance(error, DovetailError) else Closed(str(error))
        for _, slots, _, _ in self._flying:
            _refuse(slots, Unknown(f"The outcome is not known: {error}"))
        self._flying.clear()
        _refuse(self._slots, self._error)
        self._slots = []

    async def drain(self) -> None:
        """Until everything submitted has been answered. Waits for the last one; what it sets off in turn is waited for too."""
        while (self._slots or self._flying) and self._error is None:
            slots = self._slots or self._flying[-1][1]
            await asyncio.wait([future for future, _ in slots[-1].answers])

    def close(self) -> None:
        if self._error is None:
            self.fail(Closed())


def _refuse(slots: Sequence[_Slot], error: DovetailError) -> None:
    for slot in slots:
        for future, _ in slot.answers:
            if not future.done():
                future.set_exception(error)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _deal_taken(slot: _Slot, taken: deque[Taken]) -> deque[Taken]:
    """Give each caller its share; what is left over belonged to receivers that have left."""
    skip = 0  # So many of the first run have been given away.
    for future, most in slot.answers:
        if future.done():
            continue
        share: list[Taken] = []
        while taken and most:
            run = taken[0]
            left = run.length - skip
            count = min(left, most)
            share.append(_part(run, skip, count) if count < run.length else run)
            most -= count
            if count < left:
                skip += count
            else:
                taken.popleft()
                skip = 0
        future.set_result(share)
    if skip:
        taken[0] = _part(taken[0], skip, taken[0].length - skip)
    return taken


def _part(run: Taken, skip: int, count: int) -> Taken:
    """`count` messages of a run. (Written out: `_replace` takes three times as long, and this is done for every single receive.)"""
    sequence, _, delivery, address, item, receives, time, first_received, origin = run
    return Taken(
        sequence + skip,
        count,
        delivery + skip if delivery else 0,
        address,
        item + skip,
        receives[skip : skip + count],
        time,
        first_received,
        origin,
    )
