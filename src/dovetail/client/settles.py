"""What is settled: the completes of many tasks in one frame, as parts of the runs in which the messages came.

Batched as what is sent is (pushes.py): whatever is settled in one queue in one turn, or while FRAMES_MAX frames are under way, rides one
frame. Settling twice does no harm, so what was under way when a connection was lost is settled again on the next. Then *yes* is an answer,
and *no* is none: nobody can tell whether it was the first time that did it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dovetail.client.handout import Row, parts_of
from dovetail.client.link import Link, refusal
from dovetail.core.receipts import Part
from dovetail.doors.native.answers import Error, decode
from dovetail.doors.native.codec import Frame, Kind, ProtocolError, requests
from dovetail.doors.native.refusals import Code
from dovetail.errors import DovetailError, Unknown
from dovetail.limits import BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

FRAMES_MAX = 4
_YES, _NO = (1,), (0,)
_IDEMPOTENT = frozenset((Kind.EXTEND,))


class Settling:
    """Deliveries of one queue that share a frame. A call, once it is under way."""

    __slots__ = (
        "again", "count", "deadline", "key", "link", "parts", "parts_replies", "place", "rows", "rows_replies", "settles", "shared",
    )  # fmt: skip

    def __init__(self, settles: Settles, place: Place, key: tuple[int, int], deadline: float, shared: bool) -> None:
        self.settles = settles
        self.place = place
        self.key = key
        self.deadline = deadline
        self.shared = shared
        """Others may join. Not where a receipt came as a text: if it is none, the whole frame is refused."""
        self.rows: list[Row] = []
        """Settled one by one, each with its own to be told …"""
        self.rows_replies: list[asyncio.Future[Any]] = []
        self.parts: list[Part] = []
        """… and many at once."""
        self.parts_replies: list[tuple[asyncio.Future[Any], int]] = []
        self.count = 0
        self.again = False
        self.link: Link | None = None

    def request(self) -> requests.Settle:
        if len(self.rows) > 1:
            self._put_in_order()
        kind, parameter = self.key
        return requests.Settle(Kind(kind), self.place.queue, [*parts_of(self.rows), *self.parts], parameter)

    def _put_in_order(self) -> None:
        """Handlers end in any order; neighbours of a run that are settled together are one part, and one check of a seal for the node."""
        rows = self.rows
        if all(one.handout is other.handout and one.at < other.at for one, other in pairwise(rows)):
            return
        frames: dict[int, int] = {}
        places = [(frames.setdefault(id(row.handout), len(frames)), row.at) for row in rows]
        order = sorted(range(len(rows)), key=places.__getitem__)
        self.rows = [rows[index] for index in order]
        self.rows_replies = [self.rows_replies[index] for index in order]

    # As a call

    def answered(self, frame: Frame) -> bool:
        if frame.kind == Kind.SETTLED:
            done = bytes(frame.payload)
            if len(done) != self.count:
                raise ProtocolError("the answer to a settle is about another one")
            self._tell(done)
        else:
            answer = decode(frame)
            if not isinstance(answer, Error):
                raise ProtocolError("a settle is answered with neither SETTLED nor ERROR")
            self.settles.refused(self, answer)
        self.settles.over(self)
        return True

    def cut(self, doubt: bool) -> None:
        self.again |= doubt
        self.settles.cut(self)

    def _tell(self, done: bytes) -> None:
        if self.again and self.key[0] not in _IDEMPOTENT and not all(done):
            self._tell_what_is_known(done)
            return
        for future, one in zip(self.rows_replies, done, strict=False):
            if not future.done():
                future.set_result(_YES if one else _NO)
        at = len(self.rows)
        for future, count in self.parts_replies:
            if not future.done():
                future.set_result(done[at : at + count])
            at += count

    def _tell_what_is_known(self, done: bytes) -> None:
        unknown = Unknown("The first answer was lost, and the second time it was too late: perhaps because the first time it was not.")
        at = 0
        for future, count in [*[(one, 1) for one in self.rows_replies], *self.parts_replies]:
            part = done[at : at + count]
            at += count
            if future.done():
                continue
            if all(part):
                future.set_result(part)
            else:
                future.set_exception(unknown)

    def fail(self, error: DovetailError) -> None:
        for future in [*self.rows_replies, *[reply[0] for reply in self.parts_replies]]:
            if not future.done():
                future.set_exception(error)

    @property
    def given_up(self) -> bool:
        return all(future.done() for future in self.rows_replies) and all(reply[0].done() for reply in self.parts_replies)


class Settles:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop = session.loop
        self._line: deque[Settling] = deque()
        self._under_way: dict[Settling, None] = {}

    # Taking in

    def row(self, place: Place, key: tuple[int, int], row: Row) -> asyncio.Future[Sequence[int]]:
        """One message: by far the most frequent."""
        future: asyncio.Future[Sequence[int]] = self._loop.create_future()
        settling = place.settling.get(key)
        if settling is None or settling.count >= BATCH_MESSAGES_MAX:
            settling = self._open(place, key)
        settling.rows.append(row)
        settling.rows_replies.append(future)
        settling.count += 1
        return future

    def parts(
        self, place: Place, key: tuple[int, int], parts: Sequence[Part], count: int, *, trusted: bool = True
    ) -> asyncio.Future[Sequence[int]]:
        """Many at once. What came as texts goes alone."""
        future: asyncio.Future[Sequence[int]] = self._loop.create_future()
        settling = place.settling.get(key) if trusted else None
        if settling is None or settling.count + count > BATCH_MESSAGES_MAX:
            settling = self._open(place, key, shared=trusted)
        settling.parts += parts
        settling.parts_replies.append((future, count))
        settling.count += count
        return future

    def _open(self, place: Place, key: tuple[int, int], *, shared: bool = True) -> Settling:
        self._session.check_open()
        settling = Settling(self, place, key, self._session.deadline(), shared)
        if shared:
            place.settling[key] = settling
        else:
            place.settling.pop(key, None)
        self._line.append(settling)
        self._session.touch(self)
        return settling

    # Out and back

    def flush(self, link: Link) -> None:
        while self._line and len(self._under_way) < FRAMES_MAX:
            settling = self._line.popleft()
            self._leave(settling)
            self._under_way[settling] = None
            self._send(link, settling)

    @staticmethod
    def _send(link: Link, settling: Settling) -> None:
        settling.link = link
        link.request(settling, settling.request())

    def over(self, settling: Settling) -> None:
        self._under_way.pop(settling, None)
        if self._line:
            self._session.touch(self)

    def refused(self, settling: Settling, told: Error) -> None:
        if told.code == Code.CLOSED:
            self._line.appendleft(settling)  # Nothing happened, and the next node will do.
            self._session.retire(settling.link)
        elif told.code == Code.RECEIPT_INVALID and len(settling.rows_replies) + len(settling.parts_replies) > 1:
            self._apart(settling)
        else:
            settling.fail(refusal(told))

    def _apart(self, settling: Settling) -> None:
        """One receipt is none, perhaps of a node that has lost its memory: each goes by itself, so that only that one is refused."""
        single = []
        for row, future in zip(settling.rows, settling.rows_replies, strict=True):
            one = Settling(self, settling.place, settling.key, settling.deadline, False)
            one.rows, one.rows_replies, one.count = [row], [future], 1
            single.append(one)
        parts = iter(settling.parts)
        for future, count in settling.parts_replies:
            one = Settling(self, settling.place, settling.key, settling.deadline, False)
            one.parts_replies, one.count = [(future, count)], count
            while count:
                part = next(parts)
                one.parts.append(part)
                count -= part.end - part.start
            single.append(one)
        for one in single:
            one.again = settling.again
        self._line.extendleft(reversed(single))

    # When connections come and go

    def cut(self, settling: Settling) -> None:
        """It stays where it is, among those under way, to go first on the next connection."""

    def resume(self, link: Link) -> None:
        for settling in list(self._under_way):
            if settling.given_up:
                del self._under_way[settling]
            else:
                self._send(link, settling)

    def expire(self, now: float) -> None:
        while self._line and self._line[0].deadline <= now:
            settling = self._line.popleft()
            self._leave(settling)
            settling.fail(self._session.unreached())
        for settling in self._under_way:
            if settling.deadline <= now:
                settling.fail(Unknown("No answer came in time; whether it was done is not known."))

    def part(self) -> None:
        for settling in self._line:
            self._leave(settling)

    @staticmethod
    def _leave(settling: Settling) -> None:
        if settling.place.settling.get(settling.key) is settling:
            del settling.place.settling[settling.key]

    def close(self, error: DovetailError) -> None:
        line, self._line = self._line, deque()
        for settling in line:
            self._leave(settling)
            settling.fail(error)
        for settling in self._under_way:
            settling.fail(Unknown("The connection was closed before the answer."))
