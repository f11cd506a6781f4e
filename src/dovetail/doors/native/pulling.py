"""PULL and COMPLETE_PULL: messages once. A pull that finds nothing stands in line with everybody else who waits for the queue.

What was taken is kept as it lies in the log until it can be written; what does not fit the bytes goes back at once, and all of it does
when the client leaves before it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from dovetail.core.operation import DEFAULT
from dovetail.core.operation import Kind as Operation
from dovetail.doors.native import answers, deliveries, requests
from dovetail.doors.native.bounds import DELIVERY_BYTES_MAX
from dovetail.doors.native.deliveries import Cut
from dovetail.doors.native.fields import Item
from dovetail.doors.native.frames import Frame, Kind
from dovetail.doors.native.opened import DELETE, RECEIVE, Opened
from dovetail.doors.native.settling import Settling
from dovetail.doors.native.slots import Slot, refused
from dovetail.errors import DovetailError, LimitExceeded, OverInFlight
from dovetail.limits import ATTEMPT_BYTES_MAX, BATCH_MESSAGES_MAX, LEASE_MS_MAX, WAIT_MS_MAX
from dovetail.service.broker import Handed

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

_PULL = Struct("<QqIIII")
"""A pull without an attempt."""


class Pulling(Slot):
    """A pull under way, and then what it took."""

    __slots__ = ("behind", "bytes_max", "delete", "held", "lease_ms", "opened", "pull", "waiting")
    hands_out = True

    def __init__(self, connection: Connection, number: int, kind: int, opened: Opened, pull: requests.Pull, behind: Slot | None) -> None:
        super().__init__(connection, number, kind, opened.order)
        self.opened = opened
        self.pull = pull
        self.behind = behind
        """The completes that came with it: where they were refused there is no second answer."""
        self.held: list[Cut] = []
        self.waiting: asyncio.Task[list[Handed]] | None = None

    def begin(self) -> None:
        opened, pull = self.opened, self.pull
        lane = opened.lane
        asked_before = len(opened.order) > 1 or opened.returning is not None
        others_wait = self.connection.door.broker.dequeue.waiting(lane.queue)
        if pull.attempt or (not others_wait and (asked_before or lane.has_visible())):
            # Whatever was asked before on this queue is in the log before this pop: what it pushed is found.
            lane.take_for(self, pull.most, pull.lease_ms, delete=pull.delete and pull.most == 1, attempt=pull.attempt)
        else:
            self.give(self._nothing())

    def done(self) -> bool:
        # A repeated attempt has a record of its own, and nobody else would give back what it took.
        return self.connection.over and not self.pull.attempt

    def tell(self, outcome: Any) -> bytes | Callable[[], bytes] | None:
        runs = self.opened.lane.handed(outcome, self.pull.lease_ms)
        if self.connection.over or (self.behind is not None and self.behind.failed):
            take_back(self.opened, runs)
            return b""
        return self._got(runs) if runs else self._nothing()

    def set_exception(self, error: BaseException, /) -> None:
        if self.behind is not None and self.behind.failed:
            self.give(b"")
        elif isinstance(error, OverInFlight) and self.pull.wait_ms:
            try:
                self.give(self._nothing())
            except DovetailError as other:
                super().set_exception(other)
        else:
            super().set_exception(error)

    def _nothing(self) -> bytes | None:
        """Nothing is there: stand in line, or say so."""
        connection, pull, lane = self.connection, self.pull, self.opened.lane
        if not pull.wait_ms or connection.door.draining or connection.over:
            if not connection.over and lane.is_full():
                raise OverInFlight
            return deliveries.empty_frame(self.number, lane.queue)
        connection.wait(self.number, self)
        connection.under_way -= 1
        self.counts = False
        self.leave_order()
        waits = connection.door.broker.dequeue.wait_in_columns(lane, pull.most, pull.lease_ms, pull.wait_ms)
        self.waiting = task = asyncio.get_running_loop().create_task(waits)
        task.add_done_callback(self._waited)
        return None

    def _waited(self, task: asyncio.Task[list[Handed]]) -> None:
        connection = self.connection
        connection.waits.pop(self.number, None)
        self.waiting = None
        try:
            runs = task.result()
        except asyncio.CancelledError:
            runs = []
        except Exception as error:
            if not connection.over:
                super().set_exception(error)
            return
        if connection.over:
            take_back(self.opened, runs)
        else:
            self.give(self._got(runs) if runs else deliveries.empty_frame(self.number, self.opened.lane.queue))

    def _got(self, runs: Sequence[Handed]) -> Callable[[], bytes] | None:
        pull = self.pull
        self.held = keep(self.opened, runs, pull.bytes_max or DELIVERY_BYTES_MAX)
        if pull.delete and self.held[0].handed.delivery:
            Deleting(self.opened, self.held, self._deleted)
            return None
        return self._frame

    def _deleted(self, gone: list[Cut] | Exception) -> None:
        if isinstance(gone, Exception):
            self.held = []
            super().set_exception(gone)
        else:
            self.held = gone
            self.give(self._frame)

    def _frame(self) -> bytes:
        held, self.held = self.held, []
        return deliveries.frame(self.number, self.opened.lane, held, deleted=self.pull.delete)

    def give_up(self) -> None:
        held, self.held = self.held, []
        if not self.pull.delete:
            take_back(self.opened, [one.handed for one in held])

    # As one that waits

    def stop(self) -> None:
        self.leave()

    def leave(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()

    def go_on(self) -> None:
        """It waits for messages and not for room; only a node that stops has something to say to it."""
        if self.connection.door.draining:
            self.stop()


class Deleting:
    """Receive-and-delete of several: they are leased first and completed before they are handed out, so that what does not fit, or whose
    receiver has left, is not gone."""

    __slots__ = ("_cuts", "_opened", "_then")

    def __init__(self, opened: Opened, cuts: list[Cut], then: Callable[[list[Cut] | Exception], None]) -> None:
        self._opened = opened
        self._cuts = cuts
        self._then = then
        lane = opened.lane
        parts = [Item(one.sequence, one.delivery, one.length, 0, one.length, _seal(opened, one)) for one, _, _ in cuts]
        try:
            lane.settle_for(self, Operation.COMPLETE, parts)
        except DovetailError as error:
            self.set_exception(error)

    def done(self) -> bool:
        return False

    def set_result(self, outcome: Any, /) -> None:
        try:
            done = self._opened.lane.settled(outcome)
        except DovetailError as error:
            self.set_exception(error)
            return
        self._opened.meter.completed.value += sum(done)
        self._then(self._cuts if all(done) else _those(self._cuts, done))

    def set_exception(self, error: BaseException, /) -> None:
        self._then(error if isinstance(error, Exception) else RuntimeError(str(error)))


def _seal(opened: Opened, one: Handed) -> bytes:
    return opened.lane.seal_run(one.sequence, one.delivery, one.length)


def _those(cuts: list[Cut], done: bytes) -> list[Cut]:
    """Only what was completed: the others went to somebody else meanwhile."""
    kept = []
    at = 0
    for one, _, _ in cuts:
        for offset in range(one.length):
            if done[at + offset]:
                kept.append(one._replace(sequence=one.sequence + offset, delivery=one.delivery + offset, length=1, item=one.item + offset))
        at += one.length
    return deliveries.cut(kept)


def keep(opened: Opened, runs: Sequence[Handed], bytes_max: int) -> list[Cut]:
    """What was taken, as far as it fits. The rest goes back at once."""
    kept, rest = deliveries.fit(deliveries.cut(runs), min(bytes_max, DELIVERY_BYTES_MAX))
    if rest:
        opened.give_back(rest)
    meter = opened.meter
    for one, _, _ in kept:
        meter.delivered.value += one.length
        if one.receives > 1:
            meter.redelivered.value += one.length
    return kept


def take_back(opened: Opened, runs: Sequence[Handed]) -> None:
    opened.give_back([(one.sequence, one.delivery, one.length) for one in runs])


def pull(connection: Connection, frame: Frame) -> None:
    if len(frame.payload) == _PULL.size and not frame.flags:
        queue, lease_ms, most, bytes_max, wait_ms, zero = _PULL.unpack(frame.payload)
        request = requests.Pull(queue, most, lease_ms, wait_ms, bytes_max) if not zero else requests.decode(frame)
    else:
        request = requests.decode(frame)
    assert isinstance(request, requests.Pull)
    opened = connection.opened(request.queue, RECEIVE)
    check(request)
    opened.meter.seen_consumer(connection.peer)
    _begin(Pulling(connection, frame.number, Kind.PULL, opened, request, None))


def complete_pull(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.CompletePull)
    opened = connection.opened(request.queue, RECEIVE | DELETE)
    asked = requests.Pull(request.queue, request.most, request.lease_ms, request.wait_ms, request.bytes_max)
    check(asked)
    opened.meter.seen_consumer(connection.peer)
    settling = Settling(connection, frame.number, Kind.COMPLETE_PULL, opened)
    try:
        opened.lane.settle_for(settling, Operation.COMPLETE, request.items)
    except Exception as error:
        settling.set_exception(error)
        return
    _begin(Pulling(connection, frame.number, Kind.PULL, opened, asked, settling))


def _begin(pulling: Pulling) -> None:
    try:
        pulling.begin()
    except Exception as error:
        pulling.set_exception(error)


def check(pull: requests.Pull) -> None:
    check_lease(pull.lease_ms)
    if not 1 <= pull.most <= BATCH_MESSAGES_MAX:
        raise LimitExceeded(f"{pull.most} messages asked for; 1 to {BATCH_MESSAGES_MAX} are allowed")
    if pull.wait_ms > WAIT_MS_MAX:
        raise LimitExceeded(f"a wait of {pull.wait_ms} ms; at most {WAIT_MS_MAX} are allowed")
    if len(pull.attempt) > ATTEMPT_BYTES_MAX:
        raise LimitExceeded(f"an attempt id has at most {ATTEMPT_BYTES_MAX} bytes")


def check_lease(lease_ms: int) -> None:
    if lease_ms != DEFAULT and not 0 <= lease_ms <= LEASE_MS_MAX:
        raise LimitExceeded(f"a lease of {lease_ms} ms; 0 to {LEASE_MS_MAX} are allowed")


def stop(connection: Connection, frame: Frame) -> None:
    """End a consume, or a pull that waits. Its answer comes behind the last delivery."""
    request = requests.decode(frame)
    assert isinstance(request, requests.Stop)
    slot = Stopping(connection, frame.number, Kind.STOP)
    wait = connection.waits.get(request.target)
    if wait is None:
        slot.give(answers.encode(answers.Done(0), frame.number))
        return
    wait.stop()
    if isinstance(wait, Pulling) and wait.waiting is not None:
        # Its own answer, with nothing in it or with what it had just got, comes first.
        wait.waiting.add_done_callback(lambda _: slot.stopped())
    else:
        slot.stopped()


class Stopping(Slot):
    __slots__ = ()

    def stopped(self) -> None:
        if not self.connection.over:
            self.give(answers.encode(answers.Done(1), self.number))

    def set_exception(self, error: BaseException, /) -> None:
        self.give(refused(error, self.number))
