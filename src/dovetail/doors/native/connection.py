"""One client's connection: bytes from the socket to frames, frames to verbs, answers back.

    kernel ──► backlog ──► under way ──► ready ──► kernel
               frames      slots         slots, one write a turn

What waits is bounded in every place: the backlog by one delivery of the socket, because reading pauses while there is one; what is under
way by `in_flight_max`, and of what is staged also by bytes (room.py); what is ready by the same, by what is taken in a turn, and by the
credit of consumers; and nothing is put into bytes before it can be written. A client that does not read its answers is not read either.
What all together leave unfinished or unread has bounds too (held.py). When a connection ends, whatever was not written goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from operator import attrgetter
from struct import error as struct_error
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, cast

from dovetail.doors.native import answers, refusals
from dovetail.doors.native.bounds import GREETING_BYTES_MAX, REQUEST_BYTES_MAX
from dovetail.doors.native.fields import Malformed, NoSuchKind
from dovetail.doors.native.frames import HEADER, HEADER_BYTES, VERSION, Broken, Data, Event, Frame, Hello, Kind, Reader
from dovetail.doors.native.greeting import Caller, Greeting
from dovetail.doors.native.opened import Opened
from dovetail.doors.native.refusals import AccessDenied, NotOpened, ProtocolError
from dovetail.doors.native.slots import NAMES, refused
from dovetail.errors import BadRequest, DovetailError, LimitExceeded, Unavailable

if TYPE_CHECKING:
    from dovetail.doors.native.door import Door
    from dovetail.doors.native.server import Server

log = logging.getLogger("dovetail.native")

UNLIMITED = frozenset((Kind.PING, Kind.CREDIT, Kind.STOP))
"""What no quota of requests counts: it keeps a connection going, or takes work off the node."""
OUT_BYTES = 256 * 1024
"""Answers are put together up to this size before they are written."""
TURN_BYTES = 1024 * 1024
"""What is put into bytes for one connection before others have their turn."""
WRITE_BUFFER_BYTES = 256 * 1024
"""What the transport holds for a slow client before we stop."""


_hands_out = attrgetter("hands_out")


class Ready(Protocol):
    """Something to write: an answer, or deliveries of a consumer."""

    counts: bool
    hands_out: bool
    """Messages are in it: it is not given to a client that has hung up."""

    def written(self) -> bytes: ...

    def give_up(self) -> None: ...


class Wait(Protocol):
    """A pull that waits, or a consume."""

    def stop(self) -> None:
        """The client asked for its end: nothing more is taken for it."""

    def leave(self) -> None:
        """The client has left."""

    def go_on(self) -> None:
        """There is room to write again."""


class Connection(asyncio.Protocol):
    """All its state belongs to the loop; there are no locks."""

    __slots__ = (
        "_backlog", "_greeting", "_last", "_paused", "_reader", "_scheduled", "_server", "_since", "_stalled", "_taken", "_transport",
        "began", "caller", "door", "fd", "held", "over", "peer", "producers", "queues", "ready", "under_way", "waits", "writable",
    )  # fmt: skip

    def __init__(self, server: Server, door: Door) -> None:
        self._server = server
        self.door = door
        self._reader = Reader(hello=True, payload_max=GREETING_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self._backlog: deque[Event] = deque()
        self._last = 0
        self._paused = self._scheduled = False
        self._taken = 0
        """Frames since the last turn."""
        self._since = server.loop.time()
        self._stalled: set[Wait] = set()
        self.began = 0.0
        self.caller: Caller | None = None
        self.peer = ""
        self.fd = -1
        self.queues: dict[int, Opened] = {}
        self.producers: set[bytes] = set()
        self.waits: dict[int, Wait] = {}
        self.ready: deque[Ready] = deque()
        self.under_way = 0
        self.writable = True
        self.held = False
        """As much is being staged as may be (room.py)."""
        self.over = False
        """The last answer was given: what still arrives is thrown away."""

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports behave like one and do not derive from it
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self.fd = transport.get_extra_info("socket").fileno()
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        if not self._server.admit(self):
            self.finish(LimitExceeded("too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._leave()
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        if self.caller is not None:
            # Until then the clock runs on from the start: bytes that trickle in are no greeting.
            self._since = self._server.now()
            if not self._backlog and self._reader.empty and (plain := self._take_plain(data)):
                if plain == len(data):
                    return
                events = self._feed(memoryview(data)[plain:])
            else:
                events = self._feed(data)
        else:
            events = self._feed(data)
        if self._backlog:
            self._backlog.extend(events)
        else:
            self._take(events)

    def _feed(self, data: Data) -> list[Event]:
        reader, unfinished = self._reader, self._server.unfinished
        was_empty = reader.empty
        events = reader.feed(data)
        if not reader.empty:
            for slowest in unfinished.hold(self, reader.unfinished_bytes):
                slowest.finish(Unavailable("too many frames are being sent at once, and this one has taken longest; try again"))
        elif not was_empty:
            unfinished.let_go(self)
        return events

    def eof_received(self) -> bool:
        # A client that closed looks the same as one that only stopped sending. We take it as gone: what was handed to a socket that nobody
        # reads would be hidden for a whole lease.
        return False

    def pause_writing(self) -> None:
        self.writable = False
        self._since = self._server.now()
        if self._transport is not None and not self.over:
            for slowest in self._server.unread.hold(self, self._transport.get_write_buffer_size()):
                log.warning("%s leaves its answers unread, and too much of that is held: it is cut off", slowest.peer)
                slowest.abort()

    def resume_writing(self) -> None:
        self.writable = True
        self._since = self._server.now()
        self._server.unread.let_go(self)
        self.schedule()

    # Frames

    def _take_plain(self, data: bytes) -> int:
        """Requests that the short road takes, from the first on; returns where the first one begins that it does not."""
        at, end = 0, len(data)
        roads, room = self.door.roads, self._server.bounds.in_flight_max
        self.began = perf_counter()
        while end - at >= HEADER_BYTES:
            size, kind, flags, zero, number = HEADER.unpack_from(data, at)
            road = roads.get(kind)
            start = at + HEADER_BYTES
            if road is None or flags or zero or start + size > end or number != self._last + 1:
                break
            if self.under_way >= room or not self.writable or self.over or not road(self, number, data, start, size):
                break
            self._last = number
            at = start + size
        return at

    def _take(self, events: list[Event]) -> None:
        self.began = perf_counter()
        bounds = self._server.bounds
        room, last = bounds.in_flight_max, bounds.turn_frames_max - self._taken
        for index, event in enumerate(events):
            if self.over:
                return
            if self.under_way >= room or not self.writable or self.held or index >= last:
                self._backlog.extend(events[index:])
                self._taken += index
                self._pause()
                if index >= last:
                    self.schedule()
                return
            if type(event) is Frame:
                self._frame(event)
            elif isinstance(event, Hello):
                self._hello(event)
            elif isinstance(event, Broken):
                self.finish(ProtocolError(event.text), event.number)
        self._taken += len(events)

    def _frame(self, frame: Frame) -> None:
        number = frame.number
        if number != self._last + 1 and (self._last or not number):
            self.finish(ProtocolError(f"a request has the number {number} and should have {self._last + 1}"), number)
            return
        self._last = number
        if self.caller is None:
            self._auth(frame)
            return
        try:
            verb = self.door.verbs.get(frame.kind)
            if verb is None:
                raise _no_verb(frame.kind)
            if self.door.limited and frame.kind not in UNLIMITED:
                self.door.check_caller(self.caller)
            verb(self, frame)
        except (DovetailError, struct_error) as error:
            self.refuse(number, frame.kind, error if isinstance(error, DovetailError) else Malformed(f"the payload is cut short: {error}"))
        except Exception as error:
            self.refuse(number, frame.kind, error)

    def _hello(self, hello: Hello) -> None:
        if not hello.lowest <= VERSION <= hello.highest:
            text = f"this node speaks version {VERSION} and you speak {hello.lowest} to {hello.highest}"
            self.finish(ProtocolError(text))
            return
        self._greeting = self.door.greet()
        self.tell(self._greeting.hello())

    def _auth(self, frame: Frame) -> None:
        try:
            if self._greeting is None or frame.kind != Kind.AUTH:
                raise ProtocolError("the first request is AUTH")
            self.caller, welcome = self._greeting.answer(frame)
        except DovetailError as error:
            self.door.count_request("AUTH", refusals.code_of(error), 0.0)
            self.finish(error, frame.number)
            return
        self.door.count_request("AUTH", "ok", perf_counter() - self.began)
        self._reader.payload_max = REQUEST_BYTES_MAX
        self._greeting = None
        self._since = self._server.now()
        self.tell(welcome, frame.number)

    # What verbs ask for

    def opened(self, queue: int, right: int) -> Opened:
        """The queue, if it was opened here and the caller may do this to it (all of it, where several rights are named)."""
        found = self.queues.get(queue)
        if found is None:
            raise NotOpened(f"the queue {queue} was not opened on this connection")
        if found.attributes is not found.lane.attributes:
            self.door.look_again(self, found)
        if found.rights & right != right:
            raise AccessDenied("The queue's policy does not allow this.")
        if self.door.limited:
            self.door.check_queue(queue)
        return found

    def refuse(self, number: int, kind: int, error: BaseException) -> None:
        """A request that did not get as far as having a place of its own."""
        self.door.count_request(NAMES.get(kind, "unknown"), refusals.code_of(error), perf_counter() - self.began)
        self._ready_at_once(refused(error, number))

    def tell(self, answer: answers.Answer, number: int = 0) -> None:
        """Something that is answered at once, and in nobody's order."""
        self._ready_at_once(answers.encode(answer, number))

    def _ready_at_once(self, data: bytes) -> None:
        self.ready.append(Told(data))
        self.schedule()

    def wait(self, number: int, wait: Wait) -> None:
        """A pull or a consume is there until it ends; LimitExceeded where there are too many."""
        if len(self.waits) >= self._server.bounds.waits_max:
            raise LimitExceeded(f"{len(self.waits)} pulls wait and consumes are open on this connection; it may have no more")
        self.waits[number] = wait

    def stall(self, wait: Wait) -> None:
        """It goes on when there is room to write."""
        self._stalled.add(wait)

    # Writing

    def schedule(self) -> None:
        """Something is ready: it is written at the end of the turn, together with whatever else will be ready by then."""
        if not self._scheduled and not self.over:
            self._scheduled = True
            self._server.schedule(self)

    def turn(self) -> None:
        self._scheduled = False
        self._taken = 0
        if self.over:
            return
        self._flush()
        if self._stalled and self.writable and not self.over:
            stalled, self._stalled = self._stalled, set()
            for wait in stalled:
                wait.go_on()
        if self._backlog and self.under_way < self._server.bounds.in_flight_max and self.writable and not self.held:
            events, self._backlog = list(self._backlog), deque()
            self._take(events)
        if self._paused and self._reads_on() and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _reads_on(self) -> bool:
        return self.writable and not (self._backlog or self.over or self._server.draining)

    def _flush(self) -> None:
        ready, transport = self.ready, self._transport
        if transport is None or not self.writable:
            return
        if any(map(_hands_out, ready)) and self._server.has_left(self):
            self.abort()  # What was to be handed out goes back.
            return
        if len(ready) == 1:
            # One answer, as it is for whoever asks one thing at a time.
            one = ready.popleft()
            if one.counts:
                self.under_way -= 1
            data = one.written()
            transport.write(data)
            self._server.wrote(len(data))
        elif ready:
            self._write_ready(transport)
        if self._server.draining and not self.under_way and not ready and not self.waits:
            self._end(transport)

    def _write_ready(self, transport: asyncio.Transport) -> None:
        ready = self.ready
        out: list[bytes] = []
        size = total = 0
        while ready and self.writable:
            if total > TURN_BYTES:
                self.schedule()
                break
            one = ready.popleft()
            if one.counts:
                self.under_way -= 1
            data = one.written()
            out.append(data)
            size += len(data)
            if size > OUT_BYTES:
                transport.write(b"".join(out))
                total += size
                out, size = [], 0
        if out:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
            total += size
        self._server.wrote(total)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # The end

    def finish(self, error: DovetailError, number: int = 0) -> None:
        """The last answer. A client that may still be sending is read for a moment, lest a reset overtakes it."""
        if self.over or self._transport is None:
            return
        if self.writable:
            self._flush()
            self._transport.write(answers.encode(refusals.answer(error), number))
        self._end(self._transport)

    def _end(self, transport: asyncio.Transport) -> None:
        """Nothing more is written. Closing while something lies unread would reset the connection, and what the client has not read yet of
        our answers would be gone with it."""
        self._leave()
        self._server.linger(self)
        if transport.can_write_eof():
            transport.write_eof()
        if self._paused:
            transport.resume_reading()

    def drain(self) -> None:
        """Read no further, end what waits, finish what is under way, and close."""
        if self.over:
            return
        self._backlog.clear()
        self._pause()
        self.tell(answers.Bye(self._last, "the node stops"))
        for wait in list(self.waits.values()):
            wait.go_on()
        self.schedule()

    def abort(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        """Nobody reads any more: what waits ends, and what was not written goes back."""
        if self.over:
            return
        self.over = True
        self._backlog.clear()
        self._stalled.clear()
        self._server.unfinished.let_go(self)
        self._server.unread.let_go(self)
        waits, self.waits = self.waits, {}
        for wait in waits.values():
            wait.leave()
        ready, self.ready = self.ready, deque()
        for one in ready:
            one.give_up()
        for opened in self.queues.values():
            for slot in opened.order:
                slot.give_up()
        self.queues.clear()
        self.door.lent.left(self, self.producers)
        self.door.room.left(self)

    def sweep(self, now: float) -> None:
        """Called now and then by the server, so that no connection needs a timer of its own."""
        bounds = self._server.bounds
        if self.over:
            return
        quiet_s = now - self._since
        if not self.writable:
            if quiet_s > bounds.write_s:
                self.abort()
        elif self.caller is None:
            if quiet_s > bounds.greeting_s:
                self.finish(ProtocolError("no AUTH came in time"))
        elif not self.door.still_valid(self.caller):
            self.finish(AccessDenied("The access key is no longer valid."))
        elif quiet_s > bounds.idle_s and not self._paused and not self.under_way:
            self.finish(ProtocolError(f"nothing came for {bounds.idle_s:g} seconds"))


class Told:
    """An answer that is bytes already."""

    __slots__ = ("_data",)
    counts = False
    hands_out = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def written(self) -> bytes:
        return self._data

    def give_up(self) -> None:
        return None


def _no_verb(kind: int) -> DovetailError:
    if kind == Kind.AUTH:
        return BadRequest("AUTH was answered before")
    return NoSuchKind(f"no request has the kind {kind}")
