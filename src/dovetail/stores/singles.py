"""One message at a time: what a lane does for callers that take and complete a single one, without an object for what they name and get.

Nothing is decided here that columns.py would decide otherwise. Receivers whose pops were shared share the look at its records too: the
first who asks makes a row for each message, and what is not plain has none, so that whoever asks goes the long way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.core import receipts
from dovetail.core.operation import DEFAULT, Kind
from dovetail.core.pushcodec import HEAD, TWO
from dovetail.errors import ReceiptInvalid
from dovetail.stores.committer import Share
from dovetail.stores.store import One, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.core.lane import Lane
    from dovetail.core.operation import Taken
    from dovetail.stores.handed import HandedOut
    from dovetail.stores.replayed import Replayed


class LaneSingles:
    """For the lane, which is one of these."""

    if TYPE_CHECKING:
        _store: Replayed
        _lane: Lane
        _marks: HandedOut

        def _alive(self) -> Lane: ...

        def take_for(self, reply: Reply, most: int, lease_ms: int = DEFAULT) -> None: ...

        def _record(self, address: int) -> memoryview: ...

    def complete_one_for(self, reply: Reply, sequence: int, delivery: int, length: int, at: int, seal: bytes) -> None:
        queue = self._alive().queue
        if not 0 <= at < length or not receipts.seals_run(self._store.state.key, queue, sequence, delivery, length, seal):
            raise ReceiptInvalid
        self._store.committer.complete(queue, (sequence + at,), (delivery + at,), reply)

    def complete_and_take_one_for(
        self, reply: Reply, sequence: int, delivery: int, length: int, at: int, seal: bytes, lease_ms: int = DEFAULT
    ) -> None:
        self.complete_one_for(reply, sequence, delivery, length, at, seal)
        self.take_for(reply, 1, lease_ms)

    def one(self, answer: Any, lease_ms: int = DEFAULT) -> One | None:
        if type(answer) is not Share or answer.count != 1:
            return None
        rows = answer.of.rows
        if rows is None:
            rows = answer.of.rows = self._rows(answer.of.taken, lease_ms)
        row: One | None = rows[answer.start]
        return row

    def _rows(self, taken: Sequence[Taken], lease_ms: int) -> list[One | None]:
        state = self._store.state
        if taken:
            self._marks.note(taken[0].delivery, state.time)
        until = state.time + self._lane.lease_for(lease_ms)
        rows: list[One | None] = []
        for sequence, length, delivery, address, item, receives, time, first_received, origin in taken:
            record = self._record(address)
            kind, flags, queues, total = HEAD.unpack_from(record)
            if kind != Kind.PUSH or flags or origin is not None or not delivery:
                rows += [None] * length
                continue
            offsets = HEAD.size + 8 * queues
            body_at = offsets + 4 * (total + 1)
            offsets += 4 * item
            for index in range(length):
                start, end = TWO.unpack_from(record, offsets + 4 * index)
                body = record[body_at + start : body_at + end]
                rows.append((sequence + index, delivery + index, receives[index], time, first_received, until, body))
        return rows
