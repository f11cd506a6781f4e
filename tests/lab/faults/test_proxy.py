"""The wire passes what it is given, breaks as it is told, and is whole again when it is healed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from dovetail.lab.faults.proxy import Proxy


class Echo:
    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()


@pytest.fixture
async def wire() -> AsyncIterator[Proxy]:
    echo = Echo()
    await echo.start()
    made = Proxy(lambda: echo.port)
    await made.start()
    yield made
    await made.close()
    echo.server.close()


async def said(wire: Proxy, data: bytes) -> bytes:
    """What comes back; less than was sent where the connection broke."""
    got = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        writer.write(data)
        while len(got) < len(data) and (more := await asyncio.wait_for(reader.read(1 << 16), 60)):
            got += more
        writer.close()
    except ConnectionError:
        pass
    return got


async def test_a_whole_wire_passes_everything_in_order(wire: Proxy) -> None:
    data = os.urandom(1 << 20)
    assert await said(wire, data) == data


async def test_a_wire_that_is_cut_passes_nothing_and_then_again_everything(wire: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    wire.cut()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    assert await said(wire, b"x") == b""
    wire.heal()
    assert await said(wire, b"x") == b"x"


async def test_a_silent_cut_keeps_the_bytes_until_it_is_over(wire: Proxy) -> None:
    wire.cut(silent=True)
    saying = asyncio.create_task(said(wire, b"hello"))
    await asyncio.sleep(0.1)
    assert not saying.done()
    wire.heal()
    assert await saying == b"hello"


async def test_a_slow_wire_takes_at_least_as_long_as_it_is_told(wire: Proxy) -> None:
    wire.slow(60, 10)
    began = asyncio.get_running_loop().time()
    assert await said(wire, b"x") == b"x"
    assert asyncio.get_running_loop().time() - began >= 0.12, "there and back"


async def test_a_lossy_wire_breaks_and_never_changes_what_it_passes(wire: Proxy) -> None:
    wire.lossy(0.2)
    data = os.urandom(200_000)
    got = [await said(wire, data) for _ in range(20)]
    assert all(data.startswith(one) for one in got)
    assert any(len(one) < len(data) for one in got) and wire.broken
