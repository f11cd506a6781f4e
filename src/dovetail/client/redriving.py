"""Dead letters on their way back, seen from afar: the node is asked now and then how far they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dovetail.doors.native import answers
from dovetail.doors.native.answers import REDRIVES
from dovetail.doors.native.codec import Kind, requests
from dovetail.errors import BadRequest, DovetailError

if TYPE_CHECKING:
    from dovetail.client.place import Place
    from dovetail.client.session import Session

ASK_S = 0.1
RATE_MAX = 1_000_000


class Redriving:
    def __init__(self, session: Session, place: Place, begun: answers.Redriving) -> None:
        self._session = session
        self._place = place
        self.status = ""
        self.moved = 0
        self.error: DovetailError | None = None
        self._note(begun)
        self._watching = session.loop.create_task(self._watch())

    def _note(self, told: answers.Redriving) -> None:
        self.status, self.moved = REDRIVES[told.status], told.moved
        if self.status == "failed":
            self.error = DovetailError("The node could not move all of them; its log has why.")

    async def _watch(self) -> None:
        try:
            while self.status in ("running", "cancelling"):
                await asyncio.sleep(ASK_S)
                self._note(await self._ask(Kind.REDRIVE_STATUS))
        except DovetailError as error:
            self.status, self.error = "failed", error

    async def _ask(self, kind: Kind) -> answers.Redriving:
        return await self._session.asks.ask(requests.About(kind, self._place.queue), answers.Redriving, again=True)

    async def wait(self) -> None:
        """Until it has ended, however it ended."""
        await asyncio.wait([self._watching])

    async def cancel(self) -> None:
        """Stop after the step that is under way. What has moved stays moved."""
        if self.status == "running":
            self._note(await self._ask(Kind.REDRIVE_CANCEL))


def rate_of(rate_per_s: float) -> int:
    """In thousandths of a message a second, as the wire has it."""
    if not 0 < rate_per_s <= RATE_MAX:
        raise BadRequest(f"A rate of {rate_per_s} messages a second; it must lie above 0 and at most {RATE_MAX:,}.")
    return max(1, round(rate_per_s * 1000))
