from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.clock import ManualClock
from dovetail.testing import MovableClock
from tests.client.house import Served, Wire

HERE = Path(__file__).parent
PATIENCE_S = 600.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A call that is never answered is a broken promise like any other, and must not keep the rest from being looked at. All of them
    talk to real nodes, which takes its time: `make check` leaves them to `make test`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
        if isinstance(item, pytest.Function) and HERE in item.path.parents and inspect.iscoroutinefunction(item.obj):
            item.obj = _answered(item.obj)


def _answered(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        await asyncio.wait_for(test(*args, **kwargs), PATIENCE_S)

    return limited


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = await Served().open()
    yield made
    await made.close()


@pytest.fixture
async def wire(served: Served) -> AsyncIterator[Wire]:
    made = await Wire(served.port).open()
    yield made
    await made.close()


@pytest.fixture
async def node(wire: Wire) -> AsyncIterator[dovetail.Client]:
    async with dovetail.connect(wire.url, timeout_s=60) as made:
        yield made


@pytest.fixture(params=["here", "elsewhere"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[dovetail.Queues]:
    """A node in this process, or a connection to one: what is written for the one works with the other."""
    if request.param == "here":
        async with dovetail.open("memory:") as here:
            yield here
        return
    served = await Served().open()
    async with dovetail.connect(served.url, timeout_s=60) as elsewhere:
        yield elsewhere
    await served.close()


@pytest.fixture(params=["here", "elsewhere"])
async def frozen(request: pytest.FixtureRequest) -> AsyncIterator[tuple[dovetail.Queues, MovableClock]]:
    """The same with a clock that stands still until it is moved: no lease ends because a machine is slow."""
    clock = MovableClock(ManualClock())
    if request.param == "here":
        async with dovetail.open("memory:", clock=clock) as here:
            yield here, clock
        return
    served = Served()
    served.clock = clock
    await served.open()
    async with dovetail.connect(served.url, timeout_s=60) as elsewhere:
        yield elsewhere, clock
    await served.close()
