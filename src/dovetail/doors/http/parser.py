"""Bytes in, events out. Wraps httptools, which knows the grammar, with the bounds, which it does not know. No socket, no clock.

    phase   bytes that come next     leaves it
    IDLE    nothing of a request     the first byte of a request line
    HEAD    request line, headers    the empty line: BODY
    BODY    body, chunks, trailers   the last byte: IDLE, and a Request event
    ENDED   anything is ignored      never: after a Failure or a request that closes its connection

httptools holds an unfinished header back until it is complete, however long it grows. So what arrives while a phase lasts is counted
here as well; the piece in which the phase began is not, because where in it is not known.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import httptools

from .bounds import Bounds
from .message import Request

IDLE, HEAD, BODY, ENDED = range(4)

SINGLE = frozenset({b"host", b"content-length", b"content-type", b"authorization", b"transfer-encoding", b"expect"})
"""Headers that decide where a request ends or what it means: a second one is an attempt to be read in two ways."""

STOPPED = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""What httptools raises; the second is no kind of the first."""

PIECE_OVERHEAD = 64
"""What a piece of a body takes in memory beside its bytes, about."""

CHUNK_OVERHEAD = 8
"""A body sent one byte a chunk is six times its size on the wire; beyond this factor it is padding."""


class Continue(NamedTuple):
    """The caller waits for `100 Continue` before it sends its body."""


class Failure(NamedTuple):
    """What arrived is not a request that we take. Nothing after it is read."""

    status: int
    text: str


Event = Request | Continue | Failure

NOBODY = httptools.HttpRequestParser(object())
"""Stands where a parser was: it is never fed."""


class _Refused(Exception):
    """Leaves a callback of httptools with a Failure."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(status, text)


class Parser:
    """One connection's requests. `feed` never raises, whatever it is fed."""

    def __init__(self, bounds: Bounds) -> None:
        self.phase = IDLE
        self._bounds = bounds
        self._http = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._fresh = False
        self._piece_bytes = 0
        self._phase_bytes = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._again_count = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._method = ""
        self._keep_alive = False
        self._upgrade = False

    @property
    def unfinished_bytes(self) -> int:
        """What the body that has not ended yet takes in memory."""
        return self._body_bytes + PIECE_OVERHEAD * len(self._body)

    def feed(self, data: bytes | memoryview) -> list[Event]:
        """What `data` completes, in order."""
        if self.phase == ENDED:
            return []
        self._fresh = False
        self._piece_bytes = len(data)
        stopped: Exception | None = None
        try:
            self._http.feed_data(data)
        except STOPPED as error:
            # Without its frames: one of them is this one, which holds the error. A circle would keep the bytes until the collector comes.
            stopped = error.with_traceback(None)
        if stopped is not None:
            # Outside the handler: inside it the next error's context would be this one, and the refusal behind it would be lost.
            self._mend(data, stopped)
        if self.phase in (HEAD, BODY) and not self._fresh:
            self._phase_bytes += len(data)
            if self.phase == HEAD and self._phase_bytes > self._bounds.header_bytes_max + self._bounds.target_bytes_max:
                self._end(Failure(431, "the headers are too large"))
            elif self.phase == BODY and self._phase_bytes > CHUNK_OVERHEAD * self._bounds.body_bytes_max + self._bounds.header_bytes_max:
                self._end(Failure(413, "the chunks hold little but padding"))
        # A connection that rests keeps none of the requests that it has made.
        events, self._events = self._events, []
        return events

    def _mend(self, piece: bytes | memoryview, error: Exception) -> None:
        """Go on behind an offer to upgrade, as often as one comes; everything else is the end."""
        pieces: list[bytes | memoryview] = []
        while True:
            if isinstance(error, httptools.HttpParserUpgrade):
                pieces += (memoryview(piece)[error.args[0] :], self._without_upgrade())
                self._http = httptools.HttpRequestParser(self)
            else:
                self._end(self._failure(piece, error))
            try:
                while pieces and self.phase != ENDED:
                    piece = pieces.pop()
                    self._http.feed_data(piece)
                return
            except STOPPED as another:
                error = another.with_traceback(None)

    def _failure(self, piece: bytes | memoryview, error: Exception) -> Failure:
        if isinstance(error, httptools.HttpParserCallbackError):
            if isinstance(error.__context__, _Refused):
                return error.__context__.failure
            raise error
        if isinstance(error, httptools.HttpParserInvalidMethodError) and not self._events and re.match(rb"[A-Z]{1,20} ", piece):
            return Failure(501, "unknown method")
        return Failure(400, str(error) or "this is not HTTP")

    def _without_upgrade(self) -> bytes:
        """The head that was just read, without its offer to upgrade. We speak nothing else, so the offer is passed over (Java's client
        makes one each time); but httptools takes what follows such a head for the other protocol, the request's own body included,
        which would then be read as the next request. Reading the head again without the offer keeps body and request together."""
        headers = {name: value for name, value in self._headers.items() if name not in (b"upgrade", b"connection")}
        if not self._keep_alive:
            headers[b"connection"] = b"close"
        lines = [b"%s %s HTTP/1.1" % (self._method.encode("latin-1"), self._target), *(b"%s: %s" % pair for pair in headers.items())]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def stop(self) -> None:
        """Read nothing any more, and let go of what was read; of httptools' parser too, which holds this one. A circle would keep a body of
        megabytes, of a caller that has long left, until the collector comes."""
        self.phase = ENDED
        self._target, self._headers, self._body, self._body_bytes = b"", {}, [], 0
        self._http = NOBODY

    def _end(self, failure: Failure) -> None:
        if self.phase == ENDED:
            return  # What follows a request that closed its connection is nobody's.
        self.stop()
        self._events.append(failure)

    # Called by httptools while it reads. These run for every header of every request: what can be checked once is checked at the end.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._again_count = 0
        self._body = []
        self._body_bytes = 0
        self.phase = HEAD
        self._phase_bytes = 0
        self._fresh = True

    def on_url(self, piece: bytes) -> None:
        self._target += piece
        if len(self._target) > self._bounds.target_bytes_max:
            raise _Refused(414, f"the target is longer than {self._bounds.target_bytes_max} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._headers or self.phase != HEAD:
            self._on_header_again(name, value)
        else:
            self._headers[name] = value

    def _on_header_again(self, name: bytes, value: bytes) -> None:
        self._again_count += 1
        if self._again_count > self._bounds.headers_max:
            raise _Refused(431, f"more than {self._bounds.headers_max} headers")
        if self.phase == HEAD:  # Trailers are counted and dropped: nobody here has a use for them.
            if name in SINGLE:
                raise _Refused(400, f"two {name.decode('latin-1')} headers")
            self._headers[name] += b", " + value

    def on_headers_complete(self) -> None:
        version = self._http.get_http_version()
        self._method = self._http.get_method().decode("latin-1")
        # HTTP/1.0 callers are answered and closed: keeping them would need a header of its own in each answer.
        self._keep_alive = version == "1.1" and self._http.should_keep_alive()
        bounds, headers = self._bounds, self._headers
        if len(headers) + self._again_count > bounds.headers_max:
            raise _Refused(431, f"more than {bounds.headers_max} headers")
        # Headers that came in few enough bytes need no adding up.
        if self._phase_bytes + self._piece_bytes > bounds.header_bytes_max:
            header_bytes = sum(len(name) + len(value) + 4 for name, value in headers.items())
            if header_bytes > bounds.header_bytes_max:
                raise _Refused(431, f"the headers are larger than {bounds.header_bytes_max} bytes")
        self.phase = BODY
        self._phase_bytes = 0
        self._fresh = True
        if version not in ("1.1", "1.0"):
            raise _Refused(505, "HTTP/1.1 is spoken here")
        if self._method == "CONNECT":
            raise _Refused(501, "this is no proxy")
        self._upgrade = b"upgrade" in headers and self._http.should_upgrade()
        if self._upgrade:
            return  # It is read again, see _without_upgrade.
        length = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if version == "1.1" and b"host" not in headers:
            raise _Refused(400, "the host header is missing")
        if coding is not None and (coding.strip().lower() != b"chunked" or length is not None):
            raise _Refused(501, "bodies come plain or chunked, and say so once")
        if version == "1.0" and (coding is not None or (length is None and self._method in ("POST", "PUT", "PATCH"))):
            raise _Refused(411, "in HTTP/1.0 a body needs its content-length")
        if length is not None and (len(length) > 20 or int(length) > self._bounds.body_bytes_max):
            raise _Refused(413, f"the body is larger than {self._bounds.body_bytes_max} bytes")
        expect = headers.get(b"expect")
        if expect is not None and version == "1.1":
            if expect.lower() != b"100-continue":
                raise _Refused(417, "only 100-continue can be expected")
            if coding is not None or length not in (None, b"0"):
                self._events.append(Continue())

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > self._bounds.body_bytes_max:
            raise _Refused(413, f"the body is larger than {self._bounds.body_bytes_max} bytes")
        self._body.append(piece)

    def on_message_complete(self) -> None:
        if self._upgrade:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._events.append(Request(self._method, self._target, self._headers, body, self._keep_alive))
        self.phase = IDLE if self._keep_alive else ENDED
