"""Blobs of a shared log: files of this node's cache folder, and the engine, which keeps them for all.

The synchronous half is the `Blobs` seam: it knows the folder alone, so that a forked child can write a snapshot and read it back. The other
half carries single blobs between the folder and the engine, on the loop. What is in the folder is never more than a copy.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import StorageFull
from .engine import Engine


class SharedBlobs:
    def __init__(self, engine: Engine, cache: Path) -> None:
        self._engine = engine
        self._folder = Path(tempfile.mkdtemp(prefix="blobs-", dir=cache))

    # This node's copies

    def put(self, name: str, chunks: Iterator[bytes | memoryview]) -> int:
        path = self._folder / name
        try:
            with open(path, "wb") as file:
                return sum(file.write(chunk) for chunk in chunks)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageFull(f"{path} was not written: {error}") from error

    def get(self, name: str) -> memoryview:
        try:
            return memoryview((self._folder / name).read_bytes())
        except FileNotFoundError:
            raise KeyError(name) from None

    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    # The engine's

    async def upload(self, name: str) -> None:
        """Until it is as durable as the log, and was read back from there: what came back takes the place of this node's copy."""
        path = self._folder / name
        await self._engine.put(name, path)
        await asyncio.get_running_loop().run_in_executor(None, path.unlink)
        await self._engine.get(name, path)

    async def download(self, name: str) -> None:
        """KeyError where there is none."""
        await self._engine.get(name, self._folder / name)

    async def there(self) -> list[str]:
        return sorted(await self._engine.names())

    async def erase(self, name: str) -> None:
        """Here and there."""
        self.remove(name)
        await self._engine.remove(name)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
