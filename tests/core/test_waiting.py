"""SEMANTICS §1.4 and §6: writers of a shared log, and receivers that wait in its state."""

from __future__ import annotations

from typing import Any

from dovetail.core.column import Column
from dovetail.core.operation import Attributes, Complete, Create, Done, Head, Open, Pop, Push, Refusal, Retime, Tick, Why, Withdraw
from dovetail.core.state import State
from dovetail.core.versions import APPLY_VERSION, WAITING_VERSION
from tests.core.world import Entry, World, plain

A, B = b"a" * 16, b"b" * 16


class Shared:
    """A shared log with the writers A and B. Every call is one entry; `handed` is what it gave to waiters."""

    def __init__(self, *rules: Attributes) -> None:
        self.world = World()
        self.now = 1_000_000
        self.last = {A: 0, B: 0}
        self.handed: list[Any] = []
        for writer in (A, B):
            self.entry(Head(self.now, writer), Open(writer, APPLY_VERSION))
        self(A, *(Create(number, attributes) for number, attributes in enumerate(rules, 1)))

    def entry(self, head: Head, *operations: Any) -> Any:
        outcomes = self.world.apply(Entry(head, operations))
        self.world.compare()
        self.handed = [plain(h)[3][2] for h in self.world.oracle.handouts]
        return outcomes[0] if len(outcomes) == 1 else outcomes

    def __call__(self, writer: bytes, *operations: Any, after: int = 0, applied: int = 0) -> Any:
        self.now += after
        self.last[writer] += 1
        return self.entry(Head(self.now, writer, self.last[writer], applied), *operations)

    @property
    def given(self) -> list[list[int]]:
        """The sequences of each hand-out of the last entry."""
        return [[taken[0] for taken in popped] for popped in self.handed]


def push(*bodies: bytes, queue: int = 1, delay: int = 0) -> Push:
    return Push((queue,), Column.of(bodies), delays=[delay])


def test_an_entry_takes_effect_once_however_often_it_is_appended() -> None:
    log = Shared(Attributes())
    head = Head(log.now, B, 1)
    assert list(log.entry(head, push(b"x")).sequences) == [1]
    assert log.entry(head, push(b"x")) == Refusal(Why.NOT_OPEN)
    assert log.entry(Head(log.now, B, 3), push(b"x")) == Refusal(Why.NOT_OPEN)
    assert log.entry(Head(log.now, b"c" * 16, 1), push(b"x")) == Refusal(Why.NOT_OPEN)
    assert log.world.state.lanes[1].counts(log.now) == (1, 0, 0)


def test_a_writer_that_opens_twice_keeps_its_number() -> None:
    log = Shared(Attributes())
    log(B, push(b"x"))
    log.entry(Head(log.now, B), Open(B, APPLY_VERSION))
    assert log.entry(Head(log.now, B, 1), push(b"x")) == Refusal(Why.NOT_OPEN)


def test_a_push_serves_the_receiver_that_waits() -> None:
    log = Shared(Attributes())
    assert log(A, Pop(1, 1, wait_ms=1000)).waiting
    log(B, push(b"x"), after=10)
    assert log.given == [[1]]


def test_receivers_are_served_in_the_order_in_which_they_came() -> None:
    log = Shared(Attributes())
    for most in (1, 2):
        log(A, Pop(1, most, wait_ms=1000))
    log(B, push(b"x", b"y"))
    assert log.given == [[1], [2]]
    log(B, push(b"z"))
    assert log.given == [[3]]


def test_one_with_count_left_goes_to_the_end() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 5, wait_ms=1000))
    log(A, Pop(1, 5, wait_ms=1000))
    log(B, push(b"x"), push(b"y"), push(b"z"))
    assert log.given == [[1], [2], [3]]


def test_one_that_takes_once_leaves_with_its_first_hand_out() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 5, wait_ms=1000, once=True))
    log(B, push(b"x", b"y"), push(b"z"))
    assert log.given == [[1, 2]] and log.world.state.lanes[1].counts(log.now) == (1, 0, 2)


def test_before_its_version_taking_once_means_nothing_and_nobody_withdraws() -> None:
    state = State()
    state.version = WAITING_VERSION - 1
    operations = [
        (Open(A, WAITING_VERSION),),
        (Create(1, Attributes()),),
        (Pop(1, 5, wait_ms=1000, once=True),),
        (push(b"x"), push(b"y"), Withdraw(1, [3 << 16])),
    ]
    for number, said in enumerate(operations):
        applied = state.apply(number + 1 << 16, Head(1000, A, number), said, [number << 16] * len(said))
    assert [handout.popped.taken[0].sequence for handout in applied.handouts] == [1, 2]
    assert applied.outcomes[2] == Refusal(Why.VERSION) and len(state.lanes[1].waiters.line) == 1


def test_a_receiver_that_is_withdrawn_is_served_no_more_and_those_behind_it_are() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=1000))
    named = [log.world.position - 16]
    log(A, Pop(1, 2, wait_ms=1000))
    assert log(B, Withdraw(1, named)) == Done(0), "somebody else's"
    assert log(A, Withdraw(1, named)) == Done(1)
    assert log(A, Withdraw(1, named)) == Done(0)
    assert log(A, Withdraw(2, named)).why is Why.NO_QUEUE
    log(B, push(b"x", b"y"))
    assert log.given == [[1, 2]]


def test_no_later_pop_overtakes_those_that_wait() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=1000))
    pushed, popped = log(B, push(b"x", delay=5), Pop(1, 1))
    assert popped.taken == ()
    log(B, Tick(), after=5)
    assert log.given == [[1]]


def test_a_receiver_whose_time_is_over_stands_in_nobodys_way() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=10))
    log(B, push(b"x", delay=20))
    popped = log(B, Pop(1, 1), after=30)
    assert [taken.sequence for taken in popped.taken] == [1]


def test_a_receiver_whose_time_a_retime_ends_leaves() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=10))
    log(A, push(b"x", delay=20))
    log(B, Retime(log.now + 20))
    assert log.given == []


def test_the_lane_at_which_somebody_waits_longest_serves_first() -> None:
    """Queue 1 buries into queue 2. Whether the receiver of 2 gets the dead letter at once or one round later shows in what it is handed."""
    for first, second, given in ((1, 2, [[1, 2]]), (2, 1, [[1], [2]])):
        log = Shared(Attributes(lease_ms=10, receives_max=1, dead_letter=2), Attributes())
        log(A, push(b"x"))
        log(A, Pop(1, 1))
        for queue in (first, second):
            log(A, Pop(queue, 9, wait_ms=1000))
        log(B, push(b"y", queue=2, delay=10))
        log(B, Tick(), after=10)
        assert log.given == given


def test_a_complete_frees_its_group_for_the_receiver_that_waits() -> None:
    log = Shared(Attributes(grouped=True))
    log(A, Push((1,), Column.of([b"x", b"y"]), groups=Column.of([b"g", b"g"])))
    taken = log(A, Pop(1, 1)).taken[0]
    log(A, Pop(1, 1, wait_ms=1000))
    log(B, Complete(1, [taken.sequence], [taken.delivery]))
    assert log.given == [[2]]


def test_a_complete_makes_room_under_the_limit_for_the_receiver_that_waits() -> None:
    log = Shared(Attributes(in_flight_max=1))
    log(A, push(b"x", b"y"))
    taken = log(A, Pop(1, 1)).taken[0]
    assert log(A, Pop(1, 1, wait_ms=1000)).waiting
    log(B, Complete(1, [taken.sequence], [taken.delivery]))
    assert log.given == [[2]]


def test_the_same_attempt_replaces_its_waiter() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=1000, attempt=b"t"))
    log(A, Pop(1, 1, wait_ms=1000, attempt=b"t"))
    log(B, push(b"x", b"y"))
    assert log.given == [[1]]


def test_an_attempt_that_was_served_while_waiting_can_be_repeated() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=1000, attempt=b"t"))
    log(B, push(b"x", b"y"))
    assert log.given == [[1]]
    popped = log(A, Pop(1, 1, attempt=b"t"), after=100)
    assert [(taken.sequence, taken.delivery) for taken in popped.taken] == [(1, 1)]


def test_a_receive_and_delete_that_waited_is_handed_a_lease() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, delete=True, wait_ms=1000))
    log(B, push(b"x"))
    assert log.given == [[1]]
    assert log.world.state.lanes[1].counts(log.now) == (0, 0, 1)


def test_dead_letters_reach_the_receiver_that_waits_for_them() -> None:
    log = Shared(Attributes(lease_ms=10, receives_max=1, dead_letter=2), Attributes())
    log(A, push(b"x"))
    log(A, Pop(2, 1, wait_ms=1000))
    log(A, Pop(1, 1))
    log(A, Pop(1, 1, wait_ms=1000))
    log(B, Tick(), after=10)
    assert [popped[0][7] is not None for popped in log.handed] == [True]


def test_three_seconds_of_silence_undo_what_was_handed_out_unseen() -> None:
    log = Shared(Attributes(lease_ms=60_000))
    log(A, Pop(1, 1, wait_ms=60_000))
    log(B, push(b"x"))
    for _ in range(2):
        log(B, Tick(), after=1000)
    assert log.world.state.lanes[1].counts(log.now) == (0, 0, 1)
    log(B, Tick(), after=1000)
    assert log.world.state.lanes[1].counts(log.now) == (1, 0, 0)
    assert list(log(B, Pop(1, 1)).taken[0].receives) == [1]


def test_what_a_writer_has_named_as_seen_stays_with_it() -> None:
    log = Shared(Attributes(lease_ms=60_000))
    log(A, Pop(1, 1, wait_ms=60_000))
    log(B, push(b"x"))
    log(A, Tick(), applied=log.world.position)
    for _ in range(4):
        log(B, Tick(), after=1000)
    assert log.world.state.lanes[1].counts(log.now) == (0, 0, 1)


def test_a_long_step_counts_as_one_second_of_silence() -> None:
    log = Shared(Attributes(lease_ms=60_000))
    log(A, Pop(1, 1, wait_ms=600_000))
    for _ in range(2):
        log(B, Tick(), after=20_000)
    log(B, push(b"x"))
    assert log.given == [[1]]


def test_the_time_before_its_own_entry_is_no_silence() -> None:
    log = Shared(Attributes(lease_ms=60_000))
    log(B, Tick())
    log(A, Pop(1, 1, wait_ms=60_000), after=1000)
    for _ in range(2):
        log(B, Tick(), after=1000)
    log(B, push(b"x"))
    assert log.given == [[1]]


def test_what_lapsed_in_silence_keeps_its_receive_count() -> None:
    log = Shared(Attributes(lease_ms=10))
    log(A, Pop(1, 1, wait_ms=60_000))
    log(B, push(b"x"))
    for _ in range(3):
        log(B, Tick(), after=1000)
    assert list(log(B, Pop(1, 1)).taken[0].receives) == [2]


def test_the_waiters_of_a_silent_writer_leave() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=60_000))
    for _ in range(3):
        log(B, Tick(), after=1000)
    log(B, push(b"x"))
    assert log.given == []


def test_time_that_a_void_entry_passed_is_silence_too() -> None:
    log = Shared(Attributes())
    log(A, Pop(1, 1, wait_ms=60_000))
    for step in range(1, 4):
        log.entry(Head(log.now + 1000 * step, b"c" * 16, 1), Tick())
    log.now += 3000
    log(B, push(b"x"))
    assert log.given == []
