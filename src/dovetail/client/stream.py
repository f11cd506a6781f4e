"""What is consumed: one CONSUME, its deliveries as they come, and credit back.

A stream outlives its connection. On the next one it is asked for anew, with the credit that is left when everything in hand is taken off:
what the node had sent and we had not got comes again when its lease ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.client.handout import Handout, Rows
from dovetail.client.link import Link, refusal
from dovetail.doors.native.answers import Deliveries, Error, decode
from dovetail.doors.native.codec import Frame, ProtocolError, requests
from dovetail.doors.native.refusals import Code
from dovetail.errors import DovetailError
from dovetail.service.verbs import Held

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

FRAME_MESSAGES_MAX = 1_000


class Consuming:
    """A CONSUME on one connection. A call, until it was stopped."""

    __slots__ = ("link", "over", "stream")

    def __init__(self, stream: Stream, link: Link) -> None:
        self.stream = stream
        self.link = link
        self.over = False

    def answered(self, frame: Frame) -> bool:
        answer = decode(frame)
        if isinstance(answer, Deliveries):
            self.stream.got(answer)
            return False
        if not isinstance(answer, Error):
            raise ProtocolError("a consume is answered with neither DELIVERIES nor ERROR")
        self.over = True
        self.stream.refused(answer)
        return True

    def cut(self, doubt: bool) -> None:
        self.over = True
        self.stream.cut()


class Stream:
    def __init__(self, session: Session, place: Place, messages: int, size: int, lease_ms: int, delete: bool) -> None:
        session.check_open()
        self._session = session
        self._place = place
        self._lease_ms = lease_ms
        self._delete = delete
        self._messages, self._size = messages, size
        """Credit that is left: of what was given, what has not come."""
        self._frame_messages = min(FRAME_MESSAGES_MAX, max(1, messages // 2))
        self.came: deque[Rows] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._consuming: Consuming | None = None
        self._number = 0
        self._error: DovetailError | None = None
        self._stopped = False
        session.streams[self] = None
        session.touch(self)

    # For the consumer

    async def next(self) -> Sequence[Held]:
        while not self.came:
            if self._stopped:
                return ()
            if self._error is not None:
                raise self._error
            self._waiting = self._session.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self.came.popleft()

    def give(self, messages: int, size: int) -> None:
        self._messages += messages
        self._size += size
        link = self._link
        if link is not None:
            link.tell(requests.Credit(self._number, messages, size))
        self._session.touch(self)

    async def stop(self) -> Sequence[Held]:
        if not self._stopped:
            self._stopped = True
            self._session.streams.pop(self, None)
            link = self._link
            if link is not None:
                # Its answer comes behind the last delivery. With the connection the consume ends too.
                await asyncio.wait([self._session.stop(link, self._number)], timeout=self._session.timeout_s)
            self._wake()
        left = [row for rows in self.came for row in rows]
        self.came.clear()
        return left

    # For the connection

    @property
    def _link(self) -> Link | None:
        """On which it is asked for, while that is worked with."""
        consuming = self._consuming
        return consuming.link if consuming is not None and not consuming.over and consuming.link is self._session.link else None

    def flush(self, link: Link) -> None:
        """Ask for it, if it is not asked for on this connection."""
        if self._consuming is None and not self._stopped and self._messages > 0 and self._size > 0 and self._error is None:
            self._consuming = Consuming(self, link)
            request = requests.Consume(self._place.queue, self._messages, self._size, self._frame_messages, self._lease_ms, self._delete)
            self._number = link.request(self._consuming, request)

    def got(self, deliveries: Deliveries) -> None:
        handout = Handout(deliveries, self._session.salt)
        rows = Rows(handout, 0, len(handout))
        self._messages -= len(rows)
        self._size -= rows.size
        self._session.when_named(handout, lambda: self._came_in(rows))

    def _came_in(self, rows: Rows) -> None:
        if len(rows):
            self.came.append(rows)
            self._wake()

    def refused(self, told: Error) -> None:
        if told.code == Code.CLOSED:
            self._session.retire(self._consuming.link if self._consuming is not None else None)
            self.cut()  # The node stops: the next one is asked.
            return
        self._consuming = None
        self.fail(refusal(told))

    def cut(self) -> None:
        self._consuming = None
        if not self._stopped:
            self._session.touch(self)  # The next connection may stand already.

    def fail(self, error: DovetailError) -> None:
        self._error = error
        self._session.streams.pop(self, None)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
