"""spec/Moves.tla once more, action by action, under the same names and in the same order; and two real logs between which messages move.

`test_moves.py` takes any step that was ever possible, at the two logs and here, and compares what they hold after each.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from dovetail.core import operation as op
from dovetail.core.codec import decode, encode
from dovetail.core.column import Column
from dovetail.core.moves import Departures
from dovetail.core.operation import Attributes, Head, Push, Refusal
from dovetail.core.state import State
from dovetail.core.versions import APPLY_VERSION
from tests.core.world import reloaded

SOURCE, TARGET = 1, 2
LOGS = 2


class Variables(NamedTuple):
    """Of the specification. What it calls `consumed` and `copies` is counted by whoever takes the steps."""

    here: frozenset[int]
    moving: dict[int, int]
    next: int
    low: int
    judged: dict[int, str]
    there: frozenset[int]


def init(messages: int) -> Variables:
    return Variables(frozenset(range(1, messages + 1)), {}, 1, 0, {}, frozenset())


def leave(v: Variables, m: int) -> Variables:
    assert m in v.here
    return v._replace(here=v.here - {m}, moving={**v.moving, v.next: m}, next=v.next + 1)


def known(v: Variables, n: int) -> str:
    return "settled" if n <= v.low else v.judged.get(n, "")


def arrive(v: Variables, n: int, m: int, outcome: str) -> Variables:
    if known(v, n):
        return v
    there = v.there | {m} if outcome == "stored" else v.there
    return v._replace(judged={**v.judged, n: outcome}, there=there)


def settle(v: Variables, n: int, outcome: str) -> Variables:
    if n not in v.moving:
        return v
    back = v.here | {v.moving[n]} if outcome == "refused" else v.here
    return v._replace(moving={x: m for x, m in v.moving.items() if x != n}, here=back)


def forget(v: Variables, k: int) -> Variables:
    if k <= v.low:
        return v
    return v._replace(low=k, judged={n: outcome for n, outcome in v.judged.items() if n > k})


def consume(v: Variables, m: int) -> Variables:
    assert m in v.there
    return v._replace(there=v.there - {m})


class Log:
    def __init__(self, place: int) -> None:
        self.state = State()
        self.position = 0
        self(op.Begin(b"k" * 32), op.Upgrade(APPLY_VERSION), op.Divide(LOGS, place))

    def __call__(self, *operations: Any) -> Any:
        addresses = [self.position + 16 * (index + 1) for index in range(len(operations))]
        self.position += 16 * (len(operations) + 1)
        made = self.state.apply(self.position, Head(self.position), [decode(encode(one)) for one in operations], addresses)
        return made.outcomes[-1]

    def reload(self) -> None:
        self.state = reloaded(self.state)


class Pair:
    """Two logs, and every step that was ever possible."""

    def __init__(self, seed: int, messages: int) -> None:
        self.random = Random(seed)
        self.source, self.target = Log(0), Log(1)
        self.source(op.Create(SOURCE, Attributes(receives_max=1, dead_letter=TARGET, lease_ms=1)))
        self.target(op.Create(TARGET, Attributes()))
        self.source(Push((SOURCE,), Column.of([b"%d" % number for number in range(1, messages + 1)])))
        self.left: dict[int, op.Arrive] = {}
        self.answers: list[tuple[int, int]] = []
        self.settled: list[int] = [0]
        self.copies = dict.fromkeys(range(1, messages + 1), 0)
        self.consumed: set[int] = set()
        self.said = init(messages)

    @property
    def departures(self) -> Departures:
        return self.source.state.lanes[SOURCE].departures.get(TARGET) or Departures()

    def variables(self) -> Variables:
        """What the two logs hold, in the words of the specification."""
        lane, departures = self.source.state.lanes[SOURCE], self.departures
        moving = {number: one.sequence for number, one in departures.under_way.items()}
        live = frozenset(chunk.base + at for chunk, at in lane.walk())
        assert set(moving.values()) <= live, "what is on its way is kept where it was"
        arrivals = self.target.state.arrivals.get((SOURCE, TARGET))
        judged = {n: "stored" if sequence else "refused" for n, sequence in arrivals.judged.items()} if arrivals else {}
        return Variables(live - set(moving.values()), moving, departures.next, arrivals.low if arrivals else 0, judged, self._there())

    def _there(self) -> frozenset[int]:
        lane = self.target.state.lanes.get(TARGET)
        if lane is None:
            return frozenset()
        return frozenset(origin.sequence for chunk, at in lane.walk() if (origin := chunk.origin(at)) is not None)

    # Steps

    def step(self) -> None:
        r = self.random
        steps = [self.leave, self.arrive, self.arrive, self.settle, self.settle, self.forget, self.consume, self.reload]
        if r.random() < 0.01:
            steps = [self.drop]
        r.choice(steps)()
        self.settled.append(self.departures.settled())

    def leave(self) -> None:
        """By an operation, or because it was received too often."""
        before = self.departures.next
        if self.random.random() < 0.5:
            self.source(op.Leave(SOURCE, TARGET, 1, False))
        else:
            for _ in range(2):
                self.source(op.Pop(SOURCE, 1), op.Tick())
        for number in range(before, self.departures.next):
            sequence = self.departures.under_way[number].sequence
            push = Push((TARGET,), Column.of([b"%d" % sequence]))
            self.left[number] = op.Arrive(SOURCE, number, SOURCE, sequence, 1, push)
            self.said = leave(self.said, sequence)

    def arrive(self) -> None:
        if not self.left:
            return
        number = self.random.choice(list(self.left))
        before = self._there()
        answer = self.target(self.left[number])
        message = self.left[number].sequence
        self.copies[message] += message in self._there() - before
        if not isinstance(answer, Refusal):
            self.answers.append((number, answer.value))
        self.said = arrive(self.said, number, message, "stored" if TARGET in self.target.state.lanes else "refused")

    def settle(self) -> None:
        if self.answers:
            number, sequence = self.random.choice(self.answers)
            self.source(op.MoveSettle(SOURCE, TARGET, [number], [sequence]))
            self.said = settle(self.said, number, "stored" if sequence else "refused")

    def forget(self) -> None:
        """Up to what the source has settled, as anybody knew it at any time."""
        low = self.random.choice(self.settled[-20:])
        self.target(op.Forget(SOURCE, TARGET, low))
        if (SOURCE, TARGET) in self.target.state.arrivals:
            self.said = forget(self.said, low)

    def consume(self) -> None:
        popped = self.target(op.Pop(TARGET, 1, 1000, True))
        if not isinstance(popped, Refusal):
            for taken in popped.taken:
                self.consumed.add(taken.origin.sequence)
                self.said = consume(self.said, taken.origin.sequence)

    def reload(self) -> None:
        self.random.choice((self.source, self.target)).reload()

    def drop(self) -> None:
        """What lies there goes with the queue; for the specification somebody had it."""
        if TARGET in self.target.state.lanes:
            self.consumed |= self._there()
            self.target(op.Drop(TARGET))
            self.said = self.said._replace(there=frozenset())
