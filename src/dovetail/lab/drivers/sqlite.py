"""SQLite as a queue, at its best: WAL, synchronous=FULL, one transaction for everybody who waits.

Where the commit runs matters as much as for us: `inline` on the loop, or in a `thread` beside it. Both are here, and a
scenario compares with the faster. The table is the usual one: a row per message, a lease column, deleted when completed, and the index by
which the next one is found; without it (`indexed=False`) pushes are cheaper and a receive walks the table.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal

from ..driver import Received

_SCHEMA = """
CREATE TABLE messages (sequence INTEGER PRIMARY KEY, queue INTEGER NOT NULL, visible_at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX ready ON messages (queue, visible_at);
"""
LEASE_MS = 30_000

Work = Callable[[sqlite3.Connection], Any]


class Sqlite:
    def __init__(self, folder: Path, mode: Literal["inline", "thread"] = "thread", *, indexed: bool = True) -> None:
        self.name = f"sqlite-{mode}" if indexed else "sqlite-append"
        self._folder = folder
        self._mode = mode
        self._indexed = indexed
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._busy = False
        self._jobs: SimpleQueue[list[tuple[Work, asyncio.Future[Any]]] | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def open(self, queues: int, workers: int) -> str:
        self._loop = asyncio.get_running_loop()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(self._folder / "queue.sqlite", isolation_level=None, check_same_thread=False)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=FULL")
        self._base.executescript(_SCHEMA if self._indexed else _SCHEMA.split(";")[0])
        if self._mode == "thread":
            self._thread = Thread(target=self._serve, daemon=True)
            self._thread.start()
        return sqlite3.sqlite_version

    def _ask(self, work: Work) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((work, done))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._flush)
        return done

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._mode == "thread":
            self._jobs.put(waiting)
        else:
            self._answered(waiting, self._commit(waiting))

    def _commit(self, waiting: list[tuple[Work, asyncio.Future[Any]]]) -> list[Any]:
        """One transaction for all; pushes of strangers go in by one executemany, which is what SQLite does fastest."""
        base = self._base
        base.execute("BEGIN IMMEDIATE")
        rows: list[tuple[int, int, bytes]] = []
        answers: list[Any] = []
        for work, _ in waiting:
            if isinstance(work, _Insert):
                rows += work.rows
                answers.append(None)
            else:
                answers.append(work(base))
        if rows:
            base.executemany("INSERT INTO messages (queue, visible_at, body) VALUES (?, ?, ?)", rows)
        base.execute("COMMIT")
        return answers

    def _answered(self, waiting: list[tuple[Work, asyncio.Future[Any]]], answers: list[Any]) -> None:
        for (_, done), answer in zip(waiting, answers, strict=True):
            if not done.done():
                done.set_result(answer)
        self._busy = bool(self._waiting)
        if self._busy:
            self._loop.call_soon(self._flush)

    def _serve(self) -> None:
        while (waiting := self._jobs.get()) is not None:
            answers = self._commit(waiting)
            self._loop.call_soon_threadsafe(self._answered, waiting, answers)

    async def send(self, worker: int, queue: int, bodies: Sequence[bytes], delays_ms: Sequence[int] | None = None) -> Sequence[int]:
        now = time.time_ns() // 1_000_000
        times = [now + delay for delay in delays_ms] if delays_ms is not None else [now] * len(bodies)
        await self._ask(_Insert([(queue, at, body) for at, body in zip(times, bodies, strict=True)]))
        return ()

    async def receive(self, worker: int, queue: int, most: int) -> list[Received]:
        rows = await self._ask(lambda base: _lease(base, queue, most))
        if not rows:
            await asyncio.sleep(0.005)
        return [Received(body, sequence, sequence) for sequence, body in rows]

    async def complete(self, worker: int, queue: int, tokens: Sequence[int]) -> None:
        await self._ask(lambda base: base.executemany("DELETE FROM messages WHERE sequence = ?", [(one,) for one in tokens]).rowcount)

    async def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._base.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Insert:
    __slots__ = ("rows",)

    def __init__(self, rows: list[tuple[int, int, bytes]]) -> None:
        self.rows = rows

    def __call__(self, base: sqlite3.Connection) -> None:
        raise AssertionError("inserts are gathered")


def _lease(base: sqlite3.Connection, queue: int, most: int) -> list[tuple[int, bytes]]:
    now = time.time_ns() // 1_000_000
    found = base.execute(
        "SELECT sequence, body FROM messages WHERE queue = ? AND visible_at <= ? ORDER BY visible_at, sequence LIMIT ?", (queue, now, most)
    ).fetchall()
    base.executemany("UPDATE messages SET visible_at = ? WHERE sequence = ?", [(now + LEASE_MS, sequence) for sequence, _ in found])
    return found
