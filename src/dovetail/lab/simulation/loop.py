"""An event loop with virtual time: nothing waits, the clock jumps to whatever is due next. What runs in it in what order follows from what
it is given, so the same seed gives the same run to the byte.

Whoever shall be breakable runs as an *owner*: its tasks are made in a context that names it, and so is everything that they set off. A
sleeping owner's steps are kept until it wakes, as under SIGSTOP; a dead one's are never run again, as after kill −9: no `finally`, no
goodbye. Threads are not simulated: what is given to an executor is done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Handle
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop
from typing import Any, TypeVar

T = TypeVar("T")
STEPS_MAX = 20_000_000


class Stuck(Exception):
    """Nothing is due, ever, and somebody still waits."""


class Owner:
    """Something that runs in the loop and can be broken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = self.asleep = False
        self.kept: list[Handle] = []
        self.context = copy_context()
        self.context.run(_OWNER.set, self)


_OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._undone: list[Handle] = []
        """Steps of the dead. They are kept, for whoever lets go of a coroutine runs its `finally` blocks."""
        self.steps = 0
        # What becomes of the tasks of the dead is nobody's concern.
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop, as are _ready and _run_once
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0].cancelled():
                heappop(timers)._scheduled = False
            if not timers:
                raise Stuck
            self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            handle = heappop(timers)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            owner: Owner | None = handle._context.get(_OWNER)
            if owner is not None and owner.dead:
                self._undone.append(handle)
                continue
            if owner is not None and owner.asleep:
                owner.kept.append(handle)
                continue
            self.steps += 1
            handle._run()
        if self.steps > STEPS_MAX:
            raise Stuck(f"{self.steps} steps and no end")

    def wake(self, owner: Owner) -> None:
        owner.asleep = False
        kept, owner.kept = owner.kept, []
        self._ready.extend(kept)  # type: ignore[attr-defined]

    def spawn(self, owner: Owner, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.create_task(work, context=owner.context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # at once
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""

    def end(self) -> None:
        """Whoever has not ended is ended without another step of the loop."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the dead are expected
            with contextlib.suppress(BaseException):
                coroutine = task.get_coro()
                assert coroutine is not None
                coroutine.close()
        self.close()


def outside() -> Context:
    """A context that belongs to no owner."""
    context = copy_context()
    context.run(_OWNER.set, None)
    return context
