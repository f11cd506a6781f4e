"""Parts of the namespace's store: stages, which lie in the log of the queues that they are for; what it says of facts; figures of several
logs as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any, NoReturn

from dovetail.core.operation import Published, Push
from dovetail.errors import BadRequest
from dovetail.stores.store import FactsRead, Outgoing, Reply, StageFacts, TapFacts

if TYPE_CHECKING:
    from dovetail.stores.namespace.log import NamespaceLog

_WORST = ("_seconds", "_position")
"""How the names of figures end of which the largest counts."""


class NamespaceStages:
    """A stage lies where its first message was put, and takes no messages for queues of other logs."""

    if TYPE_CHECKING:
        catalog: NamespaceLog

        def opened(self) -> list[NamespaceLog]: ...

        def one_log(self, queues: Sequence[int]) -> NamespaceLog: ...

    def _log_for(self, stage: bytes, queues: Sequence[int]) -> NamespaceLog:
        store = self.one_log(queues)
        if any(stage in other.state.stages.by_id for other in self.opened() if other is not store):
            raise BadRequest("The stage holds messages for queues of another log of the namespace; take a stage for each.")
        return store

    async def stage(self, stage: bytes, queues: Sequence[int], messages: Sequence[Outgoing]) -> int:
        return await self._log_for(stage, queues).stage(stage, queues, messages)

    def stage_record_for(self, reply: Reply, stage: bytes, push: Push, record: bytes, number: int = 0) -> None:
        self._log_for(stage, push.queues).stage_record_for(reply, stage, push, record, number)

    def staged(self, outcome: Any) -> int:
        return self.catalog.staged(outcome)

    async def publish(self, stages: Sequence[bytes], owner: bytes, batch: int) -> Published:
        """In the log of the stages. Where there are none (any more) it is the one in which the owner has come furthest, so that a publish
        that is said again is answered as before."""
        logs = [store for store in self.opened() if any(stage in store.state.stages.by_id for stage in stages)]
        if len(logs) > 1:
            raise BadRequest(
                "The stages lie in several logs of the namespace, and a publish is one step in one log: publish those of each."
            )
        chosen = logs[0] if logs else max(self.opened(), key=lambda store: store.published_last(owner))
        return await chosen.publish(stages, owner, batch)

    async def unstage(self, stages: Sequence[bytes]) -> int:
        return sum([await store.unstage(stages) for store in self.opened()])

    def stages(self) -> list[StageFacts]:
        return list(self.stages_behind(b""))

    def stages_behind(self, after: bytes) -> Iterator[StageFacts]:
        return merge(*[store.stages_behind(after) for store in self.opened()], key=lambda one: one.stage)

    @property
    def staged_bytes(self) -> int:
        return sum(store.staged_bytes for store in self.opened())

    def staged_for(self, stages: Sequence[bytes]) -> Mapping[int, tuple[int, int]]:
        return {queue: held for store in self.opened() for queue, held in store.staged_for(stages).items()}

    def published_last(self, owner: bytes) -> int:
        return max(store.published_last(owner) for store in self.opened())


class NoFacts:
    """Facts are numbered in each log by itself, so a reader of all of them would need a position in each."""

    facts_bytes = 0

    async def facts_open(self, namespace: str, name: str, start: int, age_ms: int, size: int) -> int:
        _no_facts()

    async def facts_advance(self, namespace: str, name: str, number: int) -> int:
        _no_facts()

    async def facts_close(self, namespace: str, name: str) -> None:
        _no_facts()

    def facts_read(self, namespace: str, name: str, most: int, from_number: int | None = None) -> FactsRead:
        _no_facts()

    def facts_taps(self, namespace: str | None = None) -> list[tuple[str, TapFacts]]:
        return []

    def facts_age_ms(self, namespace: str, name: str) -> int:
        _no_facts()


def _no_facts() -> NoReturn:
    raise BadRequest("A namespace of several logs keeps no facts.")


def together(figures: Iterable[Mapping[str, tuple[float, str]]]) -> dict[str, tuple[float, str]]:
    made: dict[str, tuple[float, str]] = {}
    for of_one in figures:
        for name, (value, what) in of_one.items():
            before = made.get(name, (None, what))[0]
            if before is None:
                made[name] = value, what
            elif name == "dovetail_log_writer":
                continue  # That of the catalog.
            elif name == "dovetail_log_connected":
                made[name] = min(before, value), what
            else:
                made[name] = max(before, value) if name.endswith(_WORST) else before + value, what
    return made
