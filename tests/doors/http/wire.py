"""The caller's end of a raw connection: sends bytes as they are and reads answers strictly."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, head: bool = False) -> Answer:
        """The next answer, whole; anything that is not one fails the test."""
        async with asyncio.timeout(5):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            version, status, _ = lines[0].split(" ", 2)
            assert version == "HTTP/1.1"
            headers = dict(line.split(": ", 1) for line in lines[1:-2])
            assert len(headers) == len(lines) - 3, "a header came twice"
            size = 0 if head else int(headers.get("content-length", "0"))
            return Answer(int(status), headers, await self.reader.readexactly(size))

    async def closed(self) -> bool:
        """The other end closed and nothing else arrived."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body
