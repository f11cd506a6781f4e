"""A slot: the place of one answer in the order of its queue, and the reply that the store tells.

    asked ──► waits in the order of its queue ──► answered, and everything before it too ──► ready ──► written

An answer is bytes, or a call that makes them. It is made when it can be written and not before: what a slow client does not take costs
no more than the place, and a look at a queue sees what was answered before it. A slot whose client has left gives back what it holds.
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dovetail.doors.native import answers, refusals
from dovetail.doors.native.frames import Kind
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.doors.native.connection import Connection
    from dovetail.doors.native.opened import Opened

log = logging.getLogger("dovetail.native")

Order = deque["Slot"]
"""The answers of one queue that are still to be given, in the order of the requests."""


class Slot:
    """One request under way. Subclasses turn what the store tells into bytes."""

    __slots__ = ("answer", "began", "connection", "counts", "failed", "kind", "number", "order")
    hands_out = False

    def __init__(self, connection: Connection, number: int, kind: int, order: Order | None = None, *, counts: bool = True) -> None:
        self.connection = connection
        self.number = number
        self.kind = kind
        self.order = order
        self.counts = counts
        """Whether the client waits for it: it is one of the requests that may be under way."""
        self.answer: bytes | Callable[[], bytes] | None = None
        self.failed = False
        self.began = connection.began
        if order is not None:
            order.append(self)
        if counts:
            connection.under_way += 1

    # What the store tells

    def done(self) -> bool:
        return self.connection.over

    def set_result(self, outcome: Any, /) -> None:
        try:
            self.give(self.tell(outcome))
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, error: BaseException, /) -> None:
        self.failed = True
        self.give(refused(error, self.number), refusals.code_of(error))

    def tell(self, outcome: Any) -> bytes | Callable[[], bytes] | None:
        """The answer; None where there will be another one later."""
        raise NotImplementedError

    # Answering

    def give(self, answer: bytes | Callable[[], bytes] | None, code: str = "ok") -> None:
        if answer is not None:
            self.connection.door.count_request(NAMES[self.kind], code, perf_counter() - self.began)
            self.place(answer)

    def place(self, answer: bytes | Callable[[], bytes]) -> None:
        """Answered. It is ready when everything before it is."""
        self.answer = answer
        connection, order = self.connection, self.order
        if order is None:
            connection.ready.append(self)
        elif order[0] is not self:
            return
        else:
            ready = connection.ready
            while order and order[0].answer is not None:
                ready.append(order.popleft())
        connection.schedule()

    def leave_order(self) -> None:
        """It will be answered when it is, and those behind it need not wait."""
        order, self.order = self.order, None
        if order is None:
            return
        first = order[0] is self
        order.remove(self)
        if first and order and order[0].answer is not None:
            while order and order[0].answer is not None:
                self.connection.ready.append(order.popleft())
            self.connection.schedule()

    def written(self) -> bytes:
        """The bytes, made now."""
        answer = self.answer
        if isinstance(answer, bytes):
            return answer
        assert answer is not None
        try:
            return answer()
        except Exception as error:
            return refused(error, self.number)

    def give_up(self) -> None:
        """The client has left: what it was to get goes back."""


class Look(Slot):
    """A request that reads: it is answered when it is written, behind everything that was asked before."""

    __slots__ = ("_look",)

    def __init__(
        self,
        connection: Connection,
        number: int,
        kind: int,
        opened: Opened | None,
        look: Callable[[], bytes],
        after: Future[Any] | None = None,
    ) -> None:
        """`after` is something that must be there first. What is of no one queue stands in no order."""
        super().__init__(connection, number, kind, opened.order if opened is not None else None)
        self._look = look
        after = after or (opened.returning if opened is not None else None)
        if after is None:
            self.place(look)
        else:
            after.add_done_callback(lambda _: self.place(look))

    def written(self) -> bytes:
        code = "ok"
        try:
            data = self._look()
        except Exception as error:
            data, code = refused(error, self.number), refusals.code_of(error)
        self.connection.door.count_request(NAMES[self.kind], code, perf_counter() - self.began)
        return data


def refused(error: BaseException, number: int) -> bytes:
    if not isinstance(error, DovetailError):
        log.error("a request failed", exc_info=error)
    return answers.encode(refusals.answer(error), number)


NAMES = {int(kind): kind.name for kind in Kind}
