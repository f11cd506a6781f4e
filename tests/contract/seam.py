"""The house of tests that ask the store's seam itself: stages and reservations, which are verbs for doors and not for people. It is in this
process, and what it looks at after a restart takes them in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Queue
from dovetail.stores.store import Outgoing
from tests.contract.house import STORES, House, Kind, soon

OWNER = b"o" * 16


class SeamHouse(House):
    async def facts(self) -> dict[tuple[str, str], Any]:
        seen: dict[tuple[str, str], Any] = await super().facts()
        for namespace, name, queue in self.node.store.all_queues():
            lane = self.node.store.lane(queue)
            assert lane is not None
            known = lane.reservations()
            open_batches = [[_messages(lane, one.name, batch) for batch in one.batches] for one in known]
            seen[namespace, name] = (*seen[namespace, name], known, open_batches)
        return seen | {("", "stages"): self.node.store.stages()}

    async def queue(self, name: str = "orders", **rules: Any) -> Queue:
        return await self.node.queue(name, **rules)

    async def stage(self, name: bytes, *bodies: bytes, to: tuple[str, ...] = ("orders",), **more: Any) -> int:
        lanes = [(await self.node.queue(queue)).lane for queue in to]
        return await self.node.broker.stage(name * 16, lanes, [Outgoing(body, **more) for body in bodies])

    async def publish(self, *names: bytes, batch: int = 0, owner: bytes = OWNER) -> Any:
        return await self.node.broker.publish([name * 16 for name in names], owner, batch)

    async def wear(self) -> None:
        """So much comes and goes that the log's beginning is not needed any more, however it is kept; with snapshots in between."""
        for _ in range(6):
            filler = await self.queue("filler")
            for size in (200_000,) * 8 + (1,) * (0 if self.kind.persists else 1000):
                await filler.send(bytes(size))
            while found := await filler.receive(max=1000):
                await filler.complete([one.receipt for one in found])
            await self.again(snapshot=True)


def _messages(lane: Any, name: str, batch: int) -> list[Any]:
    """One by one: where a body lies, and with which neighbours, may change when the log is trimmed."""
    return [delivery for run in lane.reserved(name, batch) for delivery in lane.deliveries_of(run)]


@pytest.fixture(params=STORES, ids=[kind.name for kind in STORES])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SeamHouse]:
    kind: Kind = request.param
    made = SeamHouse(kind, tmp_path)
    await soon(made.open())
    failed_before = request.session.testsfailed
    yield made
    try:
        if kind.persists and request.session.testsfailed == failed_before and made.node.ready:
            await made.node.store.settled()
            seen = await made.facts()
            await made.again()
            assert await made.facts() == seen, "replaying the log gives another state"
            await made.again(snapshot=True)
            assert await made.facts() == seen, "a snapshot gives another state"
    finally:
        await soon(made.close())
