"""Who has hung up, before the loop has come round to say so. Knows descriptors, and no protocol."""

from __future__ import annotations

import contextlib
import select


class Left:
    """Which callers have closed their end, before the loop has come round to say so. Asked before messages are handed out: a receiver that
    has left would hide them for a whole lease. One question for all connections that are answered in a turn; a question for each took a
    tenth of a receive.

    A connection is forgotten by the kernel when its last descriptor is closed. While a snapshot is being written that is a little later
    than here, because the forked child holds them too; the same number may be another connection's by then, so a yes is asked again."""

    def __init__(self) -> None:
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._found: frozenset[int] | None = None

    def watch(self, fd: int) -> None:
        if self._poll is not None and fd >= 0:
            with contextlib.suppress(FileExistsError):
                self._poll.register(fd, select.EPOLLRDHUP)

    def look_again(self) -> None:
        """What was found is true for one turn of the loop."""
        self._found = None

    def __contains__(self, fd: int) -> bool:
        if fd < 0:
            return True
        if self._poll is None or self._poll.closed:
            return False
        if self._found is None:
            self._found = frozenset([fd for fd, _ in self._poll.poll(0)])
        return fd in self._found and _hung_up(fd)

    def close(self) -> None:
        if self._poll is not None:
            self._poll.close()


def _hung_up(fd: int) -> bool:
    looking = select.poll()
    looking.register(fd, select.POLLRDHUP)
    return bool(looking.poll(0))
