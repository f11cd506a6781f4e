"""The node's own pages, asked by clients that people already have."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request

from dovetail.doors.http import Request, Response, routes
from dovetail.doors.http.message import date_line


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


async def test_the_pages_of_a_node_and_what_is_not_there(serve) -> None:
    ready = False
    server, port = await serve(routes(ready=lambda: ready, metrics=lambda: "a 1\n"))
    assert (await asyncio.to_thread(ask, port, "GET", "/-/healthy"))[::2] == (200, b"ok\n")
    assert (await asyncio.to_thread(ask, port, "GET", "/-/ready"))[::2] == (503, b"not ready\n")
    ready = True
    assert (await asyncio.to_thread(ask, port, "GET", "/-/ready?x=1"))[::2] == (200, b"ready\n")
    status, headers, body = await asyncio.to_thread(ask, port, "GET", "/metrics")
    assert (status, body) == (200, b"a 1\n") and headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (await asyncio.to_thread(ask, port, "HEAD", "/metrics"))[::2] == (200, b"")
    assert (await asyncio.to_thread(ask, port, "GET", "/nothing"))[0] == 404
    status, headers, _ = await asyncio.to_thread(ask, port, "POST", "/metrics", b"x")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_everything_else_goes_to_the_door_behind(serve) -> None:
    def door(request: Request) -> Response:
        return Response(200, request.path.encode() + b"|" + request.query)

    _, port = await serve(routes(ready=lambda: True, metrics=str, fallback=door))
    assert (await asyncio.to_thread(ask, port, "GET", "/000000000000/orders?Action=x"))[2] == b"/000000000000/orders|Action=x"
    assert (await asyncio.to_thread(ask, port, "GET", f"http://127.0.0.1:{port}/absolute"))[2] == b"/absolute|"


async def test_a_stock_client_keeps_its_connection_and_sends_large_bodies(serve) -> None:
    server, port = await serve()

    def run() -> list[int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sizes = []
        for size in (0, 1, 70_000, 1_000_000):
            connection.request("POST", "/", b"x" * size)
            sizes.append(len(connection.getresponse().read()) - len(b"POST / "))
        connection.request("PUT", "/", iter([b"ab", b"cd"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert connection.getresponse().read() == b"PUT / abcd"
        connection.close()
        return sizes

    assert await asyncio.to_thread(run) == [0, 1, 70_000, 1_000_000]


async def test_urllib_reads_an_error_with_its_text(serve) -> None:
    _, port = await serve(routes(ready=lambda: True, metrics=str))

    def run() -> tuple[int, bytes]:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/x", timeout=60)
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        raise AssertionError

    status, body = await asyncio.to_thread(run)
    assert status == 404 and body.startswith(b"404 Not Found: ")


def test_the_date_is_written_as_http_wants_it() -> None:
    assert date_line(1994, 11, 6, 8, 49, 37, 6) == b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
