"""Requests about facts taps. A namespace's facts are its owner's business and nobody else's: no policy of a queue gives them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.doors.native import answers, requests
from dovetail.doors.native.frames import Frame
from dovetail.doors.native.refusals import AccessDenied, NoArrow
from dovetail.doors.native.requests.facts import FACTS_POSITION
from dovetail.doors.native.slots import Look
from dovetail.doors.native.work import Working
from dovetail.errors import BadRequest, LimitExceeded

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection


def _space(connection: Connection, namespace: str) -> str:
    caller = connection.caller
    assert caller is not None
    if not connection.door.broker.store.promises.facts:
        raise BadRequest("This store keeps no facts.")
    if not caller.owns(namespace or caller.namespace):
        raise AccessDenied("The namespace belongs to another account.")
    return namespace or caller.namespace


def facts_open(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.FactsOpen)
    space, store = _space(connection, request.namespace), connection.door.broker.store

    async def work() -> answers.Done:
        return answers.Done(await store.facts_open(space, request.name, request.start, request.age_ms, request.bytes_max))

    Working(connection, frame.number, frame.kind, None, connection.door.noted(connection, "OpenFactsTap", "", work))


def facts_list(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.FactsAbout)
    space = _space(connection, request.namespace)

    async def work() -> answers.Taps:
        return answers.Taps([answers.Tap(*tap) for _, tap in connection.door.broker.store.facts_taps(space)])

    Working(connection, frame.number, frame.kind, None, work)


def facts_read(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.FactsRead)
    space, door, number = _space(connection, request.namespace), connection.door, frame.number
    if not request.most:
        raise LimitExceeded("0 facts asked for; at least 1")
    start = None if request.from_number == FACTS_POSITION else request.from_number

    def look() -> bytes:
        if door.streams is None:
            raise NoArrow("The node has no pyarrow, and facts are read as Arrow only.")
        return door.streams.facts_frame(number, door.broker.store.facts_read(space, request.name, request.most, start))

    Look(connection, number, frame.kind, None, look, door.load_arrow())


def facts_advance(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.FactsAdvance)
    space, store = _space(connection, request.namespace), connection.door.broker.store

    async def work() -> answers.Done:
        return answers.Done(await store.facts_advance(space, request.name, request.number))

    Working(connection, frame.number, frame.kind, None, work)


def facts_close(connection: Connection, frame: Frame) -> None:
    request = requests.decode(frame)
    assert isinstance(request, requests.FactsAbout)
    space, store = _space(connection, request.namespace), connection.door.broker.store

    async def work() -> answers.Done:
        await store.facts_close(space, request.name)
        return answers.Done(1)

    Working(connection, frame.number, frame.kind, None, connection.door.noted(connection, "CloseFactsTap", "", work))
