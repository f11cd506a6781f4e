"""The syncer: where a sync runs. It knows how long syncs take, and nothing of what they make durable.

Inline, a sync costs its own time and nothing else, but the loop stands still for as long as it takes; in a thread the loop goes on, but
each sync pays two hand-overs of the interpreter lock. So the time decides: under INLINE_S_MAX inline, above it the thread, with a gap
between the two limits so that it does not flap (docs/decisions/0002-where-the-sync-runs.md has the figures).

In the thread the measured time includes the wait for the interpreter lock, which says nothing about the disk. Therefore the way back is
decided by the *shortest* sync of a window: one that was not held up shows what the disk can do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Literal

SyncMode = Literal["auto", "inline", "thread"]

INLINE_S_MAX = 0.001
"""The average above which a sync goes to the thread."""
THREAD_S_MIN = 0.0005
"""The shortest sync of a window below which it comes back."""
WINDOW_SYNCS = 32
_WEIGHT = 0.1

assert THREAD_S_MIN < INLINE_S_MAX


class Job:
    """One sync in the thread."""

    __slots__ = ("done", "elapsed_s", "error", "finished", "sync")

    def __init__(self, sync: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.sync = sync
        self.done = done
        self.error: BaseException | None = None
        self.elapsed_s = 0.0
        self.finished = threading.Event()


class Syncer:
    """Runs one sync at a time. `done(error)` is called on the loop's thread, or before `run` returns."""

    def __init__(self, mode: SyncMode) -> None:
        self.mode = mode
        self.threaded = False
        self.average_s = 0.0
        self._window: list[float] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._job: Job | None = None

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Without a loop there is nobody to hand a result to, so that every sync runs inline."""
        self._loop = loop
        self.threaded = loop is not None and self.mode == "thread"

    @property
    def running(self) -> bool:
        return self._job is not None

    def run(self, sync: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        if self.threaded:
            self._run_in_thread(sync, done)
            return
        began = perf_counter()
        try:
            sync()
        except OSError as error:
            done(error)
            return
        # One sync that took very long says little about the next: it counts as a few slow ones.
        elapsed_s = min(perf_counter() - began, INLINE_S_MAX * 4)
        self.average_s += (elapsed_s - self.average_s) * _WEIGHT
        if self.average_s > INLINE_S_MAX and self.mode == "auto" and self._loop is not None:
            self.threaded = True
            self._window.clear()
        done(None)

    def _run_in_thread(self, sync: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        assert self._job is None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="dovetail-sync", daemon=True)
            self._thread.start()
        self._job = job = Job(sync, done)
        self._jobs.put(job)

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        while (job := self._jobs.get()) is not None:
            began = perf_counter()
            try:
                job.sync()
            except BaseException as error:
                job.error = error
            job.elapsed_s = perf_counter() - began
            job.finished.set()
            try:
                loop.call_soon_threadsafe(self._finish, job)
            except RuntimeError:
                pass  # The loop is gone; whoever closes the log waits for the job itself.

    def _finish(self, job: Job) -> None:
        if job is not self._job:
            return  # `wait` was here before.
        self._job = None
        if self.mode == "auto" and job.error is None:
            self._window.append(job.elapsed_s)
            if len(self._window) >= WINDOW_SYNCS:
                if min(self._window) < THREAD_S_MIN:
                    self.threaded = False
                    self.average_s = min(self._window)
                self._window.clear()
        job.done(job.error)

    def wait(self) -> None:
        """Stand still until the sync under way has ended, and hand its result over here."""
        job = self._job
        if job is not None:
            job.finished.wait()
            self._finish(job)

    def close(self) -> None:
        self.wait()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._loop = None
        self.threaded = False
