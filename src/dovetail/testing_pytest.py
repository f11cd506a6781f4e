"""The pytest fixture `dovetail_server`: a node that is empty when a test begins. One node serves the whole session and is emptied between.

    def test_an_order_is_sent(dovetail_server):
        sqs = dovetail_server.client()

To have queues in it, or other rules, give `dovetail_options` in conftest.py; it is passed on to `dovetail.testing.serve`:

    @pytest.fixture(scope="session")
    def dovetail_options():
        return {"queues": "queues.toml"}

pytest imports this file in every run, also in those that use no queue: what costs time is imported by the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail.testing import Server

__all__ = ["dovetail_options", "dovetail_server", "dovetail_session"]


@pytest.fixture(scope="session")
def dovetail_options() -> dict[str, Any]:
    """What the session's node is made with. Give your own to change it."""
    return {}


@pytest.fixture(scope="session")
def dovetail_session(dovetail_options: dict[str, Any]) -> Iterator[Server]:
    """The node behind `dovetail_server`, for fixtures that live as long as the session."""
    from dovetail.testing import serve

    with serve(**dovetail_options) as server:
        yield server


@pytest.fixture
def dovetail_server(dovetail_session: Server) -> Server:
    """A node without queues other than those of `dovetail_options`, and without messages."""
    dovetail_session.reset()
    return dovetail_session
