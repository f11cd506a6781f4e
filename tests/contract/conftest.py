"""The house of each contract test: every store in turn. What a test leaves behind must look the same after a restart."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.contract.house import PATIENCE_S, STORES, House, Kind, soon
from tests.contract.served_house import OPENSSL, SERVED, ServedHouse
from tests.contract.shared_house import MARKS, SHARED, SharedHouse

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A call that is never answered is a broken promise like any other, and must not keep the rest from being looked at."""
    for item in items:
        if isinstance(item, pytest.Function) and HERE in item.path.parents and inspect.iscoroutinefunction(item.obj):
            item.obj = _answered(item.obj)


def _answered(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        await asyncio.wait_for(test(*args, **kwargs), PATIENCE_S)

    return limited


_NO_KEYS = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")
_SERVED = [pytest.param(kind, marks=[pytest.mark.slow, *([_NO_KEYS] if "tls" in kind.name else [])]) for kind in SERVED]
_SHARED = [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in SHARED]


@pytest.fixture(params=[*STORES, *_SERVED, *_SHARED], ids=[kind.name for kind in (*STORES, *SERVED, *SHARED)])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    kind: Kind = request.param
    made = (ServedHouse if kind in SERVED else SharedHouse if kind in SHARED else House)(kind, tmp_path)
    await soon(made.open())
    failed_before = request.session.testsfailed
    yield made
    try:
        # A test that failed has said what is wrong; a second complaint would only hide it.
        if kind.persists and kind.again and request.session.testsfailed == failed_before and made.node.ready:
            await soon(_survives(made))
    finally:
        await soon(made.end())


async def _survives(made: House) -> None:
    await made.node.store.settled()
    seen = await made.facts()
    await made.again()
    assert await made.facts() == seen, "replaying the log gives another state"
    await made.again(snapshot=True)
    assert await made.facts() == seen, "a snapshot gives another state"
