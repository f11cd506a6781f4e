"""Drives `State` and the oracle with the same entries and compares everything that both can be asked.

An entry here is plain data, so that a run that ends in a disagreement can be made smaller (`shrunk`) and pasted into a test. Operations go
through the codec before they are applied, and a *reload* puts the state through a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.core import operation as op
from dovetail.core import snapshot
from dovetail.core.codec import decode, decode_head, encode, encode_head
from dovetail.core.column import Column
from dovetail.core.operation import Attributes, Create, Handout, Head, Popped, Push, Pushed, PushedAll, Refusal, Register, Reserved, Settled
from dovetail.core.state import State
from tests.core.oracle import Oracle


class Entry(NamedTuple):
    head: Head
    operations: tuple[Any, ...]
    log_stamp: int | None = None
    reload: bool = False


class Disagreement(AssertionError):
    pass


def plain(outcome: Any) -> Any:
    """An outcome as values that compare: runs are unrolled, columns are lists, words for people are left out."""
    match outcome:
        case Refusal(why):
            return ("refused", why.name)
        case Pushed(queue, sequences, repeats):
            return ("pushed", queue, list(sequences), sorted(repeats))
        case PushedAll(lanes):
            return [plain(lane) for lane in lanes]
        case Settled(done):
            return ("settled", list(done))
        case Popped(queue, taken, until, waiting):
            given = [
                (t.sequence + i, t.delivery and t.delivery + i, t.address, t.item + i, t.receives[i], t.time, t.first_received, t.origin)
                for t in taken
                for i in range(t.length)
            ]
            return ("popped", queue, given, until if given else 0, waiting)
        case Reserved(queue, taken, again):
            return ("reserved", queue, again, plain(Popped(queue, taken, 0))[2])
        case Handout(writer, waiter, popped):
            return ("handout", writer, waiter, plain(popped))
        case _:
            return (type(outcome).__name__, *outcome)


def reloaded(state: State) -> State:
    return snapshot.load(memoryview(b"".join(snapshot.dump(state))))


class World:
    def __init__(self) -> None:
        self.state = State()
        self.oracle = Oracle()
        self.position = 0

    def apply(self, entry: Entry, codec: bool = True) -> list[Any]:
        """Both apply the entry; returns the outcomes on which they agree."""
        if entry.reload:
            self.state = reloaded(self.state)
        operations = [decode(encode(operation)) for operation in entry.operations] if codec else entry.operations
        head = decode_head(encode_head(entry.head)) if codec else entry.head
        addresses = [self.position + 16 * (index + 1) for index in range(len(operations))]
        self.position += 16 * (len(operations) + 1)
        wanted = self.oracle.apply(self.position, entry.head, entry.operations, addresses, entry.log_stamp)
        try:
            got = self.state.apply(self.position, head, operations, addresses, entry.log_stamp)
        except Exception as error:
            raise Disagreement(f"apply of {entry} raised {error!r}") from error
        if got.fate is not wanted.fate:
            raise Disagreement(f"the entry of {entry.head} is {got.fate.name}, says the state, and {wanted.fate.name}, says the oracle")
        for operation, is_, should in zip(entry.operations, got.outcomes, wanted.outcomes, strict=True):
            if plain(is_) != plain(should):
                raise Disagreement(f"at {self.state.time} {operation}\n  state : {plain(is_)}\n  oracle: {plain(should)}")
        # Which lane serves first is no promise; the order within a lane is.
        handed, wanted_handed = ([plain(h) for h in sorted(a.handouts, key=lambda h: h.popped.queue)] for a in (got, wanted))
        if handed != wanted_handed:
            raise Disagreement(f"at {self.state.time} hand-outs after {entry.operations}\n  state : {handed}\n  oracle: {wanted_handed}")
        return list(got.outcomes)

    def compare(self) -> None:
        """Everything that can be looked at without changing it."""
        now = self.oracle.time
        self._same("time", self.state.time, now)
        kept = {name: (stage.began, [one.address for one in stage.records]) for name, stage in self.state.stages.by_id.items()}
        wanted_stages = {name: (began, [address for address, _ in records]) for name, (began, records) in self.oracle.stages.items()}
        self._same("stages", kept, wanted_stages)
        staged = [body for _, records in self.oracle.stages.values() for _, push in records for body in push.bodies]
        self._same("bytes in stages", self.state.stages.bytes, sum(map(len, staged)))
        self._same("owners", self.state.stages.owners, self.oracle.owners)
        judged = {pair: (known.low, known.judged) for pair, known in self.state.arrivals.items()}
        lows = self.oracle.lows
        kept_of = {
            pair: (lows.get(pair, 0), {number: sequence for number, sequence in all_.items() if number > lows.get(pair, 0)})
            for pair, all_ in self.oracle.judged.items()
        }
        self._same("arrivals", judged, kept_of)
        self._same("queues", list(self.state.lanes), list(self.oracle.queues))
        for number, queue in self.oracle.queues.items():
            lane = self.state.lanes[number]
            later = sorted({m.visible_at for m in queue.messages if m.visible_at > now})
            for time in (now, *later[:2], *later[-1:]):
                self._same(f"counts of {number} at {time}", lane.counts(time), self.oracle.counts(number, time))
            self._same(f"reserved in {number}", lane.reserved, sum(m.reserved for m in queue.messages))
            going = {(target, n): one.sequence for target, left in lane.departures.items() for n, one in left.under_way.items()}
            self._same(f"on the way from {number}", going, {where: one.sequence for where, one in queue.under_way.items()})
            batches = {name: {n: len(batch) for n, batch in known.batches.items()} for name, known in lane.reservations.items()}
            given = {name: {n: len(batch) for n, batch in known.batches.items()} for name, known in queue.reservations.items()}
            self._same(f"batches of {number}", batches, given)
            self._same(f"live in {number}", [c.base + at for c, at in lane.walk()], [m.sequence for m in queue.messages])
            due = lane.next_visible_at(now)
            if self.oracle.available(queue):
                self._same(f"has_visible of {number}", lane.has_visible(now), True)
                self._same(f"next_visible_at of {number} is now ({due})", due is not None and due <= now, True)
            elif later:
                self._same(f"next_visible_at of {number} ({due}) by {later[0]}", due is not None and due <= later[0], True)
            self._same(
                f"waiters of {number}",
                [w.waiter for w in lane.waiters if w.until > now],
                [w.address for w in queue.waiters if w.until > now],
            )
            for name, tap in queue.taps.items():
                known = lane.taps.by_name[name]
                self._same(f"lost by {name}", (known.lost_first, known.lost_count) if known.lost_count else (0, 0), tap.lost)
                runs = [(r.first + i, r.address, r.item + i, r.time) for r in lane.taps.recent.since(tap.next) for i in range(r.length)]
                wanted = [(sequence, *queue.noted[sequence]) for sequence in sorted(queue.noted) if sequence >= tap.next]
                self._same(f"what {name} can read", [run for run in runs if run[0] >= tap.next], wanted)

    def _same(self, what: str, is_: Any, should: Any) -> None:
        if is_ != should:
            raise Disagreement(f"at {self.oracle.time} {what}\n  state : {is_}\n  oracle: {should}")


def disagreement(entries: Sequence[Entry]) -> str | None:
    world = World()
    try:
        for entry in entries:
            world.apply(entry)
            world.compare()
    except Disagreement as error:
        return str(error)
    return None


def shrunk(entries: list[Entry]) -> list[Entry]:
    """The same disagreement in fewer entries and operations, by leaving out whatever is not needed for it."""
    size = len(entries) // 2
    while size:
        at = 0
        while at < len(entries):
            less = entries[:at] + entries[at + size :]
            if disagreement(less):
                entries = less
            else:
                at += size
        size //= 2
    for at in range(len(entries)):
        for drop in range(len(entries[at].operations) - 1, -1, -1):
            operations = entries[at].operations[:drop] + entries[at].operations[drop + 1 :]
            less = [*entries[:at], entries[at]._replace(operations=operations), *entries[at + 1 :]]
            if operations and disagreement(less):
                entries = less
        less = [*entries[:at], entries[at]._replace(reload=False), *entries[at + 1 :]]
        if entries[at].reload and disagreement(less):
            entries = less
    return entries


class Local:
    """A log with one writer, for examples: operations in, outcomes out, judged by the oracle as well."""

    def __init__(self, *rules: Attributes, start: int = 1_000_000) -> None:
        self.world = World()
        self.now = start
        for number, attributes in enumerate(rules, 1):
            self(Register("", f"q{number}"), Create(number, attributes))

    @property
    def state(self) -> State:
        return self.world.state

    def __call__(self, *operations: Any, after: int = 0) -> Any:
        """One entry, `after` milliseconds later than the last; the outcome, or a list where there are several operations."""
        self.now += after
        outcomes = self.world.apply(Entry(Head(self.now), operations))
        self.world.compare()
        return outcomes[0] if len(outcomes) == 1 else outcomes

    def push(self, *bodies: bytes, queue: int = 1, **more: Any) -> list[int]:
        groups = more.pop("groups", None)
        column = Column.of(groups) if groups is not None else None
        return list(self(Push((queue,), Column.of(bodies), groups=column, **more)).sequences)

    def pop(self, most: int = 10, queue: int = 1, after: int = 0, **more: Any) -> list[tuple[int, int]]:
        """(sequence, delivery) of what was handed out."""
        popped = self(op.Pop(queue, most, **more), after=after)
        return [(t.sequence + i, t.delivery and t.delivery + i) for t in popped.taken for i in range(t.length)]

    def complete(self, *receipts: tuple[int, int], queue: int = 1, after: int = 0) -> list[bool]:
        return list(self(op.Complete(queue, [r[0] for r in receipts], [r[1] for r in receipts]), after=after).done)

    def stage(self, name: bytes, *bodies: bytes, queues: tuple[int, ...] = (1,), **more: Any) -> Any:
        groups = more.pop("groups", None)
        column = Column.of(groups) if groups is not None else None
        return self(op.Stage(name * 16, Push(queues, Column.of(bodies), groups=column, **more)))

    def publish(self, *names: bytes, batch: int = 0, after: int = 0) -> Any:
        return self(op.Publish([name * 16 for name in names], b"o" * 16, batch), after=after)

    def own(self, name: str = "r", queue: int = 1) -> int:
        """Open a reservation; its epoch."""
        return int(self(op.ReserveOpen(queue, name)).epoch)

    def reserve(self, epoch: int, batch: int, most: int = 10, queue: int = 1, after: int = 0, name: str = "r") -> list[int]:
        """The sequences of a batch."""
        return [t.sequence + i for t in self(op.Reserve(queue, name, epoch, batch, most), after=after).taken for i in range(t.length)]

    def counts(self, queue: int = 1) -> tuple[int, int, int]:
        return self.state.lanes[queue].counts(self.now)
