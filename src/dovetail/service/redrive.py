"""Redriving dead letters: messages go back to where they came from, or to a queue that is named, at a rate, until none is left or somebody
cancels. Each step is one operation that moves a few, so a crash in between neither loses nor doubles one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dovetail.errors import BadRequest, DovetailError
from dovetail.stores.store import Lane

STEP_S = 0.1
STEP_MESSAGES_MAX = 1_000


class Redrive:
    """A task under way. `status` is running, cancelling (the last step is under way), completed, cancelled or failed; `moved`
    counts."""

    def __init__(self, source: Lane, target: int, rate_per_s: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        if not 0 < rate_per_s <= 1_000_000:
            raise BadRequest(f"A rate of {rate_per_s} messages a second; it must lie above 0 and at most 1,000,000.")
        self.source = source
        self.target = target
        self.rate_per_s = rate_per_s
        self.status = "running"
        self.moved = 0
        self.error: DovetailError | None = None
        self._sleep = sleep
        self._sleeping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        owed = 0.0
        try:
            while self.status == "running":
                owed = min(owed + self.rate_per_s * STEP_S, max(1.0, self.rate_per_s))
                if owed >= 1:
                    wanted = min(int(owed), STEP_MESSAGES_MAX)
                    moved = await self.source.move(self.target, wanted)
                    self.moved += moved
                    owed -= moved
                    if moved < wanted:
                        self.status = "completed"
                        return
                    if self.status != "running":
                        return
                self._sleeping = True
                await self._sleep(STEP_S)
                self._sleeping = False
        except DovetailError as error:
            self.status, self.error = "failed", error
        finally:
            if self.status == "cancelling":
                self.status = "cancelled"

    @property
    def active(self) -> bool:
        return self.status in ("running", "cancelling")

    async def wait(self) -> None:
        """Until it has ended, however it ended."""
        await asyncio.wait([self._task])

    async def cancel(self) -> None:
        """Stop after the step that is under way. What has moved stays moved."""
        if self.status == "running":
            self.status = "cancelling"
            if self._sleeping:
                self._task.cancel()
        await self.wait()
