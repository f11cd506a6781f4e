"""A served handler and a raw socket, the two ends of every test of the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import uvloop

from dovetail.doors.http import Bounds, Handler, Request, Response, Server


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops: the node runs on uvloop, but a person who embeds it may not."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def echo(request: Request) -> Response:
    """Says what it was asked, so that a test sees every part of the request that arrived."""
    return Response(200, f"{request.method} {request.path} ".encode() + request.body)


Serve = Callable[..., Awaitable[tuple[Server, int]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers = []

    async def start(handler: Handler = echo, **bounds: float) -> tuple[Server, int]:
        server = Server(handler, Bounds(**bounds))  # type: ignore[arg-type]  # the names are checked by the dataclass
        servers.append(server)
        _, port = await server.listen("127.0.0.1", 0)
        return server, port

    yield start
    for server in servers:
        await server.drain(0.2)
