"""What passes through the HTTP edge: a request that arrived whole, and the answer to it. Knows the shape of HTTP/1.1 and no socket.

An answer on the wire:

    HTTP/1.1 200 OK\\r\\n
    date: …\\r\\n
    content-type: …\\r\\n
    (headers of the handler)
    connection: close\\r\\n          only on the last answer of a connection
    content-length: N\\r\\n\\r\\n      not on 204 and 304
    body                           not for HEAD
"""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Awaitable, Callable, Generator, Mapping
from http import HTTPStatus
from typing import Any

Header = tuple[bytes, bytes]

TEXT = b"text/plain; charset=utf-8"
JSON = b"application/json"


class Request:
    """One request, complete. Header names are lower case; a header that came twice is joined with a comma."""

    __slots__ = ("_path", "alone", "body", "headers", "keep_alive", "method", "peer", "target")

    def __init__(self, method: str, target: bytes, headers: Mapping[bytes, bytes], body: bytes, keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive
        self._path: str | None = None
        self.alone = True
        """No earlier request of its connection is still unanswered: whatever is done about it overtakes nobody."""
        self.peer = ""
        """Who is at the other end of the connection, as `address:port`; filled in by the edge."""

    @property
    def path(self) -> str:
        """The target without query, still percent-encoded. `http://host/path`, which proxies send, is the same as `/path`."""
        if self._path is None:
            path = self.target.partition(b"?")[0]
            if not path.startswith(b"/") and b"://" in path:
                path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
            self._path = path.decode("latin-1")
        return self._path

    @property
    def query(self) -> bytes:
        return self.target.partition(b"?")[2]

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target!r}, {len(self.headers)} headers, {len(self.body)} bytes)"


class Response:
    """The answer of a handler. The edge adds date, length and connection headers itself."""

    __slots__ = ("body", "content_type", "headers", "lines", "status", "undo")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = TEXT,
        headers: tuple[Header, ...] = (),
        undo: Callable[[], None] | None = None,
        lines: bytes = b"",
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.lines = lines
        """Content type and headers once more, as they go out, from a handler that gives thousands of answers a second and knows its
        values."""
        self.undo = undo
        """Called in place of the answer where the caller has left before it could be written: what was handed out goes back."""

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"


class Slot:
    """The place of one answer in the order of its connection, and the answer once there is one."""

    __slots__ = ("_given", "answer", "close", "head", "work")

    def __init__(self, answer: Response | bytes | None = None, close: bool = False, head: bool = False) -> None:
        self.answer = answer
        self.close = close
        self.head = head
        self.work: Future[Response] | Later | None = None
        """What is to be given up when the caller leaves."""
        self._given: Callable[[Slot], None] | None = None


class Later(Slot):
    """An answer that will be given by a plain call: for what is asked thousands of times a second, where a task for each is a tenth of
    the work. It is its own place in the order of answers."""

    __slots__ = ("_task", "left")

    def __init__(self) -> None:
        self.answer = None
        self.close = self.head = False
        self.work = self
        self._given = None
        self._task: Future[Response] | None = None
        self.left = False
        """The caller has gone: nobody will read the answer."""

    def give(self, response: Response) -> None:
        self.answer, self.work = response, None
        if self._given is not None:
            self._given(self)

    def take(self, given: Callable[[Slot], None]) -> None:
        """The edge's side: `given` is called when there is an answer, now or later."""
        self._given = given
        if self.answer is not None:
            given(self)

    def __await__(self) -> Generator[Any, None, Response]:
        """The same for those who have a task anyway."""
        future: Future[Response] = get_running_loop().create_future()
        self.take(lambda slot: None if future.done() else future.set_result(slot.answer))  # type: ignore[arg-type]  # given: a Response
        try:
            return (yield from future)
        except CancelledError:
            self.cancel()
            raise

    def go_on(self, task: Future[Response]) -> None:
        """A task finishes what was begun; a caller that leaves cancels it."""
        self._task = task
        if self.left:
            task.cancel()
        task.add_done_callback(lambda done: None if done.cancelled() else self.give(done.result()))

    def cancel(self) -> None:
        self.left = True
        self._given = _nobody
        if self._task is not None:
            self._task.cancel()


def undo(answer: Response | bytes | None) -> None:
    """Nobody will read it: what was handed out goes back."""
    if isinstance(answer, Response) and answer.undo is not None:
        answer.undo()


def _nobody(slot: Slot) -> None:
    """Takes the answers of those who have left."""
    undo(slot.answer)


Handler = Callable[[Request], "Response | Awaitable[Response]"]
"""Answers at once, which costs no task, or later. An awaitable is cancelled when its caller has left."""

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = frozenset({204, 304})


def encode(response: Response, *, date: bytes, close: bool, head: bool) -> bytes:
    """The bytes of an answer. `date` is a whole header line; `head` leaves the body out and keeps its length."""
    body = response.body
    if response.lines and not (close or head):
        return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (STATUS_LINES[response.status], date, response.lines, len(body), body)
    parts = [STATUS_LINES[response.status], date]
    if response.lines:
        parts.append(response.lines)
    else:
        if body:
            parts += (b"content-type: ", response.content_type, b"\r\n")
        for name, value in response.headers:
            # A line break in a value would let whoever chose the value write headers, or whole answers, of their own.
            if b"\r" in value or b"\n" in value:
                raise ValueError(f"the value of {name!r} holds a line break")
            parts += (name, b": ", value, b"\r\n")
    if close:
        parts.append(b"connection: close\r\n")
    if response.status in BODILESS:
        parts.append(b"\r\n")
        return b"".join(parts)
    parts.append(b"content-length: %d\r\n\r\n" % len(body))
    if not head:
        parts.append(body)
    return b"".join(parts)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def date_line(year: int, month: int, day: int, hour: int, minute: int, second: int, weekday: int) -> bytes:
    """The date header from the first seven fields of a struct_time in UTC; strftime would follow the machine's language."""
    return f"date: {_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{second:02} GMT\r\n".encode()


def plain(status: int, text: str = "", headers: tuple[Header, ...] = ()) -> Response:
    """A short answer for people: the status in words, and what to do about it where that is not obvious."""
    words = HTTPStatus(status).phrase
    return Response(status, f"{status} {words}{': ' + text if text else ''}\n".encode(), TEXT, headers)
