"""What a store on a shared log does for itself: the same chores, and one node does them for all.

They belong to the *keeper*, the lowest open writer that is not silent. Every node finds it in its own state, so for a moment two may take
themselves for it, or none: every chore can be done twice, and whoever is the keeper later finds what is still to be done.

A snapshot is made in a forked child as on `local`, then carried to the engine, read back from there and checked; its manifest follows last.
Notes of taps, and facts, stay in the state and its snapshots.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from dovetail.core import operation as op
from dovetail.core.chronicle import FactStretch
from dovetail.core.snapshot import END, sections
from dovetail.core.state import State
from dovetail.core.taps import Stretch
from dovetail.core.versions import APPLY_VERSION
from dovetail.errors import CodecError, DovetailError
from dovetail.limits import WRITER_SILENCE_MS
from dovetail.logs.shared.log import SharedLog
from dovetail.stores.chores import RETRY_BYTES, Chores
from dovetail.stores.snapshots import Snapshots, Survey, verify

if TYPE_CHECKING:
    from dovetail.stores.shared.store import SharedStore

_logger = logging.getLogger("dovetail.stores.shared")


class SharedSnapshots(Snapshots):
    """`positions` are those of snapshots that this node has read and checked, two at most."""

    def __init__(self, log: SharedLog) -> None:
        super().__init__(log)
        self._shared_log = log

    async def newest_there(self, first: int) -> State | None:
        """The newest usable state that reaches the log, or None. Damaged ones are reported and passed over."""
        for position in await self._positions_there(first):
            try:
                await self._download(position)
                state = await asyncio.get_running_loop().run_in_executor(None, self._load, position)
            except (DovetailError, KeyError, ValueError) as error:
                _logger.error("the snapshot at position %d is passed over: %s", position, error)
                continue
            finally:
                self._drop_copies(position)
            self.positions = [position]
            return state
        return None

    async def publish(self, made: Survey) -> None:
        """From the cache folder to the engine and back; then the manifest; then what is older than the two newest goes."""
        blobs, position = self._shared_log.blobs, made.position
        await blobs.upload(_snapshot(position))
        await asyncio.get_running_loop().run_in_executor(None, self._check_copy, position, made.bytes)
        await blobs.upload(_manifest(position))
        self._drop_copies(position)
        if position not in self.positions:
            self.positions = sorted([*self.positions, position])[-2:]
        await self._find_second(position)
        oldest = self.positions[0]
        for name in await blobs.there():
            kind, _, number = name.partition("-")
            # The manifest first: without it the rest does not exist.
            if kind == "manifest" and number.isdigit() and int(number) < oldest:
                await blobs.erase(name)
                await blobs.erase(_snapshot(int(number)))

    async def _find_second(self, newest: int) -> None:
        """A keeper that is new to it looks at what the one before has left, so that two are known and the log can be trimmed."""
        if len(self.positions) > 1:
            return
        for position in await self._positions_there(0):
            if position >= newest:
                continue
            try:
                await self._download(position)
                size = json.loads(bytes(self._log.blobs.get(_manifest(position))))["bytes"]
                await asyncio.get_running_loop().run_in_executor(None, self._check_copy, position, size)
            except (DovetailError, KeyError, ValueError) as error:
                _logger.error("the snapshot at position %d is passed over: %s", position, error)
                continue
            finally:
                self._drop_copies(position)
            self.positions = [position, newest]
            return

    async def _positions_there(self, first: int) -> list[int]:
        found = []
        for name in await self._shared_log.blobs.there():
            kind, _, number = name.partition("-")
            if kind == "manifest" and number.isdigit() and int(number) >= first:
                found.append(int(number))
        return sorted(found, reverse=True)

    async def _download(self, position: int) -> None:
        for name in (_manifest(position), _snapshot(position)):
            await self._shared_log.blobs.download(name)

    def _check_copy(self, position: int, size: int) -> None:
        data = self._log.blobs.get(_snapshot(position))
        verify(data, size)
        if [tag for tag, _ in sections(data)][-1:] != [END]:
            raise CodecError("a snapshot came back without its end")

    def _drop_copies(self, position: int) -> None:
        for name in (_manifest(position), _snapshot(position)):
            self._log.blobs.remove(name)

    def _write_taps(self, state: State) -> dict[int, Stretch]:
        return {}

    def _write_facts(self, state: State) -> FactStretch | None:
        return None


def _snapshot(position: int) -> str:
    return f"snapshot-{position:020d}"


def _manifest(position: int) -> str:
    return f"manifest-{position:020d}"


class SharedChores(Chores):
    _store: SharedStore

    def keeper(self) -> bool:
        writers = self._store.state.writers.by_id
        speaking = [identity for identity, writer in writers.items() if writer.silent_ms < WRITER_SILENCE_MS]
        return bool(speaking) and min(speaking) == self._store.committer.writer

    async def _round(self) -> None:
        if self.keeper():
            await super()._round()
        else:
            # The keeper makes it. Should it not, this node is the keeper before long, and looks again.
            self._next = self._bytes + RETRY_BYTES
            self._task = None

    async def _snapshot(self) -> Survey:
        store = self._store
        self._bytes, self._next = 0, self._due_bytes
        survey = await self._survey()
        await store.snapshots.publish(survey)
        self.snapshots += 1
        self.last = survey
        await self._cut_taps()
        await self._cut_facts()
        await self._trim(survey)
        await self._carry(survey)
        return survey

    async def now_and_then(self) -> None:
        if not self.keeper():
            return
        try:
            await super().now_and_then()
            await self.upgrade()
        except DovetailError as error:
            _logger.warning("what is due is done later: %s", error)

    async def upgrade(self) -> None:
        """The log goes on to what this node speaks, as soon as every open writer can follow."""
        state = self._store.state
        lowest = state.writers.lowest_version()
        if state.version < APPLY_VERSION and lowest is not None and lowest >= APPLY_VERSION:
            await self._store.committer.submit(op.Upgrade(APPLY_VERSION))
