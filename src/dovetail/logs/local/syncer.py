"""The syncer: where a sync runs. It knows how long syncs take, and nothing of what they make durable.

    inline    costs its own time and nothing else, but the loop stands still for as long as it takes
    kernel    the kernel's workers do it and the loop goes on; asking and being told cost 20 µs and a turn of the loop
    thread    the loop goes on too, but each sync pays two hand-overs of the interpreter lock

So a sync for which few wait runs inline where syncs are fast: nobody has work to do meanwhile. One for which many wait, and every slow one,
is the kernel's, or the thread's where the kernel does not take it (docs/decisions/0002-where-the-sync-runs.md has the figures). Between the
limits of fast and slow is a gap, so that it does not flap.

Beside the loop the measured time includes the way back to it, which says nothing about the disk. Therefore slow syncs are called fast again
by the *shortest* one of a window: one that was not held up shows what the disk can do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Literal

from .kernelsync import KernelSync

SyncMode = Literal["auto", "inline", "thread", "kernel"]

INLINE_S_MAX = 0.001
"""The average above which syncs are slow: none runs inline any more."""
THREAD_S_MIN = 0.0005
"""The shortest sync of a window below which they are fast again."""
WINDOW_SYNCS = 32
KERNEL_CALLERS_MIN = 2
"""From so many callers on the loop has work to do while the device writes (with 4 connections a quarter more is done so)."""
_WEIGHT = 0.1

assert THREAD_S_MIN < INLINE_S_MAX


class Job:
    """One sync beside the loop."""

    __slots__ = ("done", "elapsed_s", "error", "finished", "in_kernel", "sync")

    def __init__(self, sync: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.sync = sync
        self.done = done
        self.error: BaseException | None = None
        self.elapsed_s = 0.0
        self.finished: threading.Event | None = None
        """Of one that a thread runs: whoever closes the log may have to wait for it."""
        self.in_kernel = False


class Syncer:
    """Runs one sync at a time. `done(error)` is called on the loop's thread, or before `run` returns."""

    def __init__(self, mode: SyncMode) -> None:
        self.mode = mode
        self.slow = False
        self.average_s = 0.0
        self._window: list[float] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._job: Job | None = None
        self._kernel: KernelSync | None = None

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Without a loop there is nobody to hand a result to, so that every sync runs inline."""
        self._loop = loop
        self.slow = loop is not None and self.mode == "thread"
        if loop is not None and self.mode in ("auto", "kernel"):
            self._kernel = KernelSync.open()
            if self._kernel is not None:
                loop.add_reader(self._kernel.descriptor, self._kernel.collect)

    @property
    def running(self) -> bool:
        return self._job is not None

    def run(self, sync: Callable[[], None], done: Callable[[BaseException | None], None], file: int = -1, callers: int = 1) -> None:
        """`file` is the descriptor that `sync` syncs, -1 where it has none; `callers` says how many wait for it."""
        if (
            self._kernel is not None
            and file >= 0
            and (callers >= KERNEL_CALLERS_MIN or self.slow or self.mode == "kernel")
            and self._run_in_kernel(self._kernel, sync, done, file)
        ):
            return
        if self.slow:
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
            self.slow = True
            self._window.clear()
        done(None)

    def _run_in_kernel(self, kernel: KernelSync, sync: Callable[[], None], done: Callable[[BaseException | None], None], file: int) -> bool:
        assert self._job is None
        job = Job(sync, done)
        began = perf_counter()

        def ended(error: OSError | None) -> None:
            job.error = error
            job.elapsed_s = perf_counter() - began
            self._finish(job)

        # Before it is asked for: the answer must find it.
        self._job = job
        if kernel.begin(file, ended):
            job.in_kernel = True
            return True
        self._job = None
        self._close_kernel()
        return False

    def _run_in_thread(self, sync: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        assert self._job is None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="dovetail-sync", daemon=True)
            self._thread.start()
        self._job = job = Job(sync, done)
        job.finished = threading.Event()
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
            if job.finished is not None:
                job.finished.set()
            try:
                loop.call_soon_threadsafe(self._finish, job)
            except RuntimeError:
                pass  # The loop is gone; whoever closes the log waits for the job itself.

    def _finish(self, job: Job) -> None:
        if job is not self._job:
            return  # `wait` was here before.
        self._job = None
        if self.mode == "auto" and job.error is None and self.slow:
            self._window.append(job.elapsed_s)
            if len(self._window) >= WINDOW_SYNCS:
                if min(self._window) < THREAD_S_MIN:
                    self.slow = False
                    self.average_s = min(self._window)
                self._window.clear()
        job.done(job.error)

    def wait(self) -> None:
        """Stand still until the sync under way has ended, and hand its result over here."""
        job = self._job
        if job is None:
            return
        if job.in_kernel and self._kernel is not None:
            self._kernel.wait()
            return
        if job.finished is not None:
            job.finished.wait()
        self._finish(job)

    def _close_kernel(self) -> None:
        """A context that does not take what it is asked for is not asked again."""
        if self._kernel is not None and self._loop is not None:
            self._loop.remove_reader(self._kernel.descriptor)
        self._kernel = None

    def close(self) -> None:
        self.wait()
        self._close_kernel()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._loop = None
        self.slow = False
