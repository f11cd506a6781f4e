"""What apply answers: one outcome for each operation, and the hand-outs to receivers that had waited."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Why(IntEnum):
    """Why an operation was refused. Nothing happened."""

    NO_QUEUE = 1
    NAME_TAKEN = 2
    DROPPED_ID = 3
    OVER_IN_FLIGHT = 4
    NOT_OPEN = 5
    GAP = 6
    DEAD_RECEIPT = 7
    NO_TAP = 8
    TOO_MANY_TAPS = 9
    NEEDS_GROUPS = 10
    VERSION = 11
    BEGUN = 12
    SKIPPED = 13
    NO_STAGE = 14
    TOO_MANY_STAGES = 15
    NO_RESERVATION = 16
    TOO_MANY_RESERVATIONS = 17
    FENCED = 18
    BATCH_PAST = 19
    NO_BATCH = 20
    RELEASED = 21
    TOO_MANY_BATCHES = 22
    STAGE_GAP = 23
    STAGE_DIFFERS = 24
    DIVIDED = 25
    ELSEWHERE = 26
    MOVE_SETTLED = 27


class Done(NamedTuple):
    """It happened; `value` is a queue id, an epoch, a count, as the operation has one."""

    value: int = 0


class Refusal(NamedTuple):
    why: Why
    detail: str = ""


class Pushed(NamedTuple):
    """`sequences[i]` for each message and `repeats` for those that were already there; one Pushed per lane in `lanes`."""

    queue: int
    sequences: Sequence[int]
    repeats: frozenset[int] = frozenset()
    """Indexes of messages that were stored before (deduplication, repeated numbers)."""
    refused: frozenset[int] = frozenset()
    """Indexes of messages whose number was refused or skipped: it has that one outcome for ever."""


class PushedAll(NamedTuple):
    lanes: tuple[Pushed, ...]


class Origin(NamedTuple):
    """Where a moved message began: the queue and sequence that made its id, the queue that it came from last, and when it was pushed."""

    queue: int
    sequence: int
    source: int
    time: int


class Taken(NamedTuple):
    """A run of messages handed out together: consecutive sequences and delivery numbers, one record in the log."""

    sequence: int
    length: int
    delivery: int
    address: int
    item: int
    """The index in the record of the first of them."""
    receives: Sequence[int]
    time: int
    """When they were pushed."""
    first_received: int
    origin: Origin | None = None


class Popped(NamedTuple):
    queue: int
    taken: Sequence[Taken]
    lease_until: int
    waiting: bool = False


class Settled(NamedTuple):
    """One truth for each message named: did it change anything?"""

    done: Sequence[bool]


class Opened(NamedTuple):
    """The new epoch of a producer or a reservation, and the last number that it has used (a reservation that has used none: -1)."""

    epoch: int
    last: int


class Joined(NamedTuple):
    """What a publish brought to one lane."""

    queue: int
    messages: int
    repeats: int
    """Those that deduplication recognised: they did not join again."""
    bytes: int
    """Of bodies, repeats included."""


class Published(NamedTuple):
    """`joined` in the order in which the stages name the lanes first; `before`: the batch was stored before, and nothing joined."""

    joined: tuple[Joined, ...]
    before: bool = False


class Reserved(NamedTuple):
    """The messages of a batch, without deliveries: runs whose `delivery` is 0. `again`: they were reserved before."""

    queue: int
    taken: Sequence[Taken]
    again: bool = False


Outcome = Done | Refusal | Pushed | PushedAll | Popped | Settled | Opened | Published | Reserved


class Handout(NamedTuple):
    """A waiting Pop of an earlier entry was served by this one."""

    writer: bytes
    waiter: int
    popped: Popped


class Fate(IntEnum):
    """What became of an entry as a whole."""

    TAKEN = 0
    AGAIN = 1
    """Its number was used before: a copy of what took effect then, and nothing happened."""
    VOID = 2
    """Its number leaves a gap, or its writer is not open: nothing happened."""


class Applied(NamedTuple):
    outcomes: Sequence[Outcome]
    handouts: Sequence[Handout]
    fate: Fate = Fate.TAKEN
