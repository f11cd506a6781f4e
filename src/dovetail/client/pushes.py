"""What is sent: messages of many tasks in one frame, numbered so that none is stored twice.

    open batch  ──►  line  ──►  a loan and its frame  ──►  answered: each sender is told its own
    (per queue)                 (at most FRAMES_MAX under way)

**Batching.** Whatever is sent to a queue in one turn of the loop rides one frame, and so does whatever is sent while as many frames are
under way as there are loans. Nothing waits for a timer: with a loan free the delay is the rest of the turn, else it is the answer to one
frame.

**Numbers.** Each loan is a producer that the node lends us, with one frame under way: so of a frame whose answer was lost the last results
are still known, and as a plain frame has sequences without gaps, so are all of them. After a reconnect the producer is opened again and the
frame is sent again under its old numbers: the node stores what it had not and answers what it had. (One producer for all frames would need
no loans, but keeps 64 results: of frames behind one another it would know the last.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from dovetail.client.batch import MANY, ONE, RICH, Batch
from dovetail.client.link import Link, Once, refusal
from dovetail.core.operation import Numbered
from dovetail.core.receipts import Part
from dovetail.doors.native.answers import Error, Producing
from dovetail.doors.native.codec import NotOpened, ProtocolError, raised, requests
from dovetail.doors.native.refusals import Code
from dovetail.errors import BadRequest, DovetailError, NumberRefused, Unavailable, Unknown
from dovetail.limits import BATCH_MESSAGES_MAX, ENTRY_BYTES_TARGET, PRODUCER_RESULTS_KEPT
from dovetail.stores.store import Number, Outgoing, Stored

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

FRAMES_MAX = 4
"""Frames under way. The node works on one while the next ones travel; more would only be smaller."""
LENT_S = 240.0
"""How long a producer is surely still ours after the connection was lost: the node lends it to nobody else for a minute longer."""
PAUSE_S = 0.05
"""Before a producer that could not be opened is asked for again."""
_CONTENT = frozenset((Code.BAD_REQUEST, Code.LIMIT_EXCEEDED, Code.MALFORMED, Code.CODEC_ERROR))
_NO_NUMBER_USED = _CONTENT | {
    Code.STORAGE_FULL, Code.THROTTLED, Code.OVER_QUOTA, Code.RECEIPT_INVALID, Code.ACCESS_DENIED, Code.UNAVAILABLE, Code.CLOSED,
}  # fmt: skip
"""Refusals that use no number. After any other the producer is asked where it stands."""


class Loan:
    """A producer of ours, and the one frame that is under way under its numbers."""

    __slots__ = ("batch", "epoch", "identity", "last", "opening", "ready")

    def __init__(self, ready: bool) -> None:
        self.identity = bytes(16)
        """Zeros: none was lent to us yet."""
        self.epoch = self.last = 0
        self.ready = ready
        """It is open on this connection, and we know where it stands."""
        self.opening: asyncio.Task[None] | None = None
        self.batch: Batch | None = None


class Pushes:
    def __init__(self, session: Session, numbered: bool) -> None:
        self.session = session
        self._numbered = numbered
        self._loop = session.loop
        self._serials = count()
        self._line: deque[Batch] = deque()
        self._loans = [Loan(not numbered) for _ in range(FRAMES_MAX)]
        self._alone: set[Batch] = set()
        """Under way with numbers of the program's own."""

    # Taking in

    def body(self, place: Place, body: bytes) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        batch = place.batch
        size = len(body) + 4
        if batch is None or batch.size + size > ENTRY_BYTES_TARGET or len(batch.items) >= batch.most:
            batch = self._open(place)
        batch.items.append(body)
        batch.size += size
        batch.replies.append((future, 1, ONE))
        return future

    def bodies(self, place: Place, bodies: Sequence[bytes]) -> asyncio.Future[Sequence[int]]:
        """Bodies that fit one frame."""
        size = sum(map(len, bodies)) + 4 * len(bodies)
        future: asyncio.Future[Sequence[int]] = self._many(place, bodies, size, MANY, BATCH_MESSAGES_MAX)
        return future

    def messages(self, place: Place, messages: Sequence[Outgoing]) -> asyncio.Future[Sequence[Sequence[Stored]]]:
        """The same, where there is more to a message than its body."""
        # Of a frame that is sent again so many results are known; with deduplication the others cannot be worked out from them.
        most = PRODUCER_RESULTS_KEPT if self.cuts(messages) else BATCH_MESSAGES_MAX
        size = sum([len(one.body) + len(one.attributes) + len(one.group) + 48 for one in messages])
        future: asyncio.Future[Sequence[Sequence[Stored]]] = self._many(place, messages, size, RICH, most)
        assert place.batch is not None
        place.batch.plain = False
        place.batch.most = min(most, place.batch.most)
        return future

    def cuts(self, messages: Sequence[Outgoing]) -> bool:
        """Whether no more of these than PRODUCER_RESULTS_KEPT may share a frame."""
        return self._numbered and any(one.dedup for one in messages)

    def _many(self, place: Place, items: Sequence[Any], size: int, form: int, most: int) -> Any:
        future = self._loop.create_future()
        batch = place.batch
        if batch is None or batch.size + size > ENTRY_BYTES_TARGET or len(batch.items) + len(items) > min(most, batch.most):
            batch = self._open(place)
        batch.items += items
        batch.size += size
        batch.replies.append((future, len(items), form))
        return future

    def _open(self, place: Place) -> Batch:
        batch = place.batch = self._lined(Batch(self, (place,), self.session.deadline()))
        return batch

    def alone(
        self,
        places: Sequence[Place],
        messages: Sequence[Outgoing],
        number: Number | None = None,
        completes: tuple[Place, Sequence[Part]] | None = None,
    ) -> Awaitable[Sequence[Sequence[Stored]]]:
        """What shares its frame with nobody: a push to several queues, one with numbers of the program's, or one that completes others."""
        future = self._loop.create_future()
        batch = Batch(self, places, self.session.deadline())
        batch.items = list(messages)
        batch.plain = False
        batch.number, batch.completes = number, completes
        batch.replies.append((future, len(messages), RICH))
        self._lined(batch)
        for place in places:
            place.batch = None  # What is sent to these queues from now on comes behind it.
        return future

    def _lined(self, batch: Batch) -> Batch:
        self.session.check_open()
        self._line.append(batch)
        self.session.touch(self)
        return batch

    # Out, as far as there are loans

    def flush(self, link: Link) -> None:
        line = self._line
        while line:
            batch = line[0]
            loan = self._free(link) if batch.number is None else None
            if loan is None and batch.number is None:
                return
            line.popleft()
            self._leave(batch)
            if batch.made().bodies:  # Else everybody who sent something left before it could be sent.
                batch.serial, batch.loan = next(self._serials), loan
                self._send(link, batch)

    def _send(self, link: Link, batch: Batch) -> None:
        loan, numbered = batch.loan, None
        if loan is None:
            self._alone.add(batch)
            numbered = Numbered(*batch.number) if batch.number is not None else None
        else:
            loan.batch = batch
            if self._numbered:
                numbered = Numbered(loan.identity, loan.epoch, loan.last + 1)
        try:
            kind, payload = batch.payload(numbered)
        except Exception as error:
            # A value that has no bytes, such as a number below 0: nothing of it has left.
            self.over(batch, used=False)
            batch.fail(BadRequest(f"a value that cannot be sent: {error}"))
            return
        batch.link = link
        link.ask(batch, kind, payload)

    def _free(self, link: Link) -> Loan | None:
        closed = None
        for loan in self._loans:
            if loan.batch is None:
                if loan.ready:
                    return loan
                closed = closed or loan
        # One more is opened only when all that are open are busy: most programs never need the second.
        if closed is not None and not any(loan.opening is not None for loan in self._loans):
            closed.opening = self._loop.create_task(self._open_loan(link, closed))
        return None

    async def _open_loan(self, link: Link, loan: Loan) -> None:
        try:
            await self._opened(link, loan)
            if loan.batch is not None:
                self._send(link, loan.batch)
        except Unavailable:
            # The connection was lost, and the next one tries again; or the node cannot do it now.
            if not link.ended.done():
                await asyncio.sleep(PAUSE_S)
        except DovetailError as error:
            if loan.batch is not None:
                loan.batch.fail(error)
                loan.batch = None
            self._fail(error)
        finally:
            loan.opening = None
            self.session.touch(self)

    async def _opened(self, link: Link, loan: Loan) -> None:
        """Open the producer of a loan and learn where it stands."""
        once = Once(self._loop)
        link.request(once, requests.Producer(loan.identity))
        link.write()
        answer = await once.future
        if not isinstance(answer, Producing):
            raise ProtocolError("PRODUCER is answered with neither PRODUCING nor ERROR")
        batch = loan.batch
        known = loan.last + (len(batch.items) if batch is not None else 0)
        if batch is not None and not loan.last <= answer.last <= known:
            # The node has forgotten our numbers, or is another one: what was under way can no longer be told from what was not.
            batch.fail(Unknown("The answer was lost, and the node that answers now does not know of it."))
        if batch is None or batch.given_up:
            loan.batch, loan.last = None, answer.last
        loan.identity, loan.epoch, loan.ready = answer.identity, answer.epoch, True

    # Coming back

    def over(self, batch: Batch, *, used: bool = True) -> None:
        """A frame was answered: its loan is free."""
        loan = batch.loan
        if loan is None:
            self._alone.discard(batch)
        elif loan.batch is batch:
            loan.batch = None
            if used:
                loan.last += len(batch.items)
        if self._line:
            self.session.touch(self)

    def refused(self, batch: Batch, told: Error) -> None:
        error, loan = raised(told), batch.loan
        if loan is None and isinstance(error, NotOpened):
            error = NumberRefused("The producer, or the queue, is not open on this connection: open it again.")
        if loan is None or not self._numbered or (told.code in _NO_NUMBER_USED and not told.unknown):
            self.over(batch, used=False)
            if told.code == Code.CLOSED and loan is not None:
                self._line.appendleft(batch)  # Nothing happened, and the next node will do.
                self.session.retire(batch.link)
                self.session.touch(self)  # The next connection may stand already.
            elif told.code in _CONTENT and len(batch.replies) > 1:
                self._apart(batch)
            else:
                batch.fail(error)
            return
        # It may have used its numbers, or the loan is no longer ours: ask before the next frame.
        loan.ready = False
        if batch.again or not (told.unknown or isinstance(error, NumberRefused | NotOpened)):
            loan.batch = None
            batch.fail(refusal(told))
        else:
            batch.again = True  # It may have happened, and its numbers tell.
            link = self.session.link
            if link is not None:
                loan.opening = self._loop.create_task(self._open_loan(link, loan))
        self.session.touch(self)

    def _apart(self, batch: Batch) -> None:
        """Strangers shared a frame, and something in it breaks a rule: each goes by itself, so that only one is refused."""
        at, single = 0, []
        for reply in batch.replies:
            one = Batch(self, batch.places, batch.deadline)
            one.items, one.plain = batch.items[at : at + reply[1]], batch.plain
            one.replies = [reply]
            at += reply[1]
            single.append(one)
        self._line.extendleft(reversed(single))
        self.session.touch(self)

    # When connections come and go

    def cut(self, batch: Batch, doubt: bool) -> None:
        loan = batch.loan
        if loan is None:
            self._alone.discard(batch)
            text = "The connection was lost: open the producer again and send the same numbers."
            batch.fail(Unknown(text) if doubt else Unavailable(text))
        elif self._numbered:
            batch.again |= doubt
        else:
            loan.batch = None
            if doubt:
                batch.fail(Unknown("The connection was lost before the answer."))
            else:
                self._line.appendleft(batch)
            self.session.touch(self)

    def without_numbers(self) -> None:
        """The node takes none. What is under way when a connection is lost is not known then."""
        self._numbered = False
        for loan in self._loans:
            loan.ready = True

    async def resume(self, link: Link, lost_at: float) -> None:
        """On a new connection: what was under way first, in its order."""
        if not self._numbered:
            return
        gone = self._loop.time() - lost_at > LENT_S
        for loan in self._loans:
            loan.ready = False
            if gone and loan.batch is not None:
                loan.batch.fail(Unknown("The connection was lost for so long that the node may have forgotten what was under way."))
                loan.batch = None
            if loan.batch is None:
                loan.identity = bytes(16)  # It goes back to the node; another is asked for when one is needed.
        await asyncio.gather(*[self._opened_again(link, loan) for loan in self._loans if loan.batch is not None])
        for batch in sorted([loan.batch for loan in self._loans if loan.batch is not None], key=lambda batch: batch.serial):
            self._send(link, batch)

    async def _opened_again(self, link: Link, loan: Loan) -> None:
        try:
            await self._opened(link, loan)
        except BadRequest as error:
            # The node will not have this producer: the others go on without it.
            if loan.batch is not None:
                loan.batch.fail(Unknown(f"The answer was lost, and the node does not let us ask for it: {error}"))
            loan.batch, loan.identity = None, bytes(16)

    # Time

    def expire(self, now: float) -> None:
        while self._line and self._line[0].deadline <= now:
            batch = self._line.popleft()
            self._leave(batch)
            batch.fail(self.session.unreached())
        for batch in self._under_way():
            if batch.deadline <= now:
                batch.fail(Unknown("No answer came in time; whether it was stored is not known."))

    def part(self) -> None:
        """Nobody joins what stands in line: who comes later has a later deadline."""
        for batch in self._line:
            self._leave(batch)

    def _under_way(self) -> list[Batch]:
        return [*self._alone, *[loan.batch for loan in self._loans if loan.batch is not None]]

    @staticmethod
    def _leave(batch: Batch) -> None:
        """It leaves the line: nobody can join it any more."""
        for place in batch.places:
            if place.batch is batch:
                place.batch = None

    def _fail(self, error: DovetailError) -> None:
        """Those who stand in line will not be served."""
        line, self._line = self._line, deque()
        for batch in line:
            self._leave(batch)
            batch.fail(error)

    def close(self, error: DovetailError) -> None:
        self._fail(error)
        for batch in self._under_way():
            batch.fail(Unknown("The connection was closed before the answer."))
