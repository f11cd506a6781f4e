"""fdatasync by the kernel's own workers (Linux AIO, through caio): asked for in 20 µs, answered through a descriptor that the loop watches.

No thread of ours waits, so no interpreter lock changes hands, and the loop goes on while the device writes. It knows descriptors and
results, and nothing of what they make durable. Where it cannot be had (another system, a sandbox that forbids the calls) `open` gives None.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any


class KernelSync:
    """One sync at a time. `done(error)` is told from `collect`."""

    def __init__(self, context: Any, operation: Any) -> None:
        self._context = context
        self._operation = operation
        self._under_way: Any = None
        self._done: Callable[[OSError | None], None] | None = None
        self._result: int | None = None
        self.descriptor: int = context.fileno
        """Readable when a sync has ended."""

    @classmethod
    def open(cls) -> KernelSync | None:
        try:
            from caio import linux_aio
        except ImportError:
            return None
        try:
            return cls(linux_aio.Context(1), linux_aio.Operation)
        except (OSError, ValueError, RuntimeError):
            return None

    def begin(self, file: int, done: Callable[[OSError | None], None]) -> bool:
        """False where the kernel does not take it: nothing was asked for."""
        operation = self._operation.fdsync(file)
        operation.set_callback(self._ended)
        self._under_way, self._done = operation, done
        try:
            taken = bool(self._context.submit(operation) == 1)
        except (OSError, ValueError, RuntimeError):
            taken = False
        if not taken:
            self._under_way = self._done = None
        return taken

    def collect(self) -> None:
        """Take what has ended; nothing where nothing has."""
        try:
            self._context.poll()
        except BlockingIOError:
            return
        self._context.process_events()
        # Told from here and not from the callback: an error of whoever is told would be swallowed there.
        result, self._result = self._result, None
        if result is not None:
            self._tell(result)

    def wait(self) -> None:
        """Stand still until the sync under way has ended."""
        looking = select.poll()
        looking.register(self.descriptor, select.POLLIN)
        while self._done is not None:
            looking.poll()
            self.collect()

    def _ended(self, result: int) -> None:
        self._result = result

    def _tell(self, result: int) -> None:
        done, self._under_way, self._done = self._done, None, None
        # Zero, or an errno below zero, which arrives as an unsigned number.
        code = (1 << 64) - result if result >= 1 << 63 else result
        if done is not None:
            done(OSError(code, os.strerror(code)) if result else None)
