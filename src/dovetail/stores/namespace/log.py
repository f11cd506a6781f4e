"""One log of a namespace: the store on a shared log, which knows that its queues may have to do with queues elsewhere.

The first of them, log 0, has the catalog of all. Where there is no other one it is a store on a shared log and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.core import operation as op
from dovetail.core.operation import Head, Operation, Outcome, Refusal, Why
from dovetail.errors import BadRequest, StorageError
from dovetail.logs.log import Entry
from dovetail.stores.shared.store import SharedLane, SharedStore
from dovetail.stores.store import Number, Outgoing, Stored

if TYPE_CHECKING:
    from dovetail.stores.namespace.store import NamespaceStore

UNNUMBERED = "In a namespace of several logs producers have no numbers: what one of them counts lies in several logs."


class NamespaceLane(SharedLane):
    _store: NamespaceLog

    def next_visible_at(self) -> int | None:
        """In the time of the namespace: each log has its own, a moment apart."""
        due, namespace = super().next_visible_at(), self._store.namespace
        return due if due is None or namespace is None else due - self._store.now() + namespace.now()

    async def push(self, messages: Sequence[Outgoing], number: Number | None = None) -> list[Stored]:
        if number is not None and self._store.namespace is not None:
            raise BadRequest(UNNUMBERED)
        return await super().push(messages, number)

    async def move(self, target: int, most: int) -> int:
        namespace = self._store.namespace
        if namespace is None:
            return await self.move_here(target, most)
        return await namespace.carrier.move(self, self._store, target, most)

    async def move_here(self, target: int, most: int) -> int:
        """Within the log, in one operation."""
        return await super().move(target, most)


class NamespaceLog(SharedStore):
    _lane_type = NamespaceLane
    namespace: NamespaceStore | None = None
    """From when on it is known that there are several logs."""
    single = False
    """It was found to be the only one."""

    def _applied(self, entry: Entry, head: Head, operations: Sequence[Operation]) -> Sequence[Outcome]:
        outcomes = super()._applied(entry, head, operations)
        if self.namespace is not None:
            self.namespace.carrier.applied(self)
        elif self.single and self.state.logs > 1:
            raise StorageError(f"The namespace was divided into {self.state.logs} logs while this node ran. Start it again.")
        return outcomes

    async def begin(self, key: bytes, logs: int, place: int) -> None:
        """Make it number `place` of `logs` with the namespace's key, or find that it is. Nodes that come at the same time say the same."""
        if not self.state.key:
            await self.committer.submit(op.Begin(key))
        if self.state.key != key:
            raise StorageError(f"{self.log.engine.name} is the log of another namespace: its key is another one.")
        await self.chores.upgrade()
        await self.divide(logs, place)

    async def divide(self, logs: int, place: int) -> None:
        outcome = await self.committer.submit(op.Divide(logs, place))
        if isinstance(outcome, Refusal):
            if outcome.why is Why.VERSION:
                raise StorageError(
                    f"{self.log.engine.name}: nodes of an older version are open, which know of one log only. Stop them first."
                )
            raise StorageError(f"{self.log.engine.name} is not log {place} of {logs}: the namespace was made with logs={self.state.logs}.")
