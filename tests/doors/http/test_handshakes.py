"""TLS handshakes are connections like others: counted from the first packet on, and given up when they do not end."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from dovetail.doors.http import Bounds, Server

from .conftest import echo
from .wire import Caller, get, until

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    cert, key = folder / "c.pem", folder / "k.pem"
    made = [OPENSSL or "", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        [*made, "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    return cert, key


async def listening(pair: tuple[Path, Path], **bounds: float) -> tuple[Server, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    server = Server(echo, Bounds(**bounds))  # type: ignore[arg-type]  # the names are checked by the dataclass
    return server, (await server.listen("127.0.0.1", 0, context))[1]


async def sealed(pair: tuple[Path, Path], port: int) -> Caller:
    context = ssl.create_default_context(cafile=str(pair[0]))
    return Caller(*await asyncio.open_connection("127.0.0.1", port, ssl=context))


async def answered(pair: tuple[Path, Path], port: int) -> None:
    caller = await sealed(pair, port)
    await caller.send(get("/a") + get("/b"))
    assert [(await caller.answer()).body for _ in range(2)] == [b"GET /a ", b"GET /b "]
    caller.close()


async def test_handshakes_that_do_not_end_are_given_up(pair: tuple[Path, Path]) -> None:
    server, port = await listening(pair, handshake_s=0.3)
    halves = [await Caller.to(port) for _ in range(20)]
    for half in halves[:10]:
        await half.send(b"\x16\x03\x01\x02\x00")
    await until(lambda: server.handshakes > 0)
    await answered(pair, port)
    for half in halves:
        assert await half.closed()
        half.close()
    await until(lambda: not server.handshakes and not server.connections)
    assert await server.drain(60)


async def test_as_many_connections_are_there_as_may_be_their_handshakes_included(pair: tuple[Path, Path]) -> None:
    server, port = await listening(pair, connections_max=3, handshake_s=3600)
    good = await sealed(pair, port)
    halves = [await Caller.to(port) for _ in range(2)]
    await until(lambda: server.handshakes == 2)
    with pytest.raises(OSError):
        await sealed(pair, port)
    assert (server.handshakes, server.connections) == (2, 1)
    halves[0].close()
    await until(lambda: server.handshakes == 1)
    await answered(pair, port)
    await good.send(get())
    assert (await good.answer()).status == 200
    good.close()
    assert await server.drain(60), "a stop waits for no handshake"
    assert await server.drain(60), "and may be asked for again"
    assert not server.handshakes
    halves[1].close()


async def test_garbage_in_place_of_a_handshake_ends_its_connection_only(pair: tuple[Path, Path]) -> None:
    server, port = await listening(pair)
    for data in (get(), b"\x16\x03\x01\xff\xff" + bytes(2000), b"\x80" * 70_000):
        caller = await Caller.to(port)
        caller.writer.write(data)
        while await caller.reader.read(4096):  # An alert, perhaps.
            pass
        caller.close()
    await answered(pair, port)
    await until(lambda: not server.handshakes)
    assert await server.drain(60)
