"""What is received once: many tasks that receive ride one pull.

A line is for one queue, one lease, one mode and one wait. Whoever comes in one turn of the loop is asked for in one PULL; what it brings is
dealt out in the order in which they came. Those who got nothing, and may wait, are asked for again. What comes for somebody who has left
goes to the next in line, or back to the queue as if it had not been taken.

Nothing is made for a receiver but its future: with hundreds of tasks on a connection an object for each was a tenth of what a message cost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

from dovetail.client.handout import Handout, Rows
from dovetail.client.link import Link, refusal
from dovetail.doors.native.answers import Deliveries, Error, decode
from dovetail.doors.native.codec import Frame, ProtocolError, requests
from dovetail.doors.native.refusals import Code
from dovetail.errors import DovetailError
from dovetail.limits import BATCH_MESSAGES_MAX, WAIT_MS_MAX
from dovetail.service.verbs import Held

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

SLACK_S = 0.5
"""The node ends a wait. Where it does not, because it is gone, it is ended here a little later."""
GRACE_S = 0.05
Receiver = asyncio.Future[Sequence[Held]]


class Pull:
    """Receivers who share a PULL: first those of one turn who can still be joined, then a call, then perhaps what is left of them."""

    __slots__ = ("attempt", "deadline", "line", "link", "mosts", "number", "receivers", "stopped", "until", "wanted")

    def __init__(self, line: Line, until: float, deadline: float, attempt: bytes = b"") -> None:
        self.line = line
        self.until = until
        """When they have waited long enough, by the loop's time."""
        self.deadline = deadline
        """When an answer must have come, also if they do not wait."""
        self.attempt = attempt
        self.receivers: list[Receiver] = []
        self.mosts: list[int] = []
        self.wanted = 0
        self.number = 0
        self.link: Link | None = None
        self.stopped = False

    @property
    def left(self) -> bool:
        """Nobody receives any more."""
        return all(one.done() for one in self.receivers)

    def forget_the_left(self) -> None:
        here = [not one.done() for one in self.receivers]
        self.receivers, self.mosts = list(compress(self.receivers, here)), list(compress(self.mosts, here))
        self.wanted = sum(self.mosts)

    def answered(self, frame: Frame) -> bool:
        answer = decode(frame)
        if isinstance(answer, Deliveries):
            self.line.got(self, answer)
        elif isinstance(answer, Error):
            self.line.refused(self, answer)
        else:
            raise ProtocolError("a pull is answered with neither DELIVERIES nor ERROR")
        return True

    def cut(self, doubt: bool) -> None:
        self.line.again(self)

    def tell(self, result: Sequence[Held] | DovetailError) -> None:
        for one in self.receivers:
            if not one.done():
                if isinstance(result, DovetailError):
                    one.set_exception(result)
                else:
                    one.set_result(result)


class Line:
    def __init__(self, pulls: Pulls, place: Place, lease_ms: int, delete: bool, wait_ms: int) -> None:
        self._pulls = pulls
        self._session = pulls.session
        self._place = place
        self._lease_ms = lease_ms
        self._delete = delete
        self.wait_ms = wait_ms
        self.open: Pull | None = None
        """What can still be joined: by others of this turn."""
        self.standing: deque[Pull] = deque()
        """Those who are to be asked for."""
        self.under_way: dict[Pull, None] = {}

    @property
    def empty(self) -> bool:
        return not self.standing and not self.under_way

    def join(self, receiver: Receiver, most: int, attempt: bytes) -> None:
        pull = self.open
        if pull is None or pull.wanted + most > BATCH_MESSAGES_MAX or attempt:
            self._session.check_open()
            now = self._session.loop.time()
            pull = Pull(self, now + self.wait_ms / 1000, now + self._session.timeout_s, attempt)
            self.standing.append(pull)
            # In a queue with groups each is asked for alone: what one receiver may get, two may not share. So is who names an attempt.
            self.open = None if attempt or self._place.attributes.grouped else pull
            self._pulls.stand(self, pull.until)
        pull.receivers.append(receiver)
        pull.mosts.append(most)
        pull.wanted += most

    def ask(self, link: Link) -> None:
        self.open = None
        now = self._session.loop.time()
        while self.standing:
            pull = self.standing.popleft()
            pull.forget_the_left()
            if pull.receivers:
                wait_ms = max(0, min(WAIT_MS_MAX, round((pull.until - now) * 1000))) if self.wait_ms else 0
                request = requests.Pull(self._place.queue, pull.wanted, self._lease_ms, wait_ms, 0, self._delete, pull.attempt)
                self.under_way[pull] = None
                pull.number, pull.link = link.request(pull, request), link

    # Coming back

    def got(self, pull: Pull, deliveries: Deliveries) -> None:
        del self.under_way[pull]
        handout = Handout(deliveries, self._session.salt)
        self._session.when_named(handout, lambda: self._deal(pull, handout))

    def _deal(self, pull: Pull, handout: Handout) -> None:
        """To those for whom it was asked, and then to whoever else stands here."""
        at, total = self._dealt(pull, handout, 0), len(handout)
        while at < total and self.standing and not self._place.attributes.grouped:
            other = self.standing[0]
            at = self._dealt(other, handout, at)
            if not other.receivers:
                self.standing.popleft()
        if at < total and not self._delete:
            self._session.give_back(self._place, handout, at, total)
        if not pull.receivers:
            return
        left_s = pull.until - self._session.loop.time() if self.wait_ms else 0.0
        if total and left_s > 0:
            self._stand_again(pull)
        elif left_s < GRACE_S or pull.stopped:
            pull.tell([])
        else:
            # Nothing, and too early: a node that stops ends every wait, and then says that it stops.
            self.under_way[pull] = None
            self._session.loop.call_later(GRACE_S, self._ended_early, pull, self._session.link)

    def _ended_early(self, pull: Pull, link: Link | None) -> None:
        self.under_way.pop(pull, None)
        if not pull.left:
            if link is None or link is not self._session.link or link.last is not None:
                self._stand_again(pull)
            else:
                pull.tell([])

    @staticmethod
    def _dealt(pull: Pull, handout: Handout, at: int) -> int:
        """Deal out from `at` on; answers how far it went. Those who got nothing stay with the pull."""
        pull.forget_the_left()
        receivers, total = pull.receivers, len(handout)
        if pull.wanted == len(receivers):
            served = min(len(receivers), total - at)
            for receiver, row in zip(receivers, handout.rows(at, at + served), strict=False):
                receiver.set_result((row,))
            at += served
        else:
            served = 0
            while at < total and served < len(receivers):
                end = min(at + pull.mosts[served], total)
                receivers[served].set_result(Rows(handout, at, end))
                at = end
                served += 1
        pull.receivers, pull.mosts = receivers[served:], pull.mosts[served:]
        return at

    def _stand_again(self, pull: Pull) -> None:
        self.standing.appendleft(pull)
        self._pulls.stand(self, pull.until)

    def refused(self, pull: Pull, told: Error) -> None:
        if told.code == Code.CLOSED:
            self.again(pull)
            self._session.retire(pull.link)
            return
        del self.under_way[pull]
        pull.tell(refusal(told))

    def again(self, pull: Pull) -> None:
        """No answer will come. What it may have taken comes again when its lease ends."""
        self.under_way.pop(pull, None)
        pull.stopped = False
        if not pull.left:
            self._stand_again(pull)

    # Leaving

    def retire(self) -> None:
        """Nobody receives here any more: waits may be of any length, and lines of all of them are not kept."""
        self._place.lines.pop((self._lease_ms, self._delete, self.wait_ms), None)

    def expire(self, now: float) -> float:
        """End what has waited long enough; answers when to look again."""
        session, soonest = self._session, float("inf")
        connected = session.link is not None
        for pull in (*self.standing, *self.under_way):
            over = pull.until + SLACK_S if self.wait_ms and connected else max(pull.until, pull.deadline)
            if over > now:
                soonest = min(soonest, over)
            else:
                pull.tell([] if self.wait_ms and connected else session.unreached())
        self.stop_left()
        return soonest

    def stop_left(self) -> None:
        """A pull for whom nobody waits any more need not wait itself."""
        for pull in self.under_way:
            link = pull.link
            if link is not None and link is self._session.link and self.wait_ms and not pull.stopped and pull.left:
                pull.stopped = True
                self._session.stop(link, pull.number)

    def fail(self, error: DovetailError) -> None:
        for pull in (*self.standing, *self.under_way):
            pull.tell(error)
        self.open = None
        self.standing.clear()
        self.under_way.clear()


class Pulls:
    """The lines of all queues."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop = session.loop
        self._lines: dict[Line, None] = {}
        """Those in which somebody receives."""
        self._standing: dict[Line, None] = {}
        """Those in which somebody is still to be asked for."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = float("inf")

    def receive(self, place: Place, most: int, lease_ms: int, wait_ms: int, delete: bool, attempt: bytes) -> Receiver:
        line = place.lines.get((lease_ms, delete, wait_ms))
        if line is None:
            line = place.lines[lease_ms, delete, wait_ms] = Line(self, place, lease_ms, delete, wait_ms)
        receiver: Receiver = self._loop.create_future()
        line.join(receiver, most, attempt)
        return receiver

    def stand(self, line: Line, until: float) -> None:
        self._lines[line] = None
        self._standing[line] = None
        self.session.touch(self)
        if line.wait_ms and until + SLACK_S < self._alarm_at:
            self._set_alarm(until + SLACK_S)

    def left(self, place: Place, receiving: Receiver) -> None:
        """Whoever awaited this was cancelled, and takes no message with it."""
        if receiving.cancelled():
            for line in place.lines.values():
                line.stop_left()
        elif receiving.exception() is None:
            self.session.release(place, receiving.result())

    def flush(self, link: Link) -> None:
        if self._standing:
            standing, self._standing = self._standing, {}
            for line in standing:
                line.ask(link)

    def part(self) -> None:
        """Who comes from now on stands apart, with a time of his own."""
        for line in self._standing:
            line.open = None

    # Time

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, float("inf")
        soonest = self.expire(self._loop.time())
        if soonest < float("inf"):
            self._set_alarm(soonest)

    def expire(self, now: float) -> float:
        soonest = float("inf")
        for line in list(self._lines):
            soonest = min(soonest, line.expire(now))
            if line.empty:
                del self._lines[line]
                line.retire()
        return soonest

    def close(self, error: DovetailError) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for line in self._lines:
            line.fail(error)
