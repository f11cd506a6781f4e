"""The closed vocabulary of the log: every operation that can be in an entry, and every outcome that applying one can have.

| operation | what it does |
| --- | --- |
| Begin | the first of a log: the namespace's sealing key |
| Open, Upgrade | a writer joins; a new apply version starts |
| Register, Unregister | a name in the catalog gains or loses its queue id |
| Create, Configure, Drop | a lane begins, changes its rules, ends |
| Push | messages join one or several lanes, stored once |
| Pop | visible messages are leased (or, in the mode *delete*, removed) |
| Withdraw | receivers that wait in a lane leave it |
| Complete, Requeue, Extend, Release | a delivery is settled, given back, prolonged, undone: each names receipts |
| Reclaim, Cancel, Reschedule | the same without a receipt, by sequence |
| CompletePush | complete and push, all or nothing |
| Purge, Expire, Move | many messages leave at once: all, the old, the dead letters that are redriven |
| ProducerOpen, Skip | a numbered producer begins; a number is given up |
| TapOpen, TapAdvance, TapCut, TapClose | a named reader of everything pushed |
| FactsOpen, FactsAdvance, FactsCut, FactsClose | a named reader of the facts themselves, of all queues of a namespace |
| Carry, Trim | a message is written again further on; the prefix may go |
| Tick, Retime | time passes without another operation; an operator moves a frozen clock |
| Stage, Unstage | messages wait outside of every lane; they are given up |
| Publish | the messages of stages join their lanes, all or none, once for each batch of an owner |
| StageExpire, StageCarry | stages that nobody published are given up; a staged record is written again further on |
| ReserveOpen | an owner takes a named reservation over from the one before |
| Reserve | visible messages are set aside for a batch; asked again, the same ones |
| ReserveSettle | the messages of all batches up to one are done with |
| ReserveRelease, ReserveClose | what is set aside goes back to its place, and the epoch ends; the name goes too |
| Divide | this log is one of several of its namespace |
| Leave, Arrive, MoveSettle, Forget | a message moves into another log, step by step: core/moves.py |

What apply answers is in core/outcome.py. Kinds 85 to 127 are left free for forks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from dovetail.core.column import Column
from dovetail.core.moves import Arrive as Arrive
from dovetail.core.moves import Divide as Divide
from dovetail.core.moves import Forget as Forget
from dovetail.core.moves import Leave as Leave
from dovetail.core.moves import MoveSettle as MoveSettle
from dovetail.core.moves import Moving as Moving
from dovetail.core.outcome import Applied as Applied
from dovetail.core.outcome import Done as Done
from dovetail.core.outcome import Fate as Fate
from dovetail.core.outcome import Handout as Handout
from dovetail.core.outcome import Joined as Joined
from dovetail.core.outcome import Opened as Opened
from dovetail.core.outcome import Origin as Origin
from dovetail.core.outcome import Outcome as Outcome
from dovetail.core.outcome import Popped as Popped
from dovetail.core.outcome import Published as Published
from dovetail.core.outcome import Pushed as Pushed
from dovetail.core.outcome import PushedAll as PushedAll
from dovetail.core.outcome import Refusal as Refusal
from dovetail.core.outcome import Reserved as Reserved
from dovetail.core.outcome import Settled as Settled
from dovetail.core.outcome import Taken as Taken
from dovetail.core.outcome import Why as Why

DEFAULT = -1
"""A duration of DEFAULT means: what the queue's attributes say."""


class Kind(IntEnum):
    """The first byte of an encoded operation. A number is never given to another meaning."""

    BEGIN = 1
    OPEN = 2
    UPGRADE = 3
    REGISTER = 4
    UNREGISTER = 5
    CREATE = 6
    CONFIGURE = 7
    DROP = 8
    PUSH = 16
    POP = 17
    COMPLETE = 18
    REQUEUE = 19
    EXTEND = 20
    RELEASE = 21
    RECLAIM = 22
    CANCEL = 23
    RESCHEDULE = 24
    COMPLETE_PUSH = 25
    PURGE = 26
    EXPIRE = 27
    MOVE = 28
    PRODUCER_OPEN = 32
    SKIP = 33
    TAP_OPEN = 40
    TAP_ADVANCE = 41
    TAP_CUT = 42
    TAP_CLOSE = 43
    FACTS_OPEN = 44
    FACTS_ADVANCE = 45
    FACTS_CUT = 46
    FACTS_CLOSE = 47
    CARRY = 48
    TRIM = 49
    TICK = 50
    RETIME = 51
    WITHDRAW = 52
    STAGE = 64
    PUBLISH = 65
    UNSTAGE = 66
    STAGE_EXPIRE = 67
    STAGE_CARRY = 68
    RESERVE_OPEN = 72
    RESERVE = 73
    RESERVE_SETTLE = 74
    RESERVE_RELEASE = 75
    RESERVE_CLOSE = 76
    LEAVE = 80
    ARRIVE = 81
    MOVE_SETTLE = 82
    FORGET = 83
    DIVIDE = 84


@dataclass(frozen=True, slots=True)
class Attributes:
    """The rules of one queue, as the lane's own log states them. Zero switches a rule off."""

    lease_ms: int = 30_000
    lease_max_ms: int = 0
    """A lease, also a changed one, ends at most this long after the entry that sets it."""
    delay_ms: int = 0
    retention_ms: int = 0
    receives_max: int = 0
    dead_letter: int = 0
    """The queue id of the dead-letter queue."""
    dedup_ms: int = 0
    grouped: bool = False
    in_flight_max: int = 0
    backoff_ms: int = 0
    backoff_max_ms: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)
    """What doors keep with a queue and apply never reads."""


class Begin(NamedTuple):
    key: bytes


class Open(NamedTuple):
    writer: bytes
    version: int
    before: bytes = b""
    """The writer that the same process gives up: it is closed with this, so that what it had not achieved is refused, no longer unknown."""


class Upgrade(NamedTuple):
    version: int


class Register(NamedTuple):
    namespace: str
    name: str


class Unregister(NamedTuple):
    queue: int


class Create(NamedTuple):
    queue: int
    attributes: Attributes


class Configure(NamedTuple):
    queue: int
    attributes: Attributes


class Drop(NamedTuple):
    queue: int


class Numbered(NamedTuple):
    """The numbers that a producer gave to a push: `number`, `number + 1`, … one for each message."""

    producer: bytes
    epoch: int
    number: int


class Push(NamedTuple):
    queues: tuple[int, ...]
    bodies: Column
    delays: Sequence[int] | None = None
    """One for each message, or a single one for all, in milliseconds; None takes the queue's."""
    groups: Column | None = None
    """The name of each message's group or, in a lane without groups, of its tenant; empty for a message without one."""
    dedups: bytes | None = None
    """Sixteen bytes for each message."""
    ids: bytes | None = None
    """Sixteen bytes for each message, where callers gave them."""
    attributes: Column | None = None
    numbered: Numbered | None = None


class Pop(NamedTuple):
    queue: int
    max: int
    lease_ms: int = DEFAULT
    delete: bool = False
    wait_ms: int = 0
    attempt: bytes = b""
    once: bool = False
    """Whoever waits leaves with the first hand-out, whatever of `max` is left: its caller is answered with that one."""


class Withdraw(NamedTuple):
    queue: int
    waiters: Sequence[int]
    """The addresses of their Pops. Only the writer who said them may."""


class Complete(NamedTuple):
    queue: int
    sequences: Sequence[int]
    deliveries: Sequence[int]


class Requeue(NamedTuple):
    queue: int
    sequences: Sequence[int]
    deliveries: Sequence[int]
    after_ms: int = 0


class Extend(NamedTuple):
    queue: int
    sequences: Sequence[int]
    deliveries: Sequence[int]
    lease_ms: int = DEFAULT


class Release(NamedTuple):
    queue: int
    sequences: Sequence[int]
    deliveries: Sequence[int]


class Reclaim(NamedTuple):
    queue: int
    sequences: Sequence[int]


class Cancel(NamedTuple):
    queue: int
    sequences: Sequence[int]


class Reschedule(NamedTuple):
    queue: int
    sequences: Sequence[int]
    after_ms: int


class CompletePush(NamedTuple):
    complete: Complete
    push: Push


class Purge(NamedTuple):
    queue: int


class Expire(NamedTuple):
    queue: int
    before: int


class Move(NamedTuple):
    """Up to `max` visible messages of `source` go to `target`, or, where target is 0, each to the queue it came from."""

    source: int
    target: int
    max: int


class ProducerOpen(NamedTuple):
    producer: bytes


class Skip(NamedTuple):
    producer: bytes
    epoch: int
    number: int


class TapOpen(NamedTuple):
    queue: int
    name: str
    start: int
    """A sequence, or EARLIEST, or LATEST."""
    age_ms: int
    bytes: int


EARLIEST = 0
LATEST = (1 << 64) - 1


class TapAdvance(NamedTuple):
    queue: int
    name: str
    sequence: int


class TapCut(NamedTuple):
    queue: int
    name: str
    sequence: int


class TapClose(NamedTuple):
    queue: int
    name: str


class FactsOpen(NamedTuple):
    namespace: str
    name: str
    start: int
    """The number of a fact, or EARLIEST, or LATEST."""
    age_ms: int
    bytes: int


class FactsAdvance(NamedTuple):
    namespace: str
    name: str
    number: int


class FactsCut(NamedTuple):
    namespace: str
    name: str
    number: int


class FactsClose(NamedTuple):
    namespace: str
    name: str


class Carry(NamedTuple):
    """A message written again: `push` holds exactly one, `address` is where it lay when it was read."""

    queue: int
    sequence: int
    address: int
    push: Push


class Trim(NamedTuple):
    position: int


class Tick(NamedTuple):
    pass


class Retime(NamedTuple):
    time: int


class Stage(NamedTuple):
    """`push` has no numbers of a producer. A stage may get several, and they join their lanes in that order."""

    stage: bytes
    push: Push
    number: int = 0
    """Which record of its stage it is, from 1 on: said again it is there once. 0: it was not numbered, and said again it is there twice."""


class Publish(NamedTuple):
    stages: Sequence[bytes]
    owner: bytes
    batch: int
    """The owner's batches only grow: one that is not above the last was stored before."""


class Unstage(NamedTuple):
    stages: Sequence[bytes]


class StageExpire(NamedTuple):
    before: int


class StageCarry(NamedTuple):
    """A staged record written again; `address` is where it lay when it was read."""

    stage: bytes
    address: int
    push: Push


class ReserveOpen(NamedTuple):
    queue: int
    name: str


class Reserve(NamedTuple):
    queue: int
    name: str
    epoch: int
    batch: int
    max: int


class ReserveSettle(NamedTuple):
    queue: int
    name: str
    epoch: int
    batch: int


class ReserveRelease(NamedTuple):
    queue: int
    name: str


class ReserveClose(NamedTuple):
    queue: int
    name: str


Reserving = ReserveOpen | Reserve | ReserveSettle | ReserveRelease | ReserveClose
FactsTapping = FactsOpen | FactsAdvance | FactsCut | FactsClose
Settle = Complete | Requeue | Extend | Release
BySequence = Reclaim | Cancel | Reschedule
Operation = (
    Begin
    | Open
    | Upgrade
    | Register
    | Unregister
    | Create
    | Configure
    | Drop
    | Push
    | Pop
    | Withdraw
    | Complete
    | Requeue
    | Extend
    | Release
    | Reclaim
    | Cancel
    | Reschedule
    | CompletePush
    | Purge
    | Expire
    | Move
    | ProducerOpen
    | Skip
    | TapOpen
    | TapAdvance
    | TapCut
    | TapClose
    | FactsTapping
    | Carry
    | Trim
    | Tick
    | Retime
    | Stage
    | Publish
    | Unstage
    | StageExpire
    | StageCarry
    | Reserving
    | Moving
)


class Head(NamedTuple):
    """What an entry says before its operations. `writer` is empty on `local`, where position is the number."""

    stamp: int
    writer: bytes = b""
    number: int = 0
    applied: int = 0
    digest: int = 0
    ahead_s: int = 0
    """How far the writer's wall clock was ahead of its stamp: a restart learns from it how long the node was down."""
