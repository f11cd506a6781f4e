"""Sends at a given rate, each at its own time whatever became of those before; and a reader that follows their tap. Each in a process of
its own.

A send is timed from when it was due. A client that waits for a slow answer before it looks at its clock again would leave out the very
moments that the p99 is about.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from ..doors.native import requests
from ..doors.native.frames import Kind
from .child import Child, result_of, tell
from .httpload import LoadFailed
from .nativeload import Load, NativePlayer
from .nativewire import Line
from .rawload import join, played
from .tapload import READ_MESSAGES, TAP, tapped

CONNECTIONS, BATCH = 8, 10
PAUSE_S = 0.05
"""Between two looks at what came."""


@dataclass(frozen=True, slots=True)
class Follow:
    port: int
    queue: str
    rate: int
    seconds: int
    pid: int = 0
    """The node's, to be told what it used."""


async def paced(follow: Follow) -> dict[str, Any]:
    """The sends alone; the tap is there, and nobody reads it."""
    made: dict[str, Any] = await result_of(f"{__name__}:send", **asdict(follow))
    return made


async def followed(follow: Follow, looks: list[int]) -> dict[str, Any]:
    """The same beside a reader, which has to come to the end of it."""
    async with Child(f"{__name__}:read", asdict(follow)) as reader:
        await reader.told()
        made = await paced(follow)
        read = next(value for kind, value in [line async for line in reader.lines()] if kind == "result")
    if read["messages"] != made["messages"]:
        raise LoadFailed(f"{read['messages']:,} messages were read of {made['messages']:,}")
    looks.append(read["most"])
    return made


async def send(port: int, queue: str, rate: int, seconds: int, pid: int) -> dict[str, Any]:
    """In a child."""
    line = Line(port)
    tapped(line, queue)
    line.close()
    lines = [Line(port) for _ in range(CONNECTIONS)]
    frames_each = rate * seconds // BATCH // CONNECTIONS
    load = Load(port, "push", rate * seconds, CONNECTIONS, BATCH, queue=queue)
    players = [Paced(load, line, line.declare(queue), frames_each, rate / BATCH / CONNECTIONS, at) for at, line in enumerate(lines)]
    await join(players, [line.socket for line in lines])
    return await played(players, pid)


class Paced(NativePlayer):
    def __init__(self, load: Load, line: Line, queue: int, frames: int, frames_per_s: float, at: int) -> None:
        super().__init__(load, line, queue)
        self._left = self._unanswered = frames
        self._step_s = 1 / frames_per_s
        self._offset_s = self._step_s * at / CONNECTIONS
        self._due: deque[int] = deque()

    def begin(self) -> None:
        self._began_s = time.monotonic() + self._offset_s
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(self._offset_s, self._send)

    def _send(self) -> None:
        now = time.monotonic()
        while self._left and (due := self._began_s + self._sent * self._step_s) <= now:
            self._due.append(round(due * 1e9))
            self.transport.writelines(self.pushing())
            self._sent += 1
            self._left -= 1
        if self._left:
            self._loop.call_later(max(0.0, self._began_s + self._sent * self._step_s - time.monotonic()), self._send)

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        self.took_ns.append(time.monotonic_ns() - self._due.popleft())
        self.messages += self.batch
        self._unanswered -= 1
        if not self._unanswered:
            self.end()


def read(port: int, queue: str, rate: int, seconds: int, pid: int) -> dict[str, Any]:
    """In a child: follow the tap until as many messages have come as will be sent, and let go of them on the way."""
    line = Line(port)
    number = tapped(line, queue)
    tell("ready")
    whole = rate * seconds // BATCH // CONNECTIONS * BATCH * CONNECTIONS
    read, at, most = 0, 1, 0
    until = time.monotonic() + seconds + 120
    while read < whole:
        if time.monotonic() > until:
            raise LoadFailed(f"{read:,} messages came of {whole:,}")
        ((_, _, end, _, _),) = line.ask(requests.About(Kind.TAP_LIST, number)).taps
        most = max(most, end - at)
        while at < end:
            answer = line.ask(requests.TapRead(number, TAP, at, min(READ_MESSAGES, end - at), arrow=True))
            with pa.ipc.open_stream(pa.py_buffer(answer.stream)) as stream:
                read += sum(batch.num_rows for batch in stream)
            at = answer.next
        line.ask(requests.TapAdvance(number, TAP, at))
        time.sleep(PAUSE_S)
    line.close()
    return {"messages": read, "most": most}
