"""One connection to a node: the greeting, frames out, and answers to whoever asked. It knows nothing of queues.

Frames that are asked for in one turn of the loop leave in one write. An answer finds its call by its number; a call that has ended for its
caller stays here until it is answered, so that numbers are never taken for others'.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hmac import compare_digest
from typing import Protocol, cast

from dovetail.client.address import Credentials
from dovetail.doors.native import codec
from dovetail.doors.native.codec import NONCE_BYTES, AccessDenied, Broken, Frame, Kind, ProtocolError, Reader, answers, raised, requests
from dovetail.doors.native.frames import HEADER, HEADER_BYTES, Data
from dovetail.doors.native.refusals import NotOpened
from dovetail.errors import CodecError, DovetailError, NoSuchQueue, Unavailable

WRITE_BUFFER_BYTES = 1024 * 1024
"""What the transport holds for a slow node before we stop putting more into it."""


class Call(Protocol):
    """Whoever has asked something."""

    def answered(self, frame: Frame) -> bool:
        """An answer came. True: it was the last one."""

    def cut(self, doubt: bool) -> None:
        """The connection has ended and no answer will come. `doubt`: the node may have acted on the request all the same."""


class Link(asyncio.Protocol):
    def __init__(self, credentials: Credentials, heard: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._credentials = credentials
        self._heard = heard
        self._reader = Reader()
        self._out: list[Data] = []
        self._number = 0
        self._nonce = b""
        self._node_nonce = b""
        self._challenged = False
        self._transport: asyncio.Transport | None = None
        self._loop = loop
        self.calls: dict[int, Call] = {}
        self.welcome: asyncio.Future[answers.Welcome] = loop.create_future()
        self.ended: asyncio.Future[DovetailError] = loop.create_future()
        """Why it ended, once it has."""
        self.last: int | None = None
        """The node reads no further than this request: it said so before it stopped."""
        self.writable = True
        self._over = False
        self.heard_at = self.asked_at = loop.time()

    # Asking

    def ask(self, call: Call, kind: int, payload: Data, flags: int = 0) -> int:
        """Put a request among those that leave with the next `write`."""
        number = self._number = self._number + 1
        self.calls[number] = call
        self._out.append(HEADER.pack(len(payload), kind, flags, 0, number))
        self._out.append(payload)
        if self._over:
            self._loop.call_soon(call.cut, False)
        return number

    def request(self, call: Call, request: requests.Request) -> int:
        data = requests.encode(request, self._number + 1)
        return self.ask(call, data[4], data[HEADER_BYTES:], data[5])

    def tell(self, request: requests.Request) -> None:
        """A request that has no answer."""
        self._number += 1
        self._out.append(requests.encode(request, self._number))

    def write(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self.asked_at = self._loop.time()
            self._transport.write(b"".join(out))

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports behave like one and do not derive from it
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self._transport.write(codec.hello())

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        calls = self.calls
        try:
            for event in self._reader.feed(data):
                if type(event) is not Frame:
                    raise ProtocolError(event.text if isinstance(event, Broken) else "the node does not speak as nodes do")
                call = calls.get(event.number)
                if call is None:
                    self._own(event)
                elif call.answered(event):
                    del calls[event.number]
        except DovetailError as error:
            self.end(error)
        self._heard()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._heard()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(Unavailable(f"the connection was lost: {exc or 'the node closed it'}"))

    # Greeting

    def _own(self, frame: Frame) -> None:
        """What answers no request: the node's hello, its good-bye, and what it says of the connection as a whole."""
        if frame.kind == Kind.HELLO and not self._number:
            self._prove(answers.decode(frame))
        elif frame.kind == Kind.BYE and not frame.number:
            bye = answers.decode(frame)
            assert isinstance(bye, answers.Bye)
            self.last = bye.last
        elif frame.kind == Kind.ERROR and not frame.number:
            told = answers.decode(frame)
            assert isinstance(told, answers.Error)
            raise raised(told)
        elif frame.number == 0 or frame.number > self._number:
            raise ProtocolError(f"the node answers a request {frame.number} that was not made")

    def _prove(self, hello: answers.Answer) -> None:
        assert isinstance(hello, answers.Hello)
        key, secret, token = self._credentials
        self._challenged = hello.auth != answers.OPEN
        if self._challenged and not key:
            raise AccessDenied("The node asks who calls: connect with key=… and secret=…")
        self._nonce, self._node_nonce = os.urandom(NONCE_BYTES), hello.nonce
        proof = codec.client_proof(secret, hello.nonce, self._nonce, key, token)
        self.request(_Greeting(self), requests.Auth(key, self._nonce, proof if self._challenged else bytes(len(proof))))
        self.write()

    def greeted(self, frame: Frame) -> None:
        answer = answers.decode(frame)
        if isinstance(answer, answers.Error):
            raise raised(answer)
        if not isinstance(answer, answers.Welcome):
            raise ProtocolError("the node answers AUTH with neither WELCOME nor ERROR")
        if self._challenged and not compare_digest(answer.proof, codec.node_proof(self._credentials.secret, self._node_nonce, self._nonce)):
            raise AccessDenied("The node cannot prove that it knows the secret: it is not the one that you mean.")
        if not self.welcome.done():
            self.welcome.set_result(answer)

    # The end

    def end(self, error: DovetailError) -> None:
        """Cut it: nobody knows what the node would have answered."""
        if self._transport is not None:
            self._transport.abort()
        self._end(error)

    def close(self) -> None:
        """What was asked leaves first; nobody waits for what is answered."""
        self.write()
        for call in self.calls.values():
            if isinstance(call, Once):
                call.cut(True)
        self.calls.clear()
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: DovetailError) -> None:
        if self._over:
            return
        self._over = True
        self.ended.set_result(error)
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()  # Whoever waits is told; if nobody does, that is no fault.
        calls, self.calls = self.calls, {}
        for number, call in calls.items():
            call.cut(self.last is None or number <= self.last)


class _Greeting:
    def __init__(self, link: Link) -> None:
        self._link = link

    def answered(self, frame: Frame) -> bool:
        self._link.greeted(frame)
        return True

    def cut(self, doubt: bool) -> None:
        """The link says so itself."""


class Once:
    """A call of the connection itself, whose answer is a future's."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[answers.Answer] = loop.create_future()

    def answered(self, frame: Frame) -> bool:
        if not self.future.done():
            resolve(self.future, frame)
        return True

    def cut(self, doubt: bool) -> None:
        if not self.future.done():
            self.future.set_exception(Unavailable("the connection was lost"))


def resolve(future: asyncio.Future[answers.Answer], frame: Frame) -> None:
    """An answer is a result, or the error that it stands for."""
    try:
        answer = answers.decode(frame)
    except CodecError as error:
        future.set_exception(error)
        return
    if isinstance(answer, answers.Error):
        future.set_exception(refusal(answer))
    else:
        future.set_result(answer)


def refusal(told: answers.Error) -> DovetailError:
    """What the program is told. Queues are opened on every connection before anything is asked of them: one that is not open is gone."""
    error = raised(told)
    return NoSuchQueue("The queue was dropped, or is not ours any more.") if isinstance(error, NotOpened) else error
