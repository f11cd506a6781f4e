"""Messages that ride one frame, and who is to be told what became of which.

A batch is filled while it waits in the line (pushes.py), is put into bytes once, and is a call of the connection until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from dovetail.core.codec import encode_push
from dovetail.core.column import Column
from dovetail.core.operation import Numbered, Push
from dovetail.core.receipts import Part
from dovetail.doors.native import fields
from dovetail.doors.native.answers import DURABILITY, REFUSED, REPEAT, STORED, Error, Lane, Pushed, decode
from dovetail.doors.native.codec import Frame, Kind, ProtocolError
from dovetail.errors import DovetailError, NumberRefused
from dovetail.limits import BATCH_MESSAGES_MAX
from dovetail.stores.batches import push_of
from dovetail.stores.store import Number, Outgoing, Stored

if TYPE_CHECKING:
    from dovetail.client.link import Link
    from dovetail.client.place import Place
    from dovetail.client.pushes import Loan, Pushes

ONE, MANY, RICH = 0, 1, 2
"""What a sender is told: the sequence of its message; the sequences of its plain messages; what became of each, queue by queue."""
_PUSHED = Struct("<BBHIQII")
_COMPLETES = Struct("<QII")


class Batch:
    __slots__ = (
        "again", "completes", "deadline", "items", "link", "loan", "most", "number", "places", "plain", "push", "pushes", "replies",
        "serial", "size",
    )  # fmt: skip

    def __init__(self, pushes: Pushes, places: Sequence[Place], deadline: float) -> None:
        self.pushes = pushes
        self.places = places
        self.deadline = deadline
        self.items: list[Any] = []
        """Bodies, or messages where there is more to say."""
        self.replies: list[tuple[asyncio.Future[Any], int, int]] = []
        """(who, how many messages, what it is told)"""
        self.size = 0
        self.most = BATCH_MESSAGES_MAX
        self.plain = True
        """Nothing but bodies."""
        self.completes: tuple[Place, Sequence[Part]] | None = None
        """What is completed in the same step."""
        self.number: Number | None = None
        """Of a producer that the program opened."""
        self.loan: Loan | None = None
        self.push: Push | None = None
        self.link: Link | None = None
        """On which it left last."""
        self.serial = 0
        self.again = False
        """It was sent before, and the answer was lost."""

    # Going out

    def made(self) -> Push:
        """Its columns, without those whose senders have left in time."""
        if self.push is None:
            if any(reply[0].cancelled() for reply in self.replies):
                self._drop_cancelled()
            queues = tuple([place.queue for place in self.places])
            if self.plain:
                self.push = Push(queues, Column.of(self.items))
            else:
                self.push = push_of(queues, [Outgoing(one) if type(one) is bytes else one for one in self.items], None)
        return self.push

    def _drop_cancelled(self) -> None:
        items, replies, at = [], [], 0
        for reply in self.replies:
            if not reply[0].cancelled():
                items += self.items[at : at + reply[1]]
                replies.append(reply)
            at += reply[1]
        self.items, self.replies = items, replies

    def payload(self, numbered: Numbered | None) -> tuple[Kind, bytes]:
        push = self.made()
        record = encode_push(push if numbered is None else push._replace(numbered=numbered))
        if self.completes is None:
            return Kind.PUSH, record
        place, parts = self.completes
        return Kind.COMPLETE_PUSH, _COMPLETES.pack(place.queue, len(parts), 0) + fields.items(parts) + record

    # As a call

    def answered(self, frame: Frame) -> bool:
        payload = frame.payload
        if frame.kind == Kind.PUSHED and len(payload) == _PUSHED.size:
            durability, _, _, _, first, count, form = _PUSHED.unpack(payload)
            if not form and count == len(self.items):
                self.pushes.session.durability = DURABILITY[durability]
                self._tell_dense(first)
                self.pushes.over(self)
                return True
        answer = decode(frame)
        if isinstance(answer, Pushed):
            self._tell(answer)
            self.pushes.over(self)
        elif isinstance(answer, Error):
            self.pushes.refused(self, answer)
        else:
            raise ProtocolError("a push is answered with neither PUSHED nor ERROR")
        return True

    def cut(self, doubt: bool) -> None:
        self.pushes.cut(self, doubt)

    # Coming back

    def _tell_dense(self, first: int) -> None:
        """All stored, in one queue, one behind the other: by far the most frequent, and run for every message that is sent alone."""
        at = first
        for future, count, form in self.replies:
            if not future.done():
                if form == ONE:
                    future.set_result(at)
                elif form == MANY:
                    future.set_result(range(at, at + count))
                else:
                    begin = at - first
                    future.set_result([[Stored(self._own_id(begin + index), at + index, False) for index in range(count)]])
            at += count

    def _tell(self, pushed: Pushed) -> None:
        self.pushes.session.durability = DURABILITY[pushed.durability]
        if len(pushed.lanes) != len(self.places) or any(len(lane.sequences) != len(self.items) for lane in pushed.lanes):
            raise ProtocolError("the answer to a push is about another one")
        lanes = [self._known(lane) for lane in pushed.lanes]
        at = 0
        for future, count, form in self.replies:
            if not future.done():
                stored = [[self._stored(lane, index) for index in range(at, at + count)] for lane in lanes]
                if any(one is None for lane in stored for one in lane):
                    future.set_exception(NumberRefused("A number that was refused or skipped once has that outcome for ever."))
                elif form == RICH:
                    future.set_result(stored)
                else:
                    sequences = [one.sequence for one in stored[0] if one is not None]
                    future.set_result(sequences[0] if form == ONE else sequences)
            at += count

    @property
    def _ours(self) -> bool:
        """What the node calls a repeat is what we sent again. With deduplication nobody can tell that from a repeat of the program's."""
        return self.loan is not None and self.again and self.made().dedups is None

    def _known(self, lane: Lane) -> Lane:
        """Of a frame that was sent again the node knows the last sequences. One record has sequences without gaps, if no message of it can
        be a repeat of another."""
        last, count = lane.sequences[-1], len(lane.sequences)
        return lane._replace(sequences=range(last - count + 1, last + 1)) if lane.verdicts and self._ours and last >= count else lane

    def _stored(self, lane: Lane, index: int) -> Stored | None:
        verdict = lane.verdicts[index] if lane.verdicts else STORED
        if verdict == REFUSED:
            return None
        own = lane.ids[16 * index : 16 * index + 16] if lane.ids else b""
        return Stored(own if any(own) else self._own_id(index), lane.sequences[index], verdict == REPEAT and not self._ours)

    def _own_id(self, index: int) -> bytes:
        one = self.items[index]
        return b"" if type(one) is bytes else one.id

    def fail(self, error: DovetailError) -> None:
        for future, _, _ in self.replies:
            if not future.done():
                future.set_exception(error)

    @property
    def given_up(self) -> bool:
        """Nobody waits for it any more."""
        return all(reply[0].done() for reply in self.replies)
