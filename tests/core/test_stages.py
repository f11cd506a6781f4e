"""SEMANTICS §7: stages. Nothing of a stage is seen before it is published; all of it is then, once for each batch of its owner."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.core import operation as op
from dovetail.core import pushing, staging
from dovetail.core.codec import Item, encode, push_in
from dovetail.core.column import Column
from dovetail.core.operation import Attributes, Done, Head, Joined, Published, Push, Refusal, Why
from dovetail.core.slices import slice_of
from dovetail.core.stages import Stages
from dovetail.core.state import State
from dovetail.limits import STAGES_OPEN_MAX
from tests.core.world import Disagreement, Entry, Local, reloaded

OWNER = b"o" * 16
DAY = 86_400_000


def visible(log: Local, queue: int = 1) -> int:
    return log.counts(queue)[0]


def test_a_stage_is_seen_by_nobody_before_it_is_published() -> None:
    log = Local(Attributes())
    log(op.TapOpen(1, "t", op.EARLIEST, 0, 0))
    assert log.stage(b"a", b"x", b"y") == Done(2)
    assert (log.counts(), log.pop(), len(log.state.lanes[1].taps.recent)) == ((0, 0, 0), [], 0)
    assert log.publish(b"a") == Published((Joined(1, 2, 0, 2),))
    assert (log.counts(), len(log.state.lanes[1].taps.recent)) == ((2, 0, 0), 1)
    assert [sequence for sequence, _ in log.pop()] == [1, 2]


def test_stages_join_in_the_order_in_which_they_are_named_and_records_in_theirs() -> None:
    log = Local(Attributes())
    addresses = {}
    for name, body in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
        addresses[body] = log.world.position + 16
        log.stage(name, body)
    log.publish(b"b", b"a")
    taken = log(op.Pop(1, 9)).taken
    assert [run.address for run in taken] == [addresses[b"2"], addresses[b"1"], addresses[b"3"]]


def numbered(number: int, *bodies: bytes, name: bytes = b"a") -> op.Stage:
    return op.Stage(name * 16, Push((1,), Column.of(bodies)), number)


def test_a_record_that_is_staged_again_under_its_number_is_there_once() -> None:
    """Its answer was lost, the connection was made again, and what had left before may arrive late."""
    log = Local(Attributes())
    first, second, third = numbered(1, b"a", b"b"), numbered(2, b"c"), numbered(3, b"d")
    for record, count in ((first, 2), (first, 2), (second, 1), (first, 2), (second, 1), (third, 1), (second, 1)):
        assert log(record) == Done(count)
    assert log.state.stages.bytes == 4
    assert log.publish(b"a") == Published((Joined(1, 4, 0, 4),))


def test_a_number_that_leaves_a_gap_is_refused_and_a_stage_that_ended_begins_with_one() -> None:
    log = Local(Attributes())
    assert log(numbered(2, b"x")) == Refusal(Why.STAGE_GAP, "1")
    assert log.state.stages.by_id == {}
    log(numbered(1, b"x"))
    assert log(numbered(3, b"z")) == Refusal(Why.STAGE_GAP, "2")
    log(op.Unstage([b"a" * 16]))
    assert log(numbered(2, b"y")) == Refusal(Why.STAGE_GAP, "1"), "half of what was meant must not be published"
    assert log(numbered(1, b"x")) == Done(1)


def test_two_writers_of_one_stage_are_found_out() -> None:
    log = Local(Attributes())
    log(numbered(1, b"one", b"two"))
    for other in (numbered(1, b"one"), numbered(1, b"one", b"three"), op.Stage(b"a" * 16, Push((2,), Column.of([b"one", b"two"])), 1)):
        assert log(other) == Refusal(Why.STAGE_DIFFERS)
    assert log.publish(b"a") == Published((Joined(1, 2, 0, 6),))


def test_without_the_numbers_what_is_staged_again_is_there_twice() -> None:
    log = Local(Attributes())
    for _ in range(2):
        log(numbered(0, b"x"))
    assert log.publish(b"a") == Published((Joined(1, 2, 0, 2),))


def test_a_batch_that_was_published_is_not_stored_again_and_says_so() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x")
    log.publish(b"a", batch=3)
    for batch in (3, 2, 0):
        log.stage(b"b", b"x")
        assert log.publish(b"b", b"unknown"[:1], batch=batch) == Published((), before=True)
        assert log.state.stages.by_id == {}, "what was staged for it once more is given up"
    assert visible(log) == 1
    log.stage(b"b", b"y")
    assert log.publish(b"b", batch=9) == Published((Joined(1, 1, 0, 1),))


def retried(log: Local) -> None:
    """A task writes a, b, c and dies; the next attempt sees its rows in another order, and only it is named when the batch commits. The
    answer is lost, so the driver tries the whole batch again."""
    log.stage(b"1", b"a", b"b")
    log.stage(b"2", b"c", b"a", b"b")
    log.publish(b"2", batch=7)
    log.stage(b"3", b"b", b"c", b"a")
    log.publish(b"3", batch=7)
    log(op.Unstage([b"1" * 16]))


def test_the_rows_of_a_retried_task_are_stored_once_in_whatever_order_they_came() -> None:
    log = Local(Attributes())
    retried(log)
    assert (visible(log), log.state.stages.by_id) == (3, {})


def test_without_the_last_batch_of_the_owner_the_rows_of_a_retried_task_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stages, "last", lambda self, owner: -1)
    log = Local(Attributes())
    with pytest.raises(Disagreement, match="Publish"):
        retried(log)
    assert log.state.lanes[1].counts(log.now) == (6, 0, 0)


def test_a_publish_that_names_an_unknown_stage_is_refused_whole() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x")
    for names in ((b"a", b"b"), (b"b", b"a"), (b"a", b"a")):
        assert log.publish(*names).why is Why.NO_STAGE
    assert (visible(log), log.state.stages.owners) == (0, {})
    assert log.publish(b"a") == Published((Joined(1, 1, 0, 1),)), "the stage is still there, and the batch was not used"


def test_a_publish_whose_queue_is_gone_is_refused_whole() -> None:
    log = Local(Attributes(), Attributes())
    log.stage(b"a", b"x")
    log.stage(b"b", b"y", queues=(1, 2))
    log(op.Drop(2))
    assert log.publish(b"a", b"b").why is Why.NO_QUEUE
    assert (visible(log), list(log.state.stages.by_id)) == (0, [b"a" * 16, b"b" * 16])
    assert log.publish(b"a") == Published((Joined(1, 1, 0, 1),))
    assert log.stage(b"c", b"z", queues=(2,)).why is Why.NO_QUEUE, "who stages for it hears of it at once"


def test_without_the_look_before_half_of_a_publish_would_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def whatever_there_is(state: State, o: op.Publish) -> list[Any]:
        return [record for name in o.stages if name in state.stages.by_id for record in state.stages.by_id[name].records]

    monkeypatch.setattr(staging, "records_of", whatever_there_is)
    log = Local(Attributes())
    log.stage(b"a", b"x")
    with pytest.raises(Disagreement):
        log.publish(b"a", b"b")
    assert log.state.lanes[1].counts(log.now) == (1, 0, 0)


def test_published_messages_take_part_in_everything_from_then_on() -> None:
    log = Local(Attributes(grouped=True, dedup_ms=1000), Attributes())
    keys = bytes([1]) * 16 + bytes([2]) * 16
    log.stage(b"a", b"x", b"y", dedups=keys, groups=[b"g", b"g"], delays=[0, 500])
    log.stage(b"b", b"z", dedups=keys[:16], groups=[b"g"])
    log.stage(b"c", b"n", queues=(2, 1), groups=[b"tenant"])
    assert log.publish(b"a", b"b", b"c", after=5000) == Published((Joined(1, 3, 1, 4), Joined(2, 1, 0, 1)))
    assert (log.counts(), log.counts(2)) == ((2, 1, 0), (1, 0, 0)), "delays and windows count from the publish"
    [first] = log.pop(1)
    assert log.pop(9) == [(3, 2)], "the group is blocked, another is not"
    log.complete(first)
    assert (log.pop(9), [sequence for sequence, _ in log.pop(9, after=500)]) == ([], [2])
    assert log.state.lanes[2].tenants is not None and b"tenant" in log.state.lanes[2].tenants.numbers
    assert set(log(Push((1,), Column.of([b"again"]), dedups=keys[:16])).repeats) == {0}


def test_unstaged_messages_are_gone() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x")
    assert log(op.Unstage([b"a" * 16, b"b" * 16])) == Done(1)
    assert log.publish(b"a").why is Why.NO_STAGE


def test_stages_expire_by_when_they_began() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x")
    began = log.now
    log.now += 10
    log.stage(b"b", b"y")
    log.stage(b"a", b"z")
    assert log(op.StageExpire(began), after=DAY) == Done(0)
    assert log(op.StageExpire(began + 1)) == Done(1)
    assert list(log.state.stages.by_id) == [b"b" * 16]


def test_a_staged_record_that_was_carried_is_published_from_where_it_lies_now() -> None:
    log = Local(Attributes())
    old = log.world.position + 16
    log.stage(b"a", b"x", b"y")
    again = op.StageCarry(b"a" * 16, old, Push((1,), Column.of([b"x", b"y"])))
    new = log.world.position + 16
    assert (log(again), log(again)) == (Done(1), Done(0))
    log.publish(b"a")
    assert [(run.address, run.item) for run in log(op.Pop(1, 9)).taken] == [(new, 0)]
    assert log(op.StageCarry(b"a" * 16, new, again.push)) == Done(0), "published, it is a message like others"


def test_a_message_is_read_out_of_the_record_that_staged_it() -> None:
    push = Push((1,), Column.of([b"one", b"two"]), groups=Column.of([b"", b"g"]), ids=bytes(32))
    for record in (encode(op.Stage(b"s" * 16, push)), encode(op.StageCarry(b"s" * 16, 5, push))):
        assert push_in(record) == encode(push)
        assert (Item(record, 1).body, Item(record, 1).group) == (b"two", b"g")
        part = slice_of(record, 1, 1)
        assert part.groups is not None and (bytes(part.bodies.blob), bytes(part.groups.blob)) == (b"two", b"g"), "in columns too"


def test_stages_and_owners_survive_a_snapshot() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x", b"y", delays=[5], groups=[b"", b"t"], dedups=bytes(range(32)))
    log.publish(batch=4)
    log.world.state = reloaded(log.state)
    log.world.compare()
    kept = log.state.stages.by_id[b"a" * 16].records[0].push
    assert (len(kept.bodies), list(kept.delays or ()), list(kept.groups or ()), kept.dedups) == (2, [5], [b"", b"t"], bytes(range(32)))
    assert log.publish(b"a", batch=4) == Published((), before=True)


def test_there_is_a_limit_of_open_stages() -> None:
    log = Local(Attributes())
    log.stage(b"a", b"x")
    known = log.state.stages.by_id
    known.update({number.to_bytes(16, "big"): known[b"a" * 16] for number in range(STAGES_OPEN_MAX - 1)})
    push = Push((1,), Column.of([b"x"]))
    state = log.state
    outcomes = state.apply(1 << 30, Head(log.now), [op.Stage(b"b" * 16, push), op.Stage(b"a" * 16, push)], [1, 2]).outcomes
    assert outcomes == [Refusal(Why.TOO_MANY_STAGES), Done(1)], "a stage that is open takes more"


@pytest.mark.parametrize(
    "operation",
    [
        op.Stage(b"s" * 16, Push((1,), Column.of([b"x"]))),
        op.StageCarry(b"s" * 16, 1, Push((1,), Column.of([b"x"]))),
        op.Publish([], OWNER, 1),
        op.Unstage([]),
        op.StageExpire(1),
        op.ReserveOpen(1, "r"),
        op.Reserve(1, "r", 1, 1, 1),
        op.ReserveSettle(1, "r", 1, 1),
        op.ReserveRelease(1, "r"),
        op.ReserveClose(1, "r"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_before_version_3_stages_and_reservations_are_refused(operation: Any) -> None:
    state = State()
    operations = [op.Begin(b"k" * 32), op.Open(b"w" * 16, 2), op.Create(1, Attributes()), operation, op.Open(b"w" * 16, 3), operation]
    outcomes = state.apply(100, Head(5), operations, [*range(1, 7)]).outcomes
    assert outcomes[3] == Refusal(Why.VERSION)
    assert outcomes[5] != Refusal(Why.VERSION)


def test_an_entry_with_a_publish_is_the_same_on_every_replica() -> None:
    """The operation goes through the codec on one side and is applied as it was made on the other."""
    first, second = Local(Attributes()), Local(Attributes())
    operations = (op.Stage(b"s" * 16, Push((1,), Column.of([b"x", b"y"]), [7])), op.Publish([b"s" * 16], OWNER, 0), op.Pop(1, 5))
    answers = [log.world.apply(Entry(Head(2_000_000), operations), codec=codec) for log, codec in ((first, True), (second, False))]
    assert answers[0] == answers[1] and pushing.names_count(first.state, first.state.lanes[1])
