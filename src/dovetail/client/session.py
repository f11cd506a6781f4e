"""A lineage of connections to one node, or to one of several that will do as well: what holds when a connection is lost.

    reach ──► greet ──► open the queues again ──► send again what was under way ──► work ──► lost
      ▲                                                                                       │
      └───────────────────────── the next address, after a while ◄────────────────────────────┘

Everything that is asked for in one turn of the loop leaves at its end, in one write: whoever has something `touch`es the session, and at
the end of the turn it lets each of its parts put its frames together. One timer looks for what has waited too long; there is none per call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from dovetail.client.address import Credentials, Target, target_of
from dovetail.client.asks import Asks
from dovetail.client.handout import Handout, Row, parts_of
from dovetail.client.link import Link, Once
from dovetail.client.place import Place
from dovetail.client.pulls import Pulls
from dovetail.client.pushes import Pushes
from dovetail.client.settles import Settles
from dovetail.client.stream import Stream
from dovetail.core.operation import Attributes
from dovetail.doors.native.answers import UNNUMBERED_FEATURE, Named, Opened, Pong
from dovetail.doors.native.codec import AccessDenied, Kind, ProtocolError, Rules, requests
from dovetail.errors import BadRequest, Closed, DovetailError, NoSuchQueue, Unavailable
from dovetail.service.verbs import Held

REACH_S = 10.0
"""For one address, from the first packet to WELCOME, at most: before `timeout_s` is over each is tried about twice."""
CLOSE_S = 1.0
BACK_OFF_S = 0.05
BACK_OFF_MAX_S = 2.0
SWEEP_S = 0.25
HEARTBEAT_S = 15.0
"""A node from which nothing came for so long is asked whether it is there; if it does not say so for as long again, it is not."""

log = logging.getLogger("dovetail.client")


class Part(Protocol):
    """What has frames to send."""

    def flush(self, link: Link) -> None: ...


class Session:
    def __init__(
        self, targets: Sequence[Target], credentials: Credentials, context: ssl.SSLContext | None, *, numbered: bool, timeout_s: float
    ) -> None:
        if not timeout_s > 0:
            raise BadRequest(f"a timeout of {timeout_s} s; it must lie above 0")
        self.loop = asyncio.get_running_loop()
        self.link: Link | None = None
        """The connection, while it can be worked with."""
        self.durability = ""
        self.salt = 0
        self.namespace = ""
        self.places: dict[tuple[str, str], Place] = {}
        self.names: dict[int, str | None] = {}
        """Of queues that dead letters came from."""
        self.timeout_s = timeout_s
        self.pushes = Pushes(self, numbered)
        self.settles = Settles(self)
        self.pulls = Pulls(self)
        self.asks = Asks(self)
        self.streams: dict[Stream, None] = {}
        self._targets = list(targets)
        self._given = len(self._targets)
        self._at = 0
        self._pause_s = BACK_OFF_S
        self._credentials = credentials
        self._context = context
        self._closed: DovetailError | None = None
        self._why: DovetailError = Unavailable("no connection was tried yet")
        self._touched: dict[Part, None] = {}
        self._turning = False
        self._keeper: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        self._lost_at = 0.0
        self._heartbeat_s = HEARTBEAT_S
        self._first: asyncio.Future[None] = self.loop.create_future()

    # For the parts

    def check_open(self) -> None:
        """Asked when something is begun: once for what is batched, and not for every message of it."""
        if self._closed is not None:
            raise self._closed
        if asyncio.get_running_loop() is not self.loop:
            # Else it would leave with the next frame, and whoever asked would be told of a future that is another loop's.
            raise BadRequest("a connection is used on the event loop on which it was made; other threads have dovetail.blocking")

    def deadline(self) -> float:
        return self.loop.time() + self.timeout_s

    def unreached(self) -> DovetailError:
        """Why something never left."""
        where = ", ".join(map(str, self._targets))
        return Unavailable(f"no node was reached at {where} within {self.timeout_s:g} s: {self._why}")

    def touch(self, part: Part | None = None) -> None:
        """Something is to leave at the end of this turn. What came first leaves first."""
        if part is not None:
            self._touched[part] = None
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        link = self.link
        if link is None or not link.writable or link.ended.done():
            return
        touched, self._touched = self._touched, {}
        for part in touched:
            part.flush(link)
        link.write()

    def retire(self, link: Link | None) -> None:
        """The node at the other end of this link said that it stops: nothing more is asked of it. What is under way there may still be
        answered. (A link that is not worked with any more was retired, or lost, before.)"""
        if link is not None and self.link is link:
            self.link = None
            log.info("the node stops, looking for another")
            self.loop.call_later(1.0, link.end, Unavailable("The node stops."))

    def when_named(self, handout: Handout, then: Callable[[], None]) -> None:
        """Go on when every queue that dead letters came from has a name: at once, nearly always."""
        missing = {run.source for run in handout.runs if run.source} - self.names.keys()
        if not missing:
            then()
            return

        async def name() -> None:
            for queue in missing:
                try:
                    answer = await self.asks.ask(requests.About(Kind.NAME, queue), Named, again=True)
                    self.names[queue] = answer.name
                except NoSuchQueue:
                    self.names[queue] = None  # It is gone, or not ours to know; an id is never given to another queue.
                except DovetailError:
                    pass  # The message matters more than the name of the queue that it came from.
            then()

        self._aside(name())

    def give_back(self, place: Place, handout: Handout, start: int, end: int) -> None:
        """Messages that came for nobody: as if they had not been taken."""
        with contextlib.suppress(Closed):
            self._aside(self.settles.parts(place, (Kind.RELEASE, 0), handout.parts(start, end), end - start))

    def release(self, place: Place, held: Sequence[Held]) -> None:
        rows = [one for one in held if type(one) is Row and one.run.delivery]
        if rows:
            with contextlib.suppress(Closed):
                self._aside(self.settles.parts(place, (Kind.RELEASE, 0), parts_of(rows), len(rows)))

    def stop(self, link: Link, number: int) -> asyncio.Future[Any]:
        """End a consume, or a pull that waits, on the link on which it was asked: its number means another request on every other."""
        stopped = self._aside(self._asked(link, requests.Stop(number)))
        self.touch()
        return stopped

    def _aside(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Something whose failure concerns nobody: leases end by themselves."""
        future = asyncio.ensure_future(work)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    # Queues

    def opened(self, namespace: str, name: str, answer: Opened) -> Place:
        """The place of a queue, as the node has just told it. The same object as long as it is the same queue."""
        place = self.places.get((namespace, name))
        if place is None or place.queue != answer.queue:
            place = self.places[namespace, name] = Place(self, namespace, name, answer.queue, attributes_of(answer.rules))
        else:
            place.attributes = attributes_of(answer.rules)
        self.names[answer.queue] = name
        return place

    # Connections

    async def open(self) -> None:
        """Until the first connection stands, or it is clear that none will."""
        self._keeper = self.loop.create_task(self._keep())
        self._keeper.add_done_callback(self._kept)
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
        try:
            await asyncio.wait_for(asyncio.shield(self._first), self.timeout_s)
        except TimeoutError:
            raise self.unreached() from None

    async def ping(self) -> None:
        await self.asks.ask(requests.Ping(), Pong, again=True)

    async def close(self) -> None:
        error = Closed("The connection was closed.")
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        link = self.link
        self._end(error)
        if link is not None:
            # Until the socket is closed: whoever ends the loop next leaves nothing open.
            await asyncio.wait([link.ended], timeout=CLOSE_S)

    def _end(self, error: DovetailError) -> None:
        """Nobody will be answered any more."""
        self._closed = self._closed or error
        if self._sweeper is not None:
            self._sweeper.cancel()
        link, self.link = self.link, None
        for part in (self.pushes, self.settles, self.asks, self.pulls):
            part.close(error)
        for stream in list(self.streams):
            stream.fail(error)
        if link is not None:
            link.close()
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # Whoever opens is told; if he has left, that is no fault.

    async def _keep(self) -> None:
        while True:
            try:
                link = await self._reached()
            except DovetailError as error:
                self._end(error)
                return
            try:
                await self._resumed(link)
            except (DovetailError, TimeoutError) as error:
                # A node that greets and cannot go on: perhaps the next one can, or this one in a while.
                target = self._targets[self._at % len(self._targets)]
                self._why = Unavailable(f"{target}: {str(error) or 'the queues were not opened in time'}")
                log.debug("not resumed: %s", self._why)
                link.end(self._why)
                self._at += 1
                await self._back_off()
                continue
            self._pause_s = BACK_OFF_S
            if not self._first.done():
                self._first.set_result(None)
            self.link = link
            parts: list[Part] = [self.pushes, self.settles, self.asks, self.pulls, *self.streams]
            for part in parts:
                self.touch(part)
            self._why = await self._over(link)
            self._lost_at = self.loop.time()
            self.link = None
            self._at += 1
            log.info("connection lost: %s", self._why)

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            # A fault of ours: whoever waits is told, and not left to a connection that nobody makes any more.
            log.error("the connection is given up", exc_info=error)
            self._end(DovetailError(f"The client has failed: {error!r}"))

    async def _over(self, link: Link) -> DovetailError:
        """Until the connection has ended, or the node has said that it stops. Then the next one is looked for at once; what the node still
        answers is taken."""
        while not link.ended.done():
            await asyncio.wait([link.ended], timeout=SWEEP_S)
            if link.last is not None and not link.ended.done():
                if self.link is link:
                    self.retire(link)
                return Unavailable("The node stops.")
        return link.ended.result()

    async def _reached(self) -> Link:
        """Try one address after the other until one answers. Refusals that every further try would meet are raised: that every address
        denies us, and before the first connection also that what is there does not speak as nodes do. (Later it may be a balancer
        that has no node at the moment.)"""
        while True:
            denied: list[DovetailError] = []
            for _ in range(len(self._targets)):
                target = self._targets[self._at % len(self._targets)]
                self._why = Unavailable(f"{target} has not answered yet")
                try:
                    return await self._greeted(target)
                except (OSError, DovetailError, TimeoutError, ssl.SSLError, UnicodeError) as error:
                    self._why = Unavailable(f"{target}: {str(error) or 'it did not answer in time'}")
                    if isinstance(error, AccessDenied) or (isinstance(error, ProtocolError) and not self._first.done()):
                        denied.append(error)
                    log.debug("%s was not reached: %s", target, error)
                self._at += 1
            if len(denied) == len(self._targets):
                raise denied[-1]
            if denied:
                self._why = denied[-1]
            await self._back_off()

    async def _back_off(self) -> None:
        # Clients that were all cut off together do not come back together.
        await asyncio.sleep(self._pause_s * (0.5 + random.random()))
        self._pause_s = min(2 * self._pause_s, BACK_OFF_MAX_S)

    async def _greeted(self, target: Target) -> Link:
        async with asyncio.timeout(min(REACH_S, self.timeout_s / (2 * len(self._targets)))):
            _, link = await self.loop.create_connection(
                lambda: Link(self._credentials, self.touch), target.host, target.port, ssl=self._context
            )
            try:
                welcome = await link.welcome
            except BaseException:
                link.end(Unavailable("The greeting failed."))
                raise
        self.salt = int.from_bytes(welcome.salt, "big")
        self.durability, self.namespace = welcome.durability, welcome.namespace
        if welcome.features & UNNUMBERED_FEATURE:
            self.pushes.without_numbers()
        self._heartbeat_s = max(0.1, min(HEARTBEAT_S, welcome.idle_ms / 3000))
        learnt = []
        for address in welcome.addresses:
            with contextlib.suppress(BadRequest):
                learnt.append(target_of(address))
        self._targets[self._given :] = [one for one in dict.fromkeys(learnt) if one not in self._targets[: self._given]]
        self._at = self._targets.index(target) if target in self._targets else 0
        log.info("connected to %s at %s", welcome.name, target)
        return link

    async def _resumed(self, link: Link) -> None:
        """Put a new connection where the one before was: the queues, and what was under way."""
        async with asyncio.timeout(REACH_S):
            places = list(self.places.items())
            answers = [self._asked(link, requests.Open(name, namespace)) for (namespace, name), _ in places]
            link.write()
            for (key, place), opened in zip(places, await asyncio.gather(*answers, return_exceptions=True), strict=True):
                if isinstance(opened, Opened) and opened.queue == place.queue:
                    place.attributes = attributes_of(opened.rules)
                elif isinstance(opened, BaseException) and not isinstance(opened, NoSuchQueue | AccessDenied):
                    raise opened
                elif self.places.get(key) is place:
                    del self.places[key]  # Dropped meanwhile, or closed to us: whatever names its id is refused.
            await self.pushes.resume(link, self._lost_at)
        self.settles.resume(link)
        link.write()

    def _asked(self, link: Link, request: requests.Request) -> asyncio.Future[Any]:
        once = Once(self.loop)
        link.request(once, request)
        return once.future

    # Time

    def _sweep(self) -> None:
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
        now = self.loop.time()
        self.pushes.expire(now)
        self.settles.expire(now)
        self.asks.expire(now)
        self.pulls.expire(now)
        link = self.link
        if link is None:
            for part in (self.pushes, self.settles, self.pulls):
                part.part()
            return
        quiet_s = now - link.heard_at
        if quiet_s < self._heartbeat_s:
            self._pinged_at = None
        elif self._pinged_at is None:
            self._pinged_at = now
            self._aside(self._asked(link, requests.Ping()))
            link.write()
        elif now - self._pinged_at > self._heartbeat_s:
            # Counted from the question: where our own loop was busy for a minute, the node had no time to say anything.
            link.end(Unavailable(f"nothing came for {quiet_s:.0f} s, not even when asked"))


def attributes_of(rules: Rules) -> Attributes:
    return Attributes(**rules)
