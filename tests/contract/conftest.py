"""The house of each contract test: every store in turn. What a test leaves behind must look the same after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.house import STORES, House, Kind


@pytest.fixture(params=STORES, ids=[kind.name for kind in STORES])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    kind: Kind = request.param
    made = House(kind, tmp_path)
    await made.open()
    failed_before = request.session.testsfailed
    yield made
    try:
        # A test that failed has said what is wrong; a second complaint would only hide it.
        if kind.persists and request.session.testsfailed == failed_before and made.node.ready:
            await made.node.store.settled()
            seen = await made.facts()
            await made.again()
            assert await made.facts() == seen, "replaying the log gives another state"
            await made.again(snapshot=True)
            assert await made.facts() == seen, "a snapshot gives another state"
    finally:
        await made.close()
