"""SEMANTICS §4, fair: in a queue without groups a name is a tenant, and a quiet tenant does not wait behind a noisy one."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from dovetail.core import fair
from dovetail.core import operation as op
from dovetail.core.column import Column
from dovetail.core.fair import Tenants
from dovetail.core.lane import Lane
from dovetail.core.operation import Attributes, Head, Pop, Push
from dovetail.core.state import State
from dovetail.core.usage import Usage
from tests.core import oracle_fair
from tests.core.generator import Generator
from tests.core.test_agreement import agree
from tests.core.world import Disagreement, Local, reloaded

MINUTE = 60_000
LONG = Attributes(lease_ms=60 * MINUTE)


def sequences(taken: list[tuple[int, int]]) -> list[int]:
    return [sequence for sequence, _ in taken]


def send(log: Local, name: bytes, count: int, queue: int = 1) -> list[int]:
    return log.push(*[b"x"] * count, groups=[name] * count, queue=queue)


def with_a_noisy_tenant(waiting: int = 40) -> Local:
    """`noisy` has 30 in flight, which is everything, and is noisy as soon as it is looked at; 31 to 30 + waiting are visible."""
    log = Local(LONG)
    send(log, b"noisy", 30 + waiting)
    assert sequences(log.pop(30)) == [*range(1, 31)]
    return log


class Raw:
    """A state alone, without the oracle, for numbers that the oracle would think about for hours."""

    def __init__(self) -> None:
        self.state, self.position = State(), 0
        self(op.Create(1, LONG))

    def __call__(self, operation: Any) -> Any:
        self.position += 64
        return self.state.apply(self.position, Head(1_000_000), (operation,), (self.position - 32,)).outcomes[0]

    def send(self, name: bytes, count: int) -> None:
        self(Push((1,), Column.of([b"x"] * count), groups=Column.of([name] * count)))

    def pop(self, most: int) -> list[int]:
        return [run.sequence + offset for run in self(Pop(1, most)).taken for offset in range(run.length)]


# Order


def test_a_quiet_tenant_overtakes_a_noisy_one() -> None:
    log = with_a_noisy_tenant()
    send(log, b"quiet", 2)
    assert sequences(log.pop(4)) == [71, 72, 31, 32]


def test_with_29_in_flight_nobody_is_noisy() -> None:
    log = Local(LONG)
    send(log, b"busy", 40)
    send(log, b"other", 1)
    log.pop(29)
    assert sequences(log.pop(1)) == [30]
    assert sequences(log.pop(1)) == [41]


def test_with_a_tenth_of_what_is_in_flight_nobody_is_noisy() -> None:
    log = Local(LONG)
    log.push(*[b"x"] * 270)
    log.pop(270)
    send(log, b"busy", 40)
    send(log, b"other", 1)
    assert sequences(log.pop(30)) == [*range(271, 301)]
    assert sequences(log.pop(1)) == [301], "30 of 300 are not more than a tenth"
    assert sequences(log.pop(1)) == [311], "31 of 301 are"


def test_messages_without_a_name_are_their_own_tenants_and_never_noisy() -> None:
    log = Local(LONG)
    log.push(*[b"x"] * 200)
    send(log, b"named", 1)
    assert sequences(log.pop(150)) == [*range(1, 151)]
    assert sequences(log.pop(100)) == [*range(151, 202)]


def test_noisy_tenants_that_are_alone_get_everything() -> None:
    log = with_a_noisy_tenant(200)
    assert sequences(log.pop(500)) == [*range(31, 231)]
    assert log.pop(10) == []


def test_one_large_pop_is_as_fair_as_many_small_ones() -> None:
    log = Local(LONG)
    send(log, b"noisy", 90)
    send(log, b"quiet", 5)
    assert sequences(log.pop(60)) == [*range(1, 31), *range(91, 96), *range(31, 56)]


def _judged_once(self: Tenants, lane: Lane, chunk: Any, at: int) -> bool:
    return False


def test_without_the_judgement_of_every_message_a_large_pop_is_not_fair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tenants, "refuses", _judged_once)
    with pytest.raises(Disagreement):
        test_one_large_pop_is_as_fair_as_many_small_ones()


def test_among_noisy_tenants_the_one_with_the_fewest_in_flight_is_next() -> None:
    log = Local(LONG)
    for name, count in ((b"a", 60), (b"b", 60)):
        send(log, name, count)
    taken = log.pop(60)
    # a took 30 and turned noisy, then b took 30; from there on they take turns, the lower message first.
    assert sequences(taken) == [*range(1, 31), *range(61, 91)]
    assert sequences(log.pop(4)) == [31, 91, 32, 92]
    log.complete(*[receipt for receipt in taken if receipt[0] > 87])
    assert sequences(log.pop(4)) == [93, 94, 95, 33], "b has three fewer in flight"


def test_what_a_noisy_tenant_gives_back_waits_with_the_rest_of_it() -> None:
    log = with_a_noisy_tenant()
    [receipt] = log.pop(1)
    assert receipt[0] == 31
    log(op.Requeue(1, [31], [receipt[1]]))
    send(log, b"quiet", 1)
    assert sequences(log.pop(3)) == [71, 31, 32]


def test_a_noisy_tenants_delayed_messages_wait_with_the_rest_of_it() -> None:
    log = with_a_noisy_tenant()
    log(Push((1,), Column.of([b"x"]), [5], Column.of([b"noisy"])))
    log.push(b"x", groups=[b"quiet"])
    assert sequences(log.pop(2, after=10)) == [72, 31]
    assert sequences(log.pop(40)) == [*range(32, 72)]


def test_what_is_cancelled_moved_or_rescheduled_leaves_the_line_of_its_tenant() -> None:
    log = Local(LONG, Attributes())
    send(log, b"noisy", 36)
    log.pop(30)
    log(op.Cancel(1, [31, 33]))
    log(op.Reschedule(1, [32], 5))
    log(op.Move(1, 2, 1))
    assert sequences(log.pop(9)) == [35, 36]
    assert sequences(log.pop(9, after=5)) == [32]
    assert sequences(log.pop(9, queue=2)) == [1]


def test_receive_and_delete_is_fair_too() -> None:
    log = with_a_noisy_tenant()
    send(log, b"quiet", 1)
    assert sequences(log.pop(2, delete=True)) == [71, 31]


def test_a_dead_letter_keeps_its_tenant() -> None:
    log = Local(Attributes(lease_ms=10, receives_max=1, dead_letter=2), LONG)
    send(log, b"noisy", 40)
    log.pop(40)
    assert log.pop(40, after=10) == [], "they are dead letters now"
    send(log, b"quiet", 1, queue=2)
    assert sequences(log.pop(31, queue=2)) == [*range(1, 31), 41]


# Turning quiet


def test_a_tenant_is_quiet_again_when_its_backlog_is_gone() -> None:
    log = with_a_noisy_tenant(1)
    assert sequences(log.pop(1)) == [31]
    log(op.Purge(1))
    send(log, b"noisy", 1)
    send(log, b"quiet", 1)
    assert sequences(log.pop(2)) == [32, 33]


def test_a_tenant_is_quiet_again_when_its_last_message_is_completed_and_its_time_is_forgotten() -> None:
    log = with_a_noisy_tenant(1)
    log.complete(*log.pop(1))
    log.complete(*[(sequence, sequence) for sequence in range(1, 31)])
    log.now += 5 * MINUTE
    send(log, b"noisy", 1)
    send(log, b"quiet", 1)
    assert sequences(log.pop(2)) == [32, 33]


def test_a_tenant_is_quiet_again_after_five_minutes_without_a_push_if_it_holds_no_more_than_it_may() -> None:
    log = Local(Attributes(lease_ms=1000))
    send(log, b"noisy", 40)
    assert len(log.pop(31)) == 31
    send(log, b"quiet", 40)
    assert sequences(log.pop(1, after=5 * MINUTE - 20_000)) == [41], "not yet"
    assert sequences(log.pop(1, after=30_000)) == [1]


def test_a_tenant_that_still_holds_most_stays_noisy_however_long_it_is_silent() -> None:
    log = with_a_noisy_tenant()
    log.pop(1)
    send(log, b"quiet", 1)
    assert sequences(log.pop(2, after=20 * MINUTE)) == [71, 32]


# Processing time


def one_by_one(log: Local, count: int, each_ms: int) -> None:
    for _ in range(count):
        taken = log.pop(1)
        log.complete(*taken, after=each_ms)


def test_a_tenant_that_used_most_of_the_processing_time_is_noisy_with_one_in_flight() -> None:
    log = Local(LONG)
    send(log, b"slow", 40)
    send(log, b"quick", 3)
    one_by_one(log, 30, 100)
    assert sequences(log.pop(2)) == [41, 42]


def test_a_tenant_that_was_served_less_than_30_times_is_not_noisy_for_its_time() -> None:
    log = Local(LONG)
    send(log, b"slow", 40)
    send(log, b"quick", 1)
    one_by_one(log, 29, 5000)
    assert sequences(log.pop(1)) == [30]


def test_processing_time_is_forgotten_with_its_window() -> None:
    log = Local(LONG)
    send(log, b"slow", 35)
    one_by_one(log, 30, 10)
    send(log, b"quick", 1)
    assert sequences(log.pop(1, after=5 * MINUTE)) == [31]


def _unbooked(self: Usage, row: int, count: int, time: int) -> None:
    self.in_flight[row] -= count


def test_without_the_sums_of_time_the_oracle_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Usage, "end", _unbooked)
    with pytest.raises(Disagreement):
        test_a_tenant_that_used_most_of_the_processing_time_is_noisy_with_one_in_flight()


# What it costs


def test_a_lane_that_never_sees_a_name_has_nothing_of_this() -> None:
    log = Local(LONG)
    log.push(b"a", b"b", groups=[b"", b""])
    lane = log.state.lanes[1]
    assert (lane.tenants, lane.tail.groups, lane.tail.nexts) == (None, None, None)


def test_no_pop_walks_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Raw()
    for _ in range(100):
        log.send(b"noisy", 1000)
    log.pop(30)
    changed = []
    for name in ("make_ready", "hold"):
        original = getattr(Lane, name)

        def counted(self: Lane, chunk: Any, at: int, original: Any = original) -> None:
            changed.append(at)
            original(self, chunk, at)

        monkeypatch.setattr(Lane, name, counted)
    log.send(b"quiet", 1)
    assert log.pop(1) == [100_001]
    assert log.pop(2) == [31, 32]
    assert len(changed) < 10


def test_a_waiting_message_with_a_name_takes_at_most_48_bytes() -> None:
    log = Raw()
    names = Column.of([b"tenant-%d" % (index % 7) for index in range(1000)])
    push = Push((1,), Column.of([b"x"] * 1000), groups=names)
    log(push)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            log(push)
        each = (tracemalloc.get_traced_memory()[0] - before) / 20_000
    finally:
        tracemalloc.stop()
    assert each <= 48


def test_names_of_tenants_with_nothing_alive_and_nothing_in_the_window_are_forgotten() -> None:
    log = Local(LONG)
    for index in range(5):
        send(log, b"tenant-%d" % index, 1)
        log.complete(*log.pop(1))
    assert len(log.state.lanes[1].tenants.numbers) == 5
    log.now += 5 * MINUTE
    send(log, b"new", 1)
    tenants = log.state.lanes[1].tenants
    assert (list(tenants.numbers), len(tenants.names), len(tenants.free)) == ([b"new"], 6, 4)


def test_what_is_rescheduled_again_and_again_takes_no_more_room() -> None:
    log = Local(LONG)
    send(log, b"a", 3)
    for _ in range(300):
        log(op.Reschedule(1, [3], 0))
    assert len(log.state.lanes[1].tenants.returned[1]) < 100
    assert sequences(log.pop(5)) == [1, 2, 3]


# Snapshots and versions


def test_a_snapshot_in_the_middle_of_a_spell_changes_nothing() -> None:
    log = with_a_noisy_tenant()
    log.pop(1)
    log(op.Reschedule(1, [35], 0))
    send(log, b"quiet", 1)
    log.world.state = reloaded(log.state)
    assert sequences(log.pop(5)) == [71, 32, 33, 34, 35]


def test_before_version_2_a_name_in_a_queue_without_groups_means_nothing() -> None:
    log = Raw()
    log(op.Begin(b"k" * 32))
    assert log.state.version == 1
    log.send(b"noisy", 40)
    log.send(b"quiet", 1)
    assert log.pop(41) == [*range(1, 42)]
    assert log.state.lanes[1].tenants is None
    log(op.Open(b"w" * 16, 2))
    log.send(b"noisy", 40)
    log.send(b"quiet", 1)
    assert (log.state.version, log.pop(32)[-2:]) == (2, [82, 72]), "41 of no tenant are in flight, and 30 of noisy are more than a tenth"


def test_a_log_that_went_on_to_a_later_version_is_refused_by_an_older_node() -> None:
    log = Raw()
    log(op.Open(b"w" * 16, 3))
    assert log(op.Open(b"v" * 16, 2)) == op.Refusal(op.Why.VERSION)


# Agreement


@pytest.fixture
def low_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in flight are enough to be noisy, so that a short story has many spells."""
    monkeypatch.setattr(fair, "NOISY_MIN", 2)
    monkeypatch.setattr(oracle_fair, "FLOOR", 2)


@pytest.mark.parametrize("seed", range(100, 116))
def test_a_fair_queue_answers_as_the_oracle_does(seed: int, low_floor: None) -> None:
    agree(Generator(seed, grouped=False))


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_fair_queue_on_a_shared_log_answers_as_the_oracle_does(seed: int, low_floor: None) -> None:
    agree(Generator(seed, shared=True, grouped=False))


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_fair_queue_with_reservations_answers_as_the_oracle_does(seed: int, low_floor: None) -> None:
    agree(Generator(seed, shared=bool(seed % 2), grouped=False, beyond=True))


def test_these_stories_have_noisy_tenants_in_them(low_floor: None) -> None:
    generator = Generator(100, grouped=False)
    generator.run(110)
    assert any(lane.tenants is not None and lane.tenants.noisy for lane in generator.world.state.lanes.values())


def _forgetful(self: Tenants, lane: Lane) -> None:
    """Who is noisy stays so."""


def test_without_the_end_of_a_spell_the_oracle_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tenants, "begin_pop", _forgetful)
    with pytest.raises(Disagreement):
        test_a_tenant_is_quiet_again_after_five_minutes_without_a_push_if_it_holds_no_more_than_it_may()
