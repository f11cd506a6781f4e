"""What is asked once and answered once: everything that is neither sent, settled nor received."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar, cast

from dovetail.client.link import Link, resolve
from dovetail.doors.native.answers import Answer, Error, decode
from dovetail.doors.native.codec import Frame, Kind, requests
from dovetail.doors.native.refusals import Code
from dovetail.errors import BadRequest, DovetailError, Unknown

if TYPE_CHECKING:
    from dovetail.client.session import Session

A = TypeVar("A")

_UNANSWERED = "No answer came in time; whether it was done is not known."
_LOOKS = (
    requests.Ping,
    requests.Open,
    requests.List,
    requests.Peek,
    requests.TapRead,
    requests.Stages,
    requests.ReserveRead,
    requests.FactsRead,
    requests.FactsAbout,
    requests.About,
)
"""What changes nothing when it is asked again. (An About or a FactsAbout that does is never asked again.)"""


class Ask:
    """One request. `again`: asking twice does no harm, so it is asked again on the next connection. A call, once it is under way."""

    __slots__ = ("again", "asks", "deadline", "doubt", "future", "link", "request")

    def __init__(self, asks: Asks, request: requests.Request, deadline: float, again: bool, future: asyncio.Future[Answer]) -> None:
        self.asks = asks
        self.request = request
        self.deadline = deadline
        self.again = again
        self.future = future
        self.doubt = False
        """A node may have done it already: it changes something, and its answer was lost once."""
        self.link: Link | None = None
        """On which it was asked last."""

    def answered(self, frame: Frame) -> bool:
        self.asks.over(self)
        if frame.kind == Kind.ERROR and not self.future.done():
            told = decode(frame)
            if isinstance(told, Error) and told.code == Code.CLOSED:
                self.asks.refused_for_now(self)
                return True
        if not self.future.done():
            resolve(self.future, frame)
        return True

    def cut(self, doubt: bool) -> None:
        self.asks.cut(self, doubt)


class Asks:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._line: deque[Ask] = deque()
        self._under_way: dict[Ask, None] = {}

    def ask(self, request: requests.Request, kind: type[A], *, again: bool) -> Awaitable[A]:
        """The answer, which is a `kind`, or the error that came in its place."""
        session = self._session
        session.check_open()
        future: asyncio.Future[Answer] = session.loop.create_future()
        self._line.append(Ask(self, request, session.deadline(), again, future))
        session.touch(self)
        return cast(Awaitable[A], future)

    def flush(self, link: Link) -> None:
        while self._line:
            ask = self._line.popleft()
            if ask.future.done():
                continue
            try:
                link.request(ask, ask.request)
            except (struct.error, UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                ask.future.set_exception(BadRequest(f"a value that cannot be sent: {error}"))
            else:
                ask.link = link
                self._under_way[ask] = None

    def over(self, ask: Ask) -> None:
        self._under_way.pop(ask, None)

    def refused_for_now(self, ask: Ask) -> None:
        """Nothing happened, because the node stops: the next one is asked."""
        self._again(ask)
        self._session.retire(ask.link)

    def _again(self, ask: Ask) -> None:
        self._line.append(ask)
        self._session.touch(self)  # The next connection may stand already.

    def cut(self, ask: Ask, doubt: bool) -> None:
        self.over(ask)
        if ask.future.done():
            return
        if doubt and not ask.again:
            ask.future.set_exception(Unknown("The connection was lost before the answer."))
        else:
            ask.doubt |= doubt and not isinstance(ask.request, _LOOKS)
            self._again(ask)

    def expire(self, now: float) -> None:
        for ask in [ask for ask in self._line if ask.deadline <= now]:
            self._line.remove(ask)
            if not ask.future.done():
                ask.future.set_exception(Unknown(_UNANSWERED) if ask.doubt else self._session.unreached())
        for ask in self._under_way:
            if ask.deadline <= now and not ask.future.done():
                ask.future.set_exception(Unknown(_UNANSWERED))

    def close(self, error: DovetailError) -> None:
        line, self._line = self._line, deque()
        for ask in line:
            if not ask.future.done():
                ask.future.set_exception(Unknown("The connection was closed before the answer.") if ask.doubt else error)
        for ask in self._under_way:
            if not ask.future.done():
                ask.future.set_exception(Unknown("The connection was closed before the answer."))
