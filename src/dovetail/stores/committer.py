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
from collections.abc import Callable, Iterator, Sequence
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
    Stage,
    StageCarry,
    Taken,
)
from dovetail.errors import BadRequest, Closed, CodecError, DovetailError, LimitExceeded, StorageError, StorageFull, Unknown
from dovetail.limits import BATCH_MESSAGES_MAX, ENTRY_BYTES_TARGET
from dovetail.logs.log import Entry, Log
from dovetail.stores.batches import error_of
from dovetail.stores.entrytime import EntryTime
from dovetail.stores.store import Reply

Answer = Callable[[Outcome], None]
_PUSHES = frozenset((Push, CompletePush, Stage))
"""What a full disk refuses. (A publish brings no bytes along, and frees a driver that waits for it.)"""
_RECORD_OVERHEAD = 64
_UNWRITABLE = (struct_error, OverflowError, UnicodeEncodeError, TypeError, ValueError, AttributeError)
ENTRY_OVERHEAD = 4096
"""What the head, the frame and the padding of an entry may take."""


class SharedPop:
    """What a pop took for all receivers that share it. `made` and `rows` are whatever the first who looks makes of it, for all of them."""

    __slots__ = ("made", "rows", "taken")

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.taken = taken
        self.made: list[Any] | None = None
        self.rows: list[Any] | None = None


class Share:
    """One receiver's part: `count` messages from the `start`-th on."""

    __slots__ = ("count", "of", "start")

    def __init__(self, of: SharedPop, start: int, count: int) -> None:
        self.of = of
        self.start = start
        self.count = count


class _Slot:
    """One operation to be: shared by several callers, or one caller's own."""

    __slots__ = ("answers", "bodies", "count", "delays", "deliveries", "key", "kind", "most", "operation", "record", "sequences", "size")

    def __init__(self, kind: str, key: tuple[Any, ...]) -> None:
        self.kind = kind
        self.key = key
        self.answers: list[tuple[Reply, int]] = []
        self.bodies: list[bytes] = []
        self.delays: list[int] | None = None
        self.sequences: list[int] = []
        self.deliveries: list[int] = []
        self.count = 0
        """Messages, or receives."""
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
        self._pops: list[tuple[Any, ...]] = []
        """Names of pops that can be joined, and perhaps of some that no longer can."""
        self._flying: deque[tuple[Head, list[_Slot], list[Operation], float]] = deque()
        self._scheduled = False
        self._error: DovetailError | None = None
        self._drained: asyncio.Future[None] | None = None
        self.entries = 0
        self.refused_full = 0
        self.full = False
        """The last push was refused for want of space."""
        self.on_full: Callable[[], None] | None = None
        self.asked = 0
        """Messages that pops ask for which have not been answered."""
        self.on_commit: Callable[[float], None] | None = None
        """Told how many seconds each entry took until it was durable."""

    # Submitting

    def push(self, queue: int, bodies: Sequence[bytes], reply: Reply, delay_ms: int = DEFAULT) -> None:
        """Plain messages, or delayed ones; the reply is told their sequences."""
        size = sum(map(len, bodies)) + 12 * len(bodies)
        slot = self._share("push", ("push", queue), (queue,), size, len(bodies))
        if delay_ms != DEFAULT and slot.delays is None:
            slot.delays = [DEFAULT] * len(slot.bodies)
        if slot.delays is not None:
            slot.delays += (delay_ms,) * len(bodies)
        slot.bodies += bodies
        self._answer(slot, reply, len(bodies))

    def complete(self, queue: int, sequences: Sequence[int], deliveries: Sequence[int], reply: Reply) -> None:
        """Deliveries of one queue; the reply is told a truth for each."""
        slot = self._share("complete", ("complete", queue), (queue,), 16 * len(sequences), len(sequences))
        slot.sequences += sequences
        slot.deliveries += deliveries
        self._answer(slot, reply, len(sequences))

    def pop(self, queue: int, most: int, lease_ms: int, delete: bool, reply: Reply, *, alone: bool = False) -> None:
        """A receive; the reply is told a Share, or a Refusal. `alone` does not share: where one receive may take several of a group,
        two receivers must not be taken for one."""
        name = ("pop", queue, lease_ms, delete)
        known = self._shared.get(name)
        if alone or (known is not None and known.most + most > BATCH_MESSAGES_MAX):
            self._shared.pop(name, None)
        slot = self._share("pop", name, name[1:], 0, 1)
        if alone:
            del self._shared[name]
        slot.most += most
        self.asked += most
        self._answer(slot, reply, most)

    def submit(self, operation: Operation) -> asyncio.Future[Outcome]:
        """Any other operation; the future gives its outcome. What cannot be written is refused here, before it can touch its neighbours."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self.submit_for(future, operation)
        return future

    def submit_for(self, reply: Reply, operation: Operation, record: bytes = b"") -> None:
        """The same, and the reply is told. `record` is the operation's own bytes, where the caller decoded it from them."""
        slot = _Slot("own", ())
        slot.operation = operation
        try:
            slot.record = record or codec.encode(operation)
            if not isinstance(operation, Push | CompletePush | Carry | StageCarry):
                # Nothing is written that could not be read: an entry that replay refuses would close the folder for good.
                codec.decode(slot.record)
        except (*_UNWRITABLE, CodecError) as error:
            raise BadRequest(f"{type(operation).__name__} with a value that cannot be kept: {error}") from None
        slot.size += len(slot.record)
        if slot.size > self._log.entry_bytes_max - ENTRY_OVERHEAD:
            raise LimitExceeded(f"{slot.size} bytes in one step; at most {self._log.entry_bytes_max - ENTRY_OVERHEAD} are allowed")
        self._shared.clear()
        self._slots.append(slot)
        self._answer(slot, reply, 1)

    def _share(self, kind: str, name: tuple[Any, ...], key: tuple[Any, ...], size: int, count: int) -> _Slot:
        slot = self._shared.get(name)
        if slot is None or slot.size + size > ENTRY_BYTES_TARGET or slot.count + count > BATCH_MESSAGES_MAX:
            slot = self._shared[name] = _Slot(kind, key)
            self._slots.append(slot)
            if kind == "push":
                # A later pop must come behind this push.
                for other in self._pops:
                    self._shared.pop(other, None)
                self._pops.clear()
            elif kind == "pop":
                self._pops.append(name)
        slot.size += size
        slot.count += count
        return slot

    def _answer(self, slot: _Slot, reply: Reply, weight: int) -> None:
        if self._error is not None:
            reply.set_exception(self._error)
            return
        slot.answers.append((reply, weight))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    # Committing

    def _flush(self) -> None:
        self._scheduled = False
        if self._error is not None or self._log.busy:
            # After the sync that is under way `deliver` comes here again.
            return
        slots, self._slots = self._slots, []
        self._shared.clear()
        self._pops.clear()
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
        pushes = not _PUSHES.isdisjoint(map(type, operations))
        head = self._head()
        self._flying.append((head, slots, operations, perf_counter()))
        try:
            callers = sum([len(slot.answers) for slot in slots])
            self._log.append([codec.encode_head(head), *records], vital=not pushes, more=more, callers=callers)
            if pushes and self.full:
                self.full = False
        except StorageFull as error:
            if self._error is not None:
                return  # What was written before could not be synced: everybody was told.
            self._flying.pop()
            self._refuse_pushes(slots, operations, error, more=more)
        except DovetailError as error:
            if self._flying:
                self._flying.pop()
            self._refuse(slots, error)

    def _head(self) -> Head:
        return Head(self._time.now(), ahead_s=self._time.ahead_s())

    def _encoded(self, slots: list[_Slot]) -> tuple[list[_Slot], list[Operation], list[bytes]]:
        """What can be written. A shared operation that cannot (somebody asked for half a message) is refused without its neighbours."""
        good: list[_Slot] = []
        operations: list[Operation] = []
        records: list[bytes] = []
        for slot in slots:
            try:
                made = slot.build()
                record = slot.record or codec.encode(made)
            except _UNWRITABLE as error:
                self._refuse([slot], BadRequest(f"a value that cannot be kept: {error}"))
                continue
            good.append(slot)
            operations.append(made)
            records.append(record)
        return good, operations, records

    def _refuse_pushes(self, slots: list[_Slot], operations: list[Operation], error: StorageFull, *, more: bool) -> None:
        """No room: pushes are refused, the rest goes on in the reserve."""
        full = [type(operation) in _PUSHES for operation in operations]
        if any(full):
            self.full = True
            self.refused_full += 1
            if self.on_full is not None:
                self.on_full()
        self._refuse([slot for slot, refused in zip(slots, full, strict=True) if refused], error)
        rest = [slot for slot, refused in zip(slots, full, strict=True) if not refused]
        if not any(full):
            self._refuse(rest, error)
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
            self._refuse(slots, Unknown(f"The outcome is not known: {error!r}"))
            self.fail(StorageError(f"The node stopped: an entry could not be applied: {error!r}"))
            raise
        for slot, outcome in zip(slots, outcomes, strict=True):
            self._deal(slot, outcome)
        self._tell_drained()
        if self._slots and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _deal(self, slot: _Slot, outcome: Outcome) -> None:
        """Deal an outcome out to the callers that share it, in the order in which they came."""
        self.asked -= slot.most
        if isinstance(outcome, Refusal) and slot.kind in ("push", "complete"):
            _tell(slot, error_of(outcome))
        elif slot.kind == "own" or isinstance(outcome, Refusal):
            for reply, _ in slot.answers:
                if not reply.done():
                    reply.set_result(outcome)
        elif isinstance(outcome, Pushed):
            _share_out(slot, outcome.sequences)
        elif isinstance(outcome, Settled):
            _share_out(slot, outcome.done)
        elif isinstance(outcome, Popped):
            self._deal_popped(slot, outcome)

    def _deal_popped(self, slot: _Slot, outcome: Popped) -> None:
        at, total = 0, sum([run.length for run in outcome.taken])
        shared = SharedPop(outcome.taken)
        for reply, most in slot.answers:
            if not reply.done():
                count = min(most, total - at)
                reply.set_result(Share(shared, at, count))
                at += count
        if at < total:
            for sequences, deliveries in parts(outcome.taken, at, total - at):
                # The receiver left while its pop was on its way: it takes no message with it. (Receive-and-delete has no way back.)
                self.submit(Release(outcome.queue, sequences, deliveries))

    def fail(self, error: BaseException) -> None:
        """The log stopped. What was on its way is unknown; what had not left is refused."""
        self._error = error if isinstance(error, DovetailError) else Closed(str(error))
        for _, slots, _, _ in self._flying:
            self._refuse(slots, Unknown(f"The outcome is not known: {error}"))
        self._flying.clear()
        self._refuse(self._slots, self._error)
        self._slots = []
        self._tell_drained()

    def _refuse(self, slots: Sequence[_Slot], error: DovetailError) -> None:
        for slot in slots:
            self.asked -= slot.most
            _tell(slot, error)

    async def drain(self) -> None:
        """Until everything submitted has been answered; what the answers set off in turn is waited for too."""
        while (self._slots or self._flying) and self._error is None:
            self._drained = self._drained or self._loop.create_future()
            await asyncio.shield(self._drained)

    def _tell_drained(self) -> None:
        """An entry was answered, or none will be any more: whoever waits for all of them looks again."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def close(self) -> None:
        if self._error is None:
            self.fail(Closed())


def _share_out(slot: _Slot, told: Sequence[Any]) -> None:
    at = 0
    for reply, count in slot.answers:
        if not reply.done():
            reply.set_result(told[at : at + count])
        at += count


def _tell(slot: _Slot, error: DovetailError) -> None:
    for reply, _ in slot.answers:
        if not reply.done():
            reply.set_exception(error)


def parts(taken: Sequence[Taken], start: int, count: int) -> Iterator[tuple[range, range]]:
    """(sequences, deliveries) of `count` messages from the `start`-th on, run by run; those without a receipt are left out."""
    for run in taken:
        if count <= 0:
            return
        if start < run.length:
            length = min(count, run.length - start)
            if run.delivery:
                sequence, delivery = run.sequence + start, run.delivery + start
                yield range(sequence, sequence + length), range(delivery, delivery + length)
            count -= length
        start = max(0, start - run.length)
