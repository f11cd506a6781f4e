"""One caller's connection: bytes from the socket to the parser, requests to the handler, answers back in the order of the requests.

What waits, and where, is bounded on both sides:

    kernel → unread → backlog → slots → out → kernel
             bytes    parsed    asked   one write per turn

`unread` and `backlog` hold at most one delivery of the socket, because reading pauses while either has something; `slots` hold at most
`pipeline_max` requests. A handler that answers at once costs no task; one that answers later is called in order too, and its answer
waits for those before it. A caller that leaves has its unanswered requests cancelled, so that it takes no message with it.

A request whose answer may be large is asked when every answer before it was written: how large it is, is known too late, when it has been
made. So a connection holds one large answer at most, however many it asks for and does not read; what all connections hold together,
of answers that are not read and of bodies that do not end, has a bound too (held.py).
"""

from __future__ import annotations

import asyncio
import logging
from types import CoroutineType
from typing import TYPE_CHECKING, cast

from .message import CONTINUE, Later, Request, Response, Slot, encode, plain, undo
from .parser import BODY, HEAD, IDLE, Continue, Event, Failure, Parser

if TYPE_CHECKING:
    from .server import Server

log = logging.getLogger("dovetail.http")

PIECE_BYTES = 64 * 1024
"""What is parsed in one turn: a caller that pipelines thousands of requests must not keep the others waiting."""

OUT_BYTES = 256 * 1024
"""Answers are put together up to this size before they are written."""

TURN_BYTES = 1024 * 1024
"""What is written for one connection before others have their turn."""


class Connection(asyncio.Protocol):
    """Speaks for one socket. All its state belongs to the loop; there are no locks."""

    __slots__ = (
        "_backlog", "_loop", "_out", "_out_bytes", "_parser", "_peer", "_reading", "_scheduled", "_server", "_since", "_slots",
        "_transport", "_unfinished", "_unread", "_writable", "_written_bytes", "fd", "over",
    )  # fmt: skip

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = server.loop
        self._parser = Parser(server.bounds)
        self._transport: asyncio.Transport | None = None
        self._unread: memoryview = memoryview(b"")
        # Lists: they are nearly always empty, and an empty deque takes 760 bytes.
        self._backlog: list[Event] = []
        self._slots: list[Slot] = []
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._written_bytes = 0
        """Of this turn."""
        self._unfinished = False
        """Part of a body has come, and is counted."""
        self._reading = True
        self._writable = True
        self._scheduled = False
        self._since = server.loop.time()
        self._peer = ""
        self.fd = -1
        self.over = False
        """The last answer was given; what still arrives is thrown away."""

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = socket = cast(asyncio.Transport, transport)  # uvloop's transports behave like one and do not derive from it
        self.fd = transport.get_extra_info("socket").fileno()
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self._peer = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        if not self._server.admit(self) and not socket.is_closing():
            socket.write(encode(plain(503, "too many connections"), date=self._server.date(), close=True, head=False))
            self._linger()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.over = True
        slots, self._slots = self._slots, []
        for slot in slots:
            self._give_up(slot)
        self._backlog.clear()
        self._unread = memoryview(b"")
        self._stop_parsing()
        self._server.unread.let_go(self)
        self._server.forget(self)

    @staticmethod
    def _give_up(slot: Slot) -> None:
        """Nobody will read this answer."""
        work = slot.work
        if work is None:
            undo(slot.answer)
            return
        work.cancel()
        if not isinstance(work, Later):
            # It may have ended in this very turn, so that there is nothing left to cancel, and an answer that nobody has looked at yet.
            work.add_done_callback(_undo_result)

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        if self._unread or self._backlog or len(data) > PIECE_BYTES:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        else:
            self._parse(data)
            slots = self._slots
            if slots and slots[0].answer is None and self._reading and not self._backlog and len(slots) < self._server.slots_max:
                return  # Asked, not answered, and room for more: the usual end, and a turn would find nothing to do.
        self._turn()

    def eof_received(self) -> bool:
        # A caller that closed looks the same as one that only stopped sending. We take it as gone: a message handed to a socket that
        # nobody reads would be hidden for a whole lease.
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._since = self._loop.time()
        if self._transport is not None:
            for slowest in self._server.unread.hold(self, self._transport.get_write_buffer_size()):
                log.warning("%s leaves its answers unread, and too much of that is held: it is cut off", slowest._peer)
                # Not at once: the transport that calls us may be in the middle of a write.
                self._loop.call_soon(slowest.abort)

    def resume_writing(self) -> None:
        self._server.unread.let_go(self)
        self._writable = True
        self._since = self._loop.time()
        self._schedule()

    # One turn: parse a piece, ask, answer, write once.

    def _schedule(self) -> None:
        if not self._scheduled and not self.over:
            self._scheduled = True
            self._server.schedule(self)

    def turn(self) -> None:
        """Called by the server, for every connection that has something to write in this turn of the loop."""
        self._scheduled = False
        if self.over or (len(self._slots) == 1 and self._answer_alone(self._slots[0])):
            return
        self._turn()

    def _answer_alone(self, slot: Slot) -> bool:
        """One call at a time, as nearly all clients do: the answer goes out, and a turn would find nothing else to do."""
        answer, server, transport = slot.answer, self._server, self._transport
        if type(answer) is not Response or slot.close or not self._writable or not self._reading or server.draining or transport is None:
            return False
        if self._out or self._unread or self._backlog or (answer.undo is not None and server.has_left(self)):
            return False
        try:
            data = encode(answer, date=server.date(), close=False, head=slot.head)
        except Exception:
            return False  # The turn meets it again, and says so.
        self._slots.clear()
        self._since = self._loop.time()
        server.answered(answer.status, len(data))
        transport.write(data)
        return True

    def _parse(self, piece: bytes | memoryview) -> None:
        phase = self._parser.phase
        events = self._parser.feed(piece)
        if events or self._parser.phase != phase:
            self._since = self._loop.time()
            for event in events:
                if self._backlog or not self._may_take(event):
                    self._backlog.append(event)
                else:
                    self._take(event)
        if self._parser.phase == BODY:
            self._unfinished = True
            for slowest in self._server.bodies.hold(self, self._parser.unfinished_bytes):
                slowest._give_way()
        elif self._unfinished:
            self._unfinished = False
            self._server.bodies.let_go(self)

    def _stop_parsing(self) -> None:
        self._parser.stop()
        self._server.bodies.let_go(self)

    def _give_way(self) -> None:
        """It has been sending a body for longer than anybody else, and too much of such bodies is held."""
        self._stop_parsing()
        self._backlog.append(Failure(503, "too many bodies are being sent at once, and this one has taken longest; try again"))
        self._schedule()

    def _turn(self) -> None:
        backlog, slots = self._backlog, self._slots
        self._written_bytes = 0
        if self._unread and not backlog and self._room():
            piece, self._unread = self._unread[:PIECE_BYTES], self._unread[PIECE_BYTES:]
            self._parse(piece)
        while True:
            while backlog and self._may_take(backlog[0]):
                self._take(backlog.pop(0))
            if not slots or slots[0].answer is None or not self._writable:
                break
            if self._answer():
                self._write()
                self._finish()
                return
            if not backlog:
                break
            if self._written_bytes + self._out_bytes > TURN_BYTES:
                self._schedule()  # The others first.
                break
        if self._out:
            self._write()
        room = self._room()
        if self._unread and not backlog and room:
            self._schedule()
        # Read on, or leave it to the kernel to tell the caller to wait.
        reading = room and not backlog and not self._unread
        if reading is not self._reading and self._transport is not None:
            self._reading = reading
            if reading:
                self._since = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _room(self) -> bool:
        return self._writable and len(self._slots) < self._server.slots_max

    def _may_take(self, event: Event) -> bool:
        slots = self._slots
        if not self._writable or len(slots) >= self._server.slots_max:
            return False
        return not slots or type(event) is not Request or self._server.is_brief(event)

    def _take(self, event: Event) -> None:
        if type(event) is Request:
            self._ask(event)
        elif isinstance(event, Continue):
            self._slots.append(Slot(CONTINUE))
        else:
            self._refuse(cast(Failure, event))

    def _refuse(self, failure: Failure) -> None:
        self._slots.append(Slot(plain(failure.status, failure.text), True))

    def _ask(self, request: Request) -> None:
        request.peer, request.alone = self._peer, not self._slots
        close, head = not request.keep_alive, request.method == "HEAD"
        slot: Slot | None = None
        try:
            answer = self._server.handler(request)
            if isinstance(answer, Later):
                answer.close, answer.head = close, head
                self._slots.append(answer)
                answer.take(self._given)
                return
            slot = Slot(None, close, head)
            self._slots.append(slot)
            if isinstance(answer, Response):
                slot.answer = answer
                return
            slot.work = work = self._loop.create_task(answer) if type(answer) is CoroutineType else asyncio.ensure_future(answer)
        except Exception as error:
            if slot is None:
                slot = Slot(None, close, head)
                self._slots.append(slot)
            slot.answer = self._failed(error)
            return
        if work.done():
            self._settle(slot, work)
        else:
            work.add_done_callback(lambda work: self._done(slot, work))

    def _given(self, slot: Slot) -> None:
        slots = self._slots
        if slots and slots[0] is slot and not self._scheduled and not self.over:
            self._scheduled = True
            self._server.schedule(self)

    def _done(self, slot: Slot, work: asyncio.Future[Response]) -> None:
        self._settle(slot, work)
        # The turn is scheduled and not taken: whatever else is answered in this tick goes out with the same write.
        if self._slots and self._slots[0] is slot:
            self._schedule()

    def _settle(self, slot: Slot, work: asyncio.Future[Response]) -> None:
        slot.work = None
        if work.cancelled():
            slot.answer = plain(503, "the request was given up")
        elif (error := work.exception()) is not None:
            slot.answer = self._failed(error)
        else:
            slot.answer = work.result()

    def _failed(self, error: BaseException) -> Response:
        log.error("a handler failed", exc_info=error)
        return plain(500, "the fault is ours; the node's log has it")

    def _answer(self) -> bool:
        """Move finished answers from the front of the slots to the write. True when one of them was the last of this connection."""
        slots, server = self._slots, self._server
        while slots and self._writable and (answer := slots[0].answer) is not None:
            slot = slots.pop(0)
            if isinstance(answer, bytes):
                self._put(answer)
                continue
            if answer.undo is not None and self._server.has_left(self):
                self._give_up(slot)
                return True
            close = slot.close or (server.draining and not slots)
            try:
                data = encode(answer, date=server.date(), close=close, head=slot.head)
            except Exception as error:
                answer = self._failed(error)
                data = encode(answer, date=server.date(), close=close, head=slot.head)
            server.answered(answer.status, len(data))
            self._put(data)
            if close:
                return True
        if not slots:
            self._since = self._loop.time()
        return False

    def _put(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > OUT_BYTES:
            self._write()

    def _write(self) -> None:
        if self._out and self._transport is not None:
            self._written_bytes += self._out_bytes
            out, self._out, self._out_bytes = self._out, [], 0
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # The end.

    def _finish(self) -> None:
        """The last answer is written. A caller that may still be sending is read for a moment, lest a reset overtakes the answer."""
        for slot in self._slots:
            self._give_up(slot)
        self._slots.clear()
        if self._parser.phase == IDLE and not self._unread:
            self.over = True
            if self._transport is not None:
                self._transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self.over = True
        self._since = self._loop.time()
        self._unread = memoryview(b"")
        self._backlog.clear()
        if self._transport is not None:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
        self._server.linger(self)

    def drain(self) -> None:
        """Finish what is under way and close; at once where nothing is."""
        if not self.over:
            if not self._slots and self._parser.phase == IDLE and not self._unread and not self._backlog:
                self.abort(gently=True)
            else:
                self._schedule()

    def abort(self, gently: bool = False) -> None:
        self.over = True
        if self._transport is not None:
            if gently:
                self._transport.close()
            else:
                self._transport.abort()

    def sweep(self, now: float) -> None:
        """Called now and then by the server, so that no connection needs a timer of its own."""
        bounds = self._server.bounds
        waited_s = now - self._since
        if self.over:
            return  # It lingers, and has a timer of its own.
        elif not self._writable:
            if waited_s > bounds.write_s:
                self.abort()
        elif not self._reading:
            return  # It is we who make the caller wait.
        elif self._parser.phase in (HEAD, BODY):
            if waited_s > (bounds.head_s if self._parser.phase == HEAD else bounds.body_s):
                self._stop_parsing()
                self._refuse(Failure(408, "the request did not arrive in time"))
                self._turn()
        elif not self._slots and waited_s > bounds.idle_s:
            self.abort(gently=True)


def _undo_result(work: asyncio.Future[Response]) -> None:
    if not work.cancelled() and work.exception() is None:
        undo(work.result())
