"""Receivers of this node that wait in the state of their lanes (SEMANTICS §6): a Pop that may wait goes into the log, and whatever makes a
message visible, at whatever node, hands it over in the same entry. Every node replays the hand-out; this one has the receiver.

| a receiver is | because | and ends by |
| --- | --- | --- |
| asked | its Pop is on its way | apply: it got something, was refused, or stands |
| standing | its Pop found nothing | a hand-out · its time · leaving, which withdraws the Pop |
| gone | it has its answer, or left | what is handed to it all the same is released, as if it had never been |

Each takes once: what it is handed first is its answer, and its Pop is over. With count left it would be handed messages after it was
answered, which nobody takes, and which come back behind later ones.

What this node owes the others while it has receivers: an entry a second, or they take it for dead; and an entry when something becomes
visible by time alone, for nothing happens between entries. The node of the receiver who is first in line speaks then, and, should it
not, any other who has receivers there does a little later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.clock import Handle
from dovetail.core import operation as op
from dovetail.core.lane import Lane as CoreLane
from dovetail.core.operation import Applied, Handout, Operation, Popped, Refusal
from dovetail.errors import DovetailError, NoSuchQueue
from dovetail.limits import BATCH_MESSAGES_MAX, WRITER_SILENCE_MS
from dovetail.logs.log import Entry
from dovetail.stores.batches import error_of
from dovetail.stores.store import Delivery, Handed

if TYPE_CHECKING:
    from dovetail.stores.shared.store import SharedLane, SharedStore

SPEAK_MS = 700
"""After so long without an entry of this node one is written, so that it is there within a second."""
SECOND_MS = 200
"""So much later than the node of the first in line any other speaks of what is due."""
LAPSES_MS = 100
"""A Pop whose time is over within so long is not withdrawn."""


class Wait:
    """One receiver, as a popping that may take long. It is the reply of its own Pop."""

    def __init__(self, line: Line, most: int, lease_ms: int, until: int) -> None:
        self.line = line
        self.most = most
        self.lease_ms = lease_ms
        self.until = until
        """When its receiver wants to be answered, in the time of entries."""
        self.operation: op.Pop | None = None
        """Its Pop, while that is on its way."""
        self.address = 0
        """Of its Pop, while that stands in the lane."""
        self.stands_until = 0
        """Then the lane lets go of it by itself."""
        self._over = False
        self._future: asyncio.Future[Popped] = asyncio.get_running_loop().create_future()

    # For its receiver

    def __await__(self) -> Generator[Any, None, list[Delivery]]:
        popped = yield from self._future
        return self.line.lane.taken(self._alive(popped), self.lease_ms)

    async def runs(self) -> list[Handed]:
        return self.line.lane.handed(self._alive(await self._future), self.lease_ms)

    def _alive(self, popped: Popped) -> Popped:
        """A node that was paused replays what it was handed and that it was taken back in one turn: then it was handed nothing."""
        if popped.taken and not self.line.lane.holds(popped.taken[0].sequence, popped.taken[0].delivery):
            return popped._replace(taken=())
        return popped

    def end(self) -> None:
        """Its time is up. A Pop that is still on its way may find something, and is waited for."""
        self._over = True
        if self.operation is None:
            self.line.leave(self)
            self._nothing()

    def abandon(self) -> None:
        self._over = True
        self._future.cancel()
        if self.operation is None:
            self.line.leave(self)
        if not self._future.cancelled() and self._future.exception() is None:
            self.line.lane.give_up(self._future.result())

    # As the reply of its Pop

    def done(self) -> bool:
        # Also of a receiver that has left: what its Pop took is given back here.
        return self.operation is None

    def set_result(self, outcome: Any, /) -> None:
        self.line.answered(self)
        if isinstance(outcome, Refusal):
            self.fail(error_of(outcome))
        elif not outcome.waiting:
            self.given(outcome)
        elif self._over:
            self.line.leave(self)
            self._nothing()

    def set_exception(self, error: BaseException, /) -> None:
        self.line.answered(self)
        self.fail(error)

    # For its line

    def given(self, popped: Popped) -> None:
        self.line.left(self)
        if self._future.done():
            self.line.lane.give_up(popped)
        else:
            self._future.set_result(popped)

    def fail(self, error: BaseException) -> None:
        self.line.left(self)
        if not self._future.done():
            self._future.set_exception(error)

    def _nothing(self) -> None:
        if not self._future.done():
            self._future.set_result(Popped(self.line.lane.queue, (), 0))


class Line:
    """The receivers of this node that wait for one queue, and when an entry is due that lets time pass there."""

    def __init__(self, waits: Waits, lane: SharedLane) -> None:
        self._waits = waits
        self._store = waits.store
        self.lane = lane
        self.members: dict[Wait, None] = {}
        self._leaving: list[int] = []
        self._alarm: Handle | None = None
        self._armed: int | None = None
        self._not_before = 0

    # Who comes and goes

    def ask(self, wait: Wait) -> None:
        self.members[wait] = None
        wait.operation = op.Pop(self.lane.queue, wait.most, wait.lease_ms, wait_ms=max(1, wait.until - self._store.now()), once=True)
        self._waits.asked[id(wait.operation)] = wait
        try:
            self._store.committer.submit_for(wait, wait.operation)
        except DovetailError as error:
            wait.set_exception(error)

    def answered(self, wait: Wait) -> None:
        """Its Pop is not on its way any more."""
        self._waits.asked.pop(id(wait.operation), None)
        wait.operation = None

    def stand(self, wait: Wait, address: int, until: int) -> None:
        wait.address, wait.stands_until = address, until
        self._waits.standing[address] = wait

    def leave(self, wait: Wait) -> None:
        """Its receiver wants no more. Where the lane does not let go of its Pop by itself about now, it is withdrawn."""
        if wait.address and wait.stands_until > self._store.now() + LAPSES_MS:
            if not self._leaving:
                asyncio.get_running_loop().call_soon(self._withdraw)
            # A thousand who leave together are one operation.
            self._leaving.append(wait.address)
        self.left(wait)

    def left(self, wait: Wait) -> None:
        self._waits.standing.pop(wait.address, None)
        wait.address = 0
        self.members.pop(wait, None)
        if not self.members:
            self._sleep(None)
            # Another one may have its place already: who has left may be told to leave once more.
            if self._waits.lines.get(self.lane.queue) is self:
                del self._waits.lines[self.lane.queue]

    def fail(self, error: DovetailError) -> None:
        for wait in list(self.members):
            if wait.operation is None:
                self.leave(wait)
                wait.fail(error)

    def _withdraw(self) -> None:
        leaving, self._leaving = self._leaving, []
        for start in range(0, len(leaving), BATCH_MESSAGES_MAX):
            with contextlib.suppress(DovetailError):  # The node ends, and its writer with all who stand under it.
                self._store.committer.submit_for(Unheard(), op.Withdraw(self.lane.queue, leaving[start : start + BATCH_MESSAGES_MAX]))

    # What is due

    def look(self) -> None:
        """Something happened to the queue."""
        core = self._store.state.lanes.get(self.lane.queue)
        if core is None:
            self.fail(NoSuchQueue("The queue was dropped."))
            return
        due = self._due(core, self._store.state.time) if core.waiters else None
        if due is not None and core.waiters.line[0].writer != self._store.committer.writer:
            due += SECOND_MS
        if due != self._armed:
            self._sleep(due)

    @staticmethod
    def _due(core: CoreLane, now: int) -> int | None:
        # What is due by the last entry's time was handed out with it, unless that entry held no operation that counts.
        return now if _something_due(core, now) else core.index.next_due(now)

    def _sleep(self, until: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._armed = until
        if until is not None:
            at = max(self._store.time.boot_at(until), self._not_before)
            self._alarm = self._store.clock.call_at(at, self._wake)

    def _wake(self) -> None:
        self._alarm = self._armed = None
        core = self._store.state.lanes.get(self.lane.queue)
        if core is None or not core.waiters:
            return
        now = self._store.now()
        if _something_due(core, now):
            self._waits.tick(lambda: self._ticked(now))
        else:
            # It was settled meanwhile, or a bucket of the index is not opened yet.
            self._sleep(core.index.next_due(now))

    def _ticked(self, wanted: int) -> None:
        # An entry that fell short by so much is not repeated before so much has passed: the log's clock is behind ours.
        self._not_before = self._store.clock.boot_ms() + max(0, wanted - self._store.state.time)
        if self.members:
            self.look()


def _something_due(core: CoreLane, now: int) -> bool:
    return core.index.any_due(now, lambda time, sequence: core.waiting_until(time, sequence) is not None)


class Unheard:
    """A reply that nobody listens to."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self._then = then

    def done(self) -> bool:
        return False

    def set_result(self, outcome: Any, /) -> None:
        if self._then is not None:
            self._then()

    def set_exception(self, error: BaseException, /) -> None:
        if self._then is not None:
            self._then()


class Waits:
    """All receivers of a node that wait in lanes."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self.lines: dict[int, Line] = {}
        self.asked: dict[int, Wait] = {}
        """By their Pops: those are the very objects that were submitted."""
        self.standing: dict[int, Wait] = {}
        """By the addresses of their Pops."""
        self._alarm: Handle | None = None
        self._ticking: list[Callable[[], None]] | None = None

    def join(self, lane: SharedLane, most: int, lease_ms: int, wait_ms: int) -> Wait:
        line = self.lines.get(lane.queue)
        if line is None:
            line = self.lines[lane.queue] = Line(self, lane)
        wait = Wait(line, most, lease_ms, self.store.now() + wait_ms)
        line.ask(wait)
        self._keep_speaking()
        return wait

    def fail(self, error: DovetailError) -> None:
        """Nobody is served here any more. Those whose Pops are on their way are told by the committer."""
        for line in list(self.lines.values()):
            line.fail(error)

    # What is replayed

    def applied(self, entry: Entry, operations: Sequence[Operation], applied: Applied) -> None:
        writer = self.store.committer.writer
        if self.asked:
            for operation, outcome, address in zip(operations, applied.outcomes, entry.addresses[1:], strict=False):
                if type(outcome) is Popped and outcome.waiting:
                    wait = self.asked.pop(id(operation), None)
                    if wait is not None and wait.operation is operation:
                        wait.line.stand(wait, address, self.store.state.time + operation.wait_ms)
        for handout in applied.handouts:
            if handout.writer == writer:
                self._hand(handout)
                # Who has something in hand must not be taken for dead, whether anybody still stands here or not.
                self._keep_speaking()
        if self.standing:
            known = self.store.state.writers.by_id.get(writer)
            if known is None or known.silent_ms >= WRITER_SILENCE_MS:
                self._stand_again()

    def _hand(self, handout: Handout) -> None:
        wait = self.standing.get(handout.waiter)
        if wait is not None:
            wait.given(handout.popped)
            return
        # Its receiver left while this was on its way.
        lane = self.store.lane(handout.popped.queue)
        if lane is not None:
            lane.give_up(handout.popped)

    def _stand_again(self) -> None:
        """The others took this node for dead, and its receivers left their lines."""
        for wait in list(self.standing.values()):
            del self.standing[wait.address]
            wait.address = 0
            wait.line.ask(wait)

    # What this node owes the others

    def tick(self, then: Callable[[], None]) -> None:
        """Let time pass. Several who ask at once share an entry."""
        if self._ticking is not None:
            self._ticking.append(then)
            return
        self._ticking = [then]
        self.store.committer.submit_for(Unheard(self._ticked), op.Tick())

    def _ticked(self) -> None:
        told, self._ticking = self._ticking or [], None
        for then in told:
            then()

    def _keep_speaking(self) -> None:
        if self._alarm is None:
            clock, silent_ms = self.store.clock, self._silent_ms()
            # Whoever was silent for longer has just submitted something.
            self._alarm = clock.call_at(clock.boot_ms() + SPEAK_MS - (silent_ms if silent_ms < SPEAK_MS else 0), self._speak)

    def _silent_ms(self) -> int:
        return self.store.clock.boot_ms() - self.store.committer.spoke_ms

    def _speak(self) -> None:
        self._alarm = None
        store = self.store
        known = store.state.writers.by_id.get(store.committer.writer)
        if store.log.cut is None and store.failed is None and (self.lines or (known is not None and known.handed)):
            if self._silent_ms() >= SPEAK_MS:
                self.tick(_nothing)
            self._keep_speaking()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _nothing() -> None:
    """Nobody wants to be told."""
