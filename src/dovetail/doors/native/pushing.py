"""PUSH and COMPLETE_PUSH: what came is what the log gets. One copy is made of it, out of what the socket gave."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from dovetail.core.operation import Push
from dovetail.doors.native import answers, requests
from dovetail.doors.native.answers.messages import LANE, PUSHED, REFUSED, REPEAT
from dovetail.doors.native.fields import Malformed
from dovetail.doors.native.frames import HEADER, Frame, Kind
from dovetail.doors.native.opened import DELETE, SEND, Opened
from dovetail.doors.native.refusals import NotOpened
from dovetail.doors.native.slots import Slot
from dovetail.errors import CodecError
from dovetail.service.broker import Landed

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

_SINGLE = Struct("<BBHIQII")
"""The record of one message for one queue with nothing but a body."""
_SINGLE_HEAD = (Kind.PUSH, 0, 1, 1)
_ONE_LANE = Struct("<IBBHQBBHIQII")
"""The frame of an answer about one lane, dense."""
_ONE_LANE_BYTES = PUSHED.size + LANE.size

assert _ONE_LANE.size == HEADER.size + _ONE_LANE_BYTES


class _Single(Slot):
    """One message of nothing but a body shares a record with those of strangers."""

    __slots__ = ("opened", "size")

    def __init__(self, connection: Connection, number: int, opened: Opened, size: int) -> None:
        super().__init__(connection, number, Kind.PUSH, opened.order)
        self.opened = opened
        self.size = size

    def tell(self, sequences: Sequence[int]) -> bytes:
        meter = self.opened.meter
        meter.pushed.value += 1
        meter.bytes.value += self.size
        return _dense(self.number, self.connection.door.durability, sequences[0], 1)


class _Pushing(Slot):
    __slots__ = ("lanes", "push")

    def __init__(self, connection: Connection, number: int, kind: int, lanes: Sequence[Opened], push: Push, order: Any) -> None:
        super().__init__(connection, number, kind, order)
        self.lanes = lanes
        self.push = push

    def tell(self, outcome: Any) -> bytes:
        door, push = self.connection.door, self.push
        landed = door.broker.store.landed(outcome, push)
        size = len(push.bodies.blob)
        for opened, one in zip(self.lanes, landed, strict=True):
            meter = opened.meter
            meter.pushed.value += len(one.sequences) - len(one.repeats) - len(one.refused)
            meter.repeats.value += len(one.repeats)
            meter.bytes.value += size
        first = landed[0]
        if len(landed) == 1 and isinstance(first.sequences, range) and not first.repeats and not first.refused:
            return _dense(self.number, door.durability, first.sequences.start, len(first.sequences))
        return answers.encode(answers.Pushed(door.durability, [_lane(one) for one in landed]), self.number)


def _dense(number: int, durability: int, first: int, count: int) -> bytes:
    return _ONE_LANE.pack(_ONE_LANE_BYTES, Kind.PUSHED, 0, 0, number, durability, 0, 0, 1, first, count, 0)


def _lane(landed: Landed) -> answers.Lane:
    sequences = landed.sequences
    if not landed.repeats and not landed.refused:
        dense = range(sequences[0], sequences[0] + len(sequences))
        return answers.Lane(dense if list(sequences) == list(dense) else sequences)
    verdicts = bytearray(len(landed.sequences))
    for index in landed.repeats:
        verdicts[index] = REPEAT
    for index in landed.refused:
        verdicts[index] = REFUSED
    return answers.Lane(landed.sequences, bytes(verdicts), landed.ids)


def push(connection: Connection, frame: Frame) -> None:
    payload = frame.payload
    size = len(payload)
    if frame.flags:
        raise Malformed("a flag that this kind does not know")
    if size >= _SINGLE.size:
        kind, flags, queues, count, queue, start, end = _SINGLE.unpack_from(payload)
        if (kind, flags, queues, count) == _SINGLE_HEAD and not start and size == _SINGLE.size + (end + 3 & ~3):
            opened = connection.opened(queue, SEND)
            door = connection.door
            if door.limited:
                door.check_push(queue, 1, end)
            opened.meter.seen_publisher(connection.peer)
            slot = _Single(connection, frame.number, opened, end)
            try:
                opened.lane.push_for(slot, (bytes(payload[_SINGLE.size : _SINGLE.size + end]),))
            except Exception as error:
                slot.set_exception(error)
            return
    record = bytes(payload)
    made = connection.door.broker.store.push_of_record(record)
    lanes = checked(connection, made)
    pushing = _Pushing(connection, frame.number, Kind.PUSH, lanes, made, lanes[0].order)
    try:
        connection.door.broker.store.push_record_for(pushing, made, record)
    except Exception as error:
        pushing.set_exception(error)


def complete_push(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.CompletePush)
    source = connection.opened(request.queue, DELETE)
    record = bytes(request.record)
    made = connection.door.broker.store.push_of_record(record)
    lanes = checked(connection, made)
    pushing = _Completing(connection, frame.number, Kind.COMPLETE_PUSH, lanes, made, source.order)
    pushing.source, pushing.completed = source, sum(item.end - item.start for item in request.items)
    try:
        connection.door.broker.store.complete_and_push_record_for(pushing, request.queue, request.items, made, record)
    except Exception as error:
        pushing.set_exception(error)


class _Completing(_Pushing):
    __slots__ = ("completed", "source")
    source: Opened
    completed: int

    def tell(self, outcome: Any) -> bytes:
        told = super().tell(outcome)
        self.source.meter.completed.value += self.completed
        return told


def checked(connection: Connection, made: Push) -> list[Opened]:
    """The queues of a push, if each of them, and its producer, was opened here."""
    door = connection.door
    lanes = [connection.opened(queue, SEND) for queue in made.queues]
    if made.numbered is not None and made.numbered.producer not in connection.producers:
        raise NotOpened("The producer was not opened on this connection.")
    if not lanes:
        raise CodecError("a push without a queue")
    if door.limited:
        for queue in made.queues:
            door.check_push(queue, len(made.bodies), len(made.bodies.blob))
    for opened in lanes:
        opened.meter.seen_publisher(connection.peer)
    return lanes
