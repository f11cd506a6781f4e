"""Tasks that are cancelled at whatever they were waiting for: nothing stays leased for nobody, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

import dovetail
from dovetail.clock import ManualClock
from dovetail.errors import BadRequest, Unavailable
from dovetail.service.consumer import Consumer
from dovetail.testing import MovableClock
from tests.client.house import Served, until

TURNS = 40
"""More turns of the loop than any of these needs: what is cancelled later was waiting for messages anyway."""


@pytest.fixture
async def still() -> AsyncIterator[dovetail.Client]:
    """To a node whose clock stands still: no lease ends by itself."""
    served = Served()
    served.clock = MovableClock(ManualClock())
    await served.open()
    async with dovetail.connect(served.url, timeout_s=60) as node:
        yield node
    await served.close()


async def receives(queue: dovetail.Queue) -> None:
    async with (await queue.receive(wait_s=3600))[0]:
        await asyncio.sleep(0)


async def receives_many(queue: dovetail.Queue) -> None:
    await (await queue.receive(max=3, wait_s=3600)).complete()


async def receives_and_deletes(queue: dovetail.Queue) -> None:
    await queue.receive(max=3, wait_s=3600, delete=True)


async def consumes(queue: dovetail.Queue) -> None:
    async for message in queue.consume(credit=4):
        async with message:
            await asyncio.sleep(0)


async def consumes_in_a_block(queue: dovetail.Queue) -> None:
    async with queue.consume(credit=4) as consumer:
        async for message in consumer:
            await message.complete()


async def consumes_batches(queue: dovetail.Queue) -> None:
    async for batch in queue.consume(credit=4).batches():
        await batch.complete()


async def works_once(queue: dovetail.Queue) -> None:
    (message,) = await queue.receive(wait_s=3600)
    async with dovetail.process_once(message, "key"):
        await asyncio.sleep(0)


async def works_once_and_sends(queue: dovetail.Queue) -> None:
    (message,) = await queue.receive(wait_s=3600)
    async with dovetail.process_once(message, "key") as once:
        once.send(queue, b"result")


WAYS = [receives, receives_many, receives_and_deletes, consumes, consumes_in_a_block, consumes_batches, works_once, works_once_and_sends]


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("way", WAYS)
async def test_whoever_is_cancelled_at_any_moment_leaves_nothing_leased(
    still: dovetail.Client, way: Callable[[dovetail.Queue], Awaitable[None]], again: bool
) -> None:
    chance = Random(1)
    queues = []
    for turns in range(TURNS):
        queue = await still.queue(f"orders-{turns}")
        queues.append(queue)
        await queue.send_many([b"x"] * 10)
        task = asyncio.ensure_future(way(queue))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        if again:
            # Somebody is impatient: it is cancelled a second time while it puts things in order.
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
    for turns, queue in enumerate(queues):
        await nothing_leased(queue, f"cancelled after {turns} turns")


async def nothing_leased(queue: dovetail.Queue, when: str) -> None:
    try:
        async with asyncio.timeout(60):
            while (counts := await queue.counts()).leased:
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"{when}: {counts}")


async def test_a_consumer_that_is_not_closed_to_the_end_keeps_what_nobody_has(
    still: dovetail.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: closing ends with the task that closes."""

    async def close(consumer: Consumer) -> None:
        consumer._open = False
        await consumer._closed()

    monkeypatch.setattr(Consumer, "close", close)
    queue = await still.queue("orders")
    await queue.send_many([b"x"] * 10)
    task = asyncio.create_task(consumes(queue))
    while not (await queue.counts()).leased:
        pass
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await still.ping()
    assert (await queue.counts()).leased


async def test_senders_that_are_cancelled_hold_nobody_up_and_take_nobody_with_them(still: dovetail.Client) -> None:
    chance = Random(2)
    queue = await still.queue("orders")
    kept: list[asyncio.Task[Any]] = []
    for number in range(400):
        many = [b"%d-%d" % (number, item) for item in range(chance.choice((1, 1, 3)))]
        task = asyncio.create_task(queue.send_many(many) if len(many) > 1 else queue.send(many[0]))  # type: ignore[arg-type]
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            kept.append(task)
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    sent = [one for answer in await asyncio.gather(*kept) for one in (answer if isinstance(answer, list | tuple) else [answer])]
    assert sent
    stored = [one.body for one in await queue.peek(max=2000)]
    assert len(stored) == len(set(stored)) >= len(kept)


async def test_a_client_is_used_on_its_own_loop(still: dovetail.Client) -> None:
    """On another one the message would be stored, and its sender told of an error."""
    queue = await still.queue("orders")

    def elsewhere() -> None:
        async def use() -> None:
            for act in (queue.send(b"a"), queue.receive(), queue.counts(), queue.complete(["x" * 54])):
                with pytest.raises((BadRequest, dovetail.errors.ReceiptInvalid)):
                    await act

        asyncio.run(use())

    await asyncio.to_thread(elsewhere)
    await still.ping()
    assert (await queue.counts()).pushed == 0


async def test_a_node_is_asked_before_it_is_given_up_however_long_nobody_listened(still: dovetail.Client) -> None:
    """A handler that keeps the loop busy for minutes hears nothing meanwhile; that is no fault of the node's."""
    session = still._session
    link = session.link
    assert link is not None and session._sweeper is not None
    link.heard_at -= 1000
    for _ in range(2):
        session._sweeper.cancel()
        session._sweep()
    assert not link.ended.done()
    await until(lambda: link.heard_at > asyncio.get_running_loop().time() - 500)
    await still.ping()
    assert session.link is link


async def test_closing_tells_everybody_who_is_under_way(served: Served) -> None:
    node = await dovetail.connect(served.url, timeout_s=60)
    queue, empty = await node.queue("orders"), await node.queue("empty")
    await queue.send_many([b"x"] * 100)
    held = await queue.receive(max=50)
    acts: list[asyncio.Task[Any]] = []
    for act in (
        *(queue.send(b"%d" % number) for number in range(50)),
        *(message.complete() for message in held),
        *(queue.receive() for _ in range(20)),
        *(empty.receive(wait_s=3600) for _ in range(20)),
        anext(aiter(empty.consume())),
        queue.counts(),
        queue.purge(),
    ):
        acts.append(asyncio.ensure_future(act))  # type: ignore[arg-type]  # coroutines of every kind
        if len(acts) % 7 == 0:
            await asyncio.sleep(0)
    await node.close()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*acts, return_exceptions=True)
    assert not [one for one in answers if isinstance(one, BaseException) and not isinstance(one, dovetail.errors.DovetailError)]
    with pytest.raises(dovetail.errors.Closed):
        await queue.send(b"too late")
    with contextlib.suppress(Unavailable):
        await node.close()
