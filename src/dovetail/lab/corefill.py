"""The core without a log: a state with queues, and operations applied to it one entry at a time, as the committer would.

Addresses grow as those of a log would. Bodies are not in the state, so one column of them serves every push.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.column import Column
from ..core.operation import DEFAULT, Attributes, Complete, Create, Head, Outcome, Pop, Popped, Push, Register
from ..core.state import State

BODY = b"x" * 100
ENTRIES_PER_MS = 10
"""A busy log: ten entries share a millisecond, so that push times are marked as often as they would be."""


class CoreFill:
    def __init__(self, queues: int = 1, *, grouped: bool = False) -> None:
        self.state = State()
        self.entries = 0
        self._address = 0
        self._columns: dict[int, Column] = {}
        self.queues = []
        for number in range(queues):
            self.apply(Register("lab", f"queue-{number}"))
            queue = self.state.catalog.get("lab", f"queue-{number}")
            assert queue is not None
            self.apply(Create(queue, Attributes(grouped=grouped)))
            self.queues.append(queue)

    def apply(self, operation: Push | Pop | Complete | Register | Create) -> Outcome:
        """One operation in one entry of its own: the worst case."""
        self.entries += 1
        self._address += 128
        head = Head(1_000_000 + self.entries // ENTRIES_PER_MS)
        return self.state.apply(self._address + 128, head, (operation,), (self._address,)).outcomes[0]

    def bodies(self, count: int) -> Column:
        if count not in self._columns:
            self._columns[count] = Column.of([BODY] * count)
        return self._columns[count]

    def push(self, queue: int, count: int, delays: Sequence[int] | None = None, groups: Column | None = None) -> Outcome:
        return self.apply(Push((queue,), self.bodies(count), delays, groups))

    def pop(self, queue: int, count: int, lease_ms: int = DEFAULT) -> tuple[list[int], list[int]]:
        """(sequences, deliveries) of what was leased."""
        popped = self.apply(Pop(queue, count, lease_ms))
        assert isinstance(popped, Popped)
        if len(popped.taken) == 1:
            (run,) = popped.taken
            return [*range(run.sequence, run.sequence + run.length)], [*range(run.delivery, run.delivery + run.length)]
        sequences = [run.sequence + offset for run in popped.taken for offset in range(run.length)]
        return sequences, [run.delivery + offset for run in popped.taken for offset in range(run.length)]

    def complete(self, queue: int, sequences: Sequence[int], deliveries: Sequence[int]) -> Outcome:
        return self.apply(Complete(queue, sequences, deliveries))
