"""The committer of a node that shares its log: the same coalescing, and entries that are numbered, so that each takes effect once.

The writer is drawn anew at every start and opened by an entry of its own, number 0. Behind it entries are numbered densely; several
are under way at once. What is replayed is matched by writer and number:

| an entry of the log | is | and |
| --- | --- | --- |
| of another writer | applied | nobody here waits for it |
| ours, the next number | applied | its callers are told what apply said |
| ours, a number that took effect | void | a late copy |
| ours, a number beyond the next | void | one before it was lost: all that are under way are published again, in order |
| ours, and the writer was closed | void | an hour of silence: a new writer is opened, and says all of it again |
| ours, with other bytes or a number never given | | another process has our name (a cloned machine): the node stops |
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter

from dovetail.core import codec, moved
from dovetail.core import operation as op
from dovetail.core.operation import Head, Operation, Outcome
from dovetail.core.state import State
from dovetail.core.versions import APPLY_VERSION
from dovetail.errors import CodecError, Damaged, DovetailError, StorageError, Unknown
from dovetail.logs.log import Entry
from dovetail.logs.shared.log import SharedLog
from dovetail.logs.shared.packet import SHIFT
from dovetail.stores.committer import Committer, _Slot, parts
from dovetail.stores.shared.time import SharedTime

_UNKNOWN = "The node was cut off from its log before it could answer: this may have happened."


class SharedCommitter(Committer):
    def __init__(
        self,
        log: SharedLog,
        time: SharedTime,
        applied: Callable[[Entry, Head, Sequence[Operation]], Sequence[Outcome]],
        state: State,
    ) -> None:
        """`state` is only looked at: which numbers took effect, and the digest of what was answered."""
        super().__init__(log, time, applied)
        self._shared_log = log
        self._shared_time = time
        self._state = state
        self.writer = b""
        self._done = -1
        """Our last number that took effect; −1 before the writer is open."""
        self.at_tail = float("-inf")
        """When the replay was last known to have everything: what an entry that came back was written after."""
        self._walls: dict[int, tuple[int, float]] = {}
        """Number → when it was first published, on the wall and monotonically."""
        self.spoke_ms = time.boot_ms()
        """When an entry of ours was last on its way."""
        self._fatal = False
        self._given_up: set[bytes] = set()
        """Writers of ours whose callers were told that the outcome is not known."""
        self._undo: list[op.Release] = []

    # Writing

    async def open_writer(self) -> None:
        """Returns when our Open is applied: the node is up to date then, and may write."""
        slot = self._opening()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        slot.answers.append((future, 1))
        self._append([slot], more=False)
        await future

    def _opening(self) -> _Slot:
        """A new writer, which closes the one before: nothing of that one can take effect behind this."""
        before, self.writer, self._done = self.writer, os.urandom(16), -1
        self._walls.clear()
        slot = _Slot("own", ())
        slot.operation = op.Open(self.writer, APPLY_VERSION, before)
        return slot

    def _head(self) -> Head:
        number = self._done + 1 + len(self._flying)
        self._walls[number] = self._shared_time.wall_ms(), monotonic()
        self.spoke_ms = self._shared_time.boot_ms()
        state = self._state
        return Head(self._time.now(), self.writer, number, state.position, state.digests.value, self._time.ahead_s())

    # Replaying

    def deliver(self, entry: Entry) -> None:
        """The next entry of the log, whoever wrote it."""
        try:
            self._replayed(entry)
        except BaseException as error:
            # A state that may be half changed answers nobody any more.
            for _, slots, _, _ in self._flying:
                self._refuse(slots, Unknown(f"The outcome is not known: {error!r}"))
            self._fatal = True
            self.fail(
                error if isinstance(error, StorageError) else StorageError(f"The node stopped: an entry could not be applied: {error!r}")
            )
            raise

    def _replayed(self, entry: Entry) -> None:
        try:
            head = codec.decode_head(entry.records[0])
        except CodecError as error:
            raise Damaged(f"the entry at position {entry.position} cannot be read: {error}") from None
        if moved.passed(head, entry.records, self._state.key):
            self._applied(entry, head, [])
            return
        if self._state.agrees(head) is False:
            raise StorageError(
                f"The node that wrote entry {entry.position >> SHIFT} had answered otherwise than this one up to entry"
                f" {(head.applied >> SHIFT) - 1}: one of the two states is wrong. Start both again; they then begin with a snapshot."
            )
        if head.writer != self.writer or not self.writer:
            outcomes = self._applied(entry, head, _decoded(entry))
            if head.writer in self._given_up:
                self._note_undo(outcomes)
            return
        at = head.number - self._done - 1
        if at < 0:
            self._applied(entry, head, _decoded(entry))
            return
        if at >= len(self._flying) or self._shared_log.mark_under_way(at) != entry.mark:
            raise StorageError(
                "Somebody else writes under this node's name: this process is a copy of one that runs elsewhere (a cloned machine)."
                " Start it again."
            )
        writer = self._state.writers.by_id.get(self.writer)
        last = writer.last if writer is not None else None
        _, slots, operations, began = self._flying[at]
        outcomes = self._applied(entry, head, operations)
        if head.number == (0 if last is None else last + 1):
            self._took_effect(entry, slots, outcomes, began)
        elif last is None and self._done >= 0:
            # Nothing of ours took effect, and nothing can: it is said again under another name.
            again = [slot for _, held, _, _ in self._flying for slot in held]
            self._reopen()
            self._slots[:0] = again
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._flush)
        else:
            self._shared_log.resend()

    def _took_effect(self, entry: Entry, slots: list[_Slot], outcomes: Sequence[Outcome], began: float) -> None:
        if isinstance(slots[0].operation, op.Open) and isinstance(outcomes[0], op.Refusal):
            raise StorageError(f"This node speaks apply version {APPLY_VERSION}; the log has gone on beyond it.")
        self._flying.popleft()
        self._done += 1
        wall_ms, at = self._walls.pop(self._done)
        self.at_tail = max(self.at_tail, at)
        if entry.stamp is not None:
            self._shared_time.stamped(wall_ms, entry.stamp)
        self.entries += 1
        if self.on_commit is not None:
            self.on_commit(perf_counter() - began)
        self._shared_log.landed()
        for slot, outcome in zip(slots, outcomes, strict=True):
            self._deal(slot, outcome)
        self._tell_drained()
        if self._slots and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _reopen(self) -> None:
        self._flying.clear()
        self._shared_log.forget()
        self._append([self._opening()], more=False)

    def _note_undo(self, outcomes: Sequence[Outcome]) -> None:
        """A pop of ours was given up and took effect all the same: its receivers have left, so its messages go back."""
        for outcome in outcomes:
            if isinstance(outcome, op.Popped):
                self._undo += [
                    op.Release(outcome.queue, *named) for named in parts(outcome.taken, 0, sum(run.length for run in outcome.taken))
                ]

    # Cut off, and back

    def cut_off(self, error: DovetailError) -> None:
        """The log cannot be had. What is on its way may still take effect, and its callers are told that it is not known: a new writer ends
        that once it is open. What has not left is refused, and so is what comes, until `back`."""
        if self._fatal or self._error is not None:
            return
        for _, slots, _, _ in self._flying:
            self._refuse(slots, Unknown(_UNKNOWN))
        held, self._slots = self._slots, []
        self._shared.clear()
        self._refuse(held, error)
        self._given_up.add(self.writer)
        self._reopen()
        self._error = error
        self._tell_drained()

    def back(self) -> None:
        if not self._fatal:
            # Whoever spoke meanwhile was refused, and what it said is dropped.
            self._slots, self.asked = [], 0
            self._shared.clear()
            self._error = None
            undo, self._undo = self._undo, []
            for release in undo:
                self.submit(release)

    def fail(self, error: BaseException) -> None:
        self._fatal = True
        super().fail(error)


def _decoded(entry: Entry) -> list[Operation]:
    try:
        return [codec.decode(record) for record in entry.records[1:]]
    except CodecError as error:
        raise Damaged(f"the entry at position {entry.position} cannot be read: {error}") from None
