"""The log seam: an ordered, durable sequence of entries. A log knows bytes and positions; it does not know queues or leases.

An entry is a short list of *records* (byte strings). The first is the entry's head, the others are operations; what is in them is
the core's business. Every entry has a *position* (u64, growing, not dense) and every record in it an *address* (u64) by which it can be
fetched alone: `address = entry.position + offset_of_the_record`, in units that the log chooses so that addresses are unique and grow.

The walk of an entry: `append` puts it on its way; when it is durable the log calls `deliver(entry)`, in order, exactly once;
a log that cannot go on calls `fail(error)` once and nothing after it. What arrives while `busy` is held back by the caller,
so that it rides the next sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One durable entry as the log gives it back. `addresses[i]` belongs to `records[i]`."""

    position: int
    after: int
    """The position of whatever comes next: a reader that has applied this entry goes on from here."""
    records: Sequence[bytes | memoryview]
    addresses: Sequence[int]
    stamp: int | None = None
    """The log's own time of it, in milliseconds, where several nodes append; a log with one writer has none."""
    mark: int = 0
    """There, it stands for the bytes of the whole entry."""


class Blobs(Protocol):
    """Named files kept beside the log: snapshots and the indexes of taps. A blob is there whole or not at all."""

    def put(self, name: str, chunks: Iterator[bytes | memoryview]) -> int:
        """Write, sync, rename, sync the folder; returns the bytes written. May be called in a forked child."""

    def get(self, name: str) -> memoryview:
        """The whole blob (KeyError where there is none)."""

    def names(self) -> list[str]: ...

    def remove(self, name: str) -> None:
        """Idempotent."""


class Log(Protocol):
    """What every engine gives us."""

    @property
    def durability(self) -> str:
        """The word of SEMANTICS that an answer may name once `deliver` was called: memory, disk, memory×3, disk×3."""

    @property
    def entry_bytes_max(self) -> int: ...

    @property
    def lasting(self) -> bool:
        """What it holds outlives the process, so that snapshots are worth their while."""

    @property
    def blobs(self) -> Blobs: ...

    @property
    def first(self) -> int:
        """The position of the oldest entry that is still kept (equal to `tail` where there is none)."""

    @property
    def tail(self) -> int:
        """The position that the next entry will get."""

    @property
    def busy(self) -> bool:
        """A sync is under way: hold operations back, they ride the next one."""

    @property
    def bytes_kept(self) -> int:
        """Bytes between `first` and `tail` as they are stored."""

    def bytes_since(self, address: int) -> int:
        """The same between `address` and `tail`, about."""

    def read(self, position: int) -> Iterator[Entry]:
        """Replay durable entries from `position` to the tail. Only before `start`."""

    def start(self, deliver: Callable[[Entry], None], fail: Callable[[BaseException], None]) -> None:
        """From here on entries may be appended."""

    def append(self, records: Sequence[bytes], *, vital: bool = False, more: bool = False, callers: int = 1) -> None:
        """Put one entry on its way. Raises StorageFull (refused: nothing was written) when there is no room; `vital` entries
        (completes, receives, trims: whatever helps to make room) may use the reserve. `more` says that another append follows at once,
        so that both share a sync. `callers` is how many wait for it."""

    def fetch(self, address: int) -> memoryview | None:
        """One record by its address, checked; None where it cannot be had without waiting."""

    def trim(self, position: int) -> None:
        """Everything before `position` may go. Physical removal may lag behind."""

    def in_child(self) -> None:
        """Called in a forked child before anything else: let go of what only the parent may hold. The child reads, and writes blobs."""

    def close(self) -> None:
        """Finish what is under way and let go of every resource."""
