"""Logs recorded from the real core, in the words of spec/Replay.tla: what went in, entry by entry, and what was answered.

`Recorder` is told what `State.apply` was given and answered. What the specification does not speak of (names, taps, trims, rules of a
queue) becomes a tick: time passes and nothing else may change. Durations that say DEFAULT are resolved by the queue's rules; instants count
from the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from dovetail.core import operation as op
from dovetail.core.column import Column
from dovetail.core.operation import DEFAULT, Applied, Attributes, Handout, Head, Popped, Pushed, PushedAll, Refusal, Settled, Why
from dovetail.core.state import State
from tests.core.generator import PRODUCERS, Generator
from tests.core.world import Entry, reloaded
from tests.spec import replay
from tests.spec.replay import NOBODY, NONE, Record

SETTLING = {op.Complete: "complete", op.Requeue: "requeue", op.Extend: "extend", op.Release: "release"}
BY_SEQUENCE = {op.Reclaim: "reclaim", op.Cancel: "cancel", op.Reschedule: "reschedule"}
COUNTED = (op.Purge, op.Carry, op.Skip, op.Withdraw)
"""Their Done says how many."""


class Recorder:
    """What `State.apply` was given and answered, as steps [entry, outcomes, handouts, live] of the specification."""

    def __init__(self) -> None:
        self.steps: list[Record] = []
        self._rules: dict[int, Attributes] = {}
        self._origin: int | None = None

    def note(
        self,
        state: State,
        after: int,
        head: Head,
        operations: Sequence[Any],
        addresses: Sequence[int],
        log_stamp: int | None,
        made: Applied,
    ) -> None:
        """`state` is the one after it."""
        if self._origin is None:
            # TLC counts to 2^31: instants count from the first.
            self._origin = min(head.stamp, log_stamp or head.stamp) - 1
        for operation in operations:
            if isinstance(operation, op.Create | op.Configure):
                self._rules.setdefault(operation.queue, operation.attributes)
        entry = {
            "after": after,
            "stamp": head.stamp - self._origin,
            "log": NONE if log_stamp is None else max(log_stamp - self._origin, 0),
            "writer": _name(head.writer),
            "number": head.number,
            "applied": head.applied,
            "ops": tuple(self._operation(o, address, head.writer) for o, address in zip(operations, addresses, strict=True)),
        }
        self.steps.append(
            {
                "entry": entry,
                "outcomes": tuple(_outcome(o, outcome) for o, outcome in zip(operations, made.outcomes, strict=True)),
                "handouts": tuple(_handout(h) for h in sorted(made.handouts, key=lambda h: h.popped.queue)),
                "live": frozenset((queue, _live(state, queue)) for queue in state.lanes),
            }
        )

    def _operation(self, o: Any, address: int, writer: bytes) -> Record:
        match o:
            case op.Open() if writer:
                return {"kind": "open", "writer": _name(o.writer), "before": _name(o.before)}
            case op.Create(queue):
                return {"kind": "create", "queue": queue}
            case op.Push():
                return self._push(o, address)
            case op.Pop():
                return {
                    "kind": "pop",
                    "queue": o.queue,
                    "most": o.max,
                    "lease": self._lease(o.queue, o.lease_ms),
                    "delete": o.delete,
                    "wait": o.wait_ms,
                    "once": o.once,
                    "address": address,
                }
            case op.Withdraw():
                return {"kind": "withdraw", "queue": o.queue, "waiters": frozenset(o.waiters)}
            case op.CompletePush():
                return {"kind": "completepush", "complete": self._settle(o.complete, "complete"), "push": self._push(o.push, address)}
            case op.ProducerOpen():
                return {"kind": "producer", "producer": _name(o.producer)}
            case op.Skip():
                return {"kind": "skip", "producer": _name(o.producer), "epoch": o.epoch, "number": o.number}
            case op.Purge():
                return {"kind": "purge", "queue": o.queue}
            case op.Carry():
                return {"kind": "carry", "queue": o.queue, "sequence": o.sequence, "from": o.address, "body": 0, "address": address}
            case op.Retime():
                return {"kind": "retime", "time": max(o.time - (self._origin or 0), 0)}
        kind = SETTLING.get(type(o)) or BY_SEQUENCE.get(type(o))
        return self._settle(o, kind) if kind is not None else {"kind": "tick"}

    def _settle(self, o: Any, kind: str) -> Record:
        amount = getattr(o, "after_ms", 0)
        if kind == "extend":
            amount = self._lease(o.queue, o.lease_ms)
        deliveries = tuple(getattr(o, "deliveries", ()))
        return {"kind": kind, "queue": o.queue, "sequences": tuple(o.sequences), "deliveries": deliveries, "amount": max(amount, 0)}

    def _lease(self, queue: int, lease_ms: int) -> int:
        rules = self._rules.get(queue, Attributes())
        lease = rules.lease_ms if lease_ms == DEFAULT else lease_ms
        return min(lease, rules.lease_max_ms) if rules.lease_max_ms else lease

    def _push(self, o: op.Push, address: int) -> Record:
        count = len(o.bodies)
        delays = [DEFAULT] * count if o.delays is None else list(o.delays) * count if len(o.delays) == 1 else list(o.delays)
        default = self._rules.get(o.queues[0], Attributes()).delay_ms
        made = {
            "kind": "push",
            "queues": tuple(o.queues),
            "items": tuple({"body": 0, "delay": default if delay == DEFAULT else delay} for delay in delays),
            "address": address,
            "producer": NOBODY,
        }
        if o.numbered is not None:
            made.update(producer=_name(o.numbered.producer), epoch=o.numbered.epoch, number=o.numbered.number)
        return made


def _name(identity: bytes) -> str:
    return identity.hex()


def _taken(popped: Popped) -> tuple[Any, ...]:
    return tuple((t.sequence + i, t.delivery and t.delivery + i, t.receives[i], t.address) for t in popped.taken for i in range(t.length))


def _handout(handout: Handout) -> Record:
    taken = _taken(handout.popped)
    return {"writer": _name(handout.writer), "waiter": handout.waiter, "queue": handout.popped.queue, "taken": taken}


def _outcome(o: Any, outcome: Any) -> Record:
    match outcome:
        case Refusal(why) if why is Why.NOT_OPEN or isinstance(o, _SPOKEN_OF):
            return replay.refused()
        case Pushed() | PushedAll():
            lanes = outcome.lanes if isinstance(outcome, PushedAll) else (outcome,)
            joined = [{"queue": p.queue, "sequences": tuple(p.sequences), "again": frozenset(i + 1 for i in p.repeats)} for p in lanes]
            return {"what": "pushed", "value": tuple(joined)}
        case Popped():
            return {"what": "waiting" if outcome.waiting else "popped", "value": _taken(outcome)}
        case Settled(done):
            return {"what": "settled", "value": tuple(done)}
        case op.Opened(epoch, last) if isinstance(o, op.ProducerOpen):
            return {"what": "opened", "value": (epoch, last)}
    return replay.done(outcome.value if isinstance(o, COUNTED) else o.queue if isinstance(o, op.Create) else 0)


_SPOKEN_OF = (op.Open, op.Create, op.Push, op.Pop, op.CompletePush, op.ProducerOpen, *SETTLING, *BY_SEQUENCE, *COUNTED)


def _live(state: State, queue: int) -> tuple[Any, ...]:
    return tuple((chunk.base + at, chunk.delivery(at), chunk.received(at)) for chunk, at in state.lanes[queue].walk())


class Plain(Generator):
    """Random entries of what the specification speaks of, in times that TLC can count."""

    def __init__(self, seed: int, shared: bool = False, silence: bool = False, renew: bool = False, leaving: bool = False) -> None:
        super().__init__(seed, shared=shared, grouped=False, silence=silence, renew=renew, leaving=leaving)
        self.now = 1_000_000

    def rules(self) -> Attributes:
        return Attributes(lease_ms=self.random.choice((1, 50, 1000, 30_000)))

    def step(self) -> Entry:
        if self.silence or not self.shared:
            self.now += self.random.choice((0, 0, 0, 1, 5, 50, 999, 1000, 3000, self.random.choice((1, 31_000, 4_000_000))))
        else:
            self.now += self.random.choice((0, 0, 1, 9, 40))
        count = 1 if self.random.random() < 0.7 else self.random.randrange(2, 5)
        return self.entry(tuple(self.operation() for _ in range(count)))

    def push(self) -> op.Push:
        r = self.random
        made = super().push()
        count = min(len(made.bodies), 5)
        delays = [r.choice((0, 0, 1, 10, 999, 5000)) for _ in range(count)]
        return op.Push(made.queues, Column.of([b"x"] * count), delays if r.random() < 0.5 else None, numbered=made.numbered)

    def pop(self) -> op.Pop:
        return super().pop()._replace(attempt=b"")

    def operation(self) -> Any:
        made = super().operation()
        return op.Tick() if isinstance(made, op.Move) else made

    def rare(self, number: int) -> Any:
        r = self.random
        producer = r.choice(PRODUCERS)
        state = self.world.oracle.producers.get(producer)
        used = len(state.results) if state else 0
        messages = self.known(number).messages
        sequence, address = (r.choice(messages).sequence, r.choice(messages).place[0]) if messages else (1, 16)
        choices: list[Any] = [
            lambda: op.Purge(number),
            lambda: op.ProducerOpen(producer),
            lambda: op.Skip(producer, state.epoch if state else 1, used + r.choice((0, 1, 1, 2))),
            lambda: op.Carry(number, sequence, address, op.Push((number,), Column.of([b"x"]))),
            lambda: op.Retime(max(self.now + r.choice((-5, 0, 20)), 0)),
            lambda: op.Create(number, self.rules()),
        ]
        return r.choice(choices)()


def of_generator(generator: Generator, steps: int) -> list[Record]:
    """A random log, put through the real core."""
    generator.run(steps)
    return through_the_core(generator.entries)


def through_the_core(entries: Sequence[Entry]) -> list[Record]:
    recorder, state, position = Recorder(), State(), 0
    for entry in entries:
        addresses = [position + 16 * (index + 1) for index in range(len(entry.operations))]
        position += 16 * (len(entry.operations) + 1)
        state = reloaded(state) if entry.reload else state
        made = state.apply(position, entry.head, entry.operations, addresses, entry.log_stamp)
        recorder.note(state, position, entry.head, entry.operations, addresses, entry.log_stamp, made)
    return recorder.steps


def disagreement(steps: Sequence[Record]) -> str | None:
    """Where the log stops being a behaviour of replay.apply, and how."""
    s = replay.new_state()
    for at, step in enumerate(steps):
        r = replay.apply(s, step["entry"])
        s = r["state"]
        summary = frozenset(
            (q, tuple((n, m["delivery"], m["receives"]) for n, m in sorted(lane["live"].items()))) for q, lane in s["lanes"].items()
        )
        wanted = (step["outcomes"], step["handouts"], step["live"])
        # The order within a lane is a promise; which lane serves first is none.
        said = (r["outcomes"], tuple(sorted(r["handouts"], key=lambda handout: handout["queue"])), summary)
        if said != wanted:
            return f"step {at} {step['entry']}\n  replay  : {said}\n  recorded: {wanted}"
    return None


# The same for TLC


def tla(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case Mapping():
            return "[" + ", ".join(f"{key} |-> {tla(one)}" for key, one in value.items()) + "]"
        case tuple() | list():
            return "<<" + ", ".join(map(tla, value)) + ">>"
        case frozenset() | set():
            return "{" + ", ".join(map(tla, value)) + "}"
    raise TypeError(type(value))


def module(runs: Sequence[Sequence[Record]]) -> str:
    """The module `Recorded` that spec/Trace.tla reads."""
    written = ",\n".join("<<\n" + ",\n".join(map(tla, steps)) + "\n>>" for steps in runs)
    return f"---- MODULE Recorded ----\nEXTENDS Integers\nRuns == <<\n{written}\n>>\n====\n"


# Damage


def tampered(steps: Sequence[Record], how: str, random: Random) -> list[Record] | None:
    """A log in which one answer is a lie; None where it holds nothing to lie about."""
    places = list(range(len(steps)))
    random.shuffle(places)
    completed: dict[tuple[int, int], int] = {}
    for at, step in enumerate(steps):
        for o, outcome in zip(step["entry"]["ops"], step["outcomes"], strict=True):
            if o["kind"] == "complete" and outcome["what"] == "settled":
                for n, done in zip(o["sequences"], outcome["value"], strict=True):
                    if done:
                        completed[o["queue"], n] = at
    for at in places:
        step = steps[at]
        for i, (o, outcome) in enumerate(zip(step["entry"]["ops"], step["outcomes"], strict=True)):
            lie = None
            if how == "a completed message is delivered again" and outcome["what"] == "popped" and outcome["value"]:
                again = [n for (queue, n), when in completed.items() if queue == o["queue"] and when < at]
                if again:
                    _, *rest = outcome["value"][0]
                    lie = {**outcome, "value": ((again[0], *rest), *outcome["value"][1:])}
            if how == "a receipt of an old delivery is accepted" and o["kind"] == "complete" and outcome["what"] == "settled":
                stale = [j for j, done in enumerate(outcome["value"]) if not done]
                if stale:
                    lie = {**outcome, "value": tuple(done or j == stale[0] for j, done in enumerate(outcome["value"]))}
            if lie is not None:
                lies = (*step["outcomes"][:i], lie, *step["outcomes"][i + 1 :])
                return [*steps[:at], {**step, "outcomes": lies}, *steps[at + 1 :]]
    return None
