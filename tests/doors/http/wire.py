"""The caller's end of a raw connection: sends bytes as they are and reads answers strictly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

PATIENCE_S = 60.0
"""What only a broken promise takes, on a machine however slow."""


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
        async with asyncio.timeout(PATIENCE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            version, status, _ = lines[0].split(" ", 2)
            assert version == "HTTP/1.1"
            headers = dict(line.split(": ", 1) for line in lines[1:-2])
            assert len(headers) == len(lines) - 3, "a header came twice"
            size = 0 if head else int(headers.get("content-length", "0"))
            return Answer(int(status), headers, await self.reader.readexactly(size))

    async def closed(self) -> bool:
        """The other end closed and nothing else arrived."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.002)


async def settled(look: Callable[[], int], quiet_s: float = 0.2) -> int:
    """What it is once it has not changed for a while."""
    async with asyncio.timeout(PATIENCE_S):
        value = look()
        while True:
            await asyncio.sleep(quiet_s)
            before, value = value, look()
            if value == before:
                return value


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body
