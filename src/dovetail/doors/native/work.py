"""Requests that take a coroutine: what is done rarely, and not by the thousand a second.

Requests of one queue take effect in their order. So a coroutine is begun in the very turn in which its request is read, up to where it
first waits: by then it has handed what it wants to the store. (A task alone would begin a turn later, behind what was read after it.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.doors.native import answers
from dovetail.doors.native.slots import Order, Slot

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection

T = TypeVar("T")


class Working(Slot):
    """A request whose answer a coroutine makes. It goes on when the client has left: what it changes is not half done."""

    __slots__ = ()

    def __init__(
        self, connection: Connection, number: int, kind: int, order: Order | None, make: Callable[[], Coroutine[Any, Any, answers.Answer]]
    ) -> None:
        super().__init__(connection, number, kind, order)
        work = make()
        try:
            waited = work.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except Exception as error:
            self.set_exception(error)
        else:
            task = asyncio.get_running_loop().create_task(_rest(work, waited))
            connection.door.tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[answers.Answer]) -> None:
        self.connection.door.tasks.discard(task)
        if self.connection.over:
            if not task.cancelled():
                task.exception()
        elif task.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())

    def tell(self, outcome: answers.Answer) -> bytes:
        return answers.encode(outcome, self.number)


async def _rest(work: Coroutine[Any, Any, T], waited: Any) -> T:
    return await _going_on(work, waited)


@coroutine
def _going_on(work: Coroutine[Any, Any, T], waited: Any) -> Generator[Any, Any, T]:
    """The coroutine from where it first waited on."""
    try:
        while True:
            try:
                sent = yield waited
            except BaseException as error:
                waited = work.throw(error)
            else:
                waited = work.send(sent)
    except StopIteration as stop:
        value: T = stop.value
        return value
