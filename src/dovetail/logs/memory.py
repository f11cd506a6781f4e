"""The log in memory: the same seam, the same order, no file. What it holds is gone with the process, and it says so ("memory").

It is a peer of the others, passes the same tests, and is what users test with. A position counts records, so an address is an index:
`fetch` is one subtraction. Records lie in chunks; a full chunk becomes a tuple of byte strings, which the garbage collector stops
looking at, so that millions of entries cost it nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ..errors import Closed, LimitExceeded, StorageError, StorageFull
from .frame import FRAME_BYTES_MAX
from .log import Blobs, Entry

CHUNK_RECORDS = 4096


class MemoryBlobs:
    """Named byte strings: there whole or not at all."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, chunks: Iterator[bytes | memoryview]) -> int:
        blob = b"".join(chunks)
        self._blobs[name] = blob
        return len(blob)

    def get(self, name: str) -> memoryview:
        return memoryview(self._blobs[name])

    def names(self) -> list[str]:
        return sorted(self._blobs)

    def remove(self, name: str) -> None:
        self._blobs.pop(name, None)


class _Chunk:
    """Consecutive records, and where among them the entries begin."""

    __slots__ = ("bytes", "entries", "records", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.records: Sequence[bytes] = []
        self.entries = array("Q")
        self.bytes = 0


class MemoryLog:
    """A log that lasts as long as the object. `read` and `start` may be called again after `close`: the next owner replays it."""

    durability = "memory"
    lasting = False
    entry_bytes_max = FRAME_BYTES_MAX

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self.blobs: Blobs = MemoryBlobs()
        self.bytes_max = bytes_max
        self._open_chunk = _Chunk(0)
        self._chunks = [self._open_chunk]
        self._starts = [0]
        self._tail = 0
        self._bytes = 0
        self._deliver: Callable[[Entry], None] | None = None
        self._waiting: list[Entry] = []
        self._delivering = False

    @property
    def first(self) -> int:
        return self._starts[0]

    @property
    def tail(self) -> int:
        return self._tail

    @property
    def busy(self) -> bool:
        return self._delivering

    @property
    def bytes_kept(self) -> int:
        return self._bytes

    def bytes_since(self, address: int) -> int:
        return self._bytes * (self._tail - address) // max(1, self._tail - self.first)

    def read(self, position: int) -> Iterator[Entry]:
        if not self.first <= position <= self._tail:
            raise StorageError(f"position {position} is not in the log, which reaches from {self.first} to {self._tail}")
        for chunk in self._chunks[max(0, bisect_right(self._starts, position) - 1) :]:
            end = chunk.start + len(chunk.records)
            bounds = [*chunk.entries, end]
            for at, after in pairwise(bounds):
                if at >= position:
                    yield Entry(at, after, list(chunk.records[at - chunk.start : after - chunk.start]), range(at, after))

    def start(self, deliver: Callable[[Entry], None], fail: Callable[[BaseException], None]) -> None:
        """`fail` is never called: memory does not wear out."""
        self._deliver = deliver

    def append(self, records: Sequence[bytes], *, vital: bool = False, more: bool = False, callers: int = 1) -> None:
        if self._deliver is None:
            raise Closed("The log is not started, or closed.")
        size = sum(map(len, records))
        if not records or size > self.entry_bytes_max:
            raise LimitExceeded(f"an entry holds 1 to {self.entry_bytes_max} bytes; this one has {size}")
        if self.bytes_max is not None and not vital and self._bytes + size > self.bytes_max:
            raise StorageFull(f"The log in memory has reached its {self.bytes_max} bytes: pushes are refused until something is trimmed.")
        position = self._tail
        after = position + len(records)
        chunk = self._open_chunk
        chunk.entries.append(position)
        chunk.records += records  # type: ignore[operator]  # the open chunk's records are a list
        chunk.bytes += size
        self._bytes += size
        self._tail = after
        if len(chunk.records) >= CHUNK_RECORDS:
            chunk.records = tuple(chunk.records)
            self._open_chunk = _Chunk(after)
            self._chunks.append(self._open_chunk)
            self._starts.append(after)
        entry = Entry(position, after, records, range(position, after))
        if self._delivering:
            # An append from inside `deliver` waits until that call has returned, as it would for a sync.
            self._waiting.append(entry)
            return
        self._delivering = True
        try:
            self._deliver(entry)
            while self._waiting:
                self._deliver(self._waiting.pop(0))
        finally:
            self._delivering = False

    def fetch(self, address: int) -> memoryview | None:
        if not self._starts[0] <= address < self._tail:
            return None
        chunk = self._chunks[bisect_right(self._starts, address) - 1]
        return memoryview(chunk.records[address - chunk.start])

    def trim(self, position: int) -> None:
        """Whole chunks below `position` go."""
        gone = bisect_right(self._starts, min(position, self._tail)) - 1
        if gone > 0:
            self._bytes -= sum(chunk.bytes for chunk in self._chunks[:gone])
            del self._chunks[:gone]
            del self._starts[:gone]

    def in_child(self) -> None:
        """There is nothing that only the parent may hold."""

    def close(self) -> None:
        self._deliver = None
