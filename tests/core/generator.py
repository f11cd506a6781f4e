"""Random entries from a seed: small numbers of queues, messages and moments, so that rare meetings are common.

It looks at the oracle to name receipts that are alive (and some that are not); what it makes is plain entries.
"""

from __future__ import annotations

from random import Random
from typing import Any

from dovetail.core import operation as op
from dovetail.core.column import Column
from dovetail.core.operation import DEFAULT, Attributes, Complete, Head, Numbered, Push
from dovetail.core.versions import APPLY_VERSION
from tests.core.oracle_facts import Message, Queue
from tests.core.world import Entry, World

PRODUCERS = (b"p" * 16, b"P" * 16)
STAGES = (b"1" * 16, b"2" * 16, b"3" * 16)
DAY = 86_400_000


class Generator:
    """`shared` makes entries of several writers, with waiters; `grouped` gives queues groups; `beyond` adds stages and reservations;
    `renew` lets writers give up and open anew, and their old entries and Opens arrive late; `leaving` lets receivers take
    once and withdraw; `apart` makes the log one of two, with queues 1 and 3: 2 and 4 lie in the other."""

    def __init__(
        self,
        seed: int,
        shared: bool = False,
        grouped: bool = True,
        silence: bool = False,
        beyond: bool = False,
        renew: bool = False,
        leaving: bool = False,
        apart: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.renew, self.leaving = renew, leaving
        self.writers = [b"a" * 16, b"b" * 16, b"c" * 16]
        self.opened: list[Entry] = []
        self.shared, self.grouped, self.silence, self.beyond, self.apart = shared, grouped, silence, beyond, apart
        self.world = World()
        self.entries: list[Entry] = []
        self.now = self.random.choice((1, 1_000_000, 1_700_000_000_000))
        self.receipts: list[tuple[int, int, int]] = []
        self.numbers: dict[bytes, int] = {}
        self.heads: list[Entry] = []

    def rules(self) -> Attributes:
        r = self.random
        return Attributes(
            lease_ms=r.choice((1, 50, 1000, 30_000)),
            delay_ms=r.choice((0, 0, 0, 7, 2000)),
            receives_max=r.choice((0, 0, 1, 2)),
            dead_letter=r.choice((0, 1, 2, 3, 9)),
            dedup_ms=1000,
            grouped=self.grouped,
            in_flight_max=r.choice((0, 0, 0, 3)),
            backoff_ms=r.choice((0, 10)),
            backoff_max_ms=r.choice((0, 25)),
        )

    def begin(self) -> list[Entry]:
        made = []
        if self.shared:
            made += [Entry(Head(self.now, writer), (op.Open(writer, APPLY_VERSION),)) for writer in self.writers]
            self.numbers = dict.fromkeys(self.writers, 0)
        operations: list[Any] = [op.Divide(2, 0)] if self.apart else []
        for number in range(1, 4):
            operations += [op.Register("n", str(number)), op.Create(number, self.rules())]
        operations += [op.ProducerOpen(producer) for producer in PRODUCERS]
        return [*made, self.entry(tuple(operations))]

    def reopened(self) -> Entry:
        """A writer opens in the place of another, which may not know of it; or an Open that was appended before comes again."""
        r = self.random
        if self.opened and r.random() < 0.4:
            return r.choice(self.opened)
        at = r.randrange(len(self.writers))
        before = self.writers[at]
        if r.random() < 0.8:
            self.writers[at] = bytes((len(self.opened) % 256,)) * 16
            self.numbers[self.writers[at]] = 0
        applied = max(self.world.position - r.choice((0, 0, 60, 200)), 0)
        made = Entry(Head(self.now, self.writers[at], 0, applied), (op.Open(self.writers[at], APPLY_VERSION, before),))
        self.opened.append(made)
        return made

    def entry(self, operations: tuple[Any, ...]) -> Entry:
        r = self.random
        reload = r.random() < 0.03
        log_stamp = max(self.now + r.choice((-5, 0, 3)), 1) if r.random() < 0.1 else None
        if not self.shared:
            return Entry(Head(max(self.now, 1)), operations, log_stamp, reload)
        if self.renew and r.random() < 0.06:
            return self.reopened()
        if self.heads and r.random() < 0.05:
            return r.choice(self.heads)._replace(log_stamp=None)
        writer = r.choice(self.writers)
        number = self.numbers[writer] = self.numbers[writer] + 1
        applied = max(self.world.position - r.choice((0, 0, 60, 200)), 0)
        made = Entry(Head(self.now, writer, number, applied), operations, log_stamp, reload)
        self.heads = [*self.heads[-5:], made]
        if r.random() < 0.03:
            made = made._replace(head=made.head._replace(number=number + 5))
            self.numbers[writer] -= 1
        return made

    def step(self) -> Entry:
        r = self.random
        if self.shared and not self.silence:
            self.now += r.choice((0, 0, 1, 9, 40))
        else:
            self.now += r.choice((0, 0, 0, 1, 1, 5, 9, 50, 999, 1000, 3000, r.choice((1, 31_000, 400_000, DAY, 60 * DAY))))
        count = 1 if r.random() < 0.7 else r.randrange(2, 5)
        return self.entry(tuple(self.operation() for _ in range(count)))

    def run(self, steps: int) -> None:
        for entry in self.begin():
            self.put(entry)
        for _ in range(steps):
            self.put(self.step())

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        outcomes = self.world.apply(entry)
        for outcome in outcomes:
            if isinstance(outcome, op.Popped):
                self.receipts += [(outcome.queue, t.sequence + i, t.delivery + i) for t in outcome.taken for i in range(t.length)]
        del self.receipts[:-40]
        self.world.compare()

    # Operations

    def queue(self) -> int:
        return self.random.choice((1, 1, 1, 2, 2, 3, 3, 7) if self.random.random() < 0.1 else (1, 1, 2, 3))

    def known(self, number: int) -> Queue:
        return self.world.oracle.queues.get(number) or Queue(number, Attributes())

    def sequences(self, queue: Queue) -> list[int]:
        r = self.random
        pool = [m.sequence for m in queue.messages[:8]] + [max(queue.next - 1, 1), queue.next, 0]
        return [r.choice(pool) for _ in range(r.choice((1, 1, 2, 3)))]

    def named(self, queue: Queue) -> tuple[list[int], list[int]]:
        """Receipts: mostly of live deliveries, sometimes of old ones."""
        r = self.random
        live: list[Message] = [m for m in queue.messages if m.delivery]
        if live and r.random() < 0.8:
            at = r.randrange(len(live))
            chosen = live[at : at + r.choice((1, 1, 2, 5))]
            return [m.sequence for m in chosen], [m.delivery for m in chosen]
        old = [x for x in self.receipts if x[0] == queue.number] or [(queue.number, 1, 1)]
        chosen_old = [r.choice(old) for _ in range(r.choice((1, 2)))]
        return [x[1] for x in chosen_old], [x[2] for x in chosen_old]

    def push(self) -> Push:
        r = self.random
        count = r.choice((1, 1, 1, 2, 3, 5)) if r.random() < 0.995 else r.choice((300, 1023, 1024, 1025))
        queues = (self.queue(),) if r.random() < 0.85 else tuple(r.sample((1, 2, 3), 2))
        delays = [r.choice((0, 0, 1, 10, 999, 1024, 5000, 2 * DAY, 60 * DAY, DEFAULT)) for _ in range(count)]
        numbered = None
        if r.random() < 0.2:
            producer = r.choice(PRODUCERS)
            state = self.world.oracle.producers.get(producer)
            epoch, last = (state.epoch, len(state.results)) if state else (1, 0)
            numbered = Numbered(producer, max(epoch + r.choice((0, 0, 0, 0, -1)), 0), max(last + r.choice((1, 1, 1, 0, -1, -70, 2)), 0))
        return Push(
            queues,
            Column.of([b"x"] * count),
            None if r.random() < 0.6 else delays if r.random() < 0.5 else delays[:1],
            Column.of([r.choice((b"A", b"A", b"B", b"C", b"")) for _ in range(count)]) if r.random() < 0.8 else None,
            b"".join(bytes([r.choice((0, 1, 2, 3))]) * 16 for _ in range(count)) if r.random() < 0.2 else None,
            numbered=numbered,
        )

    def pop(self) -> op.Pop:
        r = self.random
        queue = self.queue()
        lease = r.choice((DEFAULT, DEFAULT, 0, 1, 20, 1000, 1024, 200_000))
        wait = r.choice((0, 5, 500)) if self.shared else 0
        attempt = r.choice((b"", b"", b"", b"t1", b"t2"))
        if wait or attempt:
            lease = max(lease, 1) if lease != DEFAULT else lease
        # A waiter with an attempt and count left would be served twice; which of the two a repeat gets is no promise.
        most = 1 if wait and attempt else r.choice((1, 1, 2, 3, 10, 40))
        return op.Pop(queue, most, lease, not wait and not attempt and r.random() < 0.15, wait, attempt, bool(wait) and self.once())

    def once(self) -> bool:
        """Without a draw where nobody asks for it: seeds that are tests stay what they were."""
        return self.leaving and self.random.random() < 0.5

    def operation(self) -> Any:
        r = self.random
        number = self.queue()
        queue = self.known(number)
        if self.beyond and r.random() < 0.3:
            return self.staging() if r.random() < 0.4 else self.reserving(number)
        if self.leaving and r.random() < 0.1:
            known = [w.address for w in queue.waiters[:8]]
            return op.Withdraw(number, r.sample(known, r.randrange(1, len(known) + 1)) if known else [16])
        if self.apart and r.random() < 0.35:
            return self.crossing(number)
        kind = r.random()
        if kind < 0.25:
            return self.push()
        if kind < 0.50:
            return self.pop()
        receipts = self.named(queue)
        sequences = self.sequences(queue)
        choices: list[Any] = [
            lambda: Complete(number, *receipts),
            lambda: Complete(number, *receipts),
            lambda: Complete(number, *receipts),
            lambda: op.Requeue(number, *receipts, r.choice((DEFAULT, 0, 1, 30, 5000))),
            lambda: op.Extend(number, *receipts, r.choice((DEFAULT, 0, 1, 30, 2000))),
            lambda: op.Release(number, *receipts),
            lambda: op.Reclaim(number, sequences),
            lambda: op.Cancel(number, sequences),
            lambda: op.Reschedule(number, sequences, r.choice((0, 3, 1500, 3 * DAY))),
            lambda: op.CompletePush(Complete(number, *receipts), self.push()),
            lambda: op.Move(number, r.choice((0, self.queue())), r.choice((1, 3, 100))),
            lambda: op.Tick(),
            lambda: self.rare(number),
        ]
        return r.choice(choices)()

    def crossing(self, number: int) -> Any:
        r = self.random
        here, there = r.choice((1, 3)), r.choice((2, 2, 2, 4, number))
        going = [n for target, n in self.known(here).under_way if target == there]
        pool = [*going, *going, *range(1, self.known(here).numbers.get(there, 0) + 2)]
        told = [r.choice(pool) for _ in range(r.choice((1, 1, 2)))]
        judged = self.world.oracle.judged.get((there, here), {})
        came = max(max(judged, default=0) + r.choice((1, 1, 2, 0, -1, -3)), 1)
        name = r.choice((b"A", b"B", b"C", b""))
        push = Push((r.choice((here, here, 7)),), Column.of([b"x"]), groups=Column.of([name]) if name else None)
        choices: list[Any] = [
            lambda: op.Leave(here, there, r.choice((1, 3, 100)), r.random() < 0.3),
            lambda: op.Arrive(there, came, there, r.randrange(1, 9), max(self.now - 5, 1), push),
            lambda: op.Arrive(there, came, there, r.randrange(1, 9), max(self.now - 5, 1), push),
            lambda: op.MoveSettle(here, there, told, [r.choice((0, 1, 5, 5)) for _ in told]),
            lambda: op.MoveSettle(here, there, told, [5 for _ in told]),
            lambda: op.Forget(there, here, max(came - r.choice((0, 1, 2, 5)), 0)),
            lambda: op.Divide(r.choice((1, 2, 2, 3)), r.choice((0, 1))),
        ]
        return r.choice(choices)()

    def staging(self) -> Any:
        r = self.random
        open_stages = self.world.oracle.stages
        stage, owner = r.choice(STAGES), r.choice(PRODUCERS)
        last = self.world.oracle.owners.get(owner, -1)
        pool = [*open_stages, *open_stages, stage]
        named = [r.choice(pool) for _ in range(r.choice((0, 1, 1, 2, 3)))]
        known = open_stages.get(stage)
        address, push = r.choice(known[1]) if known is not None else (16, self.push())
        choices: list[Any] = [
            lambda: op.Stage(stage, self.push()._replace(numbered=None)),
            lambda: op.Stage(stage, self.push()._replace(numbered=None), self._place(known)),
            lambda: op.Stage(stage, push._replace(numbered=None), self._place(known)),
            lambda: op.Publish(r.choice((named, list(dict.fromkeys(named)))), owner, max(last + r.choice((1, 1, 1, 1, 5, 0, -1)), 0)),
            lambda: op.Publish(list(open_stages), owner, last + 1),
            lambda: op.StageCarry(stage, address + r.choice((0, 0, 16)), push._replace(numbered=None)),
            lambda: self.rare_staging(named),
        ]
        return r.choice(choices)()

    def _place(self, known: Any) -> int:
        """A number in a stage: mostly the next one or one that was used, now and then one too far."""
        has = len(known[1]) if known is not None else 0
        return self.random.choice((has + 1, has + 1, has, 1, has + 2))

    def rare_staging(self, named: list[bytes]) -> Any:
        return op.Unstage(named) if self.random.random() < 0.7 else op.StageExpire(max(self.now - self.random.choice((0, 60, DAY)), 0))

    def reserving(self, number: int) -> Any:
        r = self.random
        name = r.choice(("r", "r", "s"))
        known = self.known(number).reservations.get(name)
        if known is None or r.random() < 0.05:
            return op.ReserveOpen(number, name)
        epoch, last = max(known.epoch + r.choice((0,) * 12 + (-1,)), 0), max(known.given, default=-1)
        settled = r.choice([*known.batches] or [last]) + r.choice((0, 0, 0, 0, -1, 1))
        batch = r.choice((last + 1, last + 1, last + 1, last + 1, last, last - 1, last + 3, settled))
        choices: list[Any] = [
            lambda: op.Reserve(number, name, epoch, max(batch, 0), r.choice((1, 1, 2, 3, 10, 1030))),
            lambda: op.Reserve(number, name, epoch, max(batch, 0), r.choice((1, 1, 2, 3, 10, 1030))),
            lambda: op.Reserve(number, name, epoch, max(batch, 0), r.choice((1, 1, 2, 3, 10, 1030))),
            lambda: op.ReserveSettle(number, name, epoch, max(settled, 0)),
            lambda: op.ReserveSettle(number, name, epoch, max(settled, 0)),
            lambda: op.ReserveRelease(number, name),
            lambda: op.ReserveClose(number, name) if r.random() < 0.3 else op.Purge(number) if r.random() < 0.3 else op.Tick(),
        ]
        return r.choice(choices)()

    def rare(self, number: int) -> Any:
        r = self.random
        queue = self.known(number)
        name = r.choice(("t", "u"))
        producer = r.choice(PRODUCERS)
        state = self.world.oracle.producers.get(producer)
        sequence = r.randrange(0, queue.next + 2)
        message = r.choice(queue.messages) if queue.messages else Message(1, b"", (0, 0), 0, 0)
        choices: list[Any] = [
            lambda: op.Purge(number),
            lambda: op.Expire(number, max(self.now - r.choice((0, 1, 60, 2000, DAY)), 0)),
            lambda: op.Configure(number, self.rules()),
            lambda: op.TapOpen(number, name, r.choice((op.EARLIEST, op.LATEST, sequence)), 0, 0),
            lambda: op.TapAdvance(number, name, sequence),
            lambda: op.TapCut(number, name, sequence),
            lambda: op.TapClose(number, name),
            lambda: op.ProducerOpen(producer),
            lambda: op.Skip(producer, state.epoch if state else 1, (len(state.results) if state else 0) + r.choice((0, 1, 1, 2))),
            lambda: op.Carry(number, message.sequence, message.place[0] + r.choice((0, 0, 16)), Push((number,), Column.of([b"x"]))),
            lambda: op.Retime(max(self.now + r.choice((-5, 0, 20)), 0)),
            lambda: op.Drop(number) if r.random() < 0.2 else op.Tick(),
            lambda: op.Create(number, self.rules()),
        ]
        return r.choice(choices)()
