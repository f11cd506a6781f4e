"""Reading taps as Arrow, played by a process of its own: every message of the queues that are named, all columns, as record batches.

Several reads are under way, each for the sequences behind the one before; an answer that has fewer than were asked for is followed by a
read of the rest. Every stream is opened and its batch taken as Arrow takes it: columns that lie in the frame, nothing copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa

from ..core.operation import EARLIEST
from ..doors.native import frames, requests
from ..doors.native.frames import HEADER_BYTES, Kind
from .child import result_of
from .httpload import LoadFailed
from .nativeload import Load, NativePlayer
from .nativewire import Line
from .rawload import join, played

TAP = "read"
READ_MESSAGES = 16_384
UNDER_WAY = 4
COLUMNS = ["queue", "sequence", "time", "id", "group", "attributes", "body"]
_FACTS = Struct("<QQQII")
_DAY_MS = 86_400_000


class Part(NamedTuple):
    """Messages `start` to `end - 1` of a queue."""

    queue: int
    start: int
    end: int


def tapped(line: Line, name: str, **rules: Any) -> int:
    """The id of a queue that is there, with a tap that has been open since its first message."""
    queue = line.declare(name, **rules)
    line.ask(requests.TapOpen(queue, TAP, EARLIEST, _DAY_MS, 1 << 40))
    return queue


class TapReader(NativePlayer):
    whole = True

    def __init__(self, load: Load, line: Line, parts: Sequence[Part]) -> None:
        super().__init__(load, line, parts[0].queue)
        self._parts = deque(parts)
        self._asked: dict[int, Part] = {}
        self.bytes = 0

    def begin(self) -> None:
        for _ in range(min(UNDER_WAY, len(self._parts))):
            self._ask()

    def _ask(self) -> None:
        self.number += 1
        part = self._asked[self.number] = self._parts.popleft()
        read = requests.TapRead(part.queue, TAP, part.start, part.end - part.start, arrow=True)
        self.transport.write(requests.encode(read, self.number))

    def answered(self, kind: int, data: bytes, at: int, end: int) -> None:
        (_, _, _, _, number) = frames.HEADER.unpack_from(data, at)
        part = self._asked.pop(number)
        _, following, _, count, _ = _FACTS.unpack_from(data, at + HEADER_BYTES)
        with pa.ipc.open_stream(pa.py_buffer(memoryview(data)[at + HEADER_BYTES + _FACTS.size : end])) as stream:
            batch = stream.read_next_batch()
        if kind != Kind.ARROW or batch.num_rows != count or batch.schema.names != COLUMNS or not count:
            self.fail(LoadFailed(f"{batch.num_rows} rows of {batch.schema.names} in place of {part}"))
            return
        self.messages += count
        self.bytes += end - at
        if following < part.end:
            self._parts.appendleft(part._replace(start=following))
        if self._parts:
            self._ask()
        elif not self._asked:
            self.end()


async def play(port: int, names: Sequence[str], pid: int = 0) -> dict[str, Any]:
    """In a child: everything that was ever pushed to these queues."""
    line = Line(port)
    parts = []
    for name in names:
        queue = tapped(line, name)
        ((_, start, end, _, _),) = line.ask(requests.About(Kind.TAP_LIST, queue)).taps
        parts += [Part(queue, start, min(end, start + READ_MESSAGES)) for start in range(start, end, READ_MESSAGES)]
    if not parts:
        raise LoadFailed("there is nothing to read")
    reader = TapReader(Load(port, "", len(parts)), line, parts)
    await join([reader], [line.socket])
    made = await played([reader], pid)
    return {**made, "mb_per_s": reader.bytes / made["seconds"] / 1e6}


async def result(port: int, names: Sequence[str], pid: int = 0) -> dict[str, Any]:
    """The same, in a process that is there for it alone."""
    made: dict[str, Any] = await result_of(f"{__name__}:play", port=port, names=list(names), pid=pid)
    return made
