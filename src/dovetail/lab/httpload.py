"""A raw HTTP/1.1 client for loads: kept connections, one request under way on each, requests as bytes that were made beforehand.

The usual clients cost several times what a server does and would flatter the slower one. What is asked next comes from a *script*, a
generator that yields requests and is sent the body of each answer, so that this file knows HTTP and nothing of queues. Answers must
have a Content-Length; both sides are ours to choose, and a general parser would be the most expensive part.
"""

from __future__ import annotations

import asyncio
import gc
import math
import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Script = Generator[bytes, bytes, None]
"""Yields a request, is sent the body of its answer, yields the next; ends when there is no more to ask."""

now_ns = time.perf_counter_ns
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CONNECTING_MAX = 128
"""Connections that are being made at once: more would overflow the server's queue of them."""


class LoadFailed(Exception):
    """The server closed a connection, or answered what this client does not read."""


@dataclass(slots=True)
class Tally:
    """What came of a load. Scripts note what they got and how long it took; connections note what was refused."""

    messages: int = 0
    empty: int = 0
    """Receives that found nothing."""
    refused: int = 0
    refusal: str = ""
    """The first answer that was not 200, in its own words."""
    took_ns: list[int] = field(default_factory=list)

    def refuse(self, answer: bytes) -> None:
        self.refused += 1
        if not self.refusal:
            self.refusal = answer.decode("utf-8", "replace")[:500]


class Connection(asyncio.Protocol):
    """Either plays a script (`play`) or is asked one thing at a time (`ask`)."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._part = b""
        self._waiting: asyncio.Future[Any] | None = None
        self._script: Script | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        if self._part:
            data = self._part + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self._part = data
            return
        length = _LENGTH.search(data, 0, head)
        if length is None:
            self._fail(LoadFailed(f"an answer without Content-Length: {data[:300]!r}"))
            return
        end = head + 4 + int(length[1])
        if len(data) < end:
            self._part = data
            return
        self._part = b""
        if data[9:12] != b"200":
            self._tally.refuse(data[:end])
        body = data[head + 4 : end]
        if self._script is None:
            self._end(body)
            return
        try:
            request = self._script.send(body)
        except StopIteration:
            self._end(None)
            return
        except Exception as error:  # What a script stumbles over belongs to whoever plays it, not to the event loop's log.
            self._fail(error)
            return
        self._transport.write(request)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(LoadFailed(f"the server closed the connection: {error or 'end of stream'}"))

    def _end(self, result: Any) -> None:
        waiting, self._waiting, self._script = self._waiting, None, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self._waiting = self._script = None

    def _wait(self) -> asyncio.Future[Any]:
        if self._transport.is_closing():
            raise LoadFailed("the server closed the connection")
        assert self._waiting is None, "one request at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """One request; the future gives the body of its answer."""
        waiting = self._wait()
        self._transport.write(request)
        return waiting

    def play(self, script: Script) -> asyncio.Future[None]:
        """Done when the script has ended."""
        waiting = self._wait()
        try:
            request = next(script)
        except StopIteration:
            self._end(None)
            return waiting
        self._script = script
        self._transport.write(request)
        return waiting

    def close(self) -> None:
        self._transport.close()


async def connect(port: int, count: int, tally: Tally) -> list[Connection]:
    """`count` connections to the loopback."""
    loop = asyncio.get_running_loop()
    made: list[Connection] = []
    for at in range(0, count, _CONNECTING_MAX):
        several = range(min(_CONNECTING_MAX, count - at))
        pairs = await asyncio.gather(*(loop.create_connection(lambda: Connection(tally), "127.0.0.1", port) for _ in several))
        made += [connection for _, connection in pairs]
    return made


async def play(port: int, connections: int, script: Callable[[int, Tally], Script], tally: Tally) -> float:
    """Play `script(0 …)` on as many connections, all begun at once; returns the seconds from the first request to the last answer."""
    made = await connect(port, connections, tally)
    scripts = [script(number, tally) for number in range(connections)]
    gc.collect()
    gc.disable()  # Otherwise the notes would be walked again and again, and the fastest server would pay most.
    try:
        began = now_ns()
        await asyncio.gather(*(one.play(played) for one, played in zip(made, scripts, strict=True)))
        return (now_ns() - began) / 1e9
    finally:
        gc.enable()
        for one in made:
            one.close()


def percentile(ordered: Sequence[int], percent: float) -> float:
    """As in measure.py, of a sorted list: Arrow would cost a child more to import than the whole load takes."""
    return float(ordered[math.ceil((len(ordered) - 1) * percent / 100)]) if ordered else 0.0
