"""What apply has answered so far, as one number: whoever replays the same log has the same one.

On shared logs an entry's head names the position that its writer had applied and the digest there. A node whose own digest at that
position differs knows that one of the two states is wrong. `local` has one state and none of this.

    digest = blake2b(digest before · entry time · what became of the entry · the facts of each outcome and hand-out)

Facts are what an answer says, never how it lies in memory: a state that went through a snapshot may give the same messages in other
runs, so runs are summed up: how many, and the sums of their sequences, deliveries, receive counts and of sequence times delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any

from dovetail.core.outcome import (
    Applied,
    Done,
    Handout,
    Opened,
    Popped,
    Published,
    Pushed,
    PushedAll,
    Refusal,
    Reserved,
    Settled,
    Taken,
)

POSITIONS_KEPT = 4096
"""Digests of so many last entries can be compared; a writer that is further behind is believed."""

_HEAD = Struct("<QQBQQ")
_ONE, _TWO, _JOINED = Struct("<BQ"), Struct("<BQQ"), Struct("<BQQQQ")
_PUSHED = Struct("<B8Q")
_TAKEN = Struct("<BB8Q")
_WORD = (1 << 64) - 1


class Digests:
    __slots__ = ("_at", "value")

    def __init__(self, value: int = 0, position: int = 0) -> None:
        self.value = value
        """0: no entry of a writer was applied yet."""
        self._at: dict[int, int] = {position: value} if value else {}

    def note(self, position: int, time: int, applied: Applied) -> None:
        """An entry was applied; `position` lies behind it."""
        parts = [_HEAD.pack(self.value, time, applied.fate, len(applied.outcomes), len(applied.handouts))]
        parts += [_FACTS[type(outcome)](outcome) for outcome in applied.outcomes]
        parts += [_handout(handout) for handout in applied.handouts]
        self.value = int.from_bytes(blake2b(b"".join(parts), digest_size=8).digest(), "little") or 1
        self._at[position] = self.value
        if len(self._at) > POSITIONS_KEPT:
            del self._at[next(iter(self._at))]

    def agrees(self, position: int, digest: int) -> bool | None:
        """Was this the digest behind that position? None where it is not known any more, or nothing is claimed."""
        known = self._at.get(position)
        return None if known is None or not digest else known == digest


def _pushed(o: Pushed) -> bytes:
    sequences = o.sequences
    count = len(sequences)
    first, last = (sequences[0], sequences[-1]) if count else (0, 0)
    return _PUSHED.pack(3, o.queue, count, first, last, len(o.repeats), sum(o.repeats), len(o.refused), sum(o.refused))


def _runs(runs: Sequence[Taken]) -> tuple[int, ...]:
    count = sequences = deliveries = products = receives = times = 0
    for run in runs:
        length, sequence, delivery = run.length, run.sequence, run.delivery
        below = length * (length - 1) // 2
        count += length
        sequences += length * sequence + below
        receives += sum(run.receives)
        times += length * (run.time + run.first_received)
        if delivery:
            squares = below * (2 * length - 1) // 3
            deliveries += length * delivery + below
            products += length * sequence * delivery + (sequence + delivery) * below + squares
    return count, sequences & _WORD, deliveries & _WORD, products & _WORD, receives, times & _WORD


def _popped(o: Popped) -> bytes:
    return _TAKEN.pack(5, o.waiting, o.queue, o.lease_until if o.taken else 0, *_runs(o.taken))


def _handout(o: Handout) -> bytes:
    return o.writer + _ONE.pack(10, o.waiter) + _popped(o.popped)


_FACTS: dict[type[Any], Callable[[Any], bytes]] = {
    Done: lambda o: _ONE.pack(1, o.value & _WORD),
    Refusal: lambda o: _ONE.pack(2, o.why),
    Pushed: _pushed,
    PushedAll: lambda o: b"".join([_ONE.pack(4, len(o.lanes)), *map(_pushed, o.lanes)]),
    Popped: _popped,
    Settled: lambda o: _ONE.pack(6, len(o.done)) + bytes(o.done),
    Opened: lambda o: _TWO.pack(7, o.epoch & _WORD, o.last & _WORD),
    Published: lambda o: b"".join([_TWO.pack(8, o.before, len(o.joined)), *[_JOINED.pack(8, *joined) for joined in o.joined]]),
    Reserved: lambda o: _TAKEN.pack(9, o.again, o.queue, 0, *_runs(o.taken)),
}
