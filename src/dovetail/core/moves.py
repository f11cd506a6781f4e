"""Moves between the logs of a namespace: their operations, and what each of the two logs remembers of them.

No operation spans two logs, so a move takes four, and each of them may be said by any node, any number of times, however late
(spec/Moves.tla; core/crossing.py applies them). Every step names source queue, target queue and number:

| operation | in the log of | what it does |
| --- | --- | --- |
| Leave, or a Pop that meets a dead letter | the source | the message is set aside under the next number of this pair of queues |
| Arrive | the target | the number is judged, once: stored, under a sequence there, or refused; asked again, it says the same |
| MoveSettle | the source | the message is gone (it was stored), or back in its place (it was refused) |
| Forget | the target | all numbers up to one are settled at the source, so their judgements may go |

The source keeps *next* and what is under way; the target keeps *low*, up to which all is settled, and the judgements above it. (A mere
high-water mark loses message 3 when 7 moved first; a set that forgets by itself doubles it.)

A log knows that it is one of several by an operation of its own, Divide, which is its first behind Begin. A queue lies in the log that its
id says, from its making to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dovetail.core.operation import Push

REFUSED = 0
"""In the place of the sequence under which a message was stored."""


def log_of(queue: int, logs: int) -> int:
    """In which log a queue lies: ids are given one behind the other, so queues are spread evenly, and nothing need be looked up."""
    return (queue - 1) % logs


# Operations


class Divide(NamedTuple):
    """This log is number `place` of `logs`, from 0 on."""

    logs: int
    place: int


class Leave(NamedTuple):
    """Up to `max` visible messages of `source` set out for `target`, in another log; `returning`: only those that came from there."""

    source: int
    target: int
    max: int
    returning: bool


class Arrive(NamedTuple):
    """`push` holds one message for one queue, the target. The message began as number `sequence` of queue `home`, at `time`."""

    source: int
    number: int
    home: int
    sequence: int
    time: int
    push: Push


class MoveSettle(NamedTuple):
    """What the target said of each number: the sequence there, or REFUSED."""

    source: int
    target: int
    numbers: Sequence[int]
    arrived: Sequence[int]


class Forget(NamedTuple):
    source: int
    target: int
    low: int


Moving = Divide | Leave | Arrive | MoveSettle | Forget


# What the logs remember


class Leaving(NamedTuple):
    """A message on its way: its sequence at the source, and whether it is a dead letter."""

    sequence: int
    letter: bool


class Departures:
    """Of one queue, to one other."""

    __slots__ = ("gone", "next", "under_way")

    def __init__(self) -> None:
        self.next = 1
        self.under_way: dict[int, Leaving] = {}
        """Lowest number first."""
        self.gone = False
        """The target has refused one: it was dropped, ids are given once, and nothing goes there any more."""

    def settled(self) -> int:
        """All numbers up to here are settled."""
        return next(iter(self.under_way), self.next) - 1


class Arrivals:
    """At one queue, from one other."""

    __slots__ = ("judged", "low")

    def __init__(self) -> None:
        self.low = 0
        self.judged: dict[int, int] = {}
        """Number above `low` → sequence, or REFUSED."""
