"""Producers that the node lends: to nobody twice at a time, back to whoever was cut off, and in the end to somebody else."""

from __future__ import annotations

import asyncio

import dovetail
from dovetail.doors.native.lent import KEPT_MS, MARK, Lent
from tests.doors.native.house import Inside


def test_an_identity_is_one_clients_until_it_can_no_longer_come_back() -> None:
    now = 0
    lent = Lent(lambda: now)
    one, two, three = object(), object(), object()
    first, second = lent.take(one), lent.take(two)
    assert first != second and first.startswith(MARK)
    lent.left(one, [first, b"x" * 16])
    now += KEPT_MS - 1
    assert lent.take(two) not in (first, second)
    lent.claim(first, one)
    lent.left(one, [first])
    now += KEPT_MS
    assert lent.take(three) == first
    # Whose old connection ends late still has the new one.
    lent.claim(second, three)
    lent.left(two, [second])
    now += KEPT_MS
    assert lent.take(one) not in (first, second)


def test_clients_that_come_and_go_leave_no_producer_each(inside: Inside) -> None:
    async def script() -> None:
        async with dovetail.connect(f"dovetail://127.0.0.1:{inside.port}") as node:
            await (await node.queue("orders")).send(b"a")

    for _ in range(5):
        asyncio.run(script())
        inside.gone()
        inside.advance(KEPT_MS / 1000 + 1)
    assert len(inside.node.store.state.producers.by_id) == 1
